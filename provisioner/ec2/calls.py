"""One call to EC2: limiter, thread, translated result.

Retrying is ours (the SDK's is off), because only we know what is idempotent:

- throttled: nothing happened; the limiter slows down and the call goes again by itself;
- a read whose reply was lost: a few more times, it changes nothing;
- a change whose reply was lost: ``Outcome.UNKNOWN``, and the flow decides.
"""

import asyncio
import ctypes
import random
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog
from botocore import xform_name

from provisioner.ec2 import botocore_client, errors, wire
from provisioner.ec2.credentials import Credentials
from provisioner.ec2.limiter import Grant, Limiter, Rates, Turn, Urgency
from provisioner.metrics import SharedMetrics
from provisioner.model.errors import UNKNOWN_ID, Ec2Error, Outcome, Reason

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

AT_ONCE = 64
# connect 3 s and read 20 s bound each wait on the socket, not a reply that drips or a slow DNS.
CALL_TIMEOUT_S = 45.0
# What its caller has given up must not be sent: connecting and reading take 23 s, so a call that
# has not left its thread after 20 s stays there.
LEAVES_WITHIN_S = 20.0
# A gate may have to wait until the API server tells how far it has come, or until a kind was listed
# (see ``kube/informer.py``).
GATE_S = 90.0
READ_AGAIN_S = (0.2, 0.6, 1.5)
_URGENCIES = {
    "DetachVolume": Urgency.RELEASE,
    "DeleteVolume": Urgency.DELETION,
    "DeleteSnapshot": Urgency.DELETION,
}
# Unclaimed tags are still removed while a process ends, so that the next leader finds none.
_LAST_CHANGES = frozenset({"DeleteTags"})

# The last look before what cannot be undone. One that asks nobody (a ``def``) has decided when it
# returns. One that has to wait (an ``async def``) holds nothing that others wait for.
Gate = Callable[[], Awaitable[None] | None]

_M_ARENA_MAX = -8  # malloc.h
_ARENAS = 2
_M_MMAP_THRESHOLD = -3
_MAPPED_BYTES = 131_072  # as at the start of a process

_log = structlog.get_logger(__name__)


