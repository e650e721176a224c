"""Volumes from snapshots: what is written down first, and what a lost snapshot does not stop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from provisioner.model.claim import Claim
from provisioner.model.data_source import Source
from provisioner.model.decision import SETTLED
from provisioner.model.errors import Ec2Error, Outcome, Reason, StorageError
from provisioner.model.names import PINNED_SOURCE, PINNED_ZONE
from provisioner.model.volume_snapshot import SOURCE_FINALIZER
from tests.builders import UID, ZONE, a_claim, a_class, a_term, an_ec2_error
from tests.controller.provisioning.test_flow import annotated
from tests.controller.services import seconds
from tests.controller.source_world import MADE, OTHER_ZONE, SourceWorld, a_copy, until_told
from tests.ec2.virtual_time import Clock, in_virtual_time
from tests.sources import OF_SNAPSHOT, RESTORE, SNAPSHOT_ID, a_snapshot, replaced

RESTORED = a_copy(snapshot_id=SNAPSHOT_ID)
LOST = an_ec2_error(Reason.REPLY_LOST, Outcome.UNKNOWN)
PINNED = annotated(
    RESTORE,
    "8",
    **{
        PINNED_ZONE: RESTORE.pin(ZONE),
        PINNED_SOURCE: RESTORE.note(str(Source(snapshot_id=SNAPSHOT_ID, size_gib=1))),
    },
)


def snapshot_gone(world: SourceWorld) -> None:
    world.caches.snapshots._store.remove("shop/monday", "9999")
    world.caches.contents._store.remove("content", "9")


def snapshot_deleting(world: SourceWorld) -> None:
    world.show(world.caches.snapshots, a_snapshot(deleting=True))


def another_of_its_name(world: SourceWorld) -> None:
    snapshot = a_snapshot(content="other-content")
    meta = replaced(snapshot.metadata, uid="another")
    world.show(world.caches.snapshots, replaced(snapshot, metadata=meta))


async def test_the_source_is_held_and_written_down_before_ec2_hears_of_it():
    world = SourceWorld(RESTORE)
    world.ec2.answers = [RESTORED]

    await world.provisioner.reconcile(UID)

    assert world.written() == [
        "patch volumesnapshots finalizers",
        "patch persistentvolumeclaims source zone",
        "create persistentvolumes",
    ]
    held = world.caches.snapshots.get("shop/monday")
    assert held is not None
    assert held.finalizers == [SOURCE_FINALIZER]
    assert [each.snapshot_id for each in world.ec2.requests] == [SNAPSHOT_ID]


async def test_a_snapshot_is_restored_into_any_zone_that_the_class_allows():
    world = SourceWorld(RESTORE, a_class(allowed=[a_term(zone=[OTHER_ZONE])]))
    world.ec2.answers = [a_copy(snapshot_id=SNAPSHOT_ID, zone=OTHER_ZONE)]

    await world.provisioner.reconcile(UID)

    assert [each.zone for each in world.ec2.requests] == [OTHER_ZONE]


@pytest.mark.parametrize("change", [snapshot_gone, snapshot_deleting, another_of_its_name])
async def test_a_snapshot_that_goes_while_a_volume_may_be_made_changes_nothing(
    change: Any,
):  # race 3
    world = SourceWorld(RESTORE)
    world.ec2.answers = [LOST, RESTORED]
    with pytest.raises(Ec2Error):
        await world.provisioner.reconcile(UID)
    change(world)

    await world.provisioner.reconcile(UID)

    first, second = world.ec2.requests
    assert first == second
    assert world.written()[-1] == "create persistentvolumes"


async def test_whoever_takes_over_asks_for_the_same_while_the_snapshot_is_there():
    world = SourceWorld(PINNED)
    held = a_snapshot(finalizers=[SOURCE_FINALIZER])  # as it was before the pin was written
    world.show(world.caches.snapshots, held)
    world.provisioner.takeover.begin([PINNED], from_stranger=False)
    world.ec2.answers = [RESTORED]

    await world.provisioner.reconcile(UID)

    request = world.ec2.requests[0]
    assert (request.snapshot_id, request.zone, request.size_gib) == (SNAPSHOT_ID, ZONE, 1)
    assert world.written() == ["create persistentvolumes"]


def test_after_a_takeover_a_snapshot_that_is_gone_is_told_after_a_minute_of_looking():  # race 3
    async def story(clock: Clock) -> tuple[float, SourceWorld]:
        world = SourceWorld(PINNED)
        world.provisioner.takeover.begin([PINNED], from_stranger=False)
        snapshot_gone(world)
        await until_told(world, UID)
        await world.provisioner.close()
        return clock(), world

    took_s, world = in_virtual_time(story)

    assert took_s >= 60
    assert world.ec2.requests == []
    assert "does not exist" in world.events.told[-1]
    assert world.written() == []


def test_a_volume_that_shows_up_late_is_taken_though_its_snapshot_is_gone():  # race 3
    async def story(_: Clock) -> SourceWorld:
        world = SourceWorld(PINNED)
        world.provisioner.takeover.begin([PINNED], from_stranger=False)
        snapshot_gone(world)
        wait_s = seconds(await world.provisioner.reconcile(UID))
        named = {"CSIVolumeName": RESTORE.persistent_volume_name}
        world.ec2.shown = [a_copy(snapshot_id=SNAPSHOT_ID, tags=named)]
        await asyncio.sleep(wait_s or 0)
        await world.provisioner.reconcile(UID)
        await world.provisioner.close()
        return world

    world = in_virtual_time(story)

    assert world.written()[-1] == "create persistentvolumes"
    assert world.kube.sent[-1][2]["spec"]["csi"]["volumeHandle"] == MADE
    assert world.ec2.requests == []


@pytest.mark.parametrize("claim", [RESTORE, PINNED], ids=["fresh", "pinned"])
async def test_nobody_gets_a_volume_of_a_snapshot_by_writing_its_id_to_a_claim(claim: Claim):
    claim = annotated(claim, "8", **{PINNED_SOURCE: RESTORE.note("snap-0bad")})
    world = SourceWorld(claim)
    world.provisioner.takeover.begin([claim], from_stranger=False)
    world.ec2.answers = [RESTORED]

    await world.provisioner.reconcile(UID)

    assert [each.snapshot_id for each in world.ec2.requests] == [SNAPSHOT_ID]


async def test_a_certain_refusal_takes_the_source_off_with_the_zone():
    world = SourceWorld(RESTORE)
    world.ec2.answers = [an_ec2_error(Reason.SNAPSHOT_STATE)]

    with pytest.raises(StorageError):
        await world.provisioner.reconcile(UID)

    claim = world.caches.claim(UID)
    assert claim is not None
    assert not {PINNED_ZONE, PINNED_SOURCE} & claim.annotations.keys()


@pytest.mark.parametrize(
    ("claim", "snapshot", "words"),
    [
        (RESTORE, a_snapshot(ready=False), "not ready to use yet"),
        (RESTORE, a_snapshot(size="2Gi"), "cannot be smaller"),
        (a_claim(source=OF_SNAPSHOT, volume_mode="Block"), a_snapshot(), "volumeMode Block"),
    ],
)
async def test_what_cannot_be_restored_is_told_once_and_nothing_is_sent(
    claim: Claim, snapshot: Any, words: str
):
    world = SourceWorld(claim)
    world.show(world.caches.snapshots, snapshot)

    for _ in range(2):
        assert await world.provisioner.reconcile(UID) == SETTLED

    assert [words in each for each in world.events.told] == [True]
    assert world.kube.sent == []
    assert world.ec2.requests == []


async def test_a_claim_is_looked_at_when_its_snapshot_is_ready():
    world = SourceWorld(RESTORE)
    world.show(world.caches.snapshots, a_snapshot(ready=False))
    world.provisioner.subscribe()
    await world.provisioner.reconcile(UID)
    world.looks_at()

    world.show(world.caches.snapshots, a_snapshot())

    assert world.looks_at() == [UID]


async def test_a_snapshot_that_cannot_be_held_is_not_restored():
    world = SourceWorld(RESTORE)
    world.kube.failures = [(StorageError(Reason.REJECTED, "it is being deleted"), False)]

    with pytest.raises(StorageError):
        await world.provisioner.reconcile(UID)

    assert world.ec2.requests == []
    assert "being deleted" in world.events.told[-1]


def test_a_region_that_initializes_too_much_is_no_failure_and_waited_for():
    world = SourceWorld(RESTORE)
    refused = an_ec2_error(Reason.INITIALIZATION_RATE)
    refused.retry_after_s = 60.0
    world.ec2.answers = [refused, refused, RESTORED]

    async def story(clock: Clock) -> float:
        await until_told(world, UID)
        await world.provisioner.close()
        return clock()

    assert in_virtual_time(story) >= 120
    assert len(world.ec2.requests) == 3
    assert world.written()[-1] == "create persistentvolumes"
    waits = [each for each in world.events.told if "will try again" in each]
    assert len(waits) == 1
    assert not any(Reason.QUOTA_EXCEEDED in each for each in world.events.told)
