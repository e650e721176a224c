"""How contents end, in virtual time: what is deleted, and what never."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from provisioner.model import volume_snapshot as v
from provisioner.model.errors import Ec2Error, Reason
from tests.controller.snapshot_cloud import EPOCH as AT
from tests.controller.snapshot_world import World, in_world, take_like_stock


@pytest.mark.parametrize(
    ("policy", "deleted"), [(v.DELETE, True), (v.RETAIN, False)], ids=["Delete", "Retain"]
)
def test_the_end_of_a_content(*, policy: str, deleted: bool):
    async def story(world: World) -> None:
        world.begin()
        name = world.ask(policy=policy)
        await world.until(lambda: world.is_ready(name))
        world.delete()
        await world.until(lambda: world.content(name) is None)

        assert bool(world.ec2.deleted) is deleted
        assert bool(world.ec2.taken) is not deleted
        assert bool(world.ec2.actions("DeleteSnapshot")) is deleted

    in_world(story)


def test_a_policy_that_becomes_retain_at_the_last_moment_is_heeded():  # race 19, race 26
    async def story(world: World) -> None:
        world.begin()
        name = world.ask()
        await world.until(lambda: world.is_ready(name))
        world.delete()
        world.kube.caches = None  # what comes now, the process does not hear of
        key = f"volumesnapshotcontents {name}"
        changed = deepcopy(world.kube.objects[key])
        changed["spec"]["deletionPolicy"] = v.RETAIN
        world.kube.put(key, changed)
        cached = world.snapshotter._caches.contents.get(name)
        world.kube.caches = world.snapshotter._caches
        await world.until(lambda: world.content(name) is None)

        assert cached is not None
        assert cached.spec.deletion_policy == v.DELETE
        assert world.ec2.actions("DeleteSnapshot") == []
        assert len(world.ec2.taken) == 1

    in_world(story)


def test_a_content_deleted_while_its_request_waits_takes_no_snapshot():
    async def story(world: World) -> None:
        world.begin()
        world.ask(1)
        name = world.ask(2)  # of the same volume: it waits
        await asyncio.sleep(3)
        world.delete(2)
        await world.until(lambda: world.content(name) is None)
        await asyncio.sleep(60)

        assert len(world.ec2.taken) == 1

    in_world(story)


def test_a_snapshot_in_doubt_is_found_before_its_content_may_go():
    async def story(world: World) -> None:
        world.ec2.loses, world.ec2.shown_after_s = ["CreateSnapshot"], 20.0
        world.begin()
        name = world.ask()
        await world.until(lambda: world.ec2.taken)
        world.delete()
        await world.until(lambda: world.content(name) is None)

        assert world.ec2.taken == {}
        assert len(world.ec2.deleted) == 1

    in_world(story)


def test_a_content_whose_snapshot_object_is_gone_ends_without_a_word():  # sidecar #1446
    async def story(world: World) -> None:
        world.begin()
        name = world.ask()
        await world.until(lambda: world.is_ready(name))
        world.change(name, deletionTimestamp="2026-11-21T10:00:00Z")
        await asyncio.sleep(5)
        kept = world.content(name)
        snapshot = world.kube.objects.pop("volumesnapshots shop/daily-1")
        world.snapshotter._caches.snapshots._store.remove(
            "shop/daily-1", str(int(snapshot["metadata"]["resourceVersion"]) + 1000)
        )
        await world.until(lambda: world.content(name) is None)

        assert kept is not None
        assert world.ec2.taken == {}

    in_world(story)


def test_a_content_copied_from_another_cluster_goes_without_the_snapshot_of_that_cluster():
    async def story(world: World) -> None:
        taken = await take_like_stock(world)
        world.begin()
        name = world.ask(given=taken)
        await world.until(lambda: world.is_ready(name))
        key = "volumesnapshots shop/daily-1"
        there = deepcopy(world.kube.objects[key])
        there["metadata"]["uid"] = "uid-of-this-cluster"  # the content has that of the other one
        world.kube.put(key, there)
        world.change(name, deletionTimestamp="2026-11-21T10:00:00Z")
        await world.until(lambda: world.content(name) is None)

        assert list(world.ec2.taken) == [taken]
        [told] = world.events.of_users("SnapshotDeleteError")
        assert f"snapshot {taken} is kept" in told

    in_world(story)


async def kept_by_ec2(world: World, reason: Reason) -> str:
    """The content of a ready snapshot that EC2 does not delete."""
    world.begin()
    name = world.ask()
    await world.until(lambda: world.is_ready(name))
    world.ec2.refuses["DeleteSnapshot"] = Ec2Error(
        reason, "EC2 keeps it", action="DeleteSnapshot", retry_after_s=60.0
    )
    return name


@pytest.mark.parametrize("reason", [Reason.SNAPSHOT_LOCKED, Reason.SNAPSHOT_IN_USE])
def test_a_snapshot_that_is_kept_for_long_is_tried_less_and_less_often(reason: Reason):
    async def story(world: World) -> None:
        name = await kept_by_ec2(world, reason)
        world.delete()
        await asyncio.sleep(24 * 3600)

        # Pauses of 10, 20, 40, 80, 160 and 320 minutes, then of six hours.
        assert len(world.ec2.actions("DeleteSnapshot")) == 9
        told = list(dict.fromkeys(world.events.of_users("SnapshotDeleteError")))
        assert len(told) == 9
        assert told[0].endswith(
            f"{reason}: EC2 keeps it; it is tried again after {AT:%F} 10:10 UTC"
        )
        assert told[-1].endswith(f"after {AT + timedelta(days=1):%F} 14:33 UTC")
        world.ec2.refuses.clear()
        await world.until(lambda: world.content(name) is None, 7 * 3600)
        assert world.ec2.taken == {}

    in_world(story)


def test_a_snapshot_that_is_kept_by_ec2_is_let_go_at_once_with_the_policy_retain():
    async def story(world: World) -> None:
        name = await kept_by_ec2(world, Reason.SNAPSHOT_LOCKED)
        world.delete()
        await asyncio.sleep(4 * 3600)
        key = f"volumesnapshotcontents {name}"
        changed = deepcopy(world.kube.objects[key])
        changed["spec"]["deletionPolicy"] = v.RETAIN
        world.kube.put(key, changed)
        await world.until(lambda: world.content(name) is None, 10)

        assert len(world.ec2.taken) == 1

    in_world(story)


def test_why_ec2_keeps_a_snapshot_is_always_told_by_an_event_that_still_exists(
    monkeypatch: pytest.MonkeyPatch,
):
    """An Event lives for an hour."""

    async def story(world: World) -> None:
        await kept_by_ec2(world, Reason.SNAPSHOT_LOCKED)
        record, times = world.events.record, [world.clock()]

        def recorded(regarding: Any, **given: Any) -> None:
            times.append(world.clock())
            record(regarding, **given)

        monkeypatch.setattr(world.events, "record", recorded)
        world.delete()
        await asyncio.sleep(48 * 3600)

        times.append(world.clock())
        assert max(later - before for before, later in pairwise(times)) <= 33 * 60
        assert len(world.ec2.actions("DeleteSnapshot")) == 13

    in_world(story)


@pytest.mark.parametrize("is_ready", [True, False])
def test_a_content_without_its_finalizer_yet_leaves_no_snapshot_to_nobody(*, is_ready: bool):
    async def story(world: World) -> None:
        world.begin()
        name = world.ask(finalizers=())
        await world.until(lambda: world.is_ready(name) if is_ready else world.ec2.taken)
        world.delete()
        await world.until(lambda: world.content(name) is None)

        assert len(world.ec2.deleted) == 1
        assert world.ec2.taken == {}

    in_world(story)


def test_other_finalizers_stay_when_ours_is_added():
    async def story(world: World) -> None:
        world.begin()
        name = world.ask(finalizers=("example.org/keep",))
        await world.until(lambda: world.is_ready(name))
        content = world.content(name)

        assert content is not None
        assert set(content.finalizers) == {"example.org/keep", v.CONTENT_FINALIZER}

    in_world(story)
