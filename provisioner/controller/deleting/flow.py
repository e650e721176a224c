"""Delete: the end of a persistent volume and of its volume.

The cache only proposes. Once the limiter has granted the call, right before it is sent, the caches
catch up with all that was written until then (``Informer.catch_up``). They have to confirm that the
volume is still to be deleted, that nothing is attached, and that no other object names the volume.
"""

import asyncio
from collections.abc import Mapping
from typing import assert_never

import structlog
from structlog.contextvars import bind_contextvars

from provisioner import clock
from provisioner.controller.deleting import rules
from provisioner.controller.shared.services import Services
from provisioner.kube.client import Patch, find
from provisioner.kube.events import Regarding
from provisioner.kube.queue import KeyedQueue
from provisioner.kube.resources import PERSISTENT_VOLUMES
from provisioner.model.attachment import Attachment
from provisioner.model.decision import SETTLED, Later, Next, Settled
from provisioner.model.errors import CHANGED_MEANWHILE, RETRY_SOON, KubeError, Reason, StorageError
from provisioner.model.persistent_volume import (
    PROVISIONER_FINALIZER,
    PersistentVolume,
    finalizer_of_attacher,
)

# So many PersistentVolumes are given our finalizer at once. Where another provisioner has made
# thousands without it, all are due when we first start: a claim must not wait behind them.
_ADDED_AT_ONCE = 8

log = structlog.get_logger(__name__)


class _NotConfirmedError(Exception):
    """The cache was behind; ``decision`` rests on what the API server has."""

    def __init__(self, decision: rules.Decision) -> None:
        super().__init__("the cache was behind")
        self.decision = decision


