"""What the user of a claim reads while its volume cannot grow or change."""

from __future__ import annotations

import copy
from datetime import timedelta

import pytest

from provisioner.model.errors import Ec2Error, Reason
from provisioner.model.modification import Modification, ModificationState, shape_of
from provisioner.tell_once import EVENT_AGAIN_S
from tests.controller.modify_cloud import VOLUME
from tests.controller.modify_world import World, told


def by_others(world: World, state: ModificationState, *, ago: timedelta) -> Modification:
    """A modification that left all as it was."""
    assert world.cloud.volume is not None
    shape = shape_of(world.cloud.volume)
    return Modification(
        VOLUME, state, shape, original=shape, started_at=world.now() - ago, message="a fault"
    )


def test_a_limit_of_ec2_s_own_is_not_told_as_four_that_are_used_up(
    monkeypatch: pytest.MonkeyPatch,
):
    async def story(world: World) -> None:
        world.cloud.refuses = lambda _: Ec2Error(
            Reason.MODIFICATION_LIMIT,
            "Wait at least 6 hours between modifications per EBS volume",
            action="ModifyVolume",
            retry_after_s=6 * 3600.0,
        )
        world.ask("20Gi")
        await world.run(60)

    world = told(story, monkeypatch)

    assert "VolumeResizeFailed" in world.reasons
    assert "used up" not in str(world.told)


def test_a_failure_of_long_ago_is_not_reported_for_a_new_request(monkeypatch: pytest.MonkeyPatch):
    async def story(world: World) -> None:
        world.cloud.latest_ = by_others(world, ModificationState.FAILED, ago=timedelta(days=300))
        world.ask("20Gi")
        await world.run(60)

    world = told(story, monkeypatch)

    assert "VolumeResizeFailed" not in world.reasons
    assert world.cloud.taken == 1


def test_what_is_no_ebs_volume_is_said_to_be_none_and_ec2_is_not_asked(
    monkeypatch: pytest.MonkeyPatch,
):
    async def story(world: World) -> None:
        document = copy.deepcopy(world.objects["pv"])
        document["spec"]["csi"]["volumeHandle"] = "local-ebs://dev/xvdbz"
        world.put("pv", document)
        world.ask("20Gi")
        await world.run(600)

    world = told(story, monkeypatch)

    failures = [text for reason, text in world.told if reason == "VolumeResizeFailed"]
    assert len(failures) == 1
    assert "'local-ebs://dev/xvdbz', which is not the ID of an EBS volume" in failures[0]
    assert world.claim.resize_status == "ControllerResizeInfeasible"
    assert world.cloud.reads == 0


def test_a_class_that_comes_while_a_size_waits_is_told_that_it_waits_too(
    monkeypatch: pytest.MonkeyPatch,
):
    async def story(world: World) -> None:
        world.cloud.began = [world.now() - timedelta(hours=each) for each in (20, 10, 5, 1)]
        world.ask("20Gi")
        await world.run(30)
        world.attributes_class("gold", iops="4000")
        world.ask(attributes="gold")
        await world.run(600)

    world = told(story, monkeypatch)

    assert world.reasons.count("VolumeResizeFailed") == 1
    assert world.reasons.count("VolumeModifyFailed") == 1


def test_a_modification_of_somebody_else_that_runs_for_hours_is_told_once(
    monkeypatch: pytest.MonkeyPatch,
):
    async def story(world: World) -> None:
        world.cloud.modifying_s = 6 * 3600.0
        world.cloud.latest_ = by_others(world, ModificationState.MODIFYING, ago=timedelta())
        world.ask("20Gi")
        await world.run(5 * 3600)

    world = told(story, monkeypatch)

    waits = [text for _, text in world.told if "in progress since 2026-11-22" in text]
    assert len(waits) == 1
    assert not world.cloud.sent


def test_annotations_are_heeded_only_if_the_option_says_so(
    monkeypatch: pytest.MonkeyPatch,
):
    """Else whoever may edit a claim would get what no class offers."""

    async def story(world: World) -> None:
        document = copy.deepcopy(world.objects["claim"])
        document["metadata"]["annotations"] = {"ebs.csi.aws.com/iops": "5000"}
        world.put("claim", document)
        await world.run(60)

    assert not told(story, monkeypatch).cloud.sent

    async def heeded(world: World) -> None:
        world.heed_annotations()
        await story(world)

    assert [each.iops for each in told(heeded, monkeypatch).cloud.sent] == [5000]


def test_annotations_that_cannot_be_had_are_told_no_more_often_because_the_size_waits(
    monkeypatch: pytest.MonkeyPatch,
):
    async def story(world: World) -> None:
        world.cloud.latest_ = by_others(world, ModificationState.OPTIMIZING, ago=timedelta())
        world.cloud.optimizing_s = 4 * 3600.0
        world.heed_annotations()
        document = copy.deepcopy(world.objects["claim"])
        document["metadata"]["annotations"] = {"ebs.csi.aws.com/iops": "many"}
        world.put("claim", document)
        world.ask("20Gi")
        await world.run(EVENT_AGAIN_S - 60)

    reasons = told(story, monkeypatch).reasons

    assert reasons.count("VolumeModifyFailed") == 1
    assert reasons.count("Resizing") <= 2  # begun; and that it waits
