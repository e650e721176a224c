"""IOPS of volumes that grow: never fewer, never what EC2 refuses, and what their class asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from provisioner.controller.modifying.state import GATHER_S
from provisioner.model.errors import Ec2Error, Reason
from provisioner.model.modification import (
    Modification,
    ModificationState,
    ModifyRequest,
    shape_of,
)
from provisioner.model.names import IOPS_FOLLOW_GROWTH, IOPS_PER_GIB
from tests.controller.modify_cloud import VOLUME, refusal
from tests.controller.modify_world import World, claim_json, told


def as_ec2(request: ModifyRequest) -> Ec2Error | None:
    """No io2 in this zone, and no gp3 below its 3,000 IOPS."""
    if request.volume_type == "io2":
        return refusal(Reason.TYPE_NOT_IN_ZONE, "io2 is not available in this zone")
    if request.iops is not None and request.iops < 3000:
        return refusal(Reason.INVALID_REQUEST, f"Volume iops of {request.iops} is too low")
    return None


def with_a_broken_class(world: World) -> None:
    world.put("claim", claim_json(mode="Block"))
    world.cloud.refuses = as_ec2
    world.attributes_class(
        "gold", type="io2", iopsPerGB="100", allowAutoIOPSIncreaseOnModify="true"
    )


def test_a_full_disk_grows_though_its_class_of_iops_for_each_gib_is_refused(
    monkeypatch: pytest.MonkeyPatch,
):
    async def story(world: World) -> None:
        with_a_broken_class(world)
        world.ask("20Gi", "gold")
        await world.run(600)

    world = told(story, monkeypatch)

    assert world.claim.capacity == "20Gi"
    assert world.claim.modify_status is not None
    assert world.claim.modify_status.status == "Infeasible"
    assert world.cloud.volume is not None
    assert world.cloud.volume.tags == {}  # nothing is left of the class
    assert world.cloud.taken == 1


def test_a_refused_class_that_is_taken_back_leaves_nothing_that_blocks_growth(
    monkeypatch: pytest.MonkeyPatch,
):
    async def story(world: World) -> None:
        with_a_broken_class(world)
        world.ask(attributes="gold")
        await world.run(600)
        world.ask(attributes="")
        await world.run(600)
        world.ask("20Gi")
        await world.run(600)

    world = told(story, monkeypatch)

    assert world.claim.capacity == "20Gi"
    assert not world.conditions


def test_growth_takes_no_iops_of_the_claim_s_class_away(monkeypatch: pytest.MonkeyPatch):
    async def story(world: World) -> None:
        follows = {IOPS_PER_GIB: "300", IOPS_FOLLOW_GROWTH: "true"}
        assert world.cloud.volume is not None
        world.cloud.volume = replace(world.cloud.volume, tags=follows)
        world.attributes_class("fast", iops="5000")
        world.ask(attributes="fast")
        await world.run(1000)
        world.ask("11Gi")
        await world.run(1000)

    world = told(story, monkeypatch)

    assert [each.iops for each in world.cloud.sent] == [5000, None]
    assert world.cloud.volume is not None
    assert (world.cloud.volume.size_gib, world.cloud.volume.iops) == (11, 5000)


def test_iops_for_each_gib_are_kept_in_tags_once_the_volume_has_them_and_followed(
    monkeypatch: pytest.MonkeyPatch,
):
    async def story(world: World) -> None:
        world.attributes_class("gold", iopsPerGB="400", allowAutoIOPSIncreaseOnModify="true")
        world.ask("20Gi", "gold")
        await world.run(1000)
        world.ask("30Gi")
        world.kubelet()
        await world.run(1000)

    world = told(story, monkeypatch)

    assert [(each.size_gib, each.iops) for each in world.cloud.sent] == [(20, 8000), (30, 12_000)]
    assert world.cloud.tagged == [{IOPS_PER_GIB: "400", IOPS_FOLLOW_GROWTH: "true"}]
    assert world.claim.current_attributes_class_name == "gold"


async def capped_by_its_size(world: World) -> None:
    """A volume of 10 GiB whose class asks for 12,000 IOPS: it gets 5,000."""
    world.put("claim", claim_json(mode="Block"))
    world.attributes_class("gold", iops="12000")
    world.ask(attributes="gold")
    await world.run(1000)


def test_iops_that_the_size_did_not_allow_come_when_the_volume_grows(
    monkeypatch: pytest.MonkeyPatch,
):
    async def story(world: World) -> None:
        await capped_by_its_size(world)
        await world.restart()
        await world.run(3600)
        world.ask("20Gi")
        await world.run(1000)
        world.ask("100Gi")
        await world.run(1000)

    world = told(story, monkeypatch)

    assert [(each.size_gib, each.iops) for each in world.cloud.sent] == [
        (None, 5000),
        (20, 10_000),
        (100, 12_000),
    ]
    capped = [text for _, text in world.told if "IopsCapped" in text]
    assert ["gets 5000" in capped[0], "gets 10000" in capped[-1], len(capped)] == [True, True, 2]


def test_iops_that_ec2_has_refused_once_come_when_the_volume_grows_again(
    monkeypatch: pytest.MonkeyPatch,
):
    async def story(world: World) -> None:
        await capped_by_its_size(world)
        world.cloud.refuses = lambda request: (
            refusal(Reason.QUOTA_EXCEEDED, "no IOPS are left") if request.iops else None
        )
        world.ask("20Gi")
        await world.run(1000)
        world.cloud.refuses = lambda _: None
        await world.restart()
        world.ask("100Gi")
        await world.run(1000)

    world = told(story, monkeypatch)

    assert [(each.size_gib, each.iops) for each in world.cloud.sent] == [
        (None, 5000),
        (20, 10_000),
        (20, None),
        (100, 12_000),
    ]


@pytest.mark.parametrize("ends", ["restart", "lost reply"])
def test_a_size_that_goes_without_its_iops_is_told_as_what_was_requested(
    ends: str, monkeypatch: pytest.MonkeyPatch
):
    async def story(world: World) -> None:
        await capped_by_its_size(world)

        def refused(request: ModifyRequest) -> Ec2Error | None:
            world.cloud.loses = int(ends == "lost reply")
            return refusal(Reason.QUOTA_EXCEEDED, "no IOPS are left") if request.iops else None

        world.cloud.refuses, world.cloud.modifying_s = refused, 60
        world.ask("20Gi")
        await world.run(10)
        if ends == "restart":
            await world.restart()
        await world.run(1000)

    world = told(story, monkeypatch)

    assert world.claim.capacity == "20Gi"
    assert len([text for _, text in world.told if "IOPS stay as they are" in text]) == 1
    assert not [text for _, text in world.told if "another modification" in text]


@pytest.mark.parametrize("has_class", [True, False], ids=["a class", "tags"])
def test_a_full_disk_grows_though_ec2_refuses_the_iops_that_would_come_with_the_size(
    *, has_class: bool, monkeypatch: pytest.MonkeyPatch
):
    async def story(world: World) -> None:
        world.put("claim", claim_json(mode="Block"))
        assert world.cloud.volume is not None
        if has_class:
            world.attributes_class("gold", iops="12000")
            world.ask(attributes="gold")
            await world.run(1000)
        else:
            follows = {IOPS_PER_GIB: "500", IOPS_FOLLOW_GROWTH: "true"}
            world.cloud.volume = replace(world.cloud.volume, tags=follows)
        world.cloud.refuses = lambda request: (
            refusal(Reason.QUOTA_EXCEEDED, "no IOPS are left") if request.iops else None
        )
        world.ask("100Gi")
        await world.run(1000)

    world = told(story, monkeypatch)

    assert world.claim.capacity == "100Gi"
    assert not world.conditions
    assert world.cloud.sent[-1] == ModifyRequest(VOLUME, 100, None, None, None)
    [warned] = [text for _, text in world.told if "no IOPS are left" in text]
    assert warned.startswith("QuotaExceeded: the volume grows, but its IOPS stay as they are")


def test_iops_still_come_with_a_size_that_was_refused_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
):
    async def story(world: World) -> None:
        world.put("claim", claim_json(mode="Block"))
        follows = {IOPS_PER_GIB: "500", IOPS_FOLLOW_GROWTH: "true"}
        assert world.cloud.volume is not None
        world.cloud.volume = replace(world.cloud.volume, tags=follows)
        world.cloud.refuses = lambda _: refusal(Reason.QUOTA_EXCEEDED, "no storage is left")
        world.ask("20Gi")
        await world.run(50)
        assert [each.iops for each in world.cloud.sent] == [10_000, None]
        world.cloud.refuses = lambda _: None
        await world.run(600)

    world = told(story, monkeypatch)

    assert world.cloud.sent[2:] == [ModifyRequest(VOLUME, 20, None, 10_000, None)]
    assert not [text for _, text in world.told if "IOPS stay as they are" in text]


async def leaves_a_class_of_iops_for_each_gib(world: World) -> None:
    world.put("claim", claim_json(mode="Block"))
    world.attributes_class("busy", iopsPerGB="300", allowAutoIOPSIncreaseOnModify="true")
    world.attributes_class("plain", iops="3000")
    world.ask("20Gi", "busy")
    await world.run(1000)
    world.ask(attributes="plain")
    await world.run(1000)
    world.ask("200Gi")
    await world.run(1000)


def test_growth_follows_no_tag_of_a_class_that_the_claim_has_left(monkeypatch: pytest.MonkeyPatch):
    """The volume would get 60,000 IOPS, which somebody pays for."""
    world = told(leaves_a_class_of_iops_for_each_gib, monkeypatch)

    assert [(each.size_gib, each.iops) for each in world.cloud.sent] == [
        (20, 6000),
        (None, 3000),
        (200, None),
    ]
    assert world.claim.current_attributes_class_name == "plain"
    assert world.cloud.volume is not None
    assert world.cloud.volume.tags == {}


@pytest.mark.parametrize("wanted", ["missing", "refused"])
@pytest.mark.parametrize("iops", [3000, 12_000], ids=["has all", "lowered"])
def test_growth_follows_the_class_that_the_volume_has_though_the_claim_names_a_bad_one(
    iops: int, wanted: str, monkeypatch: pytest.MonkeyPatch
):
    """Tags from before a class removed them would give 60,000 IOPS, which somebody pays for."""

    async def story(world: World) -> None:
        world.put("claim", claim_json(mode="Block"))
        world.attributes_class("has", iops=str(iops))
        world.ask(attributes="has")
        await world.run(1000)
        follows = {IOPS_PER_GIB: "300", IOPS_FOLLOW_GROWTH: "true"}
        assert world.cloud.volume is not None
        world.cloud.volume = replace(world.cloud.volume, tags=follows)
        world.attributes_class("refused", type="io2", iops="20000")
        world.cloud.refuses = as_ec2
        world.ask(attributes=wanted)
        await world.run(1000)
        world.ask("200Gi")
        await world.run(1000)

    world = told(story, monkeypatch)

    assert world.claim.capacity == "200Gi"
    assert world.cloud.volume is not None
    assert (world.cloud.volume.size_gib, world.cloud.volume.iops) == (200, iops)


def test_a_class_that_the_claim_leaves_gives_no_iops_to_the_size_that_comes_with_another_one(
    monkeypatch: pytest.MonkeyPatch,
):
    async def story(world: World) -> None:
        world.put("claim", claim_json(mode="Block"))
        world.attributes_class("gold", iops="12000")
        world.attributes_class("broad", throughput="250")
        world.ask(attributes="gold")
        await world.run(1000)
        world.ask("20Gi", "broad")
        await world.run(1000)

    world = told(story, monkeypatch)

    assert world.cloud.sent[1:] == [ModifyRequest(VOLUME, 20, None, None, 250)]


def test_the_iops_that_come_with_a_size_are_told_of_the_type_that_the_volume_has(
    monkeypatch: pytest.MonkeyPatch,
):
    async def story(world: World) -> None:
        world.put("claim", claim_json(mode="Block"))
        world.cloud.refuses = as_ec2
        world.attributes_class("gold", iops="12000")
        world.attributes_class("refused", type="io2", iops="20000")
        for size, name in (None, "gold"), (None, "refused"), ("20Gi", None):
            world.ask(size, name)
            await world.run(1000)

    world = told(story, monkeypatch)

    [told_last] = [text for _, text in world.told if "gets 10000" in text]
    assert "the gp3 volume of 20 GiB" in told_last


def test_who_may_not_remove_the_tags_of_an_earlier_class_is_warned(monkeypatch: pytest.MonkeyPatch):
    async def denied(_: list[str], key: str) -> dict[str, Ec2Error]:
        raise refusal(Reason.PERMISSION_DENIED, f"DeleteTags: UnauthorizedOperation: {key}")

    async def story(world: World) -> None:
        monkeypatch.setattr(world.cloud, "untag", denied)
        await leaves_a_class_of_iops_for_each_gib(world)

    world = told(story, monkeypatch)

    assert world.claim.current_attributes_class_name == "plain"
    assert not world.conditions
    [warned] = [text for _, text in world.told if "UnauthorizedOperation" in text]
    assert warned.startswith(
        "PermissionDenied: the class was applied, but the IOPS may change when the volume grows"
    )


@pytest.mark.parametrize("size", [None, "20Gi"], ids=["alone", "with a size"])
def test_a_class_is_had_though_how_iops_follow_the_size_may_not_be_written(
    size: str | None, monkeypatch: pytest.MonkeyPatch
):
    async def story(world: World) -> None:
        world.put("claim", claim_json(mode="Block"))
        tag = world.cloud.tag

        async def denied(ids: list[str], given: Mapping[str, str]) -> dict[str, Ec2Error]:
            if IOPS_PER_GIB in given:
                raise refusal(Reason.PERMISSION_DENIED, "CreateTags: UnauthorizedOperation")
            return await tag(ids, given)

        monkeypatch.setattr(world.cloud, "tag", denied)
        asks = {"iopsPerGB": "400", "allowAutoIOPSIncreaseOnModify": "true"}
        world.attributes_class("gold", **asks, tagSpecification_1="team=a")
        world.ask(size, "gold")
        await world.run(60)

    world = told(story, monkeypatch)

    assert world.claim.current_attributes_class_name == "gold"
    assert not world.conditions
    assert len(world.cloud.sent) == 1
    assert world.cloud.tagged == [{"team": "a"}]
    [warned] = [text for _, text in world.told if "UnauthorizedOperation" in text]
    assert warned.startswith(
        "PermissionDenied: the class was applied, but the IOPS will not change"
    )
    assert "VolumeModifyFailed" not in world.reasons


def test_a_class_that_ec2_refuses_leaves_no_tags(monkeypatch: pytest.MonkeyPatch):
    async def story(world: World) -> None:
        world.attributes_class("gold", iops="4000", tagSpecification_1="tier=gold")
        world.cloud.refuses = lambda _: refusal(Reason.INVALID_REQUEST)
        world.ask(attributes="gold")
        await world.run(60)
        world.ask(attributes="")
        await world.run(60)

    world = told(story, monkeypatch)

    assert "VolumeModifyCanceled" in world.reasons
    assert world.cloud.tagged == []


@pytest.mark.parametrize("has_class", [True, False], ids=["a class", "tags"])
def test_a_region_s_ceiling_is_learned_from_the_refusal_that_names_it(
    *, has_class: bool, monkeypatch: pytest.MonkeyPatch
):
    async def story(world: World) -> None:
        world.put("claim", claim_json(mode="Block"))
        world.cloud.refuses = above_16_000
        if has_class:
            world.attributes_class("fast", iops="20000")
        else:
            follows = {IOPS_PER_GIB: "500", IOPS_FOLLOW_GROWTH: "true"}
            assert world.cloud.volume is not None
            world.cloud.volume = replace(world.cloud.volume, tags=follows)
        world.ask("40Gi", "fast" if has_class else None)
        await world.run(600)

    world = told(story, monkeypatch)

    assert [each.iops for each in world.cloud.sent] == [20_000, 16_000]
    assert world.claim.capacity == "40Gi"
    [capped] = [text for _, text in world.told if "IopsCapped" in text]
    assert "at most 16000 IOPS in this region" in capped
    assert "VolumeResizeFailed" not in world.reasons


@pytest.mark.parametrize("restarts", [True, False], ids=["restart", "no restart"])
def test_a_class_whose_iops_the_region_caps_is_had_once_the_size_is_there(
    *, restarts: bool, monkeypatch: pytest.MonkeyPatch
):
    """The class's tags come after the size, and a new process knows no refusal."""

    async def story(world: World) -> None:
        world.put("claim", claim_json(mode="Block"))
        world.cloud.ceiling = 16_000
        world.cloud.refuses = above_16_000
        world.attributes_class("fast", iops="20000", tagSpecification_1="load=high")
        world.ask("40Gi", "fast")
        await world.run(GATHER_S + 1)
        assert world.cloud.taken == 1
        if restarts:
            await world.restart()
        await world.run(60)

    world = told(story, monkeypatch)

    assert world.claim.capacity == "40Gi"
    assert world.claim.current_attributes_class_name == "fast"
    assert [each.iops for each in world.cloud.sent] == [20_000, 16_000]
    assert len(world.cloud.ceiling_asked) == restarts
    assert len([text for _, text in world.told if "IopsCapped" in text]) == 1
    assert not [text for _, text in world.told if "another modification" in text]


