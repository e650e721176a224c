"""What is refused, or cannot be asked, is told once, is not hammered, and blocks nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.kube.resources import PERSISTENT_VOLUMES, Resource
from provisioner.model.errors import Ec2Error, KubeError, Outcome, Reason
from tests.controller.modify_cloud import refusal
from tests.controller.modify_world import World, claim_json, has_both, told, wants_both

HOUR_S, DAY_S = 3600.0, 24 * 3600.0


# The volume has 3,000 IOPS: nothing but the tag would be missing.
@pytest.mark.parametrize("iops", ["3000", "4000"])
def test_a_tag_that_is_too_long_for_this_claim_blocks_no_growth(
    iops: str, monkeypatch: pytest.MonkeyPatch
):
    async def story(world: World) -> None:
        template = "where=" + "{{ .PVCNamespace }}" * 100
        world.attributes_class("gold", iops=iops, tagSpecification_1=template)
        world.ask("20Gi", "gold")
        await world.run(60)

    world = told(story, monkeypatch)

    assert [(each.size_gib, each.iops) for each in world.cloud.sent] == [(20, None)]
    assert world.reasons.count("VolumeModifyFailed") == 1
    status = world.claim.modify_status
    assert status is not None
    assert status.status == "Infeasible"


@pytest.mark.parametrize("how", [Reason.CONFLICT, Reason.UNREACHABLE])
def test_a_refusal_is_told_though_it_could_not_be_written_at_first(
    how: Reason, monkeypatch: pytest.MonkeyPatch
):
    failed: list[Any] = []

    def fails(_: str, body: Any) -> KubeError | None:
        conditions = body.get("status", {}).get("conditions") or []
        is_refusal = any(each["type"] == "ControllerResizeError" for each in conditions)
        if failed or not is_refusal:
            return None
        failed.append(body)
        return KubeError(how, "not now")

    async def story(world: World) -> None:
        world.cloud.refuses = lambda _: refusal(Reason.INVALID_REQUEST, "too large")
        world.fails_write = fails
        world.ask("20000Gi")
        await world.run(600)

    world = told(story, monkeypatch)

    assert failed
    assert len(world.cloud.sent) == 1
    assert world.reasons.count("VolumeResizeFailed") == 1
    assert world.claim.resize_status == "ControllerResizeInfeasible"


def test_a_class_refused_together_with_a_size_is_told_though_that_could_not_be_written(
    monkeypatch: pytest.MonkeyPatch,
):
    failed: list[Any] = []

    def fails(_: str, body: Any) -> KubeError | None:
        conditions = body.get("status", {}).get("conditions") or []
        if failed or not any(each["type"] == "ModifyVolumeError" for each in conditions):
            return None
        failed.append(body)
        return KubeError(Reason.CONFLICT, "it has changed")

    async def story(world: World) -> None:
        wants_both(world)
        world.cloud.refuses = lambda request: (
            refusal(Reason.INVALID_REQUEST) if request.iops else None
        )
        world.fails_write = fails
        await world.run(600)

    world = told(story, monkeypatch)

    assert failed
    assert world.claim.capacity == "20Gi"
    assert "ModifyVolumeError" in world.conditions
    assert world.reasons.count("VolumeModifyFailed") == 1


@pytest.mark.parametrize(
    "reason",
    [
        Reason.PERMISSION_DENIED,
        Reason.CREDENTIALS_INVALID,
        Reason.KEY_UNUSABLE,
        Reason.VOLUME_STATE,
        Reason.MODIFICATION_RUNNING,
    ],
)
def test_what_needs_people_stays_on_the_claim_and_is_told_every_half_hour(
    reason: Reason, monkeypatch: pytest.MonkeyPatch
):
    """Events live for an hour; external-resizer sets its conditions at every error."""

    async def story(world: World) -> None:
        wants_both(world)
        world.cloud.refuses = lambda _: Ec2Error(
            reason, "EC2 says no", action="ModifyVolume", retry_after_s=60.0
        )
        await world.run(12 * HOUR_S)
        for kind in ("ControllerResizeError", "ModifyVolumeError"):
            condition = world.claim.condition(kind)
            assert condition is not None
            assert "EC2 says no" in condition.message
        assert world.claim.resize_status == "ControllerResizeInProgress"
        for each in ("VolumeResizeFailed", "VolumeModifyFailed"):
            assert 16 <= world.reasons.count(each) <= 25
        claims = [change for kind, change in world.writes if kind == "claim"]
        assert len(claims) < 10
        assert len(world.cloud.sent) < 12 * HOUR_S / 60
        world.cloud.refuses = lambda _: None
        await world.run(2000)

    assert has_both(told(story, monkeypatch))


def test_tags_that_may_not_be_written_are_told_and_hold_no_growth_up(
    monkeypatch: pytest.MonkeyPatch,
):
    async def story(world: World) -> None:
        async def denied(*_: Any) -> None:
            raise Ec2Error(Reason.PERMISSION_DENIED, "may not tag", action="CreateTags")

        monkeypatch.setattr(world.cloud, "tag", denied)
        world.put("claim", claim_json(mode="Block"))
        world.cloud.optimizing_s = 10.0
        world.attributes_class("gold", tagSpecification_1="a=b")
        world.ask(attributes="gold")
        await world.run(HOUR_S)
        condition = world.claim.condition("ModifyVolumeError")
        assert condition is not None
        assert (condition.reason, condition.message) == ("PermissionDenied", "may not tag")
        assert world.reasons.count("VolumeModifyFailed") == 2
        world.ask("20Gi")
        await world.run(60)
        assert world.claim.capacity == "20Gi"
        world.ask(attributes="")  # and there is a way back
        await world.run(60)
        assert "VolumeModifyCanceled" in world.reasons

    told(story, monkeypatch)


def test_an_impossible_request_is_reported_by_what_is_impossible(monkeypatch: pytest.MonkeyPatch):
    async def story(world: World) -> None:
        world.attributes_class("gold", throughput="2000")
        world.ask("3000000000Gi", "gold")
        await world.run(60)

    world = told(story, monkeypatch)

    failed = dict(world.told)
    assert "InvalidClaim: 3000000000 GiB" in failed["VolumeResizeFailed"]
    assert failed["VolumeModifyFailed"].startswith("InvalidClass: ")
    assert world.cloud.sent == []
    condition = world.claim.condition("ModifyingVolume")
    assert condition is not None
    assert "failed. Waiting for retry." in condition.message


def test_who_may_not_look_at_ec2_is_told(monkeypatch: pytest.MonkeyPatch):
    async def story(world: World) -> None:
        latest = world.cloud.latest

        async def denied(_: str) -> None:
            raise Ec2Error(Reason.PERMISSION_DENIED, "may not look", action="Describe")

        monkeypatch.setattr(world.cloud, "latest", denied)
        world.ask("20Gi")
        await world.run(HOUR_S)
        assert world.reasons == ["VolumeResizeFailed"] * 2  # events live for an hour
        assert "may not look" in world.told[1][1]
        condition = world.claim.condition("ControllerResizeError")
        assert condition is not None
        assert "may not look" in condition.message
        monkeypatch.setattr(world.cloud, "latest", latest)
        await world.run(400)

    assert told(story, monkeypatch).persistent_volume.capacity == "20Gi"


def test_who_may_not_write_the_status_of_claims_is_told(monkeypatch: pytest.MonkeyPatch):
    async def story(world: World) -> None:
        world.fails_write = lambda kind, _: (
            KubeError(Reason.FORBIDDEN, "may not patch") if kind == "claim" else None
        )
        world.ask("20Gi")
        await world.run(HOUR_S / 4)

    world = told(story, monkeypatch)

    assert world.reasons == ["VolumeResizeFailed"]
    assert world.cloud.sent == []


def test_who_may_not_write_that_a_class_is_missing_is_told(monkeypatch: pytest.MonkeyPatch):
    async def story(world: World) -> None:
        world.fails_write = lambda *_: KubeError(Reason.FORBIDDEN, "may not patch")
        world.ask(attributes="gold")
        await world.run(HOUR_S / 4)

    assert told(story, monkeypatch).reasons == ["VolumeModifyFailed"]


def test_what_fails_in_ec2_again_and_again_leaves_some_modifications_of_the_day(
    monkeypatch: pytest.MonkeyPatch,
):
    async def story(world: World) -> None:
        world.cloud.fails = 1000
        world.ask("2000Gi")
        await world.run(40)
        assert "ControllerResizeError" in world.conditions
        await world.run(2 * HOUR_S)
        assert world.cloud.taken == 3
        world.cloud.fails = 0
        world.ask("20Gi")  # its user corrects himself: that is not held up
        await world.run(60)

    world = told(story, monkeypatch)

    assert world.persistent_volume.capacity == "20Gi"
    assert "ControllerResizeError" not in world.conditions
    assert world.reasons.count("VolumeResizeFailed") == 3


def test_somebody_who_tags_at_the_same_moment_costs_no_second_modification(
    monkeypatch: pytest.MonkeyPatch,
):
    async def story(world: World) -> None:
        tag, calls = world.cloud.tag, []

        async def busy_once(ids: list[str], tags: dict[str, str]) -> dict[str, Ec2Error]:
            calls.append(ids)
            if len(calls) == 1:
                raise Ec2Error(Reason.VOLUME_STATE, "busy", action="CreateTags", retry_after_s=1.0)
            return await tag(ids, tags)

        monkeypatch.setattr(world.cloud, "tag", busy_once)
        world.attributes_class("gold", iops="4000", tagSpecification_1="a=b")
        world.ask("20Gi", "gold")
        await world.run(HOUR_S)

    world = told(story, monkeypatch)

    assert [(each.size_gib, each.iops) for each in world.cloud.sent] == [(20, 4000)]
    assert world.claim.current_attributes_class_name == "gold"
    assert "ModifyVolumeError" not in world.conditions


def test_tags_that_stay_busy_hold_no_size_up(monkeypatch: pytest.MonkeyPatch):
    async def story(world: World) -> None:
        async def busy(*_: Any) -> None:
            raise Ec2Error(Reason.VOLUME_STATE, "busy", action="CreateTags", retry_after_s=1.0)

        monkeypatch.setattr(world.cloud, "tag", busy)
        world.attributes_class("gold", iops="4000", tagSpecification_1="a=b")
        world.ask("20Gi", "gold")
        await world.run(30)

    world = told(story, monkeypatch)

    assert [each.size_gib for each in world.cloud.sent] == [20]
    assert "VolumeModifyFailed" in world.reasons


@pytest.mark.parametrize(
    "error",
    [
        KubeError(Reason.CONFLICT, "it has changed"),
        KubeError(Reason.REPLY_LOST, "no answer", outcome=Outcome.UNKNOWN),
    ],
)
def test_a_note_that_cannot_be_written_is_tried_less_and_less_often(
    error: KubeError, monkeypatch: pytest.MonkeyPatch
):
    tries = []

    async def story(world: World) -> None:
        patch = world.patch

        async def fails(resource: Resource[Any], name: str, body: Any, **given: Any) -> Any:
            if resource is not PERSISTENT_VOLUMES:
                return await patch(resource, name, body, **given)
            tries.append(name)
            raise error

        monkeypatch.setattr(world, "patch", fails)
        world.ask("20Gi")
        await world.run(120)
        assert world.cloud.sent == []
        assert len(tries) < 40
        assert world.cloud.reads < 10
        assert world.reasons == ["Resizing"]  # an API server that is away is no user's matter
        monkeypatch.setattr(world, "patch", patch)
        await world.run(60)

    assert told(story, monkeypatch).persistent_volume.capacity == "20Gi"


def test_a_limit_for_which_ec2_gives_no_time_is_told_once_and_tried_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
):
    async def story(world: World) -> None:
        world.cloud.refuses = lambda _: refusal(Reason.MODIFICATION_LIMIT, "no")
        world.ask("20Gi")
        await world.run(DAY_S)
        assert len(world.cloud.sent) == 24
        assert world.reasons == ["Resizing", "VolumeResizeFailed"]
        assert "does not say until when" in world.told[1][1]
        world.cloud.refuses = lambda _: None
        await world.run(HOUR_S)

    assert told(story, monkeypatch).persistent_volume.capacity == "20Gi"
