"""Preparing: have a snapshot made fast and locked as its class asks, and slow before its end."""

import structlog

from provisioner.decide import snapshot_wishes as wishes
from provisioner.decide.snapshot_class import SnapshotParameters
from provisioner.decide.snapshot_content import parameters_of
from provisioner.decide.snapshot_progress import fast_zones_left, is_done, slow_zones
from provisioner.edges import Edges
from provisioner.model.errors import StorageError
from provisioner.model.volume_snapshot import VolumeSnapshotContent
from provisioner.reconcile.snapshot_events import SnapshotEvents

_SLOWING = "waiting: EC2 disables the snapshot's fast restores, before it can be deleted"

log = structlog.get_logger(__name__)


class Preparing:
    """What is done with EBS snapshots besides taking and deleting them."""

    def __init__(self, edges: Edges, events: SnapshotEvents) -> None:
        self._edges = edges
        self._snapshots = edges.snapshots
        self._events = events

    async def wanted(self, content: VolumeSnapshotContent) -> SnapshotParameters | None:
        """What its class asks for; None if nothing, or, with a word, if nobody can tell any more.

        What it asked for when the snapshot was begun is written to the content, so a class that
        went is no matter. Of a snapshot that the stock driver took it is not: people must not be
        kept from it.
        """
        read_class = await self._edges.caches.snapshot_class(content.class_name)
        try:
            parameters = parameters_of(content, read_class, driver=self._edges.settings.driver)
        except StorageError as error:
            kept = wishes.read(content)
            if kept is None:
                self._events.warn(content, wishes.unknown(error))
            return kept
        return None if is_done(parameters) else parameters

    async def carry_out(
        self, snapshot_id: str, wanted: SnapshotParameters, *, is_new: bool
    ) -> None:
        """Make a snapshot fast and lock it; ``is_new``: nothing of it can be done yet.

        Raises:
            Ec2Error: some of it may be done.
        """
        zones, lock = wanted.fast_zones, wanted.lock
        if zones and not is_new:
            states = await self._snapshots.fast_restores([snapshot_id])
            zones = slow_zones(wanted, states.get(snapshot_id, {}))
        if zones:
            await self._snapshots.enable_fast_restore(snapshot_id, zones)
        if lock and not is_new and snapshot_id in await self._snapshots.locks([snapshot_id]):
            lock = None
        if lock:
            await self._snapshots.lock(snapshot_id, lock)
        log.info(
            "snapshot prepared", snapshot=snapshot_id, fast_in=zones, locked=lock and lock.mode
        )

    async def slow_down(self, content: VolumeSnapshotContent, snapshot_id: str) -> bool:
        """Disable fast restores, which may keep a snapshot from being deleted.

        Returns:
            Whether there were any, so that the deletion is worth another try soon.

        Raises:
            Ec2Error: it cannot be told, or not be done.
        """
        states = (await self._snapshots.fast_restores([snapshot_id])).get(snapshot_id, {})
        zones, under_way = fast_zones_left(states)
        if zones:
            await self._snapshots.disable_fast_restore(snapshot_id, zones)
        if not zones and not under_way:
            return False
        self._events.waits(content, _SLOWING, about=_SLOWING)
        return True
