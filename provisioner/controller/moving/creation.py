"""The new volume of a move: created as every other is, or found and deleted if it is undone."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import msgspec
import structlog

from provisioner import clock
from provisioner.classes import storage_class_rules
from provisioner.controller.claims.events import ClaimEvents
from provisioner.controller.moving import phase_rules, plan_rules
from provisioner.controller.moving.pace import SLOWEST_S, phase_age_s
from provisioner.controller.moving.record import MoveRecord
from provisioner.controller.placement.refused_places import RefusedPlaces
from provisioner.controller.provisioning import creation_rules
from provisioner.controller.provisioning.creation import Creations, Objects
from provisioner.controller.provisioning.creation_rules import Attempt, GiveUp
from provisioner.controller.provisioning.plan_rules import Plan
from provisioner.controller.shared.services import Services
from provisioner.kube.events import Regarding
from provisioner.model.claim import Claim
from provisioner.model.consistency import CONSISTENCY_S, LOOK_AGAIN_S
from provisioner.model.decision import Later, Next
from provisioner.model.ebs_snapshot import EbsSnapshot
from provisioner.model.errors import KubeError, Reason, StorageError
from provisioner.model.meta import ObjectMeta
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.storage_class import StorageClass
from provisioner.model.volume import CreateRequest, Volume, VolumeState
from provisioner.model.volume_move import ABORTABLE, API_VERSION, KIND, VolumeMove

_GONE_SOON_S = 1.0
_GONE = (VolumeState.DELETING, VolumeState.DELETED)

log = structlog.get_logger(__name__)


class MoveVolumes:
    """The new volumes of moves, by the move's UID. ``wake`` queues a move."""

    def __init__(self, services: Services, record: MoveRecord, wake: Callable[[str], None]) -> None:
        self._caches = services.caches
        self._volumes = services.volumes
        self._lookups = services.lookups
        self._driver = services.settings.driver
        self._record = record
        self._bodies: dict[str, Mapping[str, Any]] = {}
        # Of these it is certain that no request was sent that this process does not know.
        self._certain: set[str] = set()
        self._looking_since_s: dict[str, float] = {}
        self._shown: dict[str, Volume] = {}  # as EC2 showed it when its object was made
        self._creations = Creations(
            services,
            objects=Objects(self._is_going, self._body, self._conflict),
            events=ClaimEvents(services.events, regarding=self._regarding),
            refused_places=RefusedPlaces(services.metrics),
            wake=wake,
            volumes=services.volumes.patient,
            most_pause_s=SLOWEST_S,
        )

    async def close(self) -> None:
        """Stop asking EC2."""
        await self._creations.usage.close()

    def begin(self, uid: str) -> None:
        """This process has written the phase: nothing was sent before."""
        self._certain.add(uid)

    def forget(self, uid: str) -> None:
        """The move has ended."""
        self._bodies.pop(uid, None)
        self._shown.pop(uid, None)
        self._certain.discard(uid)
        self._looking_since_s.pop(uid, None)
        self._creations.forget(uid)

    def is_under_way(self, uid: str) -> bool:
        """Whether this process makes it, so that its PersistentVolume cannot be there yet."""
        return uid in self._certain or uid in self._creations.attempts

    def shown(self, uid: str, volume_id: str) -> Volume | None:
        """The new volume as EC2 has shown it to this process once it was ready."""
        found = self._shown.get(uid)
        return found if found is not None and found.volume_id == volume_id else None

    def seen(self, uid: str) -> None:
        """What was missing is there: if it is missing again, that counts anew."""
        self._looking_since_s.pop(uid, None)

    def missing_for_s(self, uid: str) -> float:
        """For how long the new PersistentVolume of a move, or its volume, has been missing."""
        now_s = clock.now_s()
        return now_s - self._looking_since_s.setdefault(uid, now_s)

    async def advance(self, move: VolumeMove, request: CreateRequest) -> Next:
        """Carry the creation on; settled once the PersistentVolume is there.

        Raises:
            StorageError: it goes on after a while.
        """
        uid = move.uid
        self._bodies[uid] = move.told.persistent_volume or {}
        if uid not in self._creations.attempts:
            attempt = Attempt(self._plan(move, request), started_at_s=clock.now_s())
            if uid not in self._certain:
                attempt = creation_rules.inherited(attempt, phase_age_s(move))
            self._certain.discard(uid)
            self._creations.begin(uid, attempt)
        done = await self._creations.advance(uid)
        if isinstance(done, GiveUp):
            raise done.error
        return done

    async def undo(self, move: VolumeMove) -> Later | None:
        """Delete the new volume and its PersistentVolume; None once there is neither.

        A PersistentVolume that a claim is bound to by now is left as it is.

        Raises:
            StorageError: it goes on after a while.
        """
        saved = await self.withdraw(move)
        known = self._creations.abandon(move.uid)
        if saved is not None and not phase_rules.is_unused(saved):
            return None
        if saved is not None:
            return Later(_GONE_SOON_S)  # the volume is deleted once no object names it
        if known and await self._delete(known):
            return None
        # EC2 may not know yet what it has just made: a deletion is then answered as for nothing.
        if move.uid in self._certain:
            return None
        return await self._look_and_delete(move)

    async def withdraw(self, move: VolumeMove) -> PersistentVolume | None:
        """Have no claim be bound to the new PersistentVolume any more; what was there of it.

        Its volume stays.
        """
        saved = await self._record.persistent_volume(move.persistent_volume_name)
        if saved is not None and phase_rules.is_unused(saved) and not saved.deleting:
            await self._record.remove_volume_object(saved)
        return saved

    async def _look_and_delete(self, move: VolumeMove) -> Later | None:
        """A process before us may have sent the request, and died before its answer."""
        found = await self._lookups.find(move.persistent_volume_name)
        left = [each for each in found if each.state not in _GONE]
        for each in left:
            await self._delete(each.volume_id)
        if left or self.missing_for_s(move.uid) >= CONSISTENCY_S:
            return None
        return Later(LOOK_AGAIN_S)

    async def _delete(self, volume_id: str) -> bool:
        """Whether there was such a volume; one that another object names by now is its own."""
        try:
            return await self._volumes.delete(
                volume_id, gate=lambda: self._caches.nobody_names(volume_id)
            )
        except KubeError as error:
            if error.reason is not Reason.CONFLICT:
                raise
            log.warning("the volume of an undone move is kept", why=error.message)
            return True

    def _is_going(self, uid: str) -> bool:
        move = self._caches.move(uid)
        return move is None or move.told.phase not in ABORTABLE

    def _body(self, plan: Plan, volume: Volume) -> Mapping[str, Any]:
        self._shown[plan.claim.uid] = volume
        return plan_rules.with_volume(dict(self._bodies[plan.claim.uid]), volume)

    def _conflict(self, found: PersistentVolume, _: Plan, volume: Volume) -> StorageError | None:
        if found.volume_id(self._driver) == volume.volume_id:
            return None
        message = f"PersistentVolume {found.name} exists already, and names another volume"
        return StorageError(Reason.CONFLICT, message)

    def _plan(self, move: VolumeMove, request: CreateRequest) -> Plan:
        """What the attempt is about; the class is not asked again."""
        claim = plan_rules.stand_in(move)
        meta = ObjectMeta(name=move.told.plan.target.storage_class_name if move.told.plan else "")
        read_class = storage_class_rules.read(StorageClass(metadata=meta, provisioner=self._driver))
        return Plan(claim, read_class, None, request)

    def _regarding(self, claim: Claim) -> Regarding:
        move = self._caches.move(claim.uid)
        about = move if move is not None else claim
        return Regarding.of(about, KIND, API_VERSION)


def grown(move: VolumeMove, snapshot: EbsSnapshot) -> dict[str, Any]:
    """What of the frozen request is another, as the old volume was grown after the plan.

    EC2 makes no volume that is smaller than its snapshot. The rest of the request stays.
    """
    if request_of(move, snapshot.snapshot_id).size_gib >= snapshot.size_gib:
        return {}
    return {"request": {"size_gib": snapshot.size_gib}}


def request_of(move: VolumeMove, snapshot_id: str) -> CreateRequest:
    """What CreateVolume is told, as it was frozen; without a snapshot, files are copied."""
    frozen = msgspec.convert(move.told.request or {}, CreateRequest)
    return replace(frozen, snapshot_id=snapshot_id or None)
