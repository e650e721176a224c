"""Contents that name one EBS snapshot, in virtual time: the last one that goes deletes it."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from provisioner.model import volume_snapshot as v
from provisioner.model.errors import Ec2Error, Reason
from tests.builders import DELETED_AT
from tests.controller.snapshot_world import World, in_world
from tests.snapshot_builders import a_content, a_content_status

RESTORED = {v.VELERO_BACKUP: "monday", v.VELERO_RESTORE: "tuesday"}


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
def test_a_content_whose_snapshot_another_one_names_goes_and_leaves_it_with_one_word(policy: str):
    """A VolumeSnapshot, and its namespace, does not stay Terminating for somebody else's sake."""

    async def story(world: World) -> None:
        world.begin()
        name, snapshot_id = await ready(world)
        other = import_it(world, snapshot_id, policy)
        world.delete(1)
        await world.until(lambda: world.content(name) is None, 10)
        await asyncio.sleep(600)

        assert snapshot_id in world.ec2.taken
        assert world.ec2.actions("DeleteSnapshot") == []
        [told] = world.events.of_users("SnapshotDeleteError")
        assert f"VolumeSnapshotContent {other} names it too" in told

        world.delete(2)
        await world.until(lambda: world.content(other) is None)
        assert (snapshot_id in world.ec2.taken) is (policy == v.RETAIN)

    in_world(story)


@pytest.mark.parametrize("policy", [v.RETAIN, v.DELETE])
def test_one_that_waits_for_its_volumesnapshot_keeps_it(policy: str):
    async def story(world: World) -> None:
        world.begin()
        name, snapshot_id = await ready(world, policy=policy)
        other = import_it(world, snapshot_id, v.DELETE)
        world.change(name, deletionTimestamp=DELETED_AT)  # by hand; its VolumeSnapshot is there
        world.delete(2)
        await world.until(lambda: world.content(other) is None)

        assert snapshot_id in world.ec2.taken
        assert f"VolumeSnapshotContent {name} names it too" in world.events.of_users()[-1]

    in_world(story)


def as_velero_ends_a_backup(world: World, snapshot_id: str) -> str:
    """A content that is bound to nothing, and is deleted before anybody has looked at it."""
    name = "vsc-of-velero"
    content = msgspec.to_builtins(
        a_content(name, given=snapshot_id, deleting=True, labels={v.VELERO_BACKUP: "monday"})
    )
    content["spec"]["volumeSnapshotRef"] = {"namespace": "ns-of-nobody", "name": "name-of-nobody"}
    del content["status"]
    world.kube.put(f"volumesnapshotcontents {name}", content)
    return name


def test_the_end_of_a_backup_deletes_its_snapshot_before_anybody_has_looked_at_it():
    async def story(world: World) -> None:
        world.begin()
        restored, snapshot_id = await ready(world, policy=v.RETAIN)
        world.change(restored, labels=RESTORED)
        name = as_velero_ends_a_backup(world, snapshot_id)
        await world.until(lambda: world.content(name) is None, 10)

        assert world.ec2.taken == {}
        assert len(world.ec2.actions("DeleteSnapshot")) == 1
        assert world.events.of_users("SnapshotDeleteError") == []

    in_world(story)


def test_of_two_that_go_at_once_one_deletes_it():
    async def story(world: World) -> None:
        world.begin()
        name, snapshot_id = await ready(world)
        other = import_it(world, snapshot_id, v.DELETE)
        world.delete(1)
        world.delete(2)
        await world.until(lambda: world.content(name) is world.content(other) is None)

        assert world.ec2.taken == {}

    in_world(story)


def test_one_that_only_the_cache_still_has_keeps_nothing():
    async def story(world: World) -> None:
        world.begin()
        name, snapshot_id = await ready(world)
        other = import_it(world, snapshot_id, v.RETAIN)
        await asyncio.sleep(1)
        del world.kube.objects[f"volumesnapshotcontents {other}"]  # the watch is behind
        world.delete(1)
        await world.until(lambda: world.content(name) is None)

        assert world.ec2.taken == {}
        assert world.events.of_users("SnapshotDeleteError") == []

    in_world(story)


def test_one_that_the_cache_does_not_show_yet_keeps_it():
    """Somebody rescues a snapshot whose deletion EC2 has refused for long."""

    async def story(world: World) -> None:
        world.begin()
        name, snapshot_id = await ready(world)
        why = "an image is made of it"
        world.ec2.refuses["DeleteSnapshot"] = Ec2Error(
            Reason.SNAPSHOT_IN_USE, why, action="DeleteSnapshot"
        )
        world.delete(1)
        await world.until(lambda: any(why in told for told in world.events.of_users()))
        world.kube.is_watch_behind = True
        other = import_it(world, snapshot_id, v.RETAIN)
        world.ec2.refuses.clear()
        await world.until(lambda: world.content(name) is None, 700)

        assert snapshot_id in world.ec2.taken
        assert f"VolumeSnapshotContent {other} names it too" in world.events.of_users()[-1]

    in_world(story)


def test_many_deletions_list_nothing():
    async def story(world: World) -> None:
        world.ec2.pending_most = 1000
        world.begin()
        names = [world.ask(n, volume_id=f"vol-{n:017x}") for n in range(1, 101)]
        await world.until(lambda: all(world.is_ready(name) for name in names))
        for number in range(1, 101):
            world.delete(number)
        await world.until(lambda: not any(world.content(name) for name in names))

        assert world.ec2.taken == {}
        assert "list volumesnapshotcontents" not in world.mortal.seen

    in_world(story)
