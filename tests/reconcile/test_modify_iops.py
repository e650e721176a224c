"""IOPS of volumes that grow: never fewer, never what EC2 refuses, and what their class asks for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from provisioner.model import tags
from provisioner.model.errors import Ec2Error, Reason
from provisioner.model.modification import ModifyRequest
from provisioner.reconcile.modify_memory import GATHER_S
from tests.reconcile.modify_cloud import refusal
from tests.reconcile.modify_world import World, claim_json, told


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
        follows = {tags.IOPS_PER_GIB: "300", tags.IOPS_FOLLOW_GROWTH: "true"}
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


def test_a_class_that_a_small_volume_could_not_have_whole_is_given_with_growth(
    monkeypatch: pytest.MonkeyPatch,
):
    async def story(world: World) -> None:
        world.attributes_class("gold", iops="9000")
        world.ask(attributes="gold")
        await world.run(1000)
        world.ask("100Gi")
        await world.run(1000)

    world = told(story, monkeypatch)

    assert [(each.size_gib, each.iops) for each in world.cloud.sent] == [(None, 5000), (100, 9000)]
    capped = [text for reason, text in world.told if "IopsCapped" in text]
    assert len(capped) == 1


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
    assert world.cloud.tagged == [{tags.IOPS_PER_GIB: "400", tags.IOPS_FOLLOW_GROWTH: "true"}]
    assert world.claim.current_attributes_class_name == "gold"


def test_a_volume_grows_without_the_iops_that_ec2_refuses_and_its_user_hears_of_it(
    monkeypatch: pytest.MonkeyPatch,
):
    async def story(world: World) -> None:
        world.put("claim", claim_json(mode="Block"))
        follows = {tags.IOPS_PER_GIB: "500", tags.IOPS_FOLLOW_GROWTH: "true"}
        assert world.cloud.volume is not None
        world.cloud.volume = replace(world.cloud.volume, tags=follows)
        world.cloud.refuses = lambda request: (
            refusal(Reason.QUOTA_EXCEEDED, "no more IOPS") if request.iops else None
        )
        world.ask("20Gi")
        await world.run(600)

    world = told(story, monkeypatch)

    assert [(each.size_gib, each.iops) for each in world.cloud.sent] == [(20, 10_000), (20, None)]
    assert world.claim.capacity == "20Gi"
    assert [text for _, text in world.told if "no more IOPS" in text] == [
        "IopsCapped: the volume grows without more IOPS, which EC2 has refused: no more IOPS"
    ]


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
