"""Bad input and refusals of snapshots, in virtual time: a clear word, and a way back."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from typing import Any

import pytest

from provisioner.model.errors import Ec2Error, Reason
from provisioner.model.volume_snapshot import VolumeSnapshotContent
from tests.builders import VOLUME
from tests.controller.snapshot_world import World, in_world, take_like_stock


def test_a_class_that_is_missing_is_told_and_taken_up_once_it_is_there():
    async def story(world: World) -> None:
        world.begin()
        name = world.ask(class_name="later")
        await world.until(lambda: world.events.of_users("SnapshotCreationFailed"))
        content = world.content(name)
        at_s = world.clock()
        world.install_class(name="later")
        await world.until(lambda: world.is_ready(name))

        assert content is not None
        assert content.status is not None
        assert content.status.error is not None
        assert "VolumeSnapshotClass later does not exist" in str(content.status.error.message)
        assert world.ec2.actions("CreateSnapshot")[0] - at_s < 1.0

    in_world(story)


def test_a_vanished_volume_is_told_and_asked_for_seldom():
    async def story(world: World) -> None:
        world.ec2.refuses["CreateSnapshot"] = Ec2Error(
            Reason.VOLUME_NOT_FOUND, f"no {VOLUME}", action="CreateSnapshot", retry_after_s=60.0
        )
        world.begin()
        name = world.ask()
        await asyncio.sleep(200)

        content = world.content(name)
        assert content is not None
        assert not content.is_being_created  # stock can end it, too
        assert 2 <= len(world.ec2.actions("CreateSnapshot")) <= 4
        told = set(world.events.of_users("SnapshotCreationFailed"))
        assert told == {f"Failed to create snapshot: VolumeNotFound: no {VOLUME}"}
        statuses = [body for what, body in world.kube.writes if what == "status"]
        assert len(statuses) == 1  # sidecar #533

    in_world(story)


def test_zones_that_do_not_exist_are_told_before_a_snapshot_is_taken():
    async def story(world: World) -> None:
        world.install_class({"fastSnapshotRestoreAvailabilityZones": "us-east-1z"})
        world.begin()
        world.ask()
        await told_of(world)

        [told] = world.events.of_users()
        assert "us-east-1z, but this Region has only us-east-1a" in told
        assert world.ec2.taken == {}

    in_world(story)


async def told_of(world: World) -> float:
    return await world.until(world.events.of_users)


def test_a_snapshot_that_was_given_is_recorded_and_followed():
    async def story(world: World) -> None:
        stock = await take_like_stock(world)
        world.begin()
        name = world.ask(2, given=stock)
        await world.until(lambda: (c := world.content(name)) and c.status)
        before = world.content(name)
        await world.until(lambda: world.is_ready(name))

        assert before is not None
        assert before.status is not None
        assert before.status.ready_to_use is False
        assert world.ec2.actions("CreateSnapshot") != []
        assert len(world.ec2.taken) == 1

    in_world(story)


def test_a_given_snapshot_that_does_not_exist_is_told():
    async def story(world: World) -> None:
        world.begin()
        world.ask(given="snap-0eeeeeeeeeeeeeee9")
        await told_of(world)

        [told] = world.events.of_users()
        assert "snapshot snap-0eeeeeeeeeeeeeee9 of" in told

    in_world(story)


def test_a_failure_is_written_although_others_write_at_the_same_moment():
    async def story(world: World) -> None:
        world.begin()
        name = world.ask(class_name="missing")
        # As snapshot-controller does right after it has made a content.
        world.kube.caches = None
        world.change(name, annotations={"theirs": "yes"})
        world.kube.caches = world.snapshotter._caches
        await told_of(world)
        await asyncio.sleep(1)

        content = world.content(name)
        assert content is not None
        assert content.status is not None
        assert content.status.error is not None

    in_world(story)


def test_a_snapshot_is_recorded_although_others_write_at_the_same_moment():
    async def story(world: World) -> None:
        world.begin()
        name = world.ask()
        await world.until(lambda: "CreateSnapshot" in world.mortal.seen)
        world.kube.caches = None
        world.change(name, annotations={"theirs": "yes"})
        world.kube.caches = world.snapshotter._caches
        await world.until(lambda: world.is_ready(name))

        content = world.content(name)
        assert content is not None
        assert content.annotations == {"theirs": "yes"}
        assert len(world.ec2.actions("CreateSnapshot")) == 1

    in_world(story)


@pytest.mark.parametrize("is_ready", [True, False])
def test_a_content_that_is_created_again_gets_the_first_snapshot(*, is_ready: bool):
    async def story(world: World) -> None:
        world.ec2.takes_s = 60.0
        world.begin()
        name = world.ask()
        await world.until(lambda: (c := world.content(name)) and c.snapshot_id)
        if is_ready:
            await world.until(lambda: world.is_ready(name))
        as_snapshot_controller_reports(world, is_ready=is_ready)
        content = await created_again(world, name, after_s=30)

        assert list(world.ec2.taken) == [content.snapshot_id]
        assert len(world.ec2.actions("FindSnapshots")) == 1

    in_world(story)


def test_a_content_that_is_created_again_at_once_gets_the_first_snapshot_though_ec2_hides_it():
    async def story(world: World) -> None:
        world.ec2.takes_s, world.ec2.shown_after_s = 60.0, 10.0
        world.begin()
        name = world.ask()
        await world.until(lambda: (c := world.content(name)) and c.snapshot_id)
        as_snapshot_controller_reports(world, is_ready=False)
        content = await created_again(world, name, after_s=2)

        assert list(world.ec2.taken) == [content.snapshot_id]

    in_world(story)


def as_snapshot_controller_reports(world: World, *, is_ready: bool) -> None:
    key = "volumesnapshots shop/daily-1"
    owner = deepcopy(world.kube.objects[key])
    owner["status"] |= {"creationTime": "2026-11-21T10:00:00Z", "readyToUse": is_ready}
    world.kube.put(key, owner)


async def created_again(world: World, name: str, *, after_s: float) -> VolumeSnapshotContent:
    """A content once its snapshot is ready again, after somebody has removed it by force."""
    lost = remove_by_force(world, name)
    await asyncio.sleep(after_s)
    world.kube.put(f"volumesnapshotcontents {name}", again(lost, world))
    await world.until(lambda: world.is_ready(name))
    content = world.content(name)
    assert content is not None
    return content


def remove_by_force(world: World, name: str) -> dict[str, Any]:
    """Somebody deletes a content and takes its finalizer off."""
    lost = world.kube.objects.pop(f"volumesnapshotcontents {name}")
    version = str(int(lost["metadata"]["resourceVersion"]) + 1000)
    world.snapshotter._caches.contents._store.remove(name, version)
    return lost


def again(lost: dict[str, Any], world: World) -> dict[str, Any]:
    """The same content as a new object, which has no status yet."""
    made = {key: value for key, value in deepcopy(lost).items() if key != "status"}
    made["metadata"] |= {"uid": "second", "creationTimestamp": world.now().isoformat()}
    return made
