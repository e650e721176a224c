"""Attachments that wait until a restored volume has all of its data."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from provisioner.controller.attaching.initialization_rules import UNTOLD_S
from provisioner.model.errors import Reason
from tests.builders import VOLUME
from tests.controller.attach_world import AttachWorld, in_attach_world

ATTACHED_S = 5.0  # by then EC2 has attached it


@pytest.mark.parametrize("takes_s", [20, 300])
def test_the_attachment_is_reported_once_all_data_is_there(takes_s: float):
    async def story(world: AttachWorld) -> None:
        world.cloud.restored[VOLUME] = world.clock() + takes_s
        name = world.wish(after_data=True)
        await asyncio.sleep(ATTACHED_S)
        assert world.cloud.actions() == ["AttachVolume"]
        assert world.attached_at == {}

        await asyncio.sleep(takes_s + 130)

        assert takes_s <= world.attached_at[name] <= takes_s + 5
        assert world.cloud.actions() == ["AttachVolume"]
        assert world.told == []  # nothing is wrong

    in_attach_world(story)


def test_the_claim_is_told_once_that_it_waits_and_how_long_it_takes():
    async def story(world: AttachWorld) -> list[str]:
        world.cloud.restored[VOLUME] = None
        world.wish(after_data=True)
        await asyncio.sleep(40)
        world.cloud.restored[VOLUME] = world.clock() + 600
        await asyncio.sleep(400)
        return world.events.told

    first, second = in_attach_world(story)

    assert first.endswith("as its class requires (blockAttachUntilInitialized)")
    assert "(blockAttachUntilInitialized); EC2 estimates 10 minutes more" in second


def test_one_that_needs_no_data_is_not_asked_for():
    async def story(world: AttachWorld) -> int:
        world.wish(after_data=True)
        world.cloud.restored[VOLUME] = None
        other = world.wish(2, after_data=True)
        await asyncio.sleep(ATTACHED_S)
        assert world.attached_at.keys() == {other}
        return world.cloud.counts["DescribeVolumeStatus"]

    assert in_attach_world(story) >= 1


def test_a_volume_of_a_class_that_does_not_ask_for_it_is_reported_at_once():
    async def story(world: AttachWorld) -> None:
        world.cloud.restored[VOLUME] = None
        name = world.wish()
        await asyncio.sleep(ATTACHED_S)
        assert name in world.attached_at
        assert world.cloud.counts["DescribeVolumeStatus"] == 0

    in_attach_world(story)


def test_a_deletion_ends_the_wait():
    async def story(world: AttachWorld) -> None:
        world.cloud.restored[VOLUME] = None
        name = world.wish(after_data=True)
        await asyncio.sleep(30)
        world.delete(name)
        await asyncio.sleep(10)
        assert world.attached_at == {}
        assert 30 <= world.gone_at[name] <= 36
        asked = world.cloud.counts["DescribeVolumeStatus"]
        await asyncio.sleep(600)
        assert world.cloud.counts["DescribeVolumeStatus"] == asked

    in_attach_world(story)


def test_an_object_that_is_removed_by_force_is_asked_for_no_more():
    async def story(world: AttachWorld) -> None:
        world.cloud.restored[VOLUME] = None
        name = world.wish(after_data=True)
        await asyncio.sleep(30)
        world.remove_by_force(name)
        asked = world.cloud.counts["DescribeVolumeStatus"]
        await asyncio.sleep(600)
        assert world.cloud.counts["DescribeVolumeStatus"] <= asked + 1

    in_attach_world(story)


def test_where_ec2_tells_nothing_the_wait_ends_after_a_while():
    async def story(world: AttachWorld) -> list[str]:
        world.cloud.restored[VOLUME] = None
        name = world.wish(after_data=True)
        await asyncio.sleep(UNTOLD_S + 130)
        assert UNTOLD_S <= world.attached_at[name] <= UNTOLD_S + 125
        return world.events.told

    waits, gives_up = in_attach_world(story)

    assert "waits until all data" in waits
    assert "is reported as attached before its data has arrived" in gives_up
    assert gives_up.endswith(
        "for 10 minutes; reads can be slow until all data of snapshot snap-1 has arrived"
    )


def test_a_status_that_may_not_be_read_is_told_and_waited_for():
    async def story(world: AttachWorld) -> list[str]:
        world.cloud.restored[VOLUME] = world.clock() + 20
        world.cloud.refuses["DescribeVolumeStatus"] = Reason.PERMISSION_DENIED
        name = world.wish(after_data=True)
        await asyncio.sleep(60)
        assert world.attached_at == {}
        del world.cloud.refuses["DescribeVolumeStatus"]
        await asyncio.sleep(60)
        assert name in world.attached_at
        return [each for each in world.events.told if "cannot ask EC2" in each]

    (why,) = in_attach_world(story)

    assert why.endswith("cannot ask EC2: EC2 refuses DescribeVolumeStatus")


def test_200_that_wait_for_an_hour_cost_few_calls():
    async def story(world: AttachWorld) -> None:
        world.cloud.estimates = False
        ends_at = world.clock() + 3600
        for number in range(200):
            world.wish(number, node=number // 20, instance=f"i-{number // 20}", after_data=True)
        for held in world.caches.persistent_volumes.values():
            assert held.spec.csi is not None
            world.cloud.restored[held.spec.csi.volume_handle] = ends_at
        await asyncio.sleep(3800)
        assert len(world.attached_at) == 200
        assert max(world.attached_at.values()) <= 3600 + 125
        assert world.cloud.counts["DescribeVolumeStatus"] < 3600 / 6
        assert world.cloud.counts["DescribeVolumes"] < 200

    in_attach_world(story)


def test_a_volume_that_is_deleted_meanwhile_is_told():
    async def story(world: AttachWorld) -> list[str]:
        world.cloud.restored[VOLUME] = world.clock() + 3600
        world.wish(after_data=True)
        await asyncio.sleep(30)
        assert world.told == []
        world.cloud.gone.add(VOLUME)
        await asyncio.sleep(500)
        return [message for _, message in world.told]

    assert in_attach_world(story) == [f"EC2 has no volume {VOLUME}"]


def test_a_volume_that_was_detached_meanwhile_is_attached_again_at_the_end():
    async def story(world: AttachWorld) -> float:
        world.cloud.restored[VOLUME] = world.clock() + 60
        name = world.wish(after_data=True)
        await asyncio.sleep(30)
        world.cloud._placed.clear()
        await asyncio.sleep(100)
        assert world.cloud.actions() == ["AttachVolume", "AttachVolume"]
        return world.attached_at[name]

    assert 60 <= in_attach_world(story) <= 90


def test_each_instance_of_a_shared_volume_waits():
    async def story(world: AttachWorld) -> None:
        world.cloud.shared = True
        world.cloud.restored[VOLUME] = world.clock() + 20
        raw: dict[str, Any] = {"volume_mode": "Block", "access_modes": ["ReadWriteMany"]}
        names = [
            world.wish(node=node, instance=f"i-{node}", name=f"csi-{node}", after_data=True, **raw)
            for node in (1, 2)
        ]
        await asyncio.sleep(15)
        assert world.attached_at == {}
        await asyncio.sleep(20)
        assert world.attached_at.keys() == set(names)

    in_attach_world(story)