def above_16_000(request: ModifyRequest) -> Ec2Error | None:
    most = f"Volume iops of {request.iops} is too high; maximum is 16000"
    return refusal(Reason.INVALID_REQUEST, most) if (request.iops or 0) > 16_000 else None


def test_a_class_of_many_iops_is_sent_whatever_ceiling_ec2_has_named_before(
    monkeypatch: pytest.MonkeyPatch,
):
    """The answer may be twelve hours old, or of another zone."""

    async def story(world: World) -> None:
        assert world.cloud.volume is not None
        world.cloud.volume = replace(world.cloud.volume, size_gib=40)
        world.cloud.ceiling = 16_000
        for name, iops in ("quick", "16000"), ("fast", "20000"):
            world.attributes_class(name, iops=iops)
            world.ask(attributes=name)
            await world.run(1000)

    world = told(story, monkeypatch)

    assert [each.iops for each in world.cloud.sent] == [16_000, 20_000]
    assert world.claim.current_attributes_class_name == "fast"
    assert not world.cloud.ceiling_asked


async def is_capped_and_restarts(world: World) -> None:
    world.put("claim", claim_json(mode="Block"))
    world.cloud.refuses = above_16_000
    assert world.cloud.volume is not None
    world.cloud.volume = replace(world.cloud.volume, size_gib=40)
    world.attributes_class("fast", iops="20000")
    world.ask(attributes="fast")
    await world.run(GATHER_S + 1)
    assert world.cloud.taken == 1
    await world.restart()


