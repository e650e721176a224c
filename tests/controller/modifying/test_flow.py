"""Growing and changing a volume, as one plan: who is written to, in which order, how often."""

from __future__ import annotations

import asyncio
import copy

import pytest

from provisioner.controller.modifying.growth_rules import PRE_RESIZE_CAPACITY
from provisioner.controller.modifying.state import ClaimState
from provisioner.model.decision import Next
from provisioner.model.errors import Reason
from provisioner.model.modification import ModifyRequest
from provisioner.model.names import MODIFICATIONS
from tests.controller.modify_cloud import VOLUME, refusal
from tests.controller.modify_world import Json, World, claim_json, told

HOUR_S = 3600.0


def test_a_file_system_is_left_to_kubelet_once_the_volume_has_grown(
    monkeypatch: pytest.MonkeyPatch,
):
    async def story(world: World) -> None:
        world.ask("20Gi")
        await world.run(30)
        assert world.claim.resize_status == "NodeResizePending"
        assert world.claim.capacity == "10Gi"
        assert world.persistent_volume.capacity == "20Gi"

    world = told(story, monkeypatch)

    assert world.cloud.sent == [ModifyRequest(VOLUME, 20, None, None, None)]
    assert world.conditions == {"FileSystemResizePending"}
    assert world.reasons == ["Resizing", "FileSystemResizeRequired"]


def test_a_raw_device_has_all_of_it_at_once(monkeypatch: pytest.MonkeyPatch):
    async def story(world: World) -> None:
        world.put("claim", claim_json(mode="Block"))
        world.ask("20Gi")
        await world.run(30)

    world = told(story, monkeypatch)

    assert (world.claim.capacity, world.persistent_volume.capacity) == ("20Gi", "20Gi")
    assert world.claim.resize_status == ""
    assert world.conditions == set()
    assert world.reasons == ["Resizing", "VolumeResizeSuccessful"]


def test_what_the_claim_had_is_kept_until_its_file_system_has_grown(
    monkeypatch: pytest.MonkeyPatch,
):
    async def story(world: World) -> None:
        world.ask("20Gi")
        await world.run(30)
        assert world.persistent_volume.annotations[PRE_RESIZE_CAPACITY] == "10Gi"
        world.kubelet()
        await world.run(10)

    world = told(story, monkeypatch)

    assert PRE_RESIZE_CAPACITY not in world.persistent_volume.annotations


def test_size_and_class_are_one_modification_and_one_write_each(monkeypatch: pytest.MonkeyPatch):
    async def story(world: World) -> None:
        world.attributes_class("gold", iops="4000", throughput="200")
        world.ask("20Gi", "gold")
        await world.run(30)

    world = told(story, monkeypatch)

    assert world.cloud.sent == [ModifyRequest(VOLUME, 20, None, 4000, 200)]
    assert world.claim.current_attributes_class_name == "gold"
    assert world.claim.modify_status is None
    assert world.persistent_volume.attributes_class_name == "gold"
    # The targets, the note, the persistent volume and last the claim.
    assert [kind for kind, _ in world.writes] == ["claim", "pv", "pv", "claim"]
    targets, note, done, _ = (change for _, change in world.writes)
    assert {"allocatedResources", "modifyVolumeStatus"} <= targets["status"].keys()
    assert list(note["metadata"]["annotations"]) == [MODIFICATIONS]
    assert done["spec"].keys() == {"capacity", "volumeAttributesClassName"}


def test_an_edit_right_after_another_goes_with_it(monkeypatch: pytest.MonkeyPatch):
    async def story(world: World) -> None:
        world.attributes_class("gold", iops="4000")
        world.ask("20Gi")
        await world.run(0.8)
        world.ask(attributes="gold")
        await world.run(30)

    world = told(story, monkeypatch)

    assert world.cloud.sent == [ModifyRequest(VOLUME, 20, None, 4000, None)]


def test_two_edits_one_after_the_other_are_one_modification(monkeypatch: pytest.MonkeyPatch):
    async def story(world: World) -> None:
        world.attributes_class("gold", iops="4000")
        world.cloud.waits_s = 5.0  # other volumes are before it
        world.ask("20Gi")
        working = asyncio.create_task(world.run(60))
        await asyncio.sleep(4)
        world.ask(attributes="gold")  # while the first one waits for its turn
        await working

    world = told(story, monkeypatch)

    assert world.cloud.sent == [ModifyRequest(VOLUME, 20, None, 4000, None)]


