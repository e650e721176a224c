"""A made-up API server for the flows of moves, and the objects in it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec

from provisioner.controller.moving.pace import LOOK_AGAIN_S
from provisioner.controller.moving.phase_rules import Undo, Use
from provisioner.controller.moving.pods.consumers import Consumers
from provisioner.model.decision import AGAIN, Later, Next
from provisioner.model.document import Document
from provisioner.model.names import POLICY_BEFORE_MOVE
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.resource_quota import ResourceQuota
from provisioner.model.volume_move import Phase, VolumeMove
from provisioner.model.workload import Workload

OLD_UID, OLD_PV = "old-uid", "pvc-old"
PAST = "2020-01-01T00:00:00+00:00"


class FakeRecord:
    """The API server: one old PersistentVolume, and what was written."""

    def __init__(self, old: PersistentVolume | None) -> None:
        self.old = old
        self.policies: list[str] = []
        self.removed: list[str] = []
        self.written: list[Any] = []
        self.is_namespace_going = False
        self.new: PersistentVolume | None = None
        self.found: Document | None = None
        self.retained: list[str] = []
        self.let_go_with: list[str] = []
        self.created: list[Any] = []
        self.announced: list[str] = []
        self.others: dict[str, PersistentVolume] = {}
        self.let_go_of: list[str] = []
        self.held: list[str] = []
        self.kept: list[str] = []
        self.is_wanted = False
        self.left: list[str] = []
        self.attached: set[str] = set()
        self.removed_claims: list[tuple[str, str]] = []
        self.known_quotas: list[ResourceQuota] = []
        self.other_claims: dict[str, Document] = {}

    async def persistent_volume(self, name: str) -> PersistentVolume | None:
        return self.others.get(name, self.new) if name != OLD_PV else self.old

    async def try_volume_object(self, _: VolumeMove) -> None:
        pass

    def is_attached(self, persistent_volume: str) -> bool:
        return persistent_volume in self.attached

    async def retain(self, found: PersistentVolume) -> PersistentVolume:
        self.retained.append(found.reclaim_policy)
        notes = {**found.annotations, POLICY_BEFORE_MOVE: found.reclaim_policy}
        return a_pv(found.phase, "Retain", **notes)

    async def let_go(self, _: VolumeMove, found: Any, policy: str = "") -> None:
        self.let_go_with.append(policy)
        self.let_go_of.extend([found.name] if found is not None else [])

    async def leave(self, _: VolumeMove, found: PersistentVolume | None) -> None:
        self.left.extend([found.name] if found is not None else [])

    async def remove_volume_object(self, found: PersistentVolume) -> None:
        self.removed.append(found.name)

    async def known_volume(self, _: VolumeMove, name: str) -> PersistentVolume | None:
        return await self.persistent_volume(name)

    async def known_claim(self, move: VolumeMove) -> Document | None:
        return await self.claim(move)

    async def hold(self, _: VolumeMove, found: PersistentVolume, __: str) -> PersistentVolume:
        self.held.append(found.name)
        return found

    async def create_volume_object(self, body: Any) -> None:
        self.created.append(body)

    async def announce(
        self, move: VolumeMove, message: str, *, reason: str, warning: bool, **fields: Any
    ) -> Any:
        self.announced.append(f"{warning} {message}")
        return await self.write(move, {"message": message, **fields})

    async def pods(self, _: VolumeMove) -> list[Any]:
        return []

    async def tell(self, move: VolumeMove, message: str, **fields: Any) -> VolumeMove:
        return await self.write(move, {"message": message, **fields})

    async def set_policy(self, _: PersistentVolume, policy: str) -> None:
        self.policies.append(policy)

    async def may_create_claim(self, _: VolumeMove, recorded: str) -> bool:
        assert recorded
        return not self.is_namespace_going

    async def is_to_be_attached(self, _: PersistentVolume) -> bool:
        return self.is_wanted

    async def keep_claim(self, _: VolumeMove, claim: Document) -> None:
        self.kept.append(claim.uid)

    async def write(self, move: VolumeMove, status: Any) -> VolumeMove:
        self.written.append(status)
        return move

    async def advance(
        self, move: VolumeMove, phase: Phase, message: str = "", **fields: Any
    ) -> VolumeMove:
        return await self.write(move, {"phase": phase, "message": message, **fields})

    async def wait(self, move: VolumeMove, message: str, **_: int) -> Later:
        await self.tell(move, message)
        return Later(LOOK_AGAIN_S)

    async def abort(self, move: VolumeMove, why: Undo) -> Next:
        await self.advance(move, Phase.ABORTING, why.message, undoneFrom=move.phase)
        return AGAIN

    async def remove_claim(self, _: VolumeMove, uid: str, resource_version: str) -> None:
        self.removed_claims.append((uid, resource_version))

    async def create_claim(self, _: VolumeMove) -> bool:
        return not self.is_namespace_going

    async def claim(self, move: VolumeMove) -> Document | None:
        return self.other_claims.get(move.spec.claim_name, self.found)

    async def quotas(self, _: VolumeMove) -> list[ResourceQuota]:
        return self.known_quotas

    async def uses(self, _: VolumeMove) -> list[Use]:
        return []

    async def release(self, _: VolumeMove) -> None:
        pass

    async def keep(self, move: VolumeMove) -> VolumeMove:
        return move

    async def begin_to_warm(self, move: VolumeMove) -> None:
        await self.advance(move, Phase.WARMING)


def a_done_move(*, keeps: bool) -> VolumeMove:
    body = {
        "metadata": {"name": "to-b", "namespace": "shop", "uid": "move-uid"},
        "spec": {"claimName": "data", "to": {"zone": "us-east-1b"}, "keepSource": "0h"},
        "status": {
            "phase": "Done",
            "source": {
                "claimUID": OLD_UID,
                "persistentVolume": OLD_PV,
                "volumeID": "vol-1",
                "reclaimPolicy": "Delete",
            },
            "plan": {"keepsVolume": keeps},
            "persistentVolume": {"metadata": {"name": "pvc-move-uid"}, "spec": {}},
            "sourceKeptUntil": PAST,
        },
    }
    return msgspec.convert(body, VolumeMove)


def a_pv(phase: str, policy: str = "Retain", **notes: str) -> PersistentVolume:
    spec = {"persistentVolumeReclaimPolicy": policy, "claimRef": {"uid": OLD_UID}}
    meta = {"name": OLD_PV, "annotations": notes}
    body = {"metadata": meta, "spec": spec, "status": {"phase": phase}}
    return msgspec.convert(body, PersistentVolume)


def a_claim(uid: str = OLD_UID, volume: str = OLD_PV) -> Document:
    meta = {"name": "data", "namespace": "shop", "uid": uid, "resourceVersion": "7"}
    return msgspec.convert({"metadata": meta, "spec": {"volumeName": volume}}, Document)


def in_phase(move: VolumeMove, phase: str, **changes: Any) -> VolumeMove:
    status = msgspec.structs.replace(move.told, phase=phase, phase_since=PAST, **changes)
    return msgspec.structs.replace(move, status=status)


class FakeOwner(Consumers):
    """A StatefulSet that was recorded to be scaled from 3 to 0, and which nobody has changed."""

    def __init__(self, record: FakeRecord) -> None:
        self._record = record  # type: ignore[assignment]
        self._caches = SimpleNamespace(moves={})  # type: ignore[assignment]
        self.generation = 4
        self.replicas = 3
        self.scaled: list[int] = []

    async def _read(self, kind: str, name: str, namespace: str) -> Workload | None:
        body = {
            "metadata": {"name": name, "uid": "w", "generation": self.generation},
            "spec": {"replicas": self.replicas},
        }
        return msgspec.convert(body, Workload)

    async def _scale(self, consumer: Any, seen: Workload, replicas: int) -> None:
        self.scaled.append(replicas)


class FakeCompanions:
    """What the moves that go with this one say: one answer to all questions."""

    def __init__(self, says: Any = None, left: str = "") -> None:
        self.says = says
        self.left = left
        self.others_lead = True
        self.led: list[VolumeMove] = []
        self.promised: list[VolumeMove] = []

    async def before_begin(self, _: VolumeMove) -> Any:
        return self.says

    before_stop = before_swap = before_return = before_begin

    async def undone(self, _: VolumeMove) -> Undo | None:
        return self.says if isinstance(self.says, Undo) else None

    async def is_led(self, _: VolumeMove) -> bool:
        return self.others_lead

    async def led_by(self, _: VolumeMove) -> list[VolumeMove]:
        return self.led

    def promised_to(self, _: VolumeMove) -> list[VolumeMove]:
        return self.promised

    async def not_moved(self, _: VolumeMove) -> str:
        return self.left
