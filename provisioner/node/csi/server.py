"""gRPC on a unix socket: how a call is answered, logged and counted, and with which code it fails.

A call whose deadline passes, or whose caller is gone, is cancelled as asyncio cancels: the work
under it may end, or leave a program behind that runs to its end (``node/runtime/operations.py``).

Kubelet 1.36 takes Canceled, DeadlineExceeded, Unavailable, ResourceExhausted and Aborted as "it may
be mounted, or be under way", and cleans up before the volume may go; after all others it takes
nothing to be mounted, and the volume may be detached. So only a failure that leaves nothing mounted
behind may have one of the others: ``mounted.StillMounted`` looks, and says so by the outcome.

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
log = structlog.get_logger(__name__)

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)

# Asked every few seconds, and of no interest when they go well.
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


@dataclass(frozen=True, slots=True)
class Rpc(Generic[Q, A]):
    """One method of a service.

    Attributes:
        name: as in the ``.proto``.
        asks: the type of the request.
        answer: does the work, given the request and what is left until the caller's deadline, in
            seconds (None: there is none). StorageError is told to the caller with the code of its
            reason, in a message that begins with the reason's name: the kubelet shows it in events.
    """

    name: str
    asks: type[Q]
    answer: Callable[[Q, float | None], Awaitable[A]]


def untimed(answer: Callable[[Q], Awaitable[A]]) -> Callable[[Q, float | None], Awaitable[A]]:
    """For a method that is answered at once."""
    return lambda request, _: answer(request)


def service(
    name: str, rpcs: Sequence[Rpc[Any, Any]], metrics: NodeMetrics
) -> grpc.GenericRpcHandler:
    """A service for a server; the name as in the ``.proto``, with its package."""
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
            # None without a deadline, whatever its annotation says.
            left_s: float | None = context.time_remaining()
            late = left_s is not None and left_s <= 0
            ended.failed(
                grpc.StatusCode.DEADLINE_EXCEEDED if late else grpc.StatusCode.CANCELLED,
                "the caller waits no longer, or this process ends",
            )
            raise
        except Exception as error:
            code = code_of(error, rpc.name)
            log.exception("unexpected error", method=rpc.name)
            ended.failed(code, repr(error))
            what = _clipped(f"{rpc.name} met an unexpected error: {error!r}")
            await context.abort(code, f"{what}; the log of the node plugin has more")
        ended.well()
        return reply

    return answer


def _clipped(text: str) -> str:
    return text[: _MOST_CHARACTERS if text.isascii() else _MOST_IF_NOT_ASCII]


@dataclass(frozen=True, slots=True)
class _Ended:
    """Tells of the end of a call: in the log and in the metrics."""

    method: str
    volume_id: str
    began_s: float
    metrics: NodeMetrics

    def well(self) -> None:
        """It was answered."""
        tell = log.debug if self.method in _ROUTINE else log.info
        tell("answered", **self._facts(grpc.StatusCode.OK))

    def failed(self, code: grpc.StatusCode, error: str, **more: str) -> None:
        """It was not."""
        log.warning("not answered", **self._facts(code), error=error, **more)

    def _facts(self, code: grpc.StatusCode) -> dict[str, object]:
        lasted_s = time.monotonic() - self.began_s
        self.metrics.rpcs.labels(method=self.method, code=code.name).inc()
        self.metrics.rpc_seconds.labels(method=self.method).observe(lasted_s)
        facts: dict[str, object] = {"method": self.method, "code": code.name}
        return {**facts, "volume": self.volume_id or None, "seconds": round(lasted_s, 3)}
