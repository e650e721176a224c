"""A set of leases that this process holds together, or not at all.

The stock driver's four sidecars elect their leaders separately, with a lease each. A controller
that holds all four is alone, whichever stock controllers run beside it. Ours take them in one
order, so that two of ours never hold a part each. The stock sidecars know no order: against them,
an incomplete set is released after ``complete_within_s`` in which another holder was seen to renew
the rest. The leases of a dead holder are waited for: all are read on each try, so that they expire
together.

Give this a client of its own: a renewal must not queue behind 1,000 writes.

Each lease is compatible with client-go's LeaseLock: it has expired when its record has not changed
for its own duration *as seen here*, on a clock that continues during suspend; the times in the
record are for people. An annotation says since when only our controllers have held it. It contains
holder and ``renewTime`` of the record that it is valid for: every other client that takes or renews
the lease changes these (client-go does with each update, and keeps annotations), which voids it.
"""

import asyncio
import contextlib
import functools
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
import structlog

from provisioner.kube.client import KubeClient, Patch
from provisioner.kube.resources import Resource
from provisioner.metrics import SharedMetrics
from provisioner.model.errors import CHANGED_MEANWHILE, KubeError, Reason
from provisioner.model.leadership import Epoch
from provisioner.model.meta import KubeObject
from provisioner.model.names import LED_SINCE

_NEVER = float("-inf")
_SECONDS = "%Y-%m-%dT%H:%M:%SZ"
_RELEASE_S = 5.0
_RETRY_RENEWAL_S = 1.0  # after a failed renewal
_EXPIRED_S = 0.1  # after an expiry, as a timer may fire early

log = structlog.get_logger(__name__)


class LeaseSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """``spec`` of a Lease."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(KubeObject, frozen=True, rename="camel", kw_only=True):
    """A coordination.k8s.io Lease."""

    spec: LeaseSpec = LeaseSpec()


LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", Lease)


def boot_clock() -> float:
    """Seconds on a clock that also runs while the machine is suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class HeldLease:
    """One lease as this process sees it.

    Attributes:
        name: of the Lease object.
        ours: whether the record that was last seen is ours.
        renewed_at: start of the request that last confirmed it, by the boot clock.
        is_new: whether nobody ever held it, as far as this process has seen: it did not exist until
            we created it.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        namespace: str,
        name: str,
        identity: str,
        duration_s: int,
        clock: Callable[[], float],
    ) -> None:
        self._client = client
        self._namespace = namespace
        self.name = name
        self._identity = identity
        self._duration_s = duration_s
        self._clock = clock
        self._seen: Lease | None = None
        self._seen_at = _NEVER
        self._seen_changing = False
        self.renewed_at = _NEVER
        self.ours = False
        self.is_new = False
        self._saw_others = False
        self._tried = False  # to take it: a write that failed may have been carried out
        self._since: datetime | None = None  # the proof that each of our writes contains

    @property
    def expires_in_s(self) -> float:
        """Until another holder's record expires as seen here; 0 if we may take the lease."""
        spec = self._seen.spec if self._seen is not None else LeaseSpec()
        if not spec.holder_identity or spec.holder_identity == self._identity:
            return 0.0
        duration_s = spec.lease_duration_seconds or self._duration_s
        return max(0.0, self._seen_at + duration_s - self._clock())

    @property
    def rival(self) -> str:
        """The other holder, if it was seen to renew within the duration; "" if it may be dead."""
        if self._seen is None or not self._seen_changing or not self.expires_in_s:
            return ""
        return self._seen.spec.holder_identity or ""

    @property
    def led_since(self) -> datetime | None:
        """Since when only our controllers have held it; None without proof."""
        return _proven_since(self._seen) if self._seen is not None else None

    async def read(self) -> bool:
        """Read the lease, which starts or restarts its expiry; always True."""
        try:
            self._observe(await self._client.get(LEASES, self.name, self._namespace))
        except KubeError as exc:
            if exc.reason is not Reason.OBJECT_NOT_FOUND:
                raise
            self._seen = None
            self.is_new = not self._saw_others
        return True

    async def take(self) -> bool:
        """Take the lease if it was free, expired or ours when it was last read."""
        self.ours = False
        if self.expires_in_s:
            return False
        began = self._clock()
        self._tried = True
        seen = self._seen
        if seen is None or seen.spec.holder_identity != self._identity:
            self._since = self.led_since
        saved = await (self._create(self._identity) if seen is None else self._write(seen))
        self._confirm(saved, began)
        return True

    async def renew(self) -> bool:
        """Renew a lease that is ours; False if another holder has it."""
        began = self._clock()
        try:
            if self._seen is not None:
                self._confirm(await self._write(self._seen), began)
                return True
        except KubeError as exc:
            # Our own write whose reply was lost, an edited label, a deleted lease, another holder.
            if exc.reason not in CHANGED_MEANWHILE:
                raise
        await self.read()
        return await self.take()

    def vouch(self, since: datetime) -> None:
        """Have each further write say that only our controllers have held it since then."""
        self._since = since

    async def attest(self) -> bool:
        """Write the proof to the lease at once, without taking it; always True."""
        await self.read()
        seen = self._seen
        self._observe(await (self._create("") if seen is None else self._patch(seen, {})))
        return True

    async def release(self) -> None:
        """Release a lease that may be ours, so that the next holder need not wait."""
        self.ours = False
        self.renewed_at = _NEVER
        if not self._tried:
            return
        found = await self._client.get(LEASES, self.name, self._namespace)
        if found.spec.holder_identity == self._identity:
            await self._patch(found, {"holderIdentity": "", "leaseDurationSeconds": 1})
        self._tried = False

    def _observe(self, found: Lease) -> None:
        if not self.ours and found.spec.holder_identity != self._identity:
            self._saw_others, self.is_new = True, False
        if self._seen is None or found.spec != self._seen.spec:
            self._seen_at = self._clock()
            # When a record is first seen, its age is unknown.
            self._seen_changing = self._seen is not None
        self._seen = found

    def _confirm(self, saved: Lease, began: float) -> None:
        self._observe(saved)
        self.renewed_at = began
        self.ours = True

    async def _create(self, holder: str) -> Lease:
        spec = self._record(acquired=True, transitions=0) | {"holderIdentity": holder}
        body = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {
                "name": self.name,
                "namespace": self._namespace,
                "annotations": self._vouched(holder, spec["renewTime"]),
            },
            "spec": spec,
        }
        return await self._client.create(LEASES, body, self._namespace)

    async def _write(self, found: Lease) -> Lease:
        acquired = found.spec.holder_identity != self._identity
        transitions = (found.spec.lease_transitions or 0) + acquired
        return await self._patch(found, self._record(acquired=acquired, transitions=transitions))

    async def _patch(self, found: Lease, spec: dict[str, Any]) -> Lease:
        # The version makes it a compare-and-swap; a patch keeps the labels and fields of others.
        metadata = {
            "resourceVersion": found.metadata.resource_version,
            "annotations": self._vouched(
                spec.get("holderIdentity", found.spec.holder_identity),
                spec.get("renewTime", found.spec.renew_time),
            ),
        }
        return await self._client.patch(
            LEASES,
            self.name,
            {"metadata": metadata, "spec": spec},
            kind=Patch.MERGE,
            namespace=self._namespace,
        )

    def _vouched(self, holder: str | None, renewed: str | None) -> dict[str, str]:
        """The annotation for a record; without a proof none, which leaves a void one in place."""
        return {LED_SINCE: _proof(self._since, holder, renewed)} if self._since else {}

    def _record(self, *, acquired: bool, transitions: int) -> dict[str, Any]:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")  # MicroTime
        record: dict[str, Any] = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": self._duration_s,
            "renewTime": now,
            "leaseTransitions": transitions,
        }
        return record | {"acquireTime": now} if acquired else record