@pytest.mark.parametrize(
    "ceiling",
    [None, 64_000, refusal(Reason.THROTTLED)],
    ids=["not told", "more", "no answer"],
)
def test_a_class_is_sent_again_where_no_ceiling_explains_that_the_volume_has_fewer_iops(
    ceiling: int | Ec2Error | None, monkeypatch: pytest.MonkeyPatch
):
    async def story(world: World) -> None:
        world.cloud.ceiling = ceiling
        await is_capped_and_restarts(world)
        await world.run(1000)

    world = told(story, monkeypatch)

    assert [each.iops for each in world.cloud.sent] == [20_000, 16_000, 20_000]
    assert world.cloud.ceiling_asked
    assert world.claim.current_attributes_class_name == "fast"


def test_a_full_disk_does_not_wait_until_ec2_names_the_region_s_ceiling(
    monkeypatch: pytest.MonkeyPatch,
):
    async def story(world: World) -> None:
        await is_capped_and_restarts(world)
        world.ask("60Gi")
        await world.run(1000)

    world = told(story, monkeypatch)

    assert world.claim.capacity == "60Gi"
    assert not world.cloud.ceiling_asked


def test_the_ceiling_explains_nothing_of_a_request_of_which_nothing_came(
    monkeypatch: pytest.MonkeyPatch,
):
    async def story(world: World) -> None:
        assert world.cloud.volume is not None
        world.cloud.volume = replace(world.cloud.volume, size_gib=40, iops=16_000)
        has = shape_of(world.cloud.volume)
        world.cloud.latest_ = Modification(
            VOLUME, ModificationState.COMPLETED, has, replace(has, size_gib=20)
        )
        world.cloud.ceiling, world.cloud.drops = 16_000, 1
        world.attributes_class("fast", iops="20000")
        world.ask(attributes="fast")
        await world.run(200)

    world = told(story, monkeypatch)

    assert [each.iops for each in world.cloud.sent] == [20_000, 20_000]


