"""Source finalizers: what a volume is made from stays until the volume is there.

The finalizer is put on before EC2 is asked for the volume, and comes off once no pending claim
names the source and no volume is being made from it. Every change of such a claim or source has it
looked at, and all of them regularly.
"""

import asyncio
from collections.abc import Callable, Iterable
from weakref import WeakValueDictionary

import structlog

from provisioner.controller.claims import source_rules as rules
from provisioner.controller.shared.services import Services
from provisioner.kube.client import Patch
from provisioner.kube.queue import KeyedQueue
from provisioner.kube.resources import CLAIMS, VOLUME_SNAPSHOTS
from provisioner.model.claim import CLAIM_KIND, SNAPSHOT_KIND, Claim
from provisioner.model.data_source import CLAIM_FINALIZER
from provisioner.model.decision import SETTLED, Next
from provisioner.model.errors import KubeError, Outcome, Reason
from provisioner.model.meta import UnlabelledObject
from provisioner.model.volume_snapshot import SOURCE_FINALIZER, VolumeSnapshot

SWEEP_S = 300.0
_TRIES = 3
_FINALIZERS = {CLAIM_KIND: CLAIM_FINALIZER, SNAPSHOT_KIND: SOURCE_FINALIZER}

log = structlog.get_logger(__name__)


