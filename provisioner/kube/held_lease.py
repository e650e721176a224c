"""One Lease object: what was last seen of it, and until when it is ours.

Compatible with client-go's LeaseLock: a lease has expired when its record has not changed for its
own duration *as seen here*, on a clock that runs on during suspend; the times in the record are
for people.

An annotation tells since when only controllers of ours have held the lease. It names the record
that it vouches for: whoever else takes or renews the lease writes another holder or another
``renewTime`` (client-go does with each update, and keeps annotations), and the proof is void.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from provisioner.kube.client import KubeClient, Patch
from provisioner.kube.resources import Resource
from provisioner.model.errors import KubeError, Reason
from provisioner.model.meta import KubeObject

# "SINCE HOLDER RENEWED": ours only since then, if the lease's holder and renewal are these.
LED_SINCE = "ebs-provisioner.io/led-since"
_NEVER = float("-inf")
_SECONDS = "%Y-%m-%dT%H:%M:%SZ"


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
        ours: whether the last thing seen was our own record.
        renewed_at: start of the request that last confirmed it, by the boot clock.
        is_new: whether nobody ever held it, as far as this process has seen: there was none, until
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
        self._tried = False  # to take it: even if that failed, it may have been carried out
        self._since: datetime | None = None  # what we vouch for with each of our writes

    @property
    def expires_in_s(self) -> float:
        """Until somebody else's record expires as seen here; 0 when we may take the lease."""
        spec = self._seen.spec if self._seen is not None else LeaseSpec()
        if not spec.holder_identity or spec.holder_identity == self._identity:
            return 0.0
        duration_s = spec.lease_duration_seconds or self._duration_s
        return max(0.0, self._seen_at + duration_s - self._clock())

    @property
    def rival(self) -> str:
        """Who else was seen to write it within its duration; "" if that may be a dead holder's."""
        if self._seen is None or not self._seen_changing or not self.expires_in_s:
            return ""
        return self._seen.spec.holder_identity or ""

    @property
    def led_since(self) -> datetime | None:
        """Since when only controllers of ours have held it; None: there is no proof of that."""
        return _proven_since(self._seen) if self._seen is not None else None

    async def look(self) -> bool:
        """Take in what the lease says now, which starts or restarts its expiry; always True."""
        try:
            self._observe(await self._client.get(LEASES, self.name, self._namespace))
        except KubeError as exc:
            if exc.reason is not Reason.OBJECT_NOT_FOUND:
                raise
            self._seen = None
            self.is_new = not self._saw_others
        return True

    async def take(self) -> bool:
        """Take the lease if it is free, expired or ours already, by the last look at it."""
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
        """Confirm a lease that is ours; False when it turns out to be somebody else's."""
        began = self._clock()
        try:
            if self._seen is not None:
                self._confirm(await self._write(self._seen), began)
                return True
        except KubeError as exc:
            # Our own write whose answer was lost, an edited label, a deleted lease, or a thief.
            if exc.reason not in {Reason.CONFLICT, Reason.OBJECT_NOT_FOUND}:
                raise
        await self.look()
        return await self.take()

    def vouch(self, since: datetime) -> None:
        """Have the next write to the lease tell that only ours have held it since then."""
        self._since = since

    async def attest(self) -> bool:
        """Write what is vouched for to the lease at once, without taking it; always True."""
        await self.look()
        seen = self._seen
        self._observe(await (self._create("") if seen is None else self._patch(seen, {})))
        return True

    async def release(self) -> None:
        """Give a lease up that may be ours, so that the next holder need not wait."""
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
            # The first sight of a record does not tell when it was written.
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
        # The version makes it a compare-and-swap; a patch keeps labels and fields of others.
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
        """The proof for a record; none, which leaves a void one in its place."""
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