@pytest.mark.parametrize("iops", [3000, 5000], ids=["has them", "has more"])
@pytest.mark.parametrize(
    "asks",
    [
        {"iops": "1000"},
        {"type": "gp3", "iopspergb": "10", "allowautoiopsincreaseonmodify": "true"},
    ],
    ids=["iops", "for each GiB"],
)
def test_too_few_iops_of_a_class_are_raised_as_by_the_stock_driver_and_told(
    asks: dict[str, str], iops: int, monkeypatch: pytest.MonkeyPatch
):
    async def story(world: World) -> None:
        assert world.cloud.volume is not None
        world.cloud.volume = replace(world.cloud.volume, iops=iops)
        world.attributes_class("low", **asks)
        world.ask(attributes="low")
        await world.run(600)

    world = told(story, monkeypatch)

    assert [each.iops for each in world.cloud.sent] == [3000][: iops != 3000]
    assert world.claim.current_attributes_class_name == "low"
    assert "VolumeModifyFailed" not in world.reasons
    [raised] = [text for _, text in world.told if "IopsRaised" in text]
    assert "the volume gets 3000" in raised


@pytest.mark.parametrize("size", [None, "20Gi"], ids=["alone", "with a size"])
def test_a_class_that_ec2_has_carried_out_is_had_though_it_is_taken_back_meanwhile(
    size: str | None, monkeypatch: pytest.MonkeyPatch
):
    """Else the volume had it and the claim said that it has none."""

    async def story(world: World) -> None:
        world.put("claim", claim_json(mode="Block"))
        world.attributes_class("gold", type="gp3", iopsPerGB="400")
        world.ask(size, "gold")
        await world.run(GATHER_S + 0.5)
        assert len(world.cloud.sent) == 1
        world.ask(attributes="")
        await world.run(600)

    world = told(story, monkeypatch)

    assert "VolumeModifyCanceled" not in world.reasons
    assert world.persistent_volume.attributes_class_name == "gold"
    assert world.claim.current_attributes_class_name == "gold"
    assert len(world.cloud.sent) == 1
