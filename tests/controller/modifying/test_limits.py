"""Growing and changing where EC2 says no, or not yet: told once, waited for, carried out."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from provisioner.ec2.errors import translate
from provisioner.model.errors import Ec2Error, Reason
from provisioner.model.modification import ModificationState, ModifyRequest
from provisioner.model.names import MODIFICATIONS
from tests.controller import modify_cloud
from tests.controller.modify_cloud import VOLUME, refusal
from tests.controller.modify_world import BEGIN, World, claim_json, has_both, told, wants_both

DAY_S = 24 * 3600.0


def test_four_in_a_day_are_carried_out_and_the_fifth_waits_with_one_event(
    monkeypatch: pytest.MonkeyPatch,
):
    async def story(world: World) -> None:
        world.cloud.optimizing_s = 10.0
        for size in (11, 12, 13, 14):
            world.ask(f"{size}Gi")
            await world.run(60)
            world.kubelet()
        await world.restart()
        world.ask("15Gi")
        await world.run(3600)
        assert len(world.cloud.sent) == 4
        warned = [text for reason, text in world.told if reason == "VolumeResizeFailed"]
        assert len(warned) == 1
        assert "ModificationLimitReached" in warned[0]
        assert "waiting until 2026-11-23 00:0" in warned[0]
        condition = world.claim.condition("Resizing")
        assert condition is not None
        assert "waiting until 2026-11-23" in condition.message
        assert waiting(world) == 1
        world.ask("16Gi")  # what is wanted meanwhile is carried out with it, as one
        await world.run(DAY_S)

    world = told(story, monkeypatch)

    assert [each.size_gib for each in world.cloud.sent] == [11, 12, 13, 14, 16]
    assert world.persistent_volume.capacity == "16Gi"
    assert waiting(world) == 0


def waiting(world: World) -> float | None:
    return world.metrics.registry.get_sample_value("ebs_provisioner_modifications_waiting")


def test_the_fifth_waits_until_ec2_s_day_is_over_which_begins_when_a_call_arrives(
    monkeypatch: pytest.MonkeyPatch,
):
    """One that comes too early is refused, and tried an hour later if EC2 does not say when."""

    async def story(world: World) -> None:
        world.put("claim", claim_json(mode="Block"))
        world.cloud.optimizing_s = 10.0
        refusal_of = world.cloud._refusal

        def refuses(request: ModifyRequest) -> Ec2Error | None:
            return refusal(Reason.MODIFICATION_LIMIT) if refusal_of(request) is not None else None

        monkeypatch.setattr(world.cloud, "_refusal", refuses)
        monkeypatch.setattr(modify_cloud, "CALL_S", 45.0)
        for size in (11, 12, 13, 14):
            world.ask(f"{size}Gi")
            await world.run(300)
            monkeypatch.setattr(modify_cloud, "CALL_S", 0.1)
        world.ask("15Gi")
        await world.run(DAY_S)

    world = told(story, monkeypatch)

    assert [each.size_gib for each in world.cloud.sent] == [11, 12, 13, 14, 15]
    assert world.claim.capacity == "15Gi"
    assert len([text for _, text in world.told if "ModificationLimitReached" in text]) == 1


def test_ec2_s_own_refusal_is_waited_for_though_nothing_is_noted(monkeypatch: pytest.MonkeyPatch):
    async def story(world: World) -> None:
        world.cloud.began = [BEGIN] * 4  # by somebody else
        world.ask("20Gi")
        await world.run(DAY_S - 60)
        assert len(world.cloud.sent) == 1
        assert MODIFICATIONS not in world.persistent_volume.annotations  # it was not carried out
        await world.run(120)

    world = told(story, monkeypatch)

    assert len(world.cloud.sent) == 2
    assert world.persistent_volume.capacity == "20Gi"
    assert world.reasons.count("VolumeResizeFailed") == 1


@pytest.mark.parametrize(
    ("text", "within_s"),
    [
        ("Wait at least 6 hours between modifications per EBS volume.", 15 * 60.0),
        ("The maximum of 4 modifications in a rolling 24 hour period is reached.", 3660.0),
    ],
)
@pytest.mark.parametrize("is_shown", [True, False], ids=["shown by ec2", "noted only"])
def test_a_rule_of_ec2_counts_from_the_modification_before_not_from_the_refusal(
    text: str, within_s: float, *, is_shown: bool, monkeypatch: pytest.MonkeyPatch
):
    """A disk that is full again 5 h 50 min later grows after 10 minutes, not after 6 hours."""

    def refuses(world: World) -> Ec2Error | None:
        began = world.cloud.began
        if not began or world.now() - began[-1] >= timedelta(hours=6):
            return None
        found = translate(_refused(text), "ModifyVolume", {"VolumeId": VOLUME})
        assert found is not None
        assert found.reason is Reason.MODIFICATION_LIMIT
        return found

    async def story(world: World) -> None:
        world.put("claim", claim_json(mode="Block"))
        world.cloud.optimizing_s = 60.0
        world.cloud.refuses = lambda _: refuses(world)
        world.ask("20Gi")
        await world.run(5 * 3600.0 + 50 * 60.0)
        assert world.claim.capacity == "20Gi"
        if not is_shown:
            world.cloud.latest_ = None
            await world.restart()
        world.ask("30Gi")
        await world.run(within_s)

    world = told(story, monkeypatch)

    assert world.claim.capacity == "30Gi"
    assert len(world.cloud.sent) == 3


def _refused(text: str) -> ClientError:
    said = {"Code": "VolumeModificationRateExceeded", "Message": text}
    answer: Any = {"Error": said, "ResponseMetadata": {"HTTPStatusCode": 400}}
    return ClientError(answer, "ModifyVolume")


def test_a_failed_modification_is_told_and_tried_again(monkeypatch: pytest.MonkeyPatch):
    async def story(world: World) -> None:
        world.cloud.fails = 1
        world.ask("20Gi")
        await world.run(60)

    world = told(story, monkeypatch)

    assert world.cloud.taken == 2
    assert world.persistent_volume.capacity == "20Gi"
    failed = [text for reason, text in world.told if reason == "VolumeResizeFailed"]
    assert len(failed) == 1
    assert "the modification failed in EC2: a fault" in failed[0]


def test_a_modification_that_was_made_by_hand_is_waited_for(monkeypatch: pytest.MonkeyPatch):
    async def story(world: World) -> None:
        world.cloud._begin(ModifyRequest(VOLUME, None, None, 5000, None))
        world.ask("20Gi")
        await world.run(700)

    world = told(story, monkeypatch)

    assert world.cloud.sent == [ModifyRequest(VOLUME, 20, None, None, None)]


def test_a_quota_for_the_class_leaves_the_size_alone_and_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
):
    async def story(world: World) -> None:
        wants_both(world)
        world.cloud.optimizing_s = 5.0
        world.cloud.refuses = lambda request: (
            refusal(Reason.QUOTA_EXCEEDED, "IOPS") if request.iops else None
        )
        await world.run(100)
        assert world.claim.capacity == "20Gi"
        status = world.claim.modify_status
        assert status is not None
        assert status.status == "InProgress"
        assert "ModifyVolumeError" in world.conditions
        world.cloud.refuses = lambda _: None  # it was raised
        await world.run(700)

    world = told(story, monkeypatch)

    assert has_both(world)


def test_a_role_without_the_right_is_told_and_nothing_is_marked_impossible(
    monkeypatch: pytest.MonkeyPatch,
):
    async def story(world: World) -> None:
        wants_both(world)
        world.cloud.refuses = lambda _: refusal(Reason.PERMISSION_DENIED)
        await world.run(60)
        assert world.claim.resize_status == "ControllerResizeInProgress"
        assert {(each.size_gib, each.iops) for each in world.cloud.sent} == {(20, 4000)}
        world.cloud.refuses = lambda _: None
        await world.run(400)

    world = told(story, monkeypatch)

    assert has_both(world)
    assert world.reasons.count("VolumeResizeFailed") == 1
    assert world.reasons.count("VolumeModifyFailed") == 1


def test_a_volume_that_is_gone_is_told_after_a_while(monkeypatch: pytest.MonkeyPatch):
    async def story(world: World) -> None:
        world.cloud.volume = None
        world.ask("20Gi")
        await world.run(300)

    world = told(story, monkeypatch)

    assert world.cloud.sent == []
    assert world.claim.resize_status == "ControllerResizeInfeasible"
    (text,) = [text for reason, text in world.told if reason == "VolumeResizeFailed"]
    assert "VolumeNotFound: volume vol-0123456789abcdef0 of PersistentVolume" in text


def test_optimizing_for_a_day_is_told_once_and_is_success(monkeypatch: pytest.MonkeyPatch):
    async def story(world: World) -> None:
        world.cloud.optimizing_s = DAY_S
        wants_both(world)
        await world.run(60)
        assert has_both(world)
        world.ask("30Gi")
        await world.run(DAY_S / 2)
        assert len([text for _, text in world.told if "optimizing" in text]) == 1
        assert world.cloud.taken == 1
        await world.run(DAY_S)

    world = told(story, monkeypatch)

    assert world.claim.capacity == "30Gi"
    assert world.cloud.taken == 2
    latest = world.cloud.latest_
    assert latest is not None
    assert replace(latest, message="").state is ModificationState.OPTIMIZING