def test_nothing_is_sent_when_ec2_agrees(monkeypatch: pytest.MonkeyPatch):
    async def story(world: World) -> None:
        world.attributes_class("same", type="gp3", iops="3000", throughput="125")
        world.ask(attributes="same")
        await world.run(30)

    world = told(story, monkeypatch)

    assert world.cloud.sent == []
    assert world.claim.current_attributes_class_name == "same"


def test_a_change_that_comes_while_one_runs_is_the_next_plan(monkeypatch: pytest.MonkeyPatch):
    async def story(world: World) -> None:
        world.put("claim", claim_json(mode="Block"))
        world.attributes_class("gold", iops="4000")
        world.ask("20Gi")
        working = asyncio.create_task(world.run(1000))
        await asyncio.sleep(3)
        assert world.cloud.taken == 1
        world.ask("30Gi", "gold")
        await asyncio.sleep(60)
        # The first size is there, though EC2 optimizes for ten minutes more.
        assert world.claim.capacity == "20Gi"
        assert len(world.cloud.sent) == 1
        await working

    world = told(story, monkeypatch)

    assert world.cloud.sent[1:] == [ModifyRequest(VOLUME, 30, None, 4000, None)]
    assert world.claim.capacity == "30Gi"
    assert world.claim.current_attributes_class_name == "gold"
    waits = [text for _, text in world.told if "still optimizing" in text]
    assert len(waits) == 1


def test_a_full_disk_grows_though_its_class_is_refused_by_ec2(monkeypatch: pytest.MonkeyPatch):
    async def story(world: World) -> None:
        world.attributes_class("gold", iops="4000")
        world.cloud.refuses = lambda request: (
            refusal(Reason.INVALID_REQUEST, "not here") if request.iops else None
        )
        world.ask("20Gi", "gold")
        await world.run(60)
        assert world.persistent_volume.capacity == "20Gi"
        status = world.claim.modify_status
        assert status is not None
        assert status.status == "Infeasible"
        assert world.conditions == {
            "FileSystemResizePending",
            "ModifyingVolume",
            "ModifyVolumeError",
        }
        # The way back: another class.
        world.cloud.refuses = lambda _: None
        world.kubelet()
        world.attributes_class("silver", throughput="200")
        world.ask(attributes="silver")
        await world.run(1000)

    world = told(story, monkeypatch)

    assert world.cloud.sent == [
        ModifyRequest(VOLUME, 20, None, 4000, None),
        ModifyRequest(VOLUME, 20, None, None, None),
        ModifyRequest(VOLUME, None, None, None, 200),
    ]
    assert world.claim.current_attributes_class_name == "silver"
    assert world.reasons.count("VolumeModifyFailed") == 1
    assert world.conditions == set()


def test_a_class_is_changed_though_the_size_is_refused(monkeypatch: pytest.MonkeyPatch):
    async def story(world: World) -> None:
        world.attributes_class("gold", iops="4000")
        world.cloud.refuses = lambda request: (
            refusal(Reason.INVALID_REQUEST, "too large") if request.size_gib else None
        )
        world.ask("90000Gi", "gold")
        await world.run(60)
        assert world.claim.resize_status == "ControllerResizeInfeasible"
        assert world.claim.current_attributes_class_name == "gold"
        world.cloud.refuses = lambda _: None
        world.ask("20Gi")
        await world.run(1000)

    world = told(story, monkeypatch)

    assert [each.size_gib for each in world.cloud.sent] == [90_000, 90_000, None, 20]
    assert world.persistent_volume.capacity == "20Gi"
    assert world.conditions == {"FileSystemResizePending"}


@pytest.mark.parametrize("found", ["missing", "broken", "another driver's", "not served"])
def test_a_disk_grows_though_its_class_cannot_be_had(found: str, monkeypatch: pytest.MonkeyPatch):
    async def story(world: World) -> None:
        if found == "not served":
            world.is_older_than_1_34()
        if found == "broken":
            world.attributes_class("gold", iops="many")
        if found == "another driver's":
            world.attributes_class("gold", driver="other")
        world.ask("20Gi", "gold")
        await world.run(60)

    world = told(story, monkeypatch)

    assert world.cloud.sent == [ModifyRequest(VOLUME, 20, None, None, None)]
    assert world.persistent_volume.capacity == "20Gi"
    status = world.claim.modify_status
    assert status is not None
    assert status.status == ("Pending" if found == "missing" else "Infeasible")
    assert world.reasons.count("VolumeModifyFailed") == 1


