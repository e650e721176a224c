"""How a gRPC call is answered, logged and counted, and with which code it fails.

A call whose deadline passes, or whose caller is gone, is cancelled as asyncio cancels: its work
ends, or leaves a program that runs to its end (``node/runtime/operations.py``).

After Canceled, DeadlineExceeded, Unavailable, ResourceExhausted and Aborted, kubelet 1.36 assumes
that the volume may be mounted, and cleans up before it lets the volume be detached. After all other
codes it assumes that nothing is mounted. So a failure may have one of those only if it leaves
nothing mounted: ``still_mounted.StillMounted`` checks that, and sets the outcome.

Source: Kubernetes 1.36 pkg/volume/csi/csi_client.go ``isFinalError``; CSI 1.x, error schemes of the
calls.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import grpc
import structlog
from google.protobuf.message import Message
from grpc import StatusCode
from grpc.aio import ServicerContext

from provisioner.model.errors import Outcome, Reason, StorageError
from provisioner.node.metrics.counters import NodeMetrics

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
    # Failures of requests to the API server.
    R.UNREACHABLE: StatusCode.UNAVAILABLE,
    R.TIMED_OUT: StatusCode.DEADLINE_EXCEEDED,
    R.REPLY_LOST: StatusCode.UNAVAILABLE,
    R.THROTTLED: StatusCode.UNAVAILABLE,
}
"""All others are Internal: no call of ours should fail with them."""


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
_TRANSIENT = frozenset({R.DEVICE_NOT_FOUND, R.WRONG_DEVICE, R.FILE_SYSTEM_DAMAGED})
log = structlog.get_logger(__name__)

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)

# Called every few seconds, and of no interest if they succeed.
_ROUTINE = frozenset(
    {"GetPluginInfo", "GetPluginCapabilities", "Probe"}
    | {"NodeGetCapabilities", "NodeGetVolumeStats", "GetInfo"}
)
# A gRPC trailer takes 8 KiB, in which a character of ASCII has up to 3 bytes, others up to 12.
_MOST_CHARACTERS = 2500
_MOST_IF_NOT_ASCII = 600


def code_of(error: Exception, method: str) -> StatusCode:
    """The code for a failure.

    Args:
        error: the failure.
        method: the call, such as "NodeStageVolume".

    For a call about a mounted volume, CSI wants NotFound if it is not mounted. For
    NodeExpandVolume, kubelet 1.36 (pkg/volume/csi/expander.go) takes NotFound and InvalidArgument
    to mean that the volume can never be expanded, and FailedPrecondition that it cannot while in
    use. Only the latter lets pods mount it nevertheless
    (pkg/volume/util/operationexecutor/node_expander.go), so a file system that cannot grow gets
    that code. Failures that a retry may fix get neither, nor does a file system with errors, which
    no further pod should use. After an unexpected error a call that mounts may have mounted.
    """
    if not isinstance(error, StorageError):
        return StatusCode.UNAVAILABLE if method in _MOUNTING else StatusCode.INTERNAL
    if method in _OF_MOUNTED and error.reason is R.VOLUME_NOT_STAGED:
        return StatusCode.NOT_FOUND
    is_transient = error.reason in _TRANSIENT or error.retry_after_s is not None
    if method == "NodeExpandVolume" and is_transient:
        return StatusCode.UNAVAILABLE
    code = CODES.get(error.reason, StatusCode.INTERNAL)
    if method in _MOUNTING and error.outcome is Outcome.UNKNOWN and code not in _MAY_BE_MOUNTED:
        return StatusCode.UNAVAILABLE
    return code


@dataclass(frozen=True, slots=True)
class Rpc(Generic[Q, A]):
    """One method of a service.

    Attributes:
        name: as in the ``.proto``.
        asks: the type of the request.
        answer: does the work, given the request and the seconds until the caller's deadline (None
            for none). For a StorageError the caller gets the code of its reason, and a message that
            begins with the reason's name: the kubelet shows it in events.
    """

    name: str
    asks: type[Q]
    answer: Callable[[Q, float | None], Awaitable[A]]


def untimed(answer: Callable[[Q], Awaitable[A]]) -> Callable[[Q, float | None], Awaitable[A]]:
    """For a method that does not use the deadline."""
    return lambda request, _: answer(request)


def service(
    name: str, rpcs: Sequence[Rpc[Any, Any]], metrics: NodeMetrics
) -> grpc.GenericRpcHandler:
    """The handler of a service; its name as in the ``.proto``, with the package."""
    return grpc.method_handlers_generic_handler(
        name,
        {
            rpc.name: grpc.unary_unary_rpc_method_handler(
                _answering(rpc, metrics),
                request_deserializer=rpc.asks.FromString,
                response_serializer=_bytes_of,
            )
            for rpc in rpcs
        },
    )


def _bytes_of(message: Message) -> bytes:
    return message.SerializeToString()


def _answering(
    rpc: Rpc[Q, A], metrics: NodeMetrics
) -> Callable[[Q, ServicerContext[Q, A]], Awaitable[A]]:
    async def answer(request: Q, context: ServicerContext[Q, A]) -> A:
        began = time.monotonic()
        ended = _Ended(rpc.name, getattr(request, "volume_id", ""), began, metrics)
        try:
            reply = await rpc.answer(request, context.time_remaining())
        except StorageError as error:
            code = code_of(error, rpc.name)
            ended.failed(code, error.message, reason=error.reason.value)
            await context.abort(code, _clipped(f"{error.reason}: {error.message}"))
        except asyncio.CancelledError:
            # None without a deadline, despite its annotation.
            left_s: float | None = context.time_remaining()
            late = left_s is not None and left_s <= 0
            ended.failed(
                grpc.StatusCode.DEADLINE_EXCEEDED if late else grpc.StatusCode.CANCELLED,
                "the caller has stopped waiting, or this process is ending",
            )
            raise
        except Exception as error:
            code = code_of(error, rpc.name)
            log.exception("unexpected error", method=rpc.name)
            ended.failed(code, repr(error))
            what = _clipped(f"unexpected error in {rpc.name}: {error!r}")
            await context.abort(code, f"{what}; see the log of the node plugin")
        ended.well()
        return reply

    return answer


def _clipped(text: str) -> str:
    return text[: _MOST_CHARACTERS if text.isascii() else _MOST_IF_NOT_ASCII]


@dataclass(frozen=True, slots=True)
class _Ended:
    """Records the end of a call in the log and in the metrics."""

    method: str
    volume_id: str
    began_s: float
    metrics: NodeMetrics

    def well(self) -> None:
        """It succeeded."""
        write = log.debug if self.method in _ROUTINE else log.info
        write("answered", **self._facts(grpc.StatusCode.OK))

    def failed(self, code: grpc.StatusCode, error: str, **more: str) -> None:
        """It failed."""
        log.warning("not answered", **self._facts(code), error=error, **more)

    def _facts(self, code: grpc.StatusCode) -> dict[str, object]:
        lasted_s = time.monotonic() - self.began_s
        self.metrics.rpcs.labels(method=self.method, code=code.name).inc()
        self.metrics.rpc_seconds.labels(method=self.method).observe(lasted_s)
        facts: dict[str, object] = {"method": self.method, "code": code.name}
        return {**facts, "volume": self.volume_id or None, "seconds": round(lasted_s, 3)}
