"""Fast restores and locks, in virtual time: asked for whatever becomes of the class."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from provisioner.model.errors import Ec2Error, Reason
from provisioner.model.names import PENDING_SETTINGS
from tests.controller.snapshot_world import World, in_world

LOCKED = {"lockMode": "compliance", "lockDuration": "30"}
FAST = {"fastSnapshotRestoreAvailabilityZones": "us-east-1a"}


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


def change_class(world: World, parameters: dict[str, str]) -> None:
    """Delete it, and create another one of its name."""
    delete_class(world)
    world.install_class(parameters)
    world.snapshotter._caches.snapshot_classes._store.apply(
        world.kube.decoded("volumesnapshotclasses ebs")
    )


@pytest.mark.parametrize("is_other_process", [False, True], ids=["same process", "after a crash"])
@pytest.mark.parametrize("asked_later", [LOCKED, FAST], ids=["locked", "fast"])
def test_a_snapshot_that_was_taken_gets_nothing_that_its_class_asks_for_only_later(
    asked_later: dict[str, str], *, is_other_process: bool
):
    async def story(world: World) -> None:
        world.ec2.takes_s = 60.0
        world.begin()
        name = world.ask()
        await world.until(lambda: (c := world.content(name)) and c.snapshot_id)
        change_class(world, asked_later)
        if is_other_process:
            await world.end()
            world.begin(take_over=True)
        await world.until(lambda: world.is_ready(name))

        assert world.ec2.locked == {}
        assert world.ec2.fast == {}

    in_world(story)


def test_a_lock_is_made_though_its_class_no_longer_asks_for_one_when_the_snapshot_is_shown():
    async def story(world: World) -> None:
        world.install_class(LOCKED)
        world.ec2.shown_after_s = 5.0
        world.begin()
        name = world.ask()
        await world.until(lambda: world.ec2.taken)
        await asyncio.sleep(1)
        change_class(world, {})
        await world.until(lambda: world.is_ready(name))

        [lock] = world.ec2.locked.values()
        assert lock.duration_days == 30

    in_world(story)


def test_a_lock_of_a_request_that_was_refused_is_not_due_any_more():
    async def story(world: World) -> None:
        world.install_class(LOCKED)
        world.ec2.refuses["CreateSnapshot"] = Ec2Error(
            Reason.PERMISSION_DENIED, "no", action="CreateSnapshot", retry_after_s=60.0
        )
        world.begin()
        name = world.ask()
        await world.until(world.events.of_users)
        change_class(world, {})
        world.ec2.refuses.clear()
        await world.until(lambda: world.is_ready(name))

        assert world.ec2.locked == {}
        content = world.content(name)
        assert content is not None
        assert PENDING_SETTINGS not in content.annotations

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


def test_the_log_says_what_was_locked_and_made_fast():
    async def story(world: World) -> None:
        world.install_class(LOCKED | FAST)
        world.begin()
        name = world.ask()
        await world.until(lambda: world.is_ready(name))

    with capture_logs() as lines:
        in_world(story)

    told = {each["event"]: each for each in lines}
    assert told["snapshot locked"]["mode"] == "compliance"
    assert told["snapshot made fast"]["zones"] == ("us-east-1a",)


FULL = Ec2Error(
    Reason.QUOTA_EXCEEDED,
    "EnableFastSnapshotRestores: FastSnapshotRestoreLimitExceeded",
    action="EnableFastSnapshotRestores",
    retry_after_s=60.0,
)


def test_a_fast_restore_that_ec2_refuses_holds_nothing_up_and_is_asked_for_now_and_then():
    async def story(world: World) -> None:
        world.install_class(LOCKED | FAST)
        world.ec2.refuses["EnableFastSnapshotRestores"] = FULL
        world.begin()
        name = world.ask()
        ready_s = await world.until(lambda: world.is_ready(name), 60)
        await asyncio.sleep(6 * 3600)

        content = world.content(name)
        assert content is not None
        assert content.status is not None
        assert content.status.error is None
        assert ready_s < 40
        assert len(world.ec2.locked) == 1
        # After 10, 20, 40, 80 and 160 minutes: each night may leave one more snapshot that asks.
        assert len(world.ec2.actions("EnableFastSnapshotRestores")) == 6
        told = world.events.of_users("SnapshotContentCheckandUpdateFailed")
        assert len(told) == 6
        assert "volumes can be created from the snapshot" in told[0]
        assert "retried in 10 minutes" in told[0]
        assert "retried in 160 minutes" in told[4]
        assert len(world.ec2.actions("DescribeSnapshots")) < 60
        await asyncio.sleep(10 * 24 * 3600)
        assert len(world.ec2.actions("EnableFastSnapshotRestores")) <= 6 + 40

    in_world(story)


@pytest.mark.parametrize("is_other_process", [False, True], ids=["same process", "after a crash"])
def test_it_becomes_fast_once_ec2_lets_it_and_nothing_is_asked_for_afterwards(
    *, is_other_process: bool
):
    async def story(world: World) -> None:
        world.install_class(FAST)
        world.ec2.refuses["EnableFastSnapshotRestores"] = FULL
        world.begin()
        name = world.ask()
        await world.until(lambda: world.is_ready(name))
        await asyncio.sleep(100)
        if is_other_process:
            await world.end()
            world.begin(take_over=True)
        world.ec2.refuses.clear()
        await world.until(lambda: world.ec2.fast, 700)
        await asyncio.sleep(1)
        calls = len(world.ec2.calls)
        await asyncio.sleep(3600)

        assert len(world.ec2.calls) == calls
        content = world.content(name)
        assert content is not None
        assert PENDING_SETTINGS not in content.annotations

    in_world(story)


def test_a_snapshot_that_is_to_become_fast_can_be_deleted():
    async def story(world: World) -> None:
        world.install_class(FAST)
        world.ec2.refuses["EnableFastSnapshotRestores"] = FULL
        world.begin()
        name = world.ask()
        await world.until(lambda: world.is_ready(name))
        await asyncio.sleep(100)
        world.delete()
        await world.until(lambda: world.content(name) is None, 10)

        assert world.ec2.taken == {}

    in_world(story)


def test_a_lock_that_ec2_refuses_keeps_a_snapshot_from_being_ready():
    async def story(world: World) -> None:
        world.install_class(LOCKED)
        world.ec2.refuses["LockSnapshot"] = Ec2Error(
            Reason.PERMISSION_DENIED, "no", action="LockSnapshot", retry_after_s=60.0
        )
        world.begin()
        name = world.ask()
        await asyncio.sleep(300)
        assert not world.is_ready(name)
        assert "the class when the snapshot was requested" in world.events.of_users()[-1]
        world.ec2.refuses.clear()
        await world.until(lambda: world.is_ready(name))

        assert len(world.ec2.locked) == 1

    in_world(story)


def test_a_lock_of_which_nothing_is_heard_is_not_blamed_on_the_class():
    async def story(world: World) -> None:
        world.install_class(LOCKED)
        world.ec2.refuses["LockSnapshot"] = Ec2Error(
            Reason.THROTTLED, "slowly", action="LockSnapshot", retry_after_s=60.0
        )
        world.begin()
        world.ask()
        await world.until(world.events.of_users)

        assert world.events.of_users()[-1].endswith("Throttled: slowly")

    in_world(story)


@pytest.mark.parametrize("text", ['{"lockMode": "compliance"}', '{"lockLater": "1"}'])
def test_a_snapshot_is_not_ready_while_it_cannot_be_read_how_it_is_to_be_locked(text: str):
    """Somebody has edited it, or a newer version wrote it before a rollback."""

    async def story(world: World) -> None:
        world.install_class(LOCKED)
        world.ec2.shown_after_s = 5.0
        world.begin()
        name = world.ask()
        await world.until(lambda: world.ec2.taken)
        noted = world.kube.decoded(f"volumesnapshotcontents {name}").annotations[PENDING_SETTINGS]
        world.change(name, annotations={PENDING_SETTINGS: text})
        await asyncio.sleep(300)
        assert not world.is_ready(name)
        assert world.ec2.locked == {}
        told = world.events.of_users("SnapshotContentCheckandUpdateFailed")[-1]
        assert f"InvalidRequest: annotation {PENDING_SETTINGS} of" in told
        world.change(name, annotations={PENDING_SETTINGS: noted})
        await world.until(lambda: world.is_ready(name), 70)

        assert len(world.ec2.locked) == 1

    in_world(story)


def test_a_ready_snapshot_stays_ready_while_it_cannot_be_read_where_it_is_to_be_fast():
    async def story(world: World) -> None:
        world.install_class(FAST)
        world.ec2.refuses["EnableFastSnapshotRestores"] = FULL
        world.begin()
        name = world.ask()
        await world.until(lambda: world.is_ready(name))
        world.change(name, annotations={PENDING_SETTINGS: "no"})
        await asyncio.sleep(7200)

        assert world.is_ready(name)
        told = [each for each in world.events.of_users() if "cannot be read" in each]
        assert 3 <= len(told) <= 5
        content = world.content(name)
        assert content is not None
        assert content.annotations[PENDING_SETTINGS] == "no"

    in_world(story)