@pytest.mark.parametrize("size", [None, "20Gi"], ids=["alone", "with a size"])
@pytest.mark.parametrize("found", ["missing", "broken"])
def test_a_class_that_cannot_be_had_is_told_every_half_hour_and_looked_at_no_more_often(
    found: str, size: str | None, monkeypatch: pytest.MonkeyPatch
):
    """Events live for an hour."""
    passes: list[str] = []

    async def story(world: World) -> None:
        if found == "broken":
            world.attributes_class("gold", iops="many")
        world.ask(size, "gold")
        await world.run(HOUR_S)
        if size is not None:
            world.kubelet()  # which takes conditions away here
            await world.run(60)
        world.writes.clear()
        advance = world.modifier._advance

        async def counted(uid: str, state: ClaimState) -> Next:
            passes.append(uid)
            return await advance(uid, state)

        monkeypatch.setattr(world.modifier, "_advance", counted)
        await world.run(5 * HOUR_S)

    world = told(story, monkeypatch)

    assert 11 <= world.reasons.count("VolumeModifyFailed") <= 13
    assert len(passes) <= 11
    assert "claim" not in [kind for kind, _ in world.writes]


def test_before_1_34_the_claim_says_why_its_class_is_not_applied_until_an_upgrade(
    monkeypatch: pytest.MonkeyPatch,
):
    """As on EKS: the API server has v1beta1 only, so claims name classes that we cannot read."""
    before: list[Json] = []

    async def story(world: World) -> None:
        world.is_older_than_1_34()
        world.ask(attributes="gold")
        await world.run(60)
        before.append(copy.deepcopy(world.objects["claim"]["status"]))
        world.is_upgraded()
        world.attributes_class("gold", iops="4000")
        await world.run(60)

    world = told(story, monkeypatch)

    [status] = before
    [said] = [each for each in status["conditions"] if each["type"] == "ModifyVolumeError"]
    assert "VolumeAttributesClass 'gold' cannot be read" in said["message"]
    assert "Kubernetes has from 1.34 on" in said["message"]
    assert status["modifyVolumeStatus"]["status"] == "Infeasible"
    assert world.reasons.count("VolumeModifyFailed") == 1
    assert world.cloud.sent == [ModifyRequest(VOLUME, None, None, 4000, None)]
    assert world.claim.current_attributes_class_name == "gold"
    assert world.conditions == set()


def test_a_class_that_comes_late_is_taken(monkeypatch: pytest.MonkeyPatch):
    async def story(world: World) -> None:
        world.ask(attributes="gold")
        working = asyncio.create_task(world.run(60))
        await asyncio.sleep(10)
        world.attributes_class("gold", iops="4000")
        await working

    world = told(story, monkeypatch)

    assert world.claim.current_attributes_class_name == "gold"


def test_a_change_that_was_never_begun_can_be_cancelled(monkeypatch: pytest.MonkeyPatch):
    async def story(world: World) -> None:
        world.ask(attributes="gold")
        await world.run(10)
        world.ask(attributes="")
        await world.run(10)

    world = told(story, monkeypatch)

    assert world.claim.modify_status is None
    assert world.cloud.sent == []
    assert world.reasons[-1] == "VolumeModifyCanceled"


def test_tags_alone_cost_no_modification(monkeypatch: pytest.MonkeyPatch):
    async def story(world: World) -> None:
        world.attributes_class("gold", tagSpecification_1="for={{ .PVCName }}")
        world.ask(attributes="gold")
        await world.run(30)

    world = told(story, monkeypatch)

    assert world.cloud.tagged == [{"for": "data"}]
    assert world.cloud.sent == []
    assert world.claim.current_attributes_class_name == "gold"


def test_annotations_from_before_there_were_classes_are_carried_out_once(
    monkeypatch: pytest.MonkeyPatch,
):
    async def story(world: World) -> None:
        world.heed_annotations()
        claim = claim_json()
        claim["metadata"]["annotations"] = {"ebs.csi.aws.com/iops": "4000"}
        world.put("claim", claim)
        await world.run(30)
        await world.restart()
        reads = world.cloud.reads
        await world.run(30)
        assert world.cloud.reads == reads

    world = told(story, monkeypatch)

    assert world.cloud.sent == [ModifyRequest(VOLUME, None, None, 4000, None)]
    assert world.persistent_volume.annotations["ebs.csi.aws.com/iops"] == "4000"
