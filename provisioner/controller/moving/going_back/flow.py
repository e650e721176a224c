"""Going back: what is read of another move and its old volume, and how that is held."""

from typing import assert_never

from provisioner.controller.moving.going_back import rules as back_rules
from provisioner.controller.moving.going_back.rules import Kept
from provisioner.controller.moving.phase_rules import Await, Hold, Undo
from provisioner.controller.moving.record import MoveRecord
from provisioner.controller.shared.services import Services
from provisioner.kube.client import find
from provisioner.kube.resources import VOLUME_MOVES
from provisioner.model.decision import AGAIN, Later
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.volume_move import VolumeMove


class GoingBack:
    """Moves that go back. Its methods raise ``StorageError``."""

    def __init__(self, services: Services, record: MoveRecord) -> None:
        self._client = services.client
        self._caches = services.caches
        self._volume_reads = services.volume_reads
        self._driver = services.settings.driver
        self._record = record

    async def look(self, move: VolumeMove) -> Kept | None:
        """What there is to go back to; None for a move that does not."""
        if not move.goes_back:
            return None
        other = await find(self._client, VOLUME_MOVES, move.spec.to.source, move.metadata.namespace)
        if other is None:
            return Kept(None)
        name, volume_id = other.source.persistent_volume, other.source.volume_id
        await self._caches.certain(self._caches.persistent_volumes)
        named = self._caches.persistent_volumes.keyed("volume", volume_id)
        return Kept(
            other,
            await self._record.persistent_volume(name),
            await self._record.volume_document(name),
            await self._volume_reads.volume(volume_id) if volume_id else None,
            {each.name for each in named} - {name},
        )

    async def hold(self, move: VolumeMove, newer: PersistentVolume) -> Later | Await | Undo | None:
        """Have the kept volume stay as it is; None once it does.

        The hold comes first, and then the look at what the other move has made of the volume: that
        one lets it go only in exactly the version in which it was not held.
        """
        kept = move.kept
        found = await self._record.persistent_volume(kept.persistent_volume)
        volume = await self._volume_reads.volume(kept.volume_id)
        step = back_rules.next_step(move, found, volume, newer, self._driver)
        match step:
            case Hold():
                if found is not None:
                    await self._record.hold(move, found, self._driver)
                return AGAIN
            case Await() | Undo() | None:
                return step
            case _:
                assert_never(step)
