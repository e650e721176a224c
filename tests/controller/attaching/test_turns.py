"""Calls that wait for their turn: what they rest on may change, and the wait is not EC2's."""

from __future__ import annotations

import asyncio

import pytest

from provisioner.controller.attaching.rules import STUCK_S
from provisioner.model.consistency import CONSISTENCY_S
from tests.builders import INSTANCE, VOLUME
from tests.controller.attach_world import AttachWorld, in_attach_world

VOLUMES_A_NODE = 20


@pytest.mark.parametrize("waits_s", [5, 12, 89, 100, 400])
def test_an_attach_that_waited_for_its_turn_is_given_its_time(waits_s: float):
    async def story(world: AttachWorld) -> list[str]:
        world.cloud.waits_s["AttachVolume"] = waits_s
        name = world.wish()
        await asyncio.sleep(waits_s + 200)
        assert world.attached_at[name] < waits_s + 5
        assert world.told == []
        return world.cloud.actions()

    assert in_attach_world(story) == ["AttachVolume"]


def test_an_attach_that_is_stuck_is_taken_back_90_s_after_ec2_took_it():
    async def story(world: AttachWorld) -> list[tuple[str, float]]:
        world.cloud.waits_s["AttachVolume"] = 50
        world.cloud.attach_s = 1000
        world.wish()
        await asyncio.sleep(50 + STUCK_S + 20)
        return world.cloud.sent

    [(_, attached_at), (action, at)] = in_attach_world(story)

    assert action == "DetachVolume"
    assert STUCK_S <= at - attached_at < STUCK_S + 15


@pytest.mark.parametrize("waits_s", [5, 61, 400])
def test_a_detach_that_waited_for_its_turn_is_not_told_as_one_that_hangs(waits_s: float):
    async def story(world: AttachWorld) -> list[str]:
        name = world.wish()
        await asyncio.sleep(10)
        world.cloud.waits_s["DetachVolume"] = waits_s
        world.delete(name)
        await asyncio.sleep(waits_s + 200)
        assert world.gone_at[name] < 10 + waits_s + 6
        assert world.told == []
        return world.cloud.actions()

    assert in_attach_world(story) == ["AttachVolume", "DetachVolume"]


def test_800_attaches_at_the_documented_quota_cost_one_call_each():
    async def story(world: AttachWorld) -> None:
        count = 800
        for number in range(1, count + 1):
            node = number // VOLUMES_A_NODE
            world.wish(number, node=node, instance=f"i-{node:017x}")
        await asyncio.sleep(1000)
        assert len(world.attached_at) == count
        assert max(world.attached_at.values()) < 1.1 * (count - 50) / 5
        assert world.cloud.counts["AttachVolume"] == count
        assert world.cloud.counts["DetachVolume"] == 0
        assert world.cloud.counts["throttled"] <= 0.02 * count
        assert world.told == []

    in_attach_world(story)


def test_the_deletion_of_an_attachment_ends_its_attach_s_wait_for_its_turn():  # race 30
    async def story(world: AttachWorld) -> list[str]:
        world.cloud.waits_s["AttachVolume"] = 60
        name = world.wish()
        await asyncio.sleep(5)
        world.delete(name)
        await asyncio.sleep(100)
        assert 5 <= world.gone_at[name] < 8
        assert world.told == []
        return world.cloud.actions()

    assert in_attach_world(story) == []


@pytest.mark.parametrize("deleted", [1, 700], ids=["one", "most of them"])
def test_deletions_among_hundreds_of_attaches_at_the_documented_quota_take_seconds(deleted: int):
    async def story(world: AttachWorld) -> None:
        names = []
        for number in range(1, 801):
            node = number // VOLUMES_A_NODE
            names.append(world.wish(number, node=node, instance=f"i-{node:017x}"))
        await asyncio.sleep(5)
        for name in names[-deleted:]:
            world.delete(name)
        await asyncio.sleep(10)
        assert set(world.gone_at) == set(names[-deleted:])
        await asyncio.sleep(1000)
        kept = names[:-deleted]
        assert set(world.attached_at) == set(kept)
        assert world.cloud.counts["AttachVolume"] == len(kept)
        assert max(world.attached_at.values()) < 10 + 1.1 * (len(kept) - 50) / 5
        assert world.cloud.counts["DetachVolume"] == 0
        assert world.told == []

    in_attach_world(story)


def test_a_deletion_while_the_instance_is_looked_at_keeps_the_attach_from_waiting_at_all():
    async def story(world: AttachWorld) -> list[str]:
        world.cloud.waits_s |= {"AttachVolume": 60, "DescribeInstances": 10}
        name = world.wish()
        await asyncio.sleep(5)
        world.delete(name)
        await asyncio.sleep(100)
        assert 10 <= world.gone_at[name] < 15
        return world.cloud.actions()

    assert in_attach_world(story) == []


