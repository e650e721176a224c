"""Snapshots and EC2's limits, in virtual time: waited for, told once, few describes."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from tests.controller.snapshot_world import World, in_world, take_like_stock


def test_snapshots_of_one_volume_are_taken_every_15_s_and_told_once():
    async def story(world: World) -> None:
        world.begin()
        names = [world.ask(number) for number in range(1, 5)]
        await world.until(lambda: all(world.is_ready(name) for name in names))

        sent = world.ec2.actions("CreateSnapshot")
        gaps = [later - earlier for earlier, later in pairwise(sent)]
        assert len(sent) == 4
        assert all(15.0 <= gap < 18.0 for gap in gaps), gaps
        assert world.ec2.limited == 0
        assert len(world.events.of_users("SnapshotCreationWaits")) == 3

    in_world(story)


def test_a_process_that_took_over_knows_when_the_last_one_was_taken():
    async def story(world: World) -> None:
        world.begin()
        first = world.ask(1)
        await world.until(lambda: (c := world.content(first)) and c.snapshot_id)
        await world.end()
        world.begin()
        second = world.ask(2)
        await world.until(lambda: world.is_ready(second))

        assert world.ec2.limited == 0

    in_world(story)


def test_others_snapshots_of_the_volume_are_waited_for():
    async def story(world: World) -> None:
        await take_like_stock(world)
        world.begin()
        name = world.ask(2)
        await world.until(lambda: world.is_ready(name))

        assert world.ec2.limited == 1
        [told] = world.events.of_users()
        assert told.startswith("waiting: too many")
        content = world.content(name)
        assert content is not None
        assert content.status is not None

    in_world(story)


def test_an_account_that_is_full_is_asked_less_and_less_and_each_is_told_once():
    async def story(world: World) -> None:
        world.ec2.pending_most, world.ec2.takes_s = 5, 60.0
        world.begin()
        names = [world.ask(number, volume_id=f"vol-{number:017x}") for number in range(1, 31)]
        await world.until(lambda: all(world.is_ready(name) for name in names), 1200.0)

        waits = world.events.of_users("SnapshotCreationWaits")
        assert len(world.ec2.taken) == 30
        # Each of the 25 that wait asks every 15 s at first, every 2 minutes in the end.
        assert world.clock() < 700
        assert world.ec2.limited < 25 * 8
        assert len(waits) <= 30

    in_world(story)


def test_200_snapshots_are_followed_by_few_describes():
    async def story(world: World) -> None:
        world.ec2.pending_most = 1000
        world.begin()
        names = [world.ask(n, volume_id=f"vol-{n:017x}") for n in range(1, 201)]
        at_s = await world.until(lambda: all(world.is_ready(name) for name in names))

        assert at_s < 30.0
        assert len(world.ec2.actions("DescribeSnapshots")) <= 1.5 * at_s
        assert len(world.ec2.actions("CreateSnapshot")) == 200

    in_world(story)


def test_volumes_at_their_own_limit_do_not_hold_up_the_others():
    """st1, sc1: one pending snapshot a volume, and AWS Backup takes one of each, for hours."""

    async def story(world: World) -> None:
        busy = [f"vol-0bad{number:013x}" for number in range(30)]
        world.ec2.pending_most = 1000
        world.ec2.full_volumes = frozenset(busy)
        world.begin()
        for number, volume_id in enumerate(busy):
            world.ask(number, volume_id=volume_id)
        await asyncio.sleep(30)
        names = [world.ask(100 + n, volume_id=f"vol-{n:017x}") for n in range(60)]
        began_s = world.clock()
        await world.until(lambda: len(world.ec2.taken) == len(names))

        assert world.clock() - began_s < 20
        assert world.ec2.limited < 100

    in_world(story)


def test_a_wait_of_hours_is_told_again_and_asks_ec2_less_often():
    async def story(world: World) -> None:
        world.ec2.pending_most, world.ec2.takes_s = 1, 4 * 3600.0
        world.begin()
        world.ask(1, volume_id="vol-0000000000000000a")
        await asyncio.sleep(10)
        world.ask(2, volume_id="vol-0000000000000000b")
        for _ in range(3):
            before = len(world.events.of_users("SnapshotCreationWaits"))
            await asyncio.sleep(3600)
            assert 1 <= len(world.events.of_users("SnapshotCreationWaits")) - before <= 2

        assert world.ec2.limited <= 3 * 60 + 5

    in_world(story)