class Deleter:
    """The flow of persistent volumes at their end; keys are their names."""

    def __init__(self, services: Services) -> None:
        self._driver = services.settings.driver
        self._client = services.client
        self._caches = services.caches
        self._volumes = services.volumes
        self._unclaimed = services.unclaimed
        self._events = services.events
        self._metrics = services.metrics
        self._deferred_at_s: dict[str, float] = {}
        self._adding = asyncio.Semaphore(_ADDED_AT_ONCE)
        # A volume that was attached by hand is detached by hand: no event of Kubernetes tells when.
        soon = RETRY_SOON | {Reason.VOLUME_IN_USE}
        self.queue = KeyedQueue("delete", self.reconcile, services.metrics, soon=soon)

    def subscribe(self) -> None:
        """Have objects examined when they change, and when what held them back is gone."""
        self._caches.persistent_volumes.subscribe(self._changed)
        self._caches.attachments.subscribe(self._attachment_changed)

    def _changed(self, old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        if new is not None:
            if old is not None or not self._is_settled(new):
                self.queue.add(new.name)
        elif old is not None:
            self._deferred_at_s.pop(old.name, None)
            for namesake in self._namesakes(old):
                self.queue.add(namesake)

    def _attachment_changed(self, old: Attachment | None, new: Attachment | None) -> None:
        if new is None and old is not None and old.spec.source.persistent_volume_name:
            self.queue.add(old.spec.source.persistent_volume_name)

    async def reconcile(self, name: str) -> Next:
        """Make one pass over a persistent volume."""
        found = self._caches.persistent_volumes.get(name)
        if found is None:
            return SETTLED
        holder = found.spec.claim_ref
        bind_contextvars(
            claim=f"{holder.namespace}/{holder.name}" if holder is not None else "",
            persistent_volume=name,
            volume=found.volume_id(self._driver) or "",
        )
        decision = self._decide(found)
        if not isinstance(decision, rules.Defer):
            self._deferred_at_s.pop(name, None)
        try:
            return await self._carry_out(found, decision)
        except _NotConfirmedError as contradiction:
            return await self._carry_out(found, contradiction.decision)

    def _is_settled(self, found: PersistentVolume) -> bool:
        """Whether it needs no pass until it changes: at the start, nearly all of them.

        What one needs that is being deleted depends on its attachments too.
        """
        return not found.deleting and isinstance(self._decide(found), Settled)

    def _decide(self, found: PersistentVolume) -> rules.Decision:
        return rules.decide(
            found,
            driver=self._driver,
            attachments=self._caches.attachments.keyed("persistent_volume", found.name),
            namesakes=self._namesakes(found),
        )

    async def _carry_out(self, found: PersistentVolume, decision: rules.Decision) -> Next:
        match decision:
            case Settled():
                pass
            case rules.AddFinalizer():
                await self._add_finalizer(found)
            case rules.RemoveFinalizers(finalizers=finalizers):
                await self._remove_finalizers(found, finalizers)
            case rules.Defer():
                return self._defer(found, decision)
            case rules.Delete(volume_id=volume_id):
                await self._delete(found, volume_id)
            case _:
                assert_never(decision)
        return SETTLED

    def _defer(self, found: PersistentVolume, deferral: rules.Defer) -> Later:
        """Wait silently for as long as that is normal; then tell the user, and keep trying."""
        now_s = clock.now_s()
        wait_s = self._deferred_at_s.setdefault(found.name, now_s) + deferral.patience_s - now_s
        if wait_s > 0:
            return Later(wait_s)
        raise self._told(found, StorageError(deferral.reason, deferral.message))

    async def _delete(self, found: PersistentVolume, volume_id: str) -> None:
        began_s = clock.now_s()
        try:
            await self._volumes.delete(volume_id, gate=lambda: self._confirm(found))
        except StorageError as error:
            raise self._told(found, error) from error
        self._unclaimed.forget(volume_id)
        deleted = await self._delete_object(found)
        if deleted is not None:
            self._caches.persistent_volumes.observe(deleted)
            ours = (PROVISIONER_FINALIZER, finalizer_of_attacher(self._driver))
            await self._remove_finalizers(
                deleted, tuple(f for f in ours if f in deleted.finalizers)
            )
        took_s = clock.now_s() - began_s
        self._metrics.flow_seconds.labels("delete").observe(took_s)
        log.info("volume deleted")

    async def _confirm(self, proposed: PersistentVolume) -> None:
        """The last check, right before DeleteVolume is sent.

        Raises:
            _NotConfirmedError: the API server says otherwise.
            KubeError: it could not be asked, so nothing is deleted.
        """
        # A user who rescues a volume with another persistent volume relies on it as soon as the API
        # server has accepted that, and a cache may be behind.
        await self._caches.certain(self._caches.persistent_volumes, self._caches.attachments)
        decision = rules.confirm(
            proposed,
            # Read live: after a restore of etcd, a cache may never hear of it.
            await find(self._client, PERSISTENT_VOLUMES, proposed.name),
            driver=self._driver,
            attachments=self._caches.attachments.keyed("persistent_volume", proposed.name),
            namesakes=self._namesakes(proposed),
        )
        if not isinstance(decision, rules.Delete):
            raise _NotConfirmedError(decision)

    async def _delete_object(self, found: PersistentVolume) -> PersistentVolume | None:
        try:
            return await self._client.delete(PERSISTENT_VOLUMES, found.name, uid=found.uid)
        except KubeError as error:
            if error.reason in CHANGED_MEANWHILE:
                return None  # gone, or recreated under its name
            raise

    async def _add_finalizer(self, found: PersistentVolume) -> None:
        patch = {"metadata": {"uid": found.uid, "finalizers": [PROVISIONER_FINALIZER]}}
        async with self._adding:
            await self._patch(found, patch)

    async def _remove_finalizers(
        self, found: PersistentVolume, finalizers: tuple[str, ...]
    ) -> None:
        if finalizers:
            # The API server removes these from the list as it is then, and leaves all others.
            remove = {"$deleteFromPrimitiveList/finalizers": list(finalizers)}
            await self._patch(found, {"metadata": {"uid": found.uid, **remove}})

    async def _patch(self, found: PersistentVolume, patch: Mapping[str, object]) -> None:
        try:
            changed = await self._client.patch(
                PERSISTENT_VOLUMES, found.name, patch, kind=Patch.STRATEGIC
            )
        except KubeError as error:
            if error.reason in CHANGED_MEANWHILE:
                return  # gone, or recreated under its name: its own event brings us back
            raise
        self._caches.persistent_volumes.observe(changed)

    def _namesakes(self, found: PersistentVolume) -> frozenset[str]:
        volume_id = found.named_volume
        named = self._caches.persistent_volumes.keyed("volume", volume_id) if volume_id else ()
        return frozenset(p.name for p in named) - {found.name}

    def _told(self, found: PersistentVolume, error: StorageError) -> StorageError:
        if error.reason is Reason.NOT_LEADING:
            return error
        meta = found.metadata
        self._events.record(
            Regarding(
                kind="PersistentVolume",
                api_version="v1",
                name=meta.name,
                namespace="",
                uid=meta.uid,
                resource_version=meta.resource_version,
            ),
            warning=True,
            reason="VolumeFailedDelete",
            message=f"{error.reason}: {error.message}",
        )
        return error
