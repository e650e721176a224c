"""Which gRPC code the kubelet gets for which reason.

Kubelet 1.36 takes Canceled, DeadlineExceeded, Unavailable, ResourceExhausted and Aborted as "it may
be mounted, or be under way", and cleans up before the volume may go; after all others it takes
nothing to be mounted, and the volume may be detached. So only a failure that leaves nothing mounted
behind may have one of the others: ``node/left_mounted.py`` looks, and says so by the outcome.

Source: Kubernetes 1.36 pkg/volume/csi/csi_client.go ``isFinalError``; CSI 1.x, error schemes of the
calls.
"""

from collections.abc import Mapping

from grpc import StatusCode

from provisioner.model.errors import Outcome, Reason, StorageError

R = Reason

CODES: Mapping[Reason, StatusCode] = {
    R.INVALID_REQUEST: StatusCode.INVALID_ARGUMENT,
    R.VOLUME_NOT_FOUND: StatusCode.NOT_FOUND,
    R.DEVICE_NOT_FOUND: StatusCode.NOT_FOUND,
    R.WRONG_DEVICE: StatusCode.FAILED_PRECONDITION,
    R.DEVICE_BUSY: StatusCode.FAILED_PRECONDITION,
    R.DEVICE_READ_ONLY: StatusCode.FAILED_PRECONDITION,
    R.NOT_BLANK: StatusCode.FAILED_PRECONDITION,
    R.FILE_SYSTEM_MISMATCH: StatusCode.FAILED_PRECONDITION,
    R.FILE_SYSTEM_DAMAGED: StatusCode.FAILED_PRECONDITION,
    R.VOLUME_NOT_STAGED: StatusCode.FAILED_PRECONDITION,
    R.TARGET_BUSY: StatusCode.FAILED_PRECONDITION,
    R.GROW_FAILED: StatusCode.FAILED_PRECONDITION,
    R.PROGRAM_MISSING: StatusCode.INTERNAL,
    R.FORMAT_FAILED: StatusCode.INTERNAL,
    R.MOUNT_FAILED: StatusCode.INTERNAL,
    R.TARGET_FULL: StatusCode.RESOURCE_EXHAUSTED,
    R.OPERATION_RUNNING: StatusCode.ABORTED,
    R.METADATA_UNAVAILABLE: StatusCode.UNAVAILABLE,
    R.NOT_SUPPORTED: StatusCode.FAILED_PRECONDITION,
    # What the API server is asked for.
    R.UNREACHABLE: StatusCode.UNAVAILABLE,
    R.TIMED_OUT: StatusCode.DEADLINE_EXCEEDED,
    R.REPLY_LOST: StatusCode.UNAVAILABLE,
    R.THROTTLED: StatusCode.UNAVAILABLE,
}
"""All others are Internal: no call of ours should end with them."""


_MAY_BE_MOUNTED = frozenset(
    {
        StatusCode.CANCELLED,
        StatusCode.DEADLINE_EXCEEDED,
        StatusCode.UNAVAILABLE,
        StatusCode.RESOURCE_EXHAUSTED,
        StatusCode.ABORTED,
    }
)
_MOUNTING = frozenset({"NodeStageVolume", "NodePublishVolume"})
_OF_MOUNTED = frozenset({"NodeExpandVolume", "NodeGetVolumeStats"})
_PASSING = frozenset({R.DEVICE_NOT_FOUND, R.WRONG_DEVICE, R.FILE_SYSTEM_DAMAGED})


def code_of(error: Exception, method: str) -> StatusCode:
    """The code for a failure.

    Args:
        error: what has failed.
        method: the call, such as "NodeStageVolume". Of one about a volume that should be mounted,
            CSI asks for NotFound if it is not. Kubelet 1.36 (pkg/volume/csi/expander.go) takes
            NotFound and InvalidArgument of a grow to mean that the volume can never grow so, and
            FailedPrecondition that it cannot while in use, which alone lets pods mount it all the
            same (pkg/volume/util/operationexecutor/node_expander.go): so that is what a file system
            gets that cannot grow. Neither is said of what may succeed at the next try, nor of a
            file system with errors, which no further pod is to use. After an error that nobody has
            thought of, it is not known whether a call that mounts has done so.
    """
    if not isinstance(error, StorageError):
        return StatusCode.UNAVAILABLE if method in _MOUNTING else StatusCode.INTERNAL
    if method in _OF_MOUNTED and error.reason is R.VOLUME_NOT_STAGED:
        return StatusCode.NOT_FOUND
    passes = error.reason in _PASSING or error.retry_after_s is not None
    if method == "NodeExpandVolume" and passes:
        return StatusCode.UNAVAILABLE
    code = CODES.get(error.reason, StatusCode.INTERNAL)
    if method in _MOUNTING and error.outcome is Outcome.UNKNOWN and code not in _MAY_BE_MOUNTED:
        return StatusCode.UNAVAILABLE
    return code