@dataclass(frozen=True, slots=True)
class LeaseSettings:
    """Which leases a process holds together, and how fast it gives them up. Times in seconds.

    Attributes:
        namespace: of the leases.
        names: in the order in which they are taken.
        identity: of this process, unique.
        duration_s: a lease that nobody renews for this long may be taken over.
        renew_deadline_s: a holder that cannot renew for this long gives up, well before that.
        retry_s: between two renewals, or two tries to take the leases.
        complete_within_s: an incomplete set is given back after this long.
        call_s: a call that takes longer has failed; several fit before the deadline.
    """

    namespace: str
    names: Sequence[str]
    identity: str
    duration_s: int = 15
    renew_deadline_s: float = 10.0
    retry_s: float = 5.0
    complete_within_s: float = 30.0
    call_s: float = 2.5


class Leases:
    """All leases of a role; ``on_lost`` is called when a holder could not renew them in time."""

    def __init__(
        self,
        client: KubeClient,
        settings: LeaseSettings,
        *,
        on_lost: Callable[[], None],
        metrics: SharedMetrics,
        clock: Callable[[], float] = boot_clock,
    ) -> None:
        self._leases = [
            HeldLease(
                client,
                namespace=settings.namespace,
                name=name,
                identity=settings.identity,
                duration_s=settings.duration_s,
                clock=clock,
            )
            for name in settings.names
        ]
        self._settings = settings
        self._on_lost = on_lost
        self._metrics = metrics
        self._clock = clock
        self._incomplete_since: float | None = None
        self._hurry = asyncio.Event()  # the next renewal cannot wait

    def held(self) -> bool:
        """Whether all leases are certainly ours now; to be asked before what cannot be undone."""
        return all(lease.ours for lease in self._leases) and self._left_s() > 0

    @property
    def epoch(self) -> Epoch | None:
        """Since when only our controllers have held any of the leases, as they were last read.

        None without proof: another holder has had one since, released or not; or one was deleted,
        is new, or could not be read.
        """
        began = [lease.led_since for lease in self._leases]
        proven = [at for at in began if at is not None]
        return Epoch(max(proven)) if len(proven) == len(began) else None

    @property
    def are_new(self) -> bool:
        """Whether nobody ever held any of the leases, as far as this process has seen."""
        return all(lease.is_new for lease in self._leases)

    async def read(self) -> None:
        """Without an election: read what the leases prove. An unreadable lease proves nothing."""
        await self._try_all(HeldLease.read)

    async def prove(self, epoch: Epoch, *, elected: bool) -> None:
        """Have the leases prove that only our controllers have led since this epoch began.

        An elected leader writes it with the next renewal, which is now. Without an election the
        leases are written to and not taken. A failed write is logged, and proves nothing.
        """
        for lease in self._leases:
            lease.vouch(epoch.began_at)
        if elected:
            self._hurry.set()
        else:
            await self._try_all(HeldLease.attest)

    async def acquire(self, ready: Callable[[], Awaitable[None]] | None = None) -> None:
        """Wait until all leases are ours; ``ready`` is awaited before each try."""
        while True:
            if ready is not None:
                await ready()
            if await self._take_all():
                break
            await self._give_back_if_stuck()
            await asyncio.sleep(self._until_next_try_s())
        self._incomplete_since = None
        log.info("holding all leases", leases=[lease.name for lease in self._leases])

    async def hold(self) -> None:
        """Renew until cancelled; calls ``on_lost`` and returns when that fails for too long."""
        wait_s = self._settings.retry_s
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, min(wait_s, self._left_s()))):
                    await self._hurry.wait()
            self._hurry.clear()
            if self.held():
                limit_s = min(self._settings.call_s, self._left_s())
                renewals = (self._try(le, le.renew, limit_s) for le in self._leases)
                renewed = await asyncio.gather(*renewals)
                wait_s = (
                    self._settings.retry_s
                    if all(renewed)
                    else min(self._settings.retry_s, _RETRY_RENEWAL_S)
                )
            if not self.held():
                self._metrics.leader.set(0)
                log.error("lost a lease", leases=[le.name for le in self._leases if not le.ours])
                self._on_lost()
                return

    async def release(self) -> None:
        """Release all leases, the last one first: the next holder of the first finds all free."""
        self._incomplete_since = None
        try:
            async with asyncio.timeout(_RELEASE_S):
                for lease in reversed(self._leases):
                    await self._release(lease)
        except TimeoutError:
            log.warning("cannot release all leases in time; they will expire")

    async def _release(self, lease: HeldLease) -> None:
        try:
            await lease.release()
        except KubeError as exc:
            if exc.reason is not Reason.OBJECT_NOT_FOUND:
                log.warning("cannot release a lease", lease=lease.name, error=exc.message)

    def _left_s(self) -> float:
        """Until the renewal deadline."""
        oldest = min(lease.renewed_at for lease in self._leases)
        return oldest + self._settings.renew_deadline_s - self._clock()

    def _until_next_try_s(self) -> float:
        # With jitter, or replicas that collided once would collide forever.
        retry_s = self._settings.retry_s * random.uniform(1.0, 1.5)  # noqa: S311 -- no secret
        expiry_s = max(lease.expires_in_s for lease in self._leases)
        return min(retry_s, expiry_s + _EXPIRED_S) if expiry_s else retry_s

    async def _take_all(self) -> bool:
        """Read all at once and renew those that are ours, then take the rest in order."""
        steps = ((lease, lease.renew if lease.ours else lease.read) for lease in self._leases)
        tries = (self._try(lease, step, self._settings.call_s) for lease, step in steps)
        answers = await asyncio.gather(*tries)
        for lease, answered in zip(self._leases, answers, strict=True):
            if not answered:
                return False
            if not lease.ours and not await self._try(lease, lease.take, self._settings.call_s):
                return False
        return self.held()

    async def _try_all(self, step: Callable[[HeldLease], Awaitable[bool]]) -> None:
        tries = (
            self._try(le, functools.partial(step, le), self._settings.call_s) for le in self._leases
        )
        await asyncio.gather(*tries)

    async def _give_back_if_stuck(self) -> None:
        now = self._clock()
        if not self._is_stuck():
            self._incomplete_since = None
        elif self._incomplete_since is None:
            self._incomplete_since = now
        elif now >= self._incomplete_since + self._settings.complete_within_s:
            log.warning(
                "cannot get all leases; releasing those that are ours",
                missing=[lease.name for lease in self._leases if not lease.ours],
                renewed_by=sorted({lease.rival for lease in self._leases if lease.rival}),
            )
            await self.release()
            await asyncio.sleep(self._settings.retry_s * random.random())  # noqa: S311 -- no secret

    def _is_stuck(self) -> bool:
        """Whether we hold some leases, and the rest will not expire."""
        missing = [lease for lease in self._leases if not lease.ours]
        if len(missing) == len(self._leases):
            return False
        # The next one has no expiry to wait for: it can be neither read nor written.
        fails = not missing or not missing[0].expires_in_s
        return fails or any(lease.rival for lease in missing)

    async def _try(
        self, lease: HeldLease, step: Callable[[], Awaitable[bool]], limit_s: float
    ) -> bool:
        """One step with one lease, in bounded time; False when it did not succeed."""
        try:
            async with asyncio.timeout(limit_s):
                return await step()
        except (KubeError, TimeoutError) as exc:
            error = str(exc) or f"no answer in {limit_s:.1f} s"
            log.warning("cannot read or write a lease", lease=lease.name, error=error)
            return False


def _proof(since: datetime, holder: str | None, renewed: str | None) -> str:
    return f"{since.strftime(_SECONDS)} {holder or ''} {renewed or ''}"


def _proven_since(lease: Lease) -> datetime | None:
    written = lease.annotations.get(LED_SINCE, "")
    try:
        since = datetime.strptime(written.partition(" ")[0], _SECONDS).replace(tzinfo=UTC)
    except ValueError:
        return None
    is_of_this = written == _proof(since, lease.spec.holder_identity, lease.spec.renew_time)
    return since if is_of_this else None
