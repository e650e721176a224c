"""The flow of contents in virtual time: order of writes, readiness, what was begun before us."""

from __future__ import annotations

import asyncio
from unittest.mock import MagicMock

import pytest
from structlog.testing import capture_logs

from provisioner.controller.shared.settings import Settings
from provisioner.controller.snapshotting.flow import Snapshotter
from provisioner.model import tags
from provisioner.model import volume_snapshot as v
from provisioner.model.errors import Ec2Error, Outcome, Reason
from provisioner.model.names import SNAPSHOT_NAME
from tests.controller.snapshot_cloud import EPOCH
from tests.controller.snapshot_world import World, in_world, take_like_stock

LOCKED_AND_FAST = {
    "fastSnapshotRestoreAvailabilityZones": "us-east-1a, us-east-1b",
    "lockMode": "governance",
    "lockDuration": "7",
}


def test_a_content_gets_its_snapshot_and_is_ready_soon_after_ec2_says_so():
    async def story(world: World) -> None:
        world.begin()
        name = world.ask()
        ready_at_s = await world.until(lambda: world.is_ready(name))
        await world.until(lambda: world.snapshotter.queue.depth == 0)

        [(snapshot, taken_at_s)] = world.ec2.taken.values()
        assert ready_at_s - (taken_at_s + world.ec2.takes_s) < 4.0
        assert snapshot.tags[SNAPSHOT_NAME] == "snapshot-uid-1"
        assert [what for what, _ in world.kube.writes] == [
            "announce",  # race 26: before CreateSnapshot
            "status",
            "withdraw",
            "status",
        ]
        content = world.content(name)
        assert content is not None
        assert content.status is not None
        assert content.status.snapshot_handle == snapshot.snapshot_id
        assert content.status.restore_size == 4 * 2**30
        assert content.annotations == {}
        assert world.events.told == []
        assert world.watcher._watched == {}
        assert world.snapshotter._attempts._known == {}

    in_world(story)


def test_the_annotation_is_there_before_ec2_is_asked():
    async def story(world: World) -> None:
        world.begin()
        world.ask()
        await world.until(lambda: "CreateSnapshot" in world.mortal.seen)

        assert [each for each in world.mortal.seen if "Describe" not in each] == [
            "patch announce",
            "CreateSnapshot",
        ]

    in_world(story)


def test_a_lost_reply_is_found_again_and_never_asked_for_twice():
    async def story(world: World) -> None:
        world.ec2.loses = ["CreateSnapshot"]
        world.ec2.shown_after_s = 30.0
        world.begin()
        name = world.ask()
        await world.until(lambda: world.is_ready(name))

        assert len(world.ec2.actions("CreateSnapshot")) == 1
        [told] = world.events.of_users()
        assert "it is not known whether EC2 has already taken the snapshot" in told

    in_world(story)


def test_a_request_that_never_arrived_is_sent_again_after_a_minute_of_negative_look_ups():
    async def story(world: World) -> None:
        world.ec2.refuses["CreateSnapshot"] = Ec2Error(
            Reason.REPLY_LOST, "lost", action="CreateSnapshot", outcome=Outcome.UNKNOWN
        )
        world.begin()
        name = world.ask()
        await world.until(lambda: world.ec2.actions("CreateSnapshot"))
        world.ec2.refuses.clear()
        await world.until(lambda: world.is_ready(name))

        first, second = world.ec2.actions("CreateSnapshot")
        assert 60.0 <= second - first < 75.0
        assert len(world.ec2.taken) == 1

    in_world(story)


@pytest.mark.parametrize("annotated", [True, False])
def test_a_snapshot_of_the_stock_sidecar_is_taken_over(*, annotated: bool):
    async def story(world: World) -> None:
        annotations = {v.BEING_CREATED: v.YES} if annotated else {}
        name = world.ask(annotations=annotations)
        stock = await take_like_stock(world)
        await asyncio.sleep(2)
        world.begin(take_over=True)
        await world.until(lambda: world.is_ready(name))

        assert list(world.ec2.taken) == [stock]
        content = world.content(name)
        assert content is not None
        assert content.snapshot_id == stock

    in_world(story)


def test_fast_restore_and_lock_come_before_the_snapshot_is_ready():
    async def story(world: World) -> None:
        world.install_class(LOCKED_AND_FAST)
        world.begin()
        name = world.ask()
        await world.until(lambda: world.is_ready(name))

        [snapshot_id] = world.ec2.taken
        assert world.ec2.fast == {snapshot_id: {"us-east-1a": "enabling", "us-east-1b": "enabling"}}
        assert world.ec2.locked[snapshot_id].duration_days == 7
        assert world.ec2.actions("LockSnapshot")[0] < 5.0
        # Nothing was done before, so nothing is looked at.
        assert world.ec2.actions("DescribeLockedSnapshots") == []

    in_world(story)


def test_a_lock_whose_reply_is_lost_is_not_asked_for_again():
    async def story(world: World) -> None:
        world.install_class(LOCKED_AND_FAST)
        world.ec2.loses = ["LockSnapshot"]
        world.begin()
        name = world.ask()
        await world.until(lambda: world.is_ready(name))

        assert len(world.ec2.actions("LockSnapshot")) == 1
        assert len(world.ec2.actions("EnableFastSnapshotRestores")) == 1

    in_world(story)


def test_a_lock_that_is_refused_keeps_the_snapshot_and_tells():
    async def story(world: World) -> None:
        world.install_class(LOCKED_AND_FAST)
        world.ec2.refuses["LockSnapshot"] = Ec2Error(
            Reason.PERMISSION_DENIED, "not allowed", action="LockSnapshot"
        )
        world.begin()
        name = world.ask()
        await world.until(lambda: world.events.of_users("SnapshotContentCheckandUpdateFailed"))
        before = world.content(name)
        world.ec2.refuses.clear()
        await world.until(lambda: world.is_ready(name))

        assert before is not None
        assert before.status is not None
        assert before.status.error is not None
        assert "not allowed" in str(before.status.error.message)
        after = world.content(name)
        assert after is not None
        assert after.status is not None
        assert after.status.error is None
        assert len(world.ec2.taken) == 1

    in_world(story)


def test_a_content_that_is_shown_late_may_have_a_snapshot_of_another_controller():
    async def story(world: World) -> None:
        name = world.ask()
        taken = await take_like_stock(world)
        hidden = world.kube.objects.pop(f"volumesnapshotcontents {name}")
        world.begin(take_over=True)  # its CRD is not served yet
        await asyncio.sleep(70)
        world.kube.put(f"volumesnapshotcontents {name}", hidden)
        await world.until(lambda: world.is_ready(name))

        assert list(world.ec2.taken) == [taken]

    in_world(story)


def test_a_content_that_is_made_after_taking_over_is_in_no_doubt():
    async def story(world: World) -> None:
        world.begin(take_over=True)
        await asyncio.sleep(5)
        name = world.ask()
        await world.until(lambda: world.is_ready(name))

        assert world.ec2.actions("FindSnapshots") == []

    in_world(story)


def test_who_gives_extra_tags_with_templates_hears_what_snapshots_get():
    given = tags.parse_extra("team=a,who={{ .PVCName }}")
    services = MagicMock(settings=Settings(extra_tags=given))

    with capture_logs() as logs:
        Snapshotter(services, now=lambda: EPOCH)

    [line] = logs
    assert "as they are" in line["event"]
    assert line["tags"] == ["who"]
