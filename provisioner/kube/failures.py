"""The one table that turns what HTTP and aiohttp report into ``KubeError``."""

from dataclasses import dataclass

import aiohttp
import msgspec

from provisioner.model import depth
from provisioner.model.errors import KubeError, Outcome, Reason

_EXCERPT = 200  # of an answer that is not a Status, such as a proxy's HTML


class StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    """``details`` of a Status."""

    name: str = ""
    kind: str = ""
    retry_after_seconds: int = 0


class Status(msgspec.Struct, frozen=True):
    """What the API server answers in place of an object (meta/v1 Status)."""

    kind: str = ""
    reason: str = ""
    message: str = ""
    code: int = 0
    details: StatusDetails | None = None


_STATUS = msgspec.json.Decoder(Status)


@dataclass(frozen=True, slots=True)
class Attempt:
    """What was tried: for the message, and to know whether it may have had an effect."""

    verb: str  # as RBAC names it: get, list, watch, create, update, patch, delete
    target: str  # "persistentvolumes pvc-1" or "persistentvolumeclaims/status ns/name"

    @property
    def lost(self) -> Outcome:
        """What is known when no answer came."""
        reads = self.verb in {"get", "list", "watch"}
        return Outcome.NOTHING if reads else Outcome.UNKNOWN

    def __str__(self) -> str:
        return f"{self.verb} {self.target}"


def of_answer(attempt: Attempt, code: int, body: bytes, retry_after: str = "") -> KubeError:
    """The error for an answer whose HTTP status says no.

    Args:
        attempt: what was asked.
        code: HTTP status.
        body: the answer, a Status or anything else.
        retry_after: the Retry-After header, in seconds.
    """
    status = read_status(body)
    said = status.message or body[:_EXCERPT].decode(errors="replace").strip() or "no message"
    reason, outcome = _classify(attempt, code, status)
    message = f"cannot {attempt}: {said}"
    if not status.kind:
        message = f"cannot {attempt}: HTTP {code}, not from a Kubernetes API server: {said}"
    elif reason is Reason.FORBIDDEN:
        message += f' (needs the verb "{attempt.verb}" on {attempt.target.split(" ")[0]})'
    details = status.details or StatusDetails()
    wait = float(retry_after) if retry_after.isdigit() else float(details.retry_after_seconds)
    return KubeError(reason, message, status=code, outcome=outcome, retry_after_s=wait or None)


def of_status(attempt: Attempt, body: bytes) -> KubeError:
    """The error for a Status that a watch delivered as its ERROR event."""
    return of_answer(attempt, read_status(body).code or 500, body)


def of_exception(attempt: Attempt, exc: Exception) -> KubeError:
    """The error for an exchange that gave no answer."""
    what = f"{exc}" or type(exc).__name__
    match exc:
        # Never connected: nothing was sent, so nothing can have happened.
        case aiohttp.ClientConnectorError() | aiohttp.ConnectionTimeoutError():
            return KubeError(Reason.UNREACHABLE, f"cannot {attempt}: {what}")
        case TimeoutError():
            message = f"cannot {attempt}: no answer in time"
            return KubeError(Reason.TIMED_OUT, message, outcome=attempt.lost)
    if attempt.lost is Outcome.UNKNOWN:
        message = f"{attempt} was sent, but the answer was lost: {what}"
        return KubeError(Reason.REPLY_LOST, message, outcome=Outcome.UNKNOWN)
    return KubeError(Reason.UNREACHABLE, f"cannot {attempt}: {what}")


def read_status(body: bytes) -> Status:
    """The Status in an answer; an empty one when it is anything else."""
    try:
        status = depth.decode(_STATUS, body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Status()
    return status if status.kind == "Status" else Status()


def _classify(attempt: Attempt, code: int, status: Status) -> tuple[Reason, Outcome]:
    match code:
        case 401:
            return Reason.UNAUTHORIZED, Outcome.NOTHING
        case 403:
            return Reason.FORBIDDEN, Outcome.NOTHING
        # Only a named object can be missing. "404 page not found", an API that is not served and
        # a load balancer's 404 must never be read as "the object is gone".
        case 404 if status.reason == "NotFound" and status.details and status.details.name:
            return Reason.OBJECT_NOT_FOUND, Outcome.NOTHING
        case 409 if status.reason == "AlreadyExists":
            return Reason.OBJECT_EXISTS, Outcome.NOTHING
        case 409:
            return Reason.CONFLICT, Outcome.NOTHING
        case 410:
            return Reason.EXPIRED, Outcome.NOTHING
        case 429:
            return Reason.THROTTLED, Outcome.NOTHING
        # etcd may have carried it out although its own answer came too late.
        case 502 | 503:
            return Reason.UNREACHABLE, attempt.lost
        case 504:
            return Reason.TIMED_OUT, attempt.lost
        # A webhook or etcd that is away, for the most part: it failed, and refused nothing.
        case _ if code >= 500:  # noqa: PLR2004 -- HTTP: the server failed
            return Reason.REPLY_LOST, attempt.lost
        case _:
            return Reason.REJECTED, Outcome.NOTHING
