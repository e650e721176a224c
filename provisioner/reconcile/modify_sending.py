"""Sending ModifyVolume: written down before, looked at after, never twice blindly.

There is no client token. What is about to be sent is noted on the persistent volume, once the
limiter has granted the call and right before it goes; whoever finds such a note of which EC2 shows
nothing waits until EC2 would show it (see ``model/budget.py``).
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import structlog

from provisioner.decide.volume_plan import Send
from provisioner.edges import Edges
from provisioner.model.budget import ANNOTATION, Ledger, Start
from provisioner.model.claim import Claim
from provisioner.model.errors import KubeError, Outcome, StorageError
from provisioner.model.modification import Modification
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.reconcile.modify_memory import Known
from provisioner.reconcile.modify_record import ModifyRecord, utc_now

# A note as old as this is written anew before a call that was throttled goes again: who comes after
# us doubts it for a minute.
_NOTE_HOLDS = timedelta(seconds=5)

log = structlog.get_logger(__name__)


class ChangedError(Exception):
    """Something else is wanted by now, or the persistent volume is gone; nothing was sent."""


@dataclass(slots=True)
class _Note:
    """What this attempt has noted about itself, if it has."""

    start: Start | None = None


def ledger_of(persistent_volume: PersistentVolume, volume_id: str) -> Ledger:
    """What is noted on a persistent volume about the modifications of its volume."""
    ledger = Ledger.read(
        persistent_volume.annotations.get(ANNOTATION),
        persistent_volume_uid=persistent_volume.uid,
        volume_id=volume_id,
    )
    return ledger.believed(utc_now())


class ModifySending:
    """Sends one modification at a time for each claim."""

    def __init__(
        self, edges: Edges, record: ModifyRecord, *, is_same: Callable[[Claim], bool]
    ) -> None:
        """Send nothing yet; ``is_same``: whether a claim still wants what it was seen to want."""
        self._modifications = edges.modifications
        self._caches = edges.caches
        self._record = record
        self._is_same = is_same

    async def send(self, claim: Claim, pv_name: str, known: Known, step: Send) -> Modification:
        """Send one ModifyVolume.

        Raises:
            ChangedError: nothing was sent: look again.
            KubeError: it could not be noted, so nothing was sent.
            StorageError: refused; or, with ``outcome`` UNKNOWN, the reply was lost.
        """
        note = _Note()

        async def last_look() -> None:
            await self._last_look(claim, pv_name, known, step, note)

        try:
            return await self._modifications.modify(step.request, gate=last_look)
        except ChangedError:
            await self._take_back(pv_name, step.request.volume_id, known, note)
            raise
        except StorageError as error:
            if error.outcome is Outcome.NOTHING:
                await self._take_back(pv_name, step.request.volume_id, known, note)
            raise

    async def _last_look(
        self, claim: Claim, pv_name: str, known: Known, step: Send, note: _Note
    ) -> None:
        """Once the limiter has granted the call; it may have waited for minutes."""
        persistent_volume = self._caches.persistent_volumes.get(pv_name)
        if persistent_volume is None or not self._is_same(claim):
            raise ChangedError
        request, now = step.request, utc_now()
        ledger = ledger_of(persistent_volume, request.volume_id)
        if note.start is None:
            begun = ledger.begun(request, known.latest, now)
        elif ledger.starts[-1:] != (note.start,):
            raise ChangedError
        elif now - note.start.at < _NOTE_HOLDS:
            return  # EC2 has throttled it, and it goes again
        else:
            begun = ledger.again(now)
        # Should it be written though that fails, somebody waits for a minute; nothing is sent.
        await self._write(persistent_volume, request.volume_id, begun)
        note.start = begun.starts[-1]
        known.begun |= step.wishes
        if not self._is_same(claim):  # while that was written
            raise ChangedError

    async def _take_back(self, pv_name: str, volume_id: str, known: Known, note: _Note) -> None:
        """It was surely not carried out; a note that stays only costs a minute of doubt."""
        if note.start is None:
            return
        known.begun = frozenset()
        persistent_volume = self._caches.persistent_volumes.get(pv_name)
        if persistent_volume is None:
            return
        ledger = ledger_of(persistent_volume, volume_id)
        if ledger.starts[-1:] != (note.start,):
            return
        try:
            await self._write(persistent_volume, volume_id, ledger.taken_back())
        except KubeError as error:
            log.info("a note of what was refused stays", error=error.message)

    async def _write(
        self, persistent_volume: PersistentVolume, volume_id: str, ledger: Ledger
    ) -> None:
        text = ledger.text(persistent_volume_uid=persistent_volume.uid, volume_id=volume_id)
        value = text if ledger.starts else None
        await self._record.patch_persistent_volume(
            persistent_volume, {ANNOTATION: value}, {}, guarded=True
        )
