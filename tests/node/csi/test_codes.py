import pytest
from grpc import StatusCode

from provisioner.model.errors import NodeError, Outcome, Reason
from provisioner.node.csi.server import CODES, code_of

S, R = StatusCode, Reason
# Kubernetes 1.36 pkg/volume/csi/csi_client.go, isFinalError.
MAY_BE_MOUNTED = {
    StatusCode.CANCELLED,
    StatusCode.DEADLINE_EXCEEDED,
    StatusCode.UNAVAILABLE,
    StatusCode.RESOURCE_EXHAUSTED,
    StatusCode.ABORTED,
}

REASONS = list(Reason)
OF_THE_NODE = REASONS[REASONS.index(R.DEVICE_NOT_FOUND) : REASONS.index(R.PROGRAM_MISSING) + 1]

BAD_INPUTS = [
    ("a malformed id, path or file system", R.INVALID_REQUEST, S.INVALID_ARGUMENT),
    ("a volume that cannot be one of ours", R.VOLUME_NOT_FOUND, S.NOT_FOUND),
    ("no device", R.DEVICE_NOT_FOUND, S.NOT_FOUND),
    ("a wrong serial", R.WRONG_DEVICE, S.FAILED_PRECONDITION),
    ("a device in use", R.DEVICE_BUSY, S.FAILED_PRECONDITION),
    ("a read-only device", R.DEVICE_READ_ONLY, S.FAILED_PRECONDITION),
    ("data on the device", R.NOT_BLANK, S.FAILED_PRECONDITION),
    ("another file system on it", R.FILE_SYSTEM_MISMATCH, S.FAILED_PRECONDITION),
    ("a damaged one", R.FILE_SYSTEM_DAMAGED, S.FAILED_PRECONDITION),
    ("a full target", R.TARGET_FULL, S.RESOURCE_EXHAUSTED),
    ("a busy target", R.TARGET_BUSY, S.FAILED_PRECONDITION),
    ("a volume that is not staged", R.VOLUME_NOT_STAGED, S.FAILED_PRECONDITION),
    ("an mkfs that fails", R.FORMAT_FAILED, S.INTERNAL),
    ("a mount that fails", R.MOUNT_FAILED, S.INTERNAL),
    ("a file system that cannot be grown", R.GROW_FAILED, S.FAILED_PRECONDITION),
    ("an mkfs or a mount that hangs, asked for again", R.OPERATION_RUNNING, S.ABORTED),
    ("a program that is not there", R.PROGRAM_MISSING, S.INTERNAL),
    ("no metadata", R.METADATA_UNAVAILABLE, S.UNAVAILABLE),
]
"""What can be wrong with a stage or a publish that has mounted nothing."""


@pytest.mark.parametrize(
    ("what", "reason", "code"), BAD_INPUTS, ids=[each[0] for each in BAD_INPUTS]
)
@pytest.mark.parametrize("method", ["NodeStageVolume", "NodePublishVolume"])
def test_each_bad_input_has_a_clear_code(method: str, what: str, reason: Reason, code: StatusCode):
    assert code_of(NodeError(reason, what), method) is code


@pytest.mark.parametrize("reason", OF_THE_NODE)
def test_every_reason_of_the_node_has_a_code_of_its_own_choice(reason: Reason):
    assert reason in CODES
    assert reason in {each for _, each, _ in BAD_INPUTS}


def test_another_operation_that_runs_may_have_mounted():
    for reason in (Reason.OPERATION_RUNNING, Reason.METADATA_UNAVAILABLE):
        assert code_of(NodeError(reason, "x"), "NodeStageVolume") in MAY_BE_MOUNTED


def test_what_is_refused_before_a_mount_is_final():
    for reason in (Reason.NOT_BLANK, Reason.WRONG_DEVICE, Reason.DEVICE_NOT_FOUND):
        assert code_of(NodeError(reason, "x"), "NodeStageVolume") not in MAY_BE_MOUNTED


@pytest.mark.parametrize("reason", OF_THE_NODE)
def test_no_failure_that_leaves_something_mounted_is_final(reason: Reason):
    error = NodeError(reason, "x", outcome=Outcome.UNKNOWN)

    assert code_of(error, "NodeStageVolume") in MAY_BE_MOUNTED
    assert code_of(error, "NodePublishVolume") in MAY_BE_MOUNTED
    assert code_of(error, "NodeExpandVolume") is code_of(NodeError(reason, "x"), "NodeExpandVolume")


def test_after_an_error_that_nobody_has_thought_of_a_mount_is_possible():
    bug = KeyError("x")

    assert code_of(bug, "NodeStageVolume") in MAY_BE_MOUNTED
    assert code_of(bug, "NodePublishVolume") in MAY_BE_MOUNTED
    assert code_of(bug, "NodeUnstageVolume") is StatusCode.INTERNAL


def test_what_is_not_mounted_is_not_found_where_it_is_measured_or_grown():
    error = NodeError(Reason.VOLUME_NOT_STAGED, "x")

    assert code_of(error, "NodeGetVolumeStats") is StatusCode.NOT_FOUND
    assert code_of(error, "NodeExpandVolume") is StatusCode.NOT_FOUND
    assert code_of(error, "NodePublishVolume") is StatusCode.FAILED_PRECONDITION


@pytest.mark.parametrize("reason", [R.DEVICE_NOT_FOUND, R.WRONG_DEVICE, R.FILE_SYSTEM_DAMAGED])
def test_what_another_try_may_mend_ends_no_growing_for_good(reason: Reason):
    """Kubelet never asks again after NotFound, and not on this node after FailedPrecondition."""
    error = NodeError(reason, "x")

    assert code_of(error, "NodeExpandVolume") is StatusCode.UNAVAILABLE
    assert code_of(error, "NodeGetVolumeStats") is CODES[reason]


def test_a_reason_of_another_part_is_internal():
    assert code_of(NodeError(Reason.QUOTA_EXCEEDED, "x"), "NodeGetInfo") is StatusCode.INTERNAL