class Ec2Calls:
    """EC2 by action name and parameters, as boto3 has them, from one event loop.

    Attributes:
        may_change: asked right before every call that changes anything; after a suspend, or a
            lease lost while a caller waited its turn, nothing must be sent any more.
        confirm_gone: awaited before a caller hears that something does not exist; it raises what
            the caller is to hear instead.
        credentials: what calls are signed with; None for a client that brings its own.
    """

    def __init__(
        self,
        client: "EC2Client",
        *,
        limiter: Limiter,
        metrics: SharedMetrics,
        at_once: int = AT_ONCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limiter = limiter
        self.credentials: Credentials | None = None
        self.may_change: Callable[[], bool] = lambda: True
        self.confirm_gone: Callable[[Ec2Error], Awaitable[None]] | None = None
        self._client = client
        self._stopping = False
        self._looks: set[asyncio.Timeout] = set()
        self._closed = False
        self._metrics = metrics
        self._clock = clock
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="ec2")
        self._in_this_thread = threading.local()

    @classmethod
    def connect(
        cls,
        *,
        region: str | None,
        metrics: SharedMetrics,
        endpoint: str | None = None,
        rates: Rates | None = None,
        at_once: int = AT_ONCE,
        read_timeout_s: float = botocore_client.READ_TIMEOUT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> "Ec2Calls":
        """Make the client; calls nothing yet.

        Args:
            region: else AWS_REGION and boto3's own settings.
            metrics: where calls, throttles and waits are counted.
            endpoint: else AWS_EC2_ENDPOINT, AWS_ENDPOINT_URL_EC2, or AWS's own.
            rates: quotas to start from; else the documented ones.
            at_once: threads, and connections kept open.
            read_timeout_s: how long EC2 may be silent before its reply counts as lost.
            clock: monotonic seconds.

        Raises:
            StorageError: (INVALID_REQUEST) no region, or settings that boto3 refuses.
        """
        share_heaps()  # before the first thread starts
        find = partial(botocore_client.find_credentials, region)
        credentials = Credentials(find, tell=metrics.credentials.set)
        client = botocore_client.connect(
            region=region,
            endpoint=endpoint,
            at_once=at_once,
            read_timeout_s=read_timeout_s,
            credentials=credentials,
        )
        limiter = Limiter(rates, at_once=at_once, metrics=metrics, clock=clock)
        calls = cls(client, limiter=limiter, metrics=metrics, at_once=at_once, clock=clock)
        calls.credentials = credentials
        client.meta.events.register("before-send.ec2", calls._at_the_door)
        return calls

    @property
    def region(self) -> str:
        """The Region that is asked."""
        return self._client.meta.region_name

    async def call(
        self,
        action: str,
        params: Mapping[str, Any],
        *,
        background: bool = False,
        patient: bool = False,
        gate: Gate | None = None,
        turn: Turn | None = None,
    ) -> dict[str, Any]:
        """Send one call, as often as it takes to get an answer that means something.

        Args:
            action: such as "AttachVolume".
            params: as boto3 takes them; they are not validated.
            background: queue behind every call that a user waits for.
            patient: the same, and leave some tokens to these (see ``Limiter``).
            gate: called after the limiter has granted the call and right before it is sent; what it
                raises is raised, and nothing is sent. If it is to be awaited it has 90 seconds,
                and is called again if there is no thread to send within five more.
            turn: lets others end the wait for the limiter.

        Returns:
            boto3's answer; of ``wire.ACTIONS`` the records of ``provisioner.ec2.wire``.

        Raises:
            Ec2Error: refused, or (a change) its reply lost, or (a read) lost several times; or not
                sent: (TIMED_OUT) the gate took too long, (NOT_LEADING) it is ours no longer.
        """
        urgency = _urgency(action, background=background, patient=patient)
        again = iter(READ_AGAIN_S)
        while True:
            try:
                return await self._send_until_heard(action, params, urgency, gate=gate, turn=turn)
            except Ec2Error as failure:
                pause_s = await self._again_in_s(action, failure, again)
                if pause_s is None:
                    raise
                _log.info("asking EC2 again", action=action, error=failure.message)
            await asyncio.sleep(pause_s * random.uniform(0.7, 1.3))  # noqa: S311 -- jitter

    def stop_changing(self) -> None:
        """Send no change any more but the last ones; what EC2 has already is waited for.

        Who waits for a turn, or asks for one, is refused with NOT_LEADING at once.
        """
        self._stopping = True
        self.limiter.dismiss(self._refusal)
        for look in self._looks:
            if not look.expired():
                look.reschedule(0.0)

    async def close(self) -> None:
        """Release threads and connections. Calls under way are not awaited, and none is sent."""
        self._closed = True
        self.limiter.close()
        self._threads.shutdown(wait=False)
        self._client.close()

    async def _again_in_s(
        self, action: str, failure: Ec2Error, pauses: Iterator[float]
    ) -> float | None:
        """When a failed call is worth another try, None for never."""
        if failure.reason in UNKNOWN_ID and self.confirm_gone is not None:
            await self.confirm_gone(failure)
        lost = failure.reason in {Reason.REPLY_LOST, Reason.UNREACHABLE}
        return next(pauses, None) if lost and errors.is_read(action) else None

    async def _send_until_heard(
        self,
        action: str,
        params: Mapping[str, Any],
        urgency: Urgency,
        *,
        gate: Gate | None,
        turn: Turn | None,
    ) -> dict[str, Any]:
        """Send one call; again for as long as EC2 throttles it, without losing its turn."""
        place: int | None = None
        while True:
            refusal = self._refusal(action)
            if refusal is not None:
                raise refusal
            grant = await self.limiter.acquire(action, urgency, place=place, turn=turn)
            place = grant.place
            looking = self._begin_look(grant, gate)
            if looking is not None:
                await self._look(grant, looking)
                if not await self.limiter.step_back(grant, urgency, turn):
                    continue
                grant = replace(grant, sent_at=self._clock())
            refusal = self._refusal(action) or self._fence(action)
            if refusal is not None:
                self.limiter.give_back(grant)
                raise refusal
            try:
                return await self._in_thread(grant, params)
            except Exception as failure:
                if not errors.is_throttle(failure, action):
                    raise
                self._metrics.ec2_throttles.labels(action).inc()
                self.limiter.throttled(grant)

    def _begin_look(self, grant: Grant, gate: Gate | None) -> Awaitable[None] | None:
        """The last look before a call is sent; what is left of it to be awaited, if anything."""
        try:
            return gate() if gate is not None else None
        except BaseException:
            self.limiter.give_back(grant)
            raise

    async def _look(self, grant: Grant, looking: Awaitable[None]) -> None:
        """Wait for the end of the last look; meanwhile others have the call's thread."""
        self.limiter.step_aside(grant)
        # Granted in the very moment in which the process was told to end, it has no time at all.
        limit = asyncio.timeout(GATE_S if self._refusal(grant.action) is None else 0.0)
        self._looks.add(limit)
        try:
            async with limit:
                await looking
        except BaseException as failure:
            self.limiter.step_out(grant)
            if not isinstance(failure, TimeoutError) or not limit.expired():
                raise
            raise self._refusal(grant.action) or _too_long(grant.action) from failure
        finally:
            self._looks.discard(limit)

    def _refusal(self, action: str) -> Ec2Error | None:
        """Why an action is not sent any more once this process ends."""
        still_sent = errors.is_read(action) or action in _LAST_CHANGES
        if not self._closed and (not self._stopping or still_sent):
            return None
        message = f"{action} was not sent: this process shuts down, and the next leader continues"
        return Ec2Error(Reason.NOT_LEADING, message, action=action)

    def _fence(self, action: str) -> Ec2Error | None:
        if errors.is_read(action) or self.may_change():
            return None
        message = f"{action} was not sent: another replica may be the leader by now"
        return Ec2Error(Reason.NOT_LEADING, message, action=action)

    async def _in_thread(self, grant: Grant, params: Mapping[str, Any]) -> dict[str, Any]:
        """Run one boto3 call; its thread is given back when it has ended, however we leave."""
        action, started = grant.action, self._clock()
        try:
            running = asyncio.get_running_loop().run_in_executor(
                self._threads, self._send, action, params, started + LEAVES_WITHIN_S
            )
        except RuntimeError:  # the pool was closed
            self.limiter.release()
            raise
        running.add_done_callback(self._ended)
        outcome = "cancelled"
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                answer = await asyncio.shield(running)
            outcome = "ok"
            self._hear(None)
        except TimeoutError as failure:
            outcome = Reason.TIMED_OUT
            raise _timed_out(action) from failure
        except Exception as failure:
            if errors.is_throttle(failure, action):
                outcome = Reason.THROTTLED
                raise
            ours = errors.translate(failure, action, params)
            outcome = "bug" if ours is None else ours.reason
            if ours is None:
                raise
            self._hear(ours)
            raise ours from failure
        finally:
            self._metrics.ec2_calls.labels(action, outcome).inc()
            self._metrics.ec2_seconds.labels(action).observe(self._clock() - started)
        return answer

    def _hear(self, refusal: Ec2Error | None) -> None:
        """What EC2's answer says about our credentials."""
        if self.credentials is None or (refusal is not None and not refusal.code):
            return
        if refusal is not None and refusal.reason is Reason.CREDENTIALS_INVALID:
            self.credentials.refused(refusal.message)
        else:
            self.credentials.accepted()

    def _ended(self, running: "asyncio.Future[dict[str, Any]]") -> None:
        if not running.cancelled():
            running.exception()  # the caller may have gone; other callers still get it
        self.limiter.release()

    def _send(self, action: str, params: Mapping[str, Any], leaves_by_s: float) -> dict[str, Any]:
        """In a thread: the boto3 call itself."""
        self._in_this_thread.leaves_by_s = leaves_by_s
        answer: dict[str, Any] = getattr(self._client, xform_name(action))(**params)
        if action not in wire.ACTIONS and not answer["ResponseMetadata"].get("RequestId"):
            raise errors.unreadable(action, params)
        return answer

    def _at_the_door(self, *, event_name: str, **_: object) -> None:
        """In a thread, the request signed: nothing leaves that nobody waits for, or may send.

        Raises:
            Ec2Error: it stays here; nothing was done.
        """
        action = event_name.rpartition(".")[2]
        refusal = self._refusal(action) or self._fence(action)
        if refusal is None and self._clock() > self._in_this_thread.leaves_by_s:
            message = f"{action} was not sent: it was not ready within {LEAVES_WITHIN_S:.0f} s"
            refusal = Ec2Error(Reason.TIMED_OUT, message, action=action)
        if refusal is not None:
            raise refusal


def _urgency(action: str, *, background: bool, patient: bool) -> Urgency:
    if background:
        return Urgency.BACKGROUND
    return Urgency.PATIENT if patient else _URGENCIES.get(action, Urgency.NORMAL)


def _too_long(action: str) -> Ec2Error:
    message = f"{action} was not sent: the last check before it took more than {GATE_S:.0f} s"
    return Ec2Error(Reason.TIMED_OUT, message, action=action)


def _timed_out(action: str) -> Ec2Error:
    return Ec2Error(
        Reason.REPLY_LOST,
        f"{action}: EC2 gave no answer within {CALL_TIMEOUT_S:.0f} s",
        action=action,
        outcome=Outcome.NOTHING if errors.is_read(action) else Outcome.UNKNOWN,
    )


def share_heaps() -> bool:
    """Let all threads share two of glibc's heaps, as MALLOC_ARENA_MAX does.

    glibc gives each thread a heap of its own and returns little of it, so 64 threads would hold on
    to the memory of every long answer that they once parsed. Measured with 60 describes of 500
    volumes: 47.7 MiB at the start, 82.5 MiB after, 62.0 MiB with two heaps (of 2,000 volumes kept
    by the test itself). It also keeps ever larger blocks after they were freed, such as the tables
    that a growing dict leaves: 12 MiB of 365 once 100,000 volumes were listed. Source: mallopt(3).

    Returns:
        Whether the C library took it: False where it is not glibc.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # musl has no such heaps
        return False
    mallopt.argtypes = [ctypes.c_int, ctypes.c_int]
    mallopt.restype = ctypes.c_int
    are_taken = (
        mallopt(_M_ARENA_MAX, _ARENAS),
        mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES),
    )
    return all(are_taken)
