"""Contents that name one EBS snapshot, in virtual time: it stays for as long as one wants it."""

from __future__ import annotations

import asyncio

import pytest

from provisioner.model import volume_snapshot as v
from tests.builders import DELETED_AT
from tests.reconcile.snapshot_world import World, in_world
from tests.snapshot_builders import a_content_status


async def ready(world: World, **given: str) -> tuple[str, str]:
    """A content and its snapshot."""
    name = world.ask(1, **given)
    await world.until(lambda: world.is_ready(name))
    content = world.content(name)
    assert content is not None
    return name, content.snapshot_id


def import_it(world: World, snapshot_id: str, policy: str) -> str:
    """Somebody makes another content of the snapshot by hand."""
    status = a_content_status(snapshot_id, ready=True)
    return world.ask(2, given=snapshot_id, status=status, policy=policy)


@pytest.mark.parametrize("policy", [v.RETAIN, v.DELETE])
def test_one_that_waits_for_its_volumesnapshot_keeps_it(policy: str):
    async def story(world: World) -> None:
        world.begin()
        name, snapshot_id = await ready(world, policy=policy)
        other = import_it(world, snapshot_id, v.DELETE)
        world.change(name, deletionTimestamp=DELETED_AT)  # by hand; its VolumeSnapshot is there
        world.delete(2)
        await asyncio.sleep(300)

        assert world.content(other) is not None
        assert snapshot_id in world.ec2.taken
        assert f"volumesnapshotcontent {name} names it too" in world.events.of_users()[-1]

    in_world(story)


def test_two_that_go_with_their_snapshot_do_not_wait_for_each_other():
    async def story(world: World) -> None:
        world.begin()
        name, snapshot_id = await ready(world)
        other = import_it(world, snapshot_id, v.DELETE)
        world.delete(1)
        world.delete(2)
        await world.until(lambda: world.content(name) is world.content(other) is None)

        assert world.ec2.taken == {}

    in_world(story)


def test_one_that_only_the_api_server_knows_keeps_it():  # race 29
    async def story(world: World) -> None:
        world.begin()
        _, snapshot_id = await ready(world)
        caches, world.kube.caches = world.kube.caches, None  # the watch is behind
        import_it(world, snapshot_id, v.RETAIN)
        world.kube.caches = caches
        world.delete(1)
        await asyncio.sleep(300)

        assert snapshot_id in world.ec2.taken
        assert world.ec2.actions("DeleteSnapshot") == []
        assert "snapcontent-uid-2 names it too" in world.events.of_users("SnapshotDeleteError")[-1]
        assert world.mortal.seen.count("list volumesnapshotcontents") < 15  # in five minutes

    in_world(story)


def test_many_deletions_share_few_lists():
    async def story(world: World) -> None:
        world.ec2.pending_most = 1000
        world.begin()
        names = [world.ask(n, volume_id=f"vol-{n:017x}") for n in range(1, 101)]
        await world.until(lambda: all(world.is_ready(name) for name in names))
        for number in range(1, 101):
            world.delete(number)
        await world.until(lambda: not any(world.content(name) for name in names))

        assert world.ec2.taken == {}
        assert world.mortal.seen.count("list volumesnapshotcontents") < 5

    in_world(story)


def test_it_goes_soon_after_the_one_that_kept_it():
    async def story(world: World) -> None:
        world.begin()
        name, snapshot_id = await ready(world)
        other = import_it(world, snapshot_id, v.RETAIN)
        world.delete(1)
        await asyncio.sleep(3600)
        world.delete(2)
        went_at_s = await world.until(lambda: world.content(other) is None)
        gone_at_s = await world.until(lambda: world.content(name) is None, 7200)

        assert gone_at_s - went_at_s < 60
        assert world.ec2.taken == {}

    in_world(story)
