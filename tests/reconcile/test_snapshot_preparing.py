"""Fast restores and locks, in virtual time: asked for whatever becomes of the class."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from tests.reconcile.snapshot_world import World, in_world

LOCKED = {"lockMode": "compliance", "lockDuration": "30"}


def delete_class(world: World) -> None:
    world.kube.objects.pop("volumesnapshotclasses ebs")
    world.snapshotter._caches.snapshot_classes._store.remove("ebs", "99999")


@pytest.mark.parametrize("is_other_process", [False, True], ids=["same process", "after a crash"])
def test_a_lock_is_made_though_the_class_went_after_the_snapshot_was_taken(
    *, is_other_process: bool
):
    async def story(world: World) -> None:
        world.install_class(LOCKED)
        world.ec2.shown_after_s = 5.0
        world.begin()
        name = world.ask()
        await world.until(lambda: world.ec2.taken)
        await asyncio.sleep(1)
        delete_class(world)
        if is_other_process:
            await world.end()
            world.begin(take_over=True)
        await world.until(lambda: world.is_ready(name))

        assert len(world.ec2.locked) == 1

    in_world(story)


def test_what_a_class_that_went_may_have_asked_for_is_told_where_nobody_knows():
    async def story(world: World) -> None:
        world.ec2.shown_after_s = 5.0
        world.begin()
        name = world.ask()  # the class asks for nothing, as one of the stock driver's snapshots
        await world.until(lambda: world.ec2.taken)
        delete_class(world)
        await world.until(lambda: world.is_ready(name))

        assert "locked or made fast cannot be told" in world.events.of_users()[-1]

    in_world(story)


def test_a_lock_that_would_end_in_the_past_is_refused_before_anything_is_taken():
    async def story(world: World) -> None:
        expires = "2026-01-01T00:00:00Z"
        world.install_class({"lockMode": "governance", "lockExpirationDate": expires})
        world.begin()
        world.ask()
        await world.until(world.events.of_users)

        assert world.ec2.calls == []
        assert "lockExpirationDate" in world.events.of_users()[-1]

    in_world(story)


@pytest.mark.parametrize(
    ("parameters", "locked"),
    [({"fastSnapshotRestoreAvailabilityZones": "us-east-1a"}, None), (LOCKED, "compliance")],
)
def test_the_log_says_whether_it_was_locked(parameters: dict[str, str], locked: str | None):
    async def story(world: World) -> None:
        world.install_class(parameters)
        world.begin()
        name = world.ask()
        await world.until(lambda: world.is_ready(name))

    with capture_logs() as lines:
        in_world(story)

    [line] = [each for each in lines if each["event"] == "snapshot prepared"]
    assert line["locked"] == locked
