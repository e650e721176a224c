"""The swap of a volume that another driver takes over, with a record that is made up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
from msgspec import structs

from provisioner.controller.moving import phase_rules
from provisioner.controller.moving.phase_rules import Await, Use
from provisioner.controller.moving.swapping.flow import Swapping
from provisioner.model.attachment import Attachment
from provisioner.model.decision import AGAIN, Later
from provisioner.model.document import Document
from provisioner.model.driver import AUTO_MODE_DRIVER
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.volume_move import MovePlan, Shape, VolumeMove
from tests.builders import DRIVER, VOLUME, a_volume
from tests.controller.move_record import OLD_PV, a_pv
from tests.controller.moving.swapping.test_flow import a_swapping_move, swapping_with

VOLUME_ATTACHMENT = {
    "spec": {"nodeName": "node-1", "source": {"persistentVolumeName": OLD_PV}},
}


def swapping(driver: str) -> VolumeMove:
    move = a_swapping_move(keeps=True)
    plan = MovePlan(source=Shape(driver=DRIVER), target=Shape(driver=driver), keeps_volume=True)
    source = structs.replace(move.source, volume_id=VOLUME)
    return structs.replace(move, status=structs.replace(move.told, plan=plan, source=source))


def a_flow(driver: str, *attachments: Any) -> tuple[Swapping, list[str]]:
    """Both PersistentVolumes are there, and the claim is deleted; what is created again."""
    flow, record = swapping_with(a_pv("Released"), a_volume())
    csi = {"driver": driver, "volumeHandle": VOLUME}
    body = {"metadata": {"name": "pvc-move-uid"}, "spec": {"csi": csi}}
    record.new = msgspec.convert(body, PersistentVolume)
    found = {("persistent_volume", OLD_PV): [msgspec.convert(e, Attachment) for e in attachments]}
    looked: list[Any] = []
    created: list[str] = []

    async def certain(of: Any) -> None:
        looked.append(of)

    async def create_claim(move: VolumeMove) -> bool:
        created.append(move.spec.claim_name)
        return True

    of_nodes = SimpleNamespace(keyed=lambda *key: found[key] if looked else [])
    flow._caches = SimpleNamespace(  # type: ignore[assignment]
        certain=certain, attachments=of_nodes
    )
    record.create_claim = create_claim  # type: ignore[method-assign, assignment]
    return flow, created


async def test_the_claim_is_not_created_again_while_the_first_driver_has_the_volume_on_a_node():
    flow, created = a_flow(AUTO_MODE_DRIVER, VOLUME_ATTACHMENT)

    assert isinstance(await flow.advance(swapping(AUTO_MODE_DRIVER)), Later)

    assert created == []
    written = flow._record.written  # type: ignore[attr-defined]
    assert written[-1]["message"] == f"waiting until volume {VOLUME} is detached from node-1"


async def test_it_is_created_once_no_node_has_it_any_more():
    flow, created = a_flow(AUTO_MODE_DRIVER)

    assert await flow.advance(swapping(AUTO_MODE_DRIVER)) == AGAIN

    assert created == ["data"]


async def test_within_one_driver_nobody_is_waited_for():
    flow, created = a_flow(DRIVER, VOLUME_ATTACHMENT)

    assert await flow.advance(swapping(DRIVER)) == AGAIN

    assert created == ["data"]


class Stopping:
    """Pods that are not stopped by the move; how often it was looked at."""

    looks = 0

    async def stop(self, _: VolumeMove) -> Any:
        self.looks += 1
        return Await("waiting for pods web-0 to end")


def with_claim(
    driver: str, *attachments: Any, uses: list[Use]
) -> tuple[Swapping, VolumeMove, list[str]]:
    """The claim is there as it was recorded; which claims are deleted."""
    flow, _ = a_flow(driver, *attachments)
    record: Any = flow._record
    meta = {"name": "data", "namespace": "shop", "uid": "old-uid", "resourceVersion": "7"}
    claim = msgspec.convert({"metadata": meta, "spec": {"volumeName": OLD_PV}}, Document)
    record.found = claim
    removed: list[str] = []

    async def remove_claim(_: VolumeMove, uid: str, version: str) -> None:
        removed.append(f"{uid} {version}")

    async def used(_: VolumeMove) -> list[Use]:
        return uses

    record.remove_claim, record.uses = remove_claim, used
    flow._stopping = Stopping()  # type: ignore[assignment]
    move = swapping(driver)
    assert move.source.claim_uid == "old-uid"
    told = structs.replace(move.told, claim=phase_rules.record(claim))
    return flow, structs.replace(move, status=told), removed


async def test_the_claim_is_not_deleted_while_the_first_driver_has_the_volume_on_a_node():
    flow, move, removed = with_claim(AUTO_MODE_DRIVER, VOLUME_ATTACHMENT, uses=[])

    assert isinstance(await flow.advance(move), Later)

    written = flow._record.written  # type: ignore[attr-defined]
    assert written[-1]["message"] == f"waiting until volume {VOLUME} is detached from node-1"
    assert removed == []


async def test_pods_that_came_in_with_it_are_stopped_while_the_claim_is_there():
    flow, move, removed = with_claim(AUTO_MODE_DRIVER, VOLUME_ATTACHMENT, uses=[Use("web-0")])

    assert isinstance(await flow.advance(move), Later)

    written = flow._record.written  # type: ignore[attr-defined]
    assert written[-1]["message"] == "waiting for pods web-0 to end"
    assert (flow._stopping.looks, removed) == (1, [])  # type: ignore[attr-defined]


async def test_the_claim_is_deleted_once_no_node_has_it_any_more():
    flow, move, removed = with_claim(AUTO_MODE_DRIVER, uses=[])

    await flow.advance(move)

    assert removed == ["old-uid 7"]