class SourceFinalizers:
    """The flow of sources; keys are as ``Claim.source_key``.

    ``is_in_use``: whether a volume is being made from a source.
    """

    def __init__(self, services: Services, *, is_in_use: Callable[[str], bool]) -> None:
        self._driver = services.settings.driver
        self._client = services.client
        self._caches = services.caches
        self._is_in_use = is_in_use
        # One writer a source: who holds it must not find the finalizer that is being taken off.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._unsure: set[str] = set()  # a write was cut off: the cache may not tell
        self.queue = KeyedQueue("source finalizers", self.reconcile, services.metrics)

    def subscribe(self) -> None:
        """Queue sources when they change, or a claim that names them."""
        self._caches.claims.subscribe(self._claim_changed)
        self._caches.snapshots.subscribe(self._snapshot_changed)

    async def run(self) -> None:
        """Queue all of them regularly, forever."""
        while True:
            await asyncio.sleep(SWEEP_S)
            for kind, finalizer, cached in self._cached():
                for each in cached:
                    if finalizer in each.finalizers:
                        self.queue.add(f"{kind} {each.key}")

    async def hold(self, claim: Claim) -> None:
        """Put the finalizer on what a claim is made from, before EC2 is asked.

        Raises:
            KubeError: it cannot be put on, so nothing may be made; above all because the source is
                being deleted.
        """
        if claim.source_key:
            await self._change(claim.source_key, is_on=True)

    def release(self, claim: Claim) -> None:
        """Look whether the source of a claim is still needed, which no event may tell."""
        if claim.source_key:
            self.queue.add(claim.source_key)

    async def reconcile(self, source_key: str) -> Next:
        """Take the finalizer off a source that is not needed any more."""
        kind, _, key = source_key.partition(" ")
        source = self._source(kind, key)
        if source is None or _FINALIZERS[kind] not in source.finalizers:
            return SETTLED
        if self._is_needed(source_key) or await self._is_foreign(source):
            return SETTLED
        if await self._change(source_key, is_on=False):
            log.info("released the source of a volume", kind=kind, source=key)
        return SETTLED

    def _is_needed(self, source_key: str) -> bool:
        if self._is_in_use(source_key):
            return True  # the claim of that volume may be gone
        return rules.is_needed(self._caches.claims.keyed("source", source_key))

    async def _change(self, source_key: str, *, is_on: bool) -> bool:
        """Put the finalizer on, or take it off if unneeded; returns whether it was written."""
        async with self._locks.setdefault(source_key, asyncio.Lock()):
            for tries_left in reversed(range(_TRIES)):
                try:
                    return await self._try(source_key, is_on=is_on)
                except KubeError as error:
                    if error.outcome is Outcome.UNKNOWN or error.reason is Reason.CONFLICT:
                        self._unsure.add(source_key)
                    if error.reason is Reason.OBJECT_NOT_FOUND:
                        self._unsure.discard(source_key)
                        if not is_on:
                            break
                    if error.reason is not Reason.CONFLICT or not tries_left:
                        raise
        return False

    async def _try(self, source_key: str, *, is_on: bool) -> bool:
        """Other finalizers are not touched, and nothing is overwritten.

        With the resourceVersion: a list read from a stale cache would bring back finalizers that
        were removed meanwhile, which the API server refuses for what is being deleted.
        """
        kind, _, key = source_key.partition(" ")
        found: UnlabelledObject | None = None
        if source_key not in self._unsure:
            found = self._source(kind, key)
        if found is None:
            found = await self._read(kind, key)
            self._unsure.discard(source_key)
        finalizer = _FINALIZERS[kind]
        if (finalizer in found.finalizers) is is_on:
            return False
        if not is_on and self._is_needed(source_key):
            return False  # a claim has come meanwhile
        kept = rules.without(found.finalizers, finalizer)
        await self._patch(kind, found, [*kept, finalizer] if is_on else kept)
        return True

    async def _patch(self, kind: str, found: UnlabelledObject, finalizers: list[str]) -> None:
        meta, client, merge = found.metadata, self._client, Patch.MERGE
        name, namespace = meta.name, meta.namespace
        body = {"metadata": {"resourceVersion": meta.resource_version, "finalizers": finalizers}}
        if kind == CLAIM_KIND:
            self._caches.claims.observe(
                await client.patch(CLAIMS, name, body, kind=merge, namespace=namespace)
            )
        else:
            self._caches.snapshots.observe(
                await client.patch(VOLUME_SNAPSHOTS, name, body, kind=merge, namespace=namespace)
            )

    async def _read(self, kind: str, key: str) -> UnlabelledObject:
        namespace, _, name = key.partition("/")
        if kind == CLAIM_KIND:
            claim = await self._client.get(CLAIMS, name, namespace)
            self._caches.claims.observe(claim)
            return claim
        snapshot = await self._client.get(VOLUME_SNAPSHOTS, name, namespace)
        self._caches.snapshots.observe(snapshot)
        return snapshot

    def _source(self, kind: str, key: str) -> Claim | VolumeSnapshot | None:
        caches = self._caches
        return caches.claims.get(key) if kind == CLAIM_KIND else caches.snapshots.get(key)

    async def _is_foreign(self, source: Claim | VolumeSnapshot) -> bool:
        """Whether another driver holds it: one of its volumes may be in the making.

        Without content or persistent volume it belongs to no driver: nothing can be made from it.
        """
        caches, driver = self._caches, self._driver
        if isinstance(source, VolumeSnapshot):
            content = await caches.content(source.content_name)
            return content is not None and content.spec.driver != driver
        volume = await caches.persistent_volume(source.spec.volume_name)
        return volume is not None and not volume.volume_id(driver)

    def _cached(self) -> Iterable[tuple[str, str, Iterable[UnlabelledObject]]]:
        yield CLAIM_KIND, CLAIM_FINALIZER, list(self._caches.claims.values())
        yield SNAPSHOT_KIND, SOURCE_FINALIZER, list(self._caches.snapshots.values())

    def _claim_changed(self, old: Claim | None, new: Claim | None) -> None:
        for claim in (old, new):
            if claim is not None and claim.source_key:
                self.queue.add(claim.source_key)
        if new is not None and CLAIM_FINALIZER in new.finalizers:
            self.queue.add(f"{CLAIM_KIND} {new.key}")

    def _snapshot_changed(self, _: VolumeSnapshot | None, new: VolumeSnapshot | None) -> None:
        if new is not None and SOURCE_FINALIZER in new.finalizers:
            self.queue.add(f"{SNAPSHOT_KIND} {new.key}")
