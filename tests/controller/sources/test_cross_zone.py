"""Clones that go across zones, by a snapshot that is never taken twice and never left."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from provisioner.model.claim import Claim
from provisioner.model.data_source import Source
from provisioner.model.ebs_snapshot import EbsSnapshot, SnapshotState
from provisioner.model.errors import KubeError, Outcome, Reason, StorageError
from provisioner.model.meta import ObjectMeta
from provisioner.model.names import (
    CLONE_ACROSS_ZONES,
    CROSS_ZONE_CLAIM,
    CROSS_ZONE_VOLUME,
    PINNED_SOURCE,
    PINNED_ZONE,
)
from tests.builders import (
    UID,
    VOLUME,
    a_claim,
    a_class,
    a_term,
    an_ec2_error,
)
from tests.controller.provisioning.test_flow import annotated
from tests.controller.services import seconds
from tests.controller.source_world import OTHER_ZONE, SourceWorld, a_copy
from tests.ec2.virtual_time import Clock, in_virtual_time
from tests.pods import a_pod
from tests.sources import CLONE, OF_CLAIM, replaced

TEMPORARY = "snap-0ccccccccccccccc3"
COPIED = a_copy(source_volume_id=VOLUME)
ACROSS = replaced(
    a_class(allowed=[a_term(zone=[OTHER_ZONE])]),
    metadata=ObjectMeta(name="fast", annotations={CLONE_ACROSS_ZONES: "true"}),
)
PENDING = EbsSnapshot(TEMPORARY, VOLUME, SnapshotState.PENDING, 1)
CROSSED = a_copy(zone=OTHER_ZONE, snapshot_id=TEMPORARY)
LOST = an_ec2_error(Reason.REPLY_LOST, Outcome.UNKNOWN)
REPLY_LOST = KubeError(Reason.REPLY_LOST, "the reply was lost", outcome=Outcome.UNKNOWN)


async def until_settled(world: SourceWorld) -> None:
    """Look at the claim for as long as it has to wait; what is taken meanwhile is complete soon."""
    while True:
        try:
            wait_s = seconds(await world.provisioner.reconcile(UID))
        except StorageError as error:
            wait_s = error.retry_after_s or 1.0
        if wait_s is None:
            return
        await asyncio.sleep(wait_s)
        if TEMPORARY in world.snapshots.there and not world.snapshots.answers:
            world.snapshots.complete()


def once_across(world: SourceWorld) -> SourceWorld:
    """The whole way to another zone, in virtual time."""

    async def story(_: Clock) -> SourceWorld:
        await until_settled(world)
        await world.provisioner.close()
        return world

    return in_virtual_time(story)


def a_clone_across(claim: Claim = CLONE, **more: Any) -> SourceWorld:
    world = SourceWorld(claim, ACROSS, **more)
    world.snapshots.answers = [PENDING]
    world.ec2.answers = [CROSSED]
    return world


def test_a_clone_comes_to_another_zone_by_a_snapshot():
    world = once_across(a_clone_across())

    assert [each.volume_id for each in world.snapshots.asked] == [VOLUME]
    assert dict(world.snapshots.asked[0].tags)[CROSS_ZONE_CLAIM] == UID
    assert [(each.snapshot_id, each.zone) for each in world.ec2.requests] == [
        (TEMPORARY, OTHER_ZONE)
    ]
    assert world.written() == [
        "patch persistentvolumeclaims finalizers",
        "patch persistentvolumeclaims crossing",
        "patch persistentvolumeclaims source zone",
        "create persistentvolumes",
    ]
    assert any("can take a long time" in told for told in world.events.told)


def test_its_snapshot_is_deleted_once_the_claim_is_bound():
    world = a_clone_across()

    async def story(_: Clock) -> None:
        await until_settled(world)
        cross_zone_clones = asyncio.create_task(world.provisioner.sources.cross_zone_clones.run())
        await asyncio.sleep(1)
        assert world.snapshots.deleted == []
        claim = world.caches.claim(UID)
        assert claim is not None
        bound = replaced(claim, spec=replaced(claim.spec, volume_name=claim.persistent_volume_name))
        world.provisioner._claim_changed(claim, bound)
        await asyncio.sleep(1)
        cross_zone_clones.cancel()
        await asyncio.gather(cross_zone_clones, return_exceptions=True)
        await world.provisioner.close()

    in_virtual_time(story)

    assert world.snapshots.deleted == [TEMPORARY]


@pytest.mark.parametrize("is_bound", [True, False])
def test_what_a_process_before_us_has_left_is_deleted(*, is_bound: bool):
    tags = {CROSS_ZONE_VOLUME: "prod", CROSS_ZONE_CLAIM: UID}
    left = EbsSnapshot(TEMPORARY, VOLUME, SnapshotState.COMPLETED, 1, tags=tags)
    name = f"pvc-{UID}" if is_bound else ""
    world = SourceWorld(a_claim(volume_name=name, source=OF_CLAIM), ACROSS)
    world.snapshots.there = {TEMPORARY: left}

    async def story(_: Clock) -> None:
        await world.provisioner.sources.cross_zone_clones.sweep()
        await world.provisioner.close()

    in_virtual_time(story)

    assert world.snapshots.deleted == ([TEMPORARY] if is_bound else [])


@pytest.mark.parametrize("is_there", [True, False])
def test_a_lost_reply_to_createsnapshot_is_looked_for_a_minute_before_a_second_one(
    *, is_there: bool
):
    world = a_clone_across()
    world.snapshots.answers = [LOST, PENDING]
    asked_at_s: list[float] = []

    async def story(clock: Clock) -> None:
        create = world.snapshots.create

        async def noted(request: Any, *, gate: Any) -> Any:
            asked_at_s.append(clock())
            if is_there:
                tagged = EbsSnapshot(
                    TEMPORARY, VOLUME, SnapshotState.COMPLETED, 1, tags=dict(request.tags)
                )
                world.snapshots.there[TEMPORARY] = tagged
            return await create(request, gate=gate)

        world.snapshots.create = noted  # type: ignore[method-assign]
        await until_settled(world)
        await world.provisioner.close()

    in_virtual_time(story)

    assert len(asked_at_s) == (1 if is_there else 2)
    assert asked_at_s[-1] - asked_at_s[0] >= (0 if is_there else 60)
    assert [each.snapshot_id for each in world.ec2.requests] == [TEMPORARY]


def test_whoever_finds_the_wish_written_looks_for_the_snapshot_first():
    begun = annotated(CLONE, "8", **{CROSS_ZONE_VOLUME: CLONE.note(VOLUME)})
    world = a_clone_across(begun)
    tags = {CROSS_ZONE_VOLUME: "prod", CROSS_ZONE_CLAIM: UID}
    world.snapshots.answers = []
    world.snapshots.there = {
        TEMPORARY: EbsSnapshot(TEMPORARY, VOLUME, SnapshotState.PENDING, 1, tags=tags)
    }

    once_across(world)

    assert world.snapshots.asked == []
    assert [each.snapshot_id for each in world.ec2.requests] == [TEMPORARY]


def test_whoever_takes_over_goes_on_with_the_very_snapshot_by_which_the_clone_comes():
    begun = annotated(
        CLONE,
        "8",
        **{
            CROSS_ZONE_VOLUME: CLONE.note(VOLUME),
            PINNED_ZONE: CLONE.pin(OTHER_ZONE),
            PINNED_SOURCE: CLONE.note(str(Source(snapshot_id=TEMPORARY, size_gib=1))),
        },
    )
    world = a_clone_across(begun)
    tags = {CROSS_ZONE_VOLUME: "prod", CROSS_ZONE_CLAIM: UID}
    world.snapshots.answers = []
    world.snapshots.there = {
        TEMPORARY: EbsSnapshot(TEMPORARY, VOLUME, SnapshotState.COMPLETED, 1, tags=tags)
    }

    async def story(_: Clock) -> None:
        world.provisioner.takeover.begin([begun], from_stranger=False)
        await until_settled(world)
        await world.provisioner.close()

    in_virtual_time(story)

    assert world.snapshots.asked == []
    assert [(each.snapshot_id, each.zone) for each in world.ec2.requests] == [
        (TEMPORARY, OTHER_ZONE)
    ]


def test_the_sweep_comes_in_its_time_however_many_clones_end():
    world = a_clone_across()
    tags = {CROSS_ZONE_VOLUME: "prod", CROSS_ZONE_CLAIM: "a claim that is gone"}
    left = EbsSnapshot(TEMPORARY, VOLUME, SnapshotState.COMPLETED, 1, tags=tags)

    async def story(clock: Clock) -> float:
        cross_zone_clones = world.provisioner.sources.cross_zone_clones
        running = asyncio.create_task(cross_zone_clones.run())
        await asyncio.sleep(1)
        world.snapshots.there = {TEMPORARY: left}
        while TEMPORARY not in world.snapshots.deleted:
            cross_zone_clones._left_over.add("snap-0ended")
            cross_zone_clones._ended.set()
            await asyncio.sleep(100)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await world.provisioner.close()
        return clock()

    assert in_virtual_time(story) < 500


@pytest.mark.parametrize("crosses", [True, False])
def test_only_where_a_class_has_clones_cross_is_ec2_asked_again_and_again(*, crosses: bool):
    """At the start it is, twice: a process before us may have left some, just now even."""
    world = SourceWorld(a_claim(), ACROSS if crosses else None)

    async def story(_: Clock) -> int:
        running = asyncio.create_task(world.provisioner.sources.cross_zone_clones.run())
        await asyncio.sleep(3600)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await world.provisioner.close()
        return world.snapshots.searches

    searches = in_virtual_time(story)

    assert searches > 10 if crosses else searches == 2


def test_what_is_left_is_deleted_though_the_class_is_gone():
    world = SourceWorld(a_claim())
    tags = {CROSS_ZONE_VOLUME: "prod", CROSS_ZONE_CLAIM: "a claim that is gone"}
    left = EbsSnapshot(TEMPORARY, VOLUME, SnapshotState.COMPLETED, 1, tags=tags)

    async def story(_: Clock) -> None:
        running = asyncio.create_task(world.provisioner.sources.cross_zone_clones.run())
        await asyncio.sleep(60)
        world.snapshots.there = {TEMPORARY: left}  # EC2 shows it late
        await asyncio.sleep(600)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await world.provisioner.close()

    in_virtual_time(story)

    assert world.snapshots.deleted == [TEMPORARY]


def test_at_the_end_ec2_is_asked_no_more():
    world = a_clone_across()

    async def story(_: Clock) -> bool:
        looking = asyncio.create_task(world.provisioner.reconcile(UID))
        while not world.snapshots.asked:  # noqa: ASYNC110 -- virtual time
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.5)  # it waits for others that ask about snapshots, too
        assert not looking.done()
        await world.provisioner.sources.close()
        async with asyncio.timeout(0.1):
            await asyncio.gather(looking, return_exceptions=True)
        await world.provisioner.close()
        return looking.cancelled()

    assert in_virtual_time(story)


def test_nothing_is_taken_before_the_wish_is_written():
    world = a_clone_across()
    world.kube.failures = [(KubeError(Reason.FORBIDDEN, "no"), False)]

    async def story(_: Clock) -> None:
        with pytest.raises(StorageError):
            await world.provisioner.reconcile(UID)
        await world.provisioner.close()

    in_virtual_time(story)

    assert world.snapshots.asked == []


def test_a_snapshot_that_fails_is_deleted_and_another_one_taken():
    world = a_clone_across()
    failed = EbsSnapshot("snap-0bad", VOLUME, SnapshotState.ERROR, 1, message="key is gone")
    world.snapshots.answers = [failed, PENDING]

    once_across(world)

    assert len(world.snapshots.asked) == 2
    assert any("key is gone" in told for told in world.events.told)
    assert [each.snapshot_id for each in world.ec2.requests] == [TEMPORARY]


def test_a_snapshot_that_somebody_deletes_is_taken_again():
    world = a_clone_across()
    again = EbsSnapshot("snap-0again", VOLUME, SnapshotState.COMPLETED, 1)
    world.snapshots.answers = [PENDING, again]
    world.ec2.answers = [a_copy(zone=OTHER_ZONE, snapshot_id="snap-0again")]

    async def story(_: Clock) -> None:
        await world.provisioner.reconcile(UID)
        world.snapshots.there.clear()
        await until_settled(world)
        await world.provisioner.close()

    in_virtual_time(story)

    assert [each.snapshot_id for each in world.ec2.requests] == ["snap-0again"]


def test_beside_its_source_such_a_clone_is_copied():
    across = replaced(ACROSS, allowed_topologies=None)
    world = SourceWorld(CLONE, across)
    world.ec2.answers = [COPIED]

    once_across(world)

    assert world.snapshots.asked == []
    assert [each.source_volume_id for each in world.ec2.requests] == [VOLUME]


def test_a_waiting_clone_goes_to_the_node_that_the_scheduler_chose():
    across = replaced(ACROSS, allowed_topologies=None, volume_binding_mode="WaitForFirstConsumer")
    world = a_clone_across(a_claim(source=OF_CLAIM, node="node-2"))
    world.caches.classes._store.apply(across)
    world.caches.pods._store.apply(a_pod())

    once_across(world)

    assert [(each.snapshot_id, each.zone) for each in world.ec2.requests] == [
        (TEMPORARY, OTHER_ZONE)
    ]


def test_without_a_cluster_id_no_snapshot_is_taken_that_nobody_could_delete():
    world = once_across(a_clone_across(cluster_id=""))

    assert world.snapshots.asked == []
    assert "--cluster-id" in world.events.told[-1]
