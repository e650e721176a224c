"""A process dies at every request of a snapshot's life, and the next one ends it well.

The points are those that a life without a death shows: before each request, and after its effect
but before its reply.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from provisioner.model import volume_snapshot as v
from tests.controller.snapshot_cloud import Mortal
from tests.controller.snapshot_world import World, in_world
from tests.controller.snapshotting.test_flow import LOCKED_AND_FAST
from tests.controller.snapshotting.test_shared_snapshots import RESTORED, as_velero_ends_a_backup

POLICIES = (v.DELETE, v.RETAIN)


async def whole_life(world: World, policy: str) -> None:
    """A snapshot is asked for, becomes ready, and is deleted again; processes come and go."""
    world.ec2.takes_s = 10.0
    world.install_class(LOCKED_AND_FAST)
    world.begin()
    name = world.ask(policy=policy)
    await lived(world, lambda: world.is_ready(name))
    [snapshot_id] = world.ec2.taken
    assert sorted(world.ec2.fast[snapshot_id]) == ["us-east-1a", "us-east-1b"]
    assert world.ec2.locked[snapshot_id].duration_days == 7
    assert len(world.ec2.actions("CreateSnapshot")) == 1
    assert len(world.ec2.actions("LockSnapshot")) == 1
    await lived(world, lambda: not is_announced(world, name))
    world.delete()
    await lived(world, lambda: world.content(name) is None)
    assert len(world.ec2.deleted) == (policy == v.DELETE)
    assert len(world.ec2.taken) == (policy == v.RETAIN)


def is_announced(world: World, name: str) -> bool:
    content = world.content(name)
    return content is not None and content.is_being_created


async def lived(world: World, holds: Callable[[], bool]) -> None:
    """Until something holds; when the process dies meanwhile, another one begins soon."""

    def is_over() -> bool:
        return holds() or world.mortal.dead.is_set()

    await world.until(is_over)
    if world.mortal.dead.is_set():
        world.mortal.dead.clear()
        await world.end()
        await asyncio.sleep(3.0)
        world.mortal.dies_at = -1
        world.begin()
    await world.until(holds)


def points(policy: str) -> list[str]:
    mortal = Mortal()
    in_world(lambda world: whole_life(world, policy), mortal)
    return mortal.seen


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_death_at_any_request_changes_nothing_in_the_end(policy: str, *, after: bool):
    seen = points(policy)
    ended = 0
    for number in range(len(seen)):
        mortal = Mortal(dies_at=number, after=after)
        try:
            in_world(lambda world: whole_life(world, policy), mortal)
        except BaseException as failure:
            failure.add_note(f"died {'after' if after else 'before'} {number} {seen[number]}")
            raise
        ended += 1

    assert ended == len(seen)
    walked = {each for each in seen if not each.startswith(("Describe", "Find", "get "))}
    assert walked >= {
        "patch announce",
        "CreateSnapshot",
        "patch status",
        "patch withdraw",
        "EnableFastSnapshotRestores",
        "LockSnapshot",
        "patch finalizers",
    }
    assert ("DeleteSnapshot" in walked) is (policy == v.DELETE)


async def end_of_a_backup(world: World) -> None:
    """Velero deletes a backup of which a restored content is left."""
    world.begin()
    restored = world.ask(policy=v.RETAIN)
    await lived(world, lambda: world.is_ready(restored))
    world.change(restored, labels=RESTORED)
    [snapshot_id] = world.ec2.taken
    name = as_velero_ends_a_backup(world, snapshot_id)
    await lived(world, lambda: world.content(name) is None)
    assert world.ec2.deleted == [snapshot_id]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_death_at_any_request_of_the_end_of_a_backup_leaves_no_snapshot(*, after: bool):
    whole = Mortal()
    in_world(end_of_a_backup, whole)
    for number in range(len(whole.seen)):
        in_world(end_of_a_backup, Mortal(dies_at=number, after=after))

    assert "DeleteSnapshot" in whole.seen


LOSABLE = ("CreateSnapshot", "EnableFastSnapshotRestores", "LockSnapshot", "DeleteSnapshot")


@pytest.mark.parametrize("action", LOSABLE)
def test_a_reply_that_is_lost_changes_nothing_in_the_end(action: str):
    async def story(world: World) -> None:
        world.ec2.loses = [action]
        world.install_class(LOCKED_AND_FAST)
        world.begin()
        name = world.ask()
        await world.until(lambda: world.is_ready(name))
        taken = list(world.ec2.taken)
        world.delete()
        await world.until(lambda: world.content(name) is None)

        assert world.ec2.loses == []
        assert world.ec2.deleted == taken
        assert len(taken) == 1

    in_world(story)