def test_an_attach_that_was_sent_before_is_taken_back_though_the_next_one_only_waits():
    async def story(world: AttachWorld) -> list[str]:
        world.cloud.drops = True
        name = world.wish()
        await asyncio.sleep(2)
        world.cloud.waits_s["AttachVolume"] = 1000
        await asyncio.sleep(60)
        assert world.attacher._turns  # it is to be sent again
        world.delete(name)
        await asyncio.sleep(CONSISTENCY_S + 15)
        assert name in world.gone_at
        return world.cloud.actions()

    assert in_attach_world(story) == ["AttachVolume", "DetachVolume"]


def test_a_deletion_does_not_forget_an_attach_that_ec2_has_already():
    async def story(world: AttachWorld) -> list[str]:
        world.cloud.waits_s["AttachVolume"] = 60
        name = world.wish()
        await asyncio.sleep(60.3)  # after the look at the instance, before the answer
        world.delete(name)
        await asyncio.sleep(30)
        assert name in world.gone_at
        return world.cloud.actions()

    assert in_attach_world(story) == ["AttachVolume", "DetachVolume"]


def test_an_attachment_removed_by_force_while_its_attach_waits_for_its_turn_is_not_attached():
    async def story(world: AttachWorld) -> list[str]:
        world.cloud.waits_s["AttachVolume"] = 60
        name = world.wish()
        await asyncio.sleep(5)
        world.remove_by_force(name)
        await asyncio.sleep(100)
        return world.cloud.actions()

    assert in_attach_world(story) == []


def test_an_attachment_made_anew_while_its_attach_waits_for_its_turn_is_attached_once():
    async def story(world: AttachWorld) -> list[str]:
        world.cloud.waits_s["AttachVolume"] = 60
        name = world.wish()
        await asyncio.sleep(5)
        world.remove_by_force(name)
        world.wish(uid="another")
        await asyncio.sleep(200)
        assert world.attached_at[name] < 5 + 60 + 10  # it waits for its own turn only
        return world.cloud.actions()

    assert in_attach_world(story) == ["AttachVolume"]


def test_a_detach_does_not_meet_an_attachment_that_was_made_anew_while_it_waited_for_its_turn():
    async def story(world: AttachWorld) -> list[str]:
        name = world.wish()
        await asyncio.sleep(10)
        world.cloud.waits_s["DetachVolume"] = 60
        world.delete(name)
        await asyncio.sleep(5)
        world.remove_by_force(name)
        world.attached_at.clear()
        world.wish(uid="another")
        await asyncio.sleep(200)
        assert world.attached_at[name] < 80
        return world.cloud.actions()

    assert in_attach_world(story) == ["AttachVolume"]


def test_a_stuck_attach_that_comes_true_while_it_waits_to_be_taken_back_is_kept():
    async def story(world: AttachWorld) -> list[str]:
        world.cloud.attach_s = STUCK_S + 40
        world.cloud.waits_s["DetachVolume"] = 60
        name = world.wish()
        await asyncio.sleep(300)
        assert name in world.attached_at
        return world.cloud.actions()

    assert in_attach_world(story) == ["AttachVolume"]


def test_a_volume_that_comes_back_at_once_is_attached_at_once():
    async def story(world: AttachWorld) -> float:
        name = world.wish()
        await asyncio.sleep(10)
        world.delete(name)
        await asyncio.sleep(2.7)
        other = await world.ec2.instance(INSTANCE)  # looked at for another attach
        assert VOLUME in other.devices.values()
        await asyncio.sleep(1.5)
        began_at = world.clock()
        assert name in world.gone_at
        world.attached_at.clear()
        world.wish(uid="another")
        await asyncio.sleep(30)
        return world.attached_at[name] - began_at

    assert in_attach_world(story) < 5


@pytest.mark.parametrize("after_s", [5, 60.3, 61], ids=["its turn", "the call", "the looks"])
def test_an_attachment_that_was_removed_by_force_is_not_looked_at_for_ever(after_s: float):
    async def story(world: AttachWorld) -> int:
        world.cloud.waits_s["AttachVolume"] = 60
        name = world.wish()
        await asyncio.sleep(after_s)
        world.remove_by_force(name)
        await asyncio.sleep(60)
        looks = world.cloud.counts["DescribeVolumes"]
        await asyncio.sleep(600)
        assert world.attacher._state.calls == {}
        return world.cloud.counts["DescribeVolumes"] - looks

    assert in_attach_world(story) == 0
