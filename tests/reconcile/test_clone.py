"""Clones: beside their source, one at a time, or across zones by a snapshot."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from provisioner.decide.crossing import CROSSING_FOR
from provisioner.model.claim import CROSSING, PINNED_SOURCE, PINNED_ZONE, Claim
from provisioner.model.data_source import CLAIM_FINALIZER, Source
from provisioner.model.ebs_snapshot import EbsSnapshot, SnapshotState
from provisioner.model.errors import KubeError, Outcome, Reason, StorageError
from provisioner.model.meta import ObjectMeta
from provisioner.model.storage_class import ACROSS_ZONES, StorageClass
from tests.builders import (
    UID,
    VOLUME,
    ZONE,
    a_claim,
    a_class,
    a_persistent_volume,
    a_term,
    a_volume,
    an_ec2_error,
)
from tests.ec2.virtual_time import Clock, in_virtual_time
from tests.pods import a_pod
from tests.reconcile.source_world import MADE, OTHER_ZONE, SourceWorld, a_copy, until_told
from tests.reconcile.test_provision import annotated
from tests.sources import CLONE, OF_CLAIM, OTHER_UID, a_source, its_volume, replaced

TEMPORARY = "snap-0ccccccccccccccc3"
THIRD_UID = "0c5a1b2e-7f00-4a7e-9d61-3b1f00000003"
SECOND = a_claim("second", uid=THIRD_UID, source=OF_CLAIM)
COPIED = a_copy(source_volume_id=VOLUME)
ACROSS = replaced(
    a_class(allowed=[a_term(zone=[OTHER_ZONE])]),
    metadata=ObjectMeta(name="fast", annotations={ACROSS_ZONES: "true"}),
)
PENDING = EbsSnapshot(TEMPORARY, VOLUME, SnapshotState.PENDING, 1)
CROSSED = a_copy(zone=OTHER_ZONE, snapshot_id=TEMPORARY)
LOST = an_ec2_error(Reason.REPLY_LOST, Outcome.UNKNOWN)
REPLY_LOST = KubeError(Reason.REPLY_LOST, "the reply was lost", outcome=Outcome.UNKNOWN)


def waiting(name: str = "fast", **more: Any) -> StorageClass:
    return a_class(name, waits=True, **more)


async def until_settled(world: SourceWorld, uid: str = UID) -> float | None:
    """Look at the claim for as long as it has to wait; the time that it took."""
    while True:
        try:
            wait_s = await world.provisioner.reconcile(uid)
        except StorageError as error:
            wait_s = error.retry_after_s or 1.0
        if wait_s is None:
            return wait_s
        await asyncio.sleep(wait_s)
        if TEMPORARY in world.snapshots.there and not world.snapshots.answers:
            world.snapshots.complete()


async def test_a_clone_is_copied_beside_its_source_which_is_held():
    world = SourceWorld(CLONE, source=a_volume(zone=OTHER_ZONE, size_gib=3))
    world.ec2.answers = [a_copy(source_volume_id=VOLUME, zone=OTHER_ZONE, size_gib=3)]

    await world.provisioner.reconcile(UID)

    request = world.ec2.requests[0]
    assert (request.source_volume_id, request.zone) == (VOLUME, OTHER_ZONE)
    assert request.size_gib == 3
    assert request.snapshot_id is None
    assert world.written() == [
        "patch persistentvolumeclaims finalizers",
        "patch persistentvolumeclaims source zone",
        "create persistentvolumes",
    ]
    source = world.caches.claim(OTHER_UID)
    assert source is not None
    assert source.finalizers == [CLAIM_FINALIZER]


async def test_an_in_tree_class_clones_an_in_tree_volume():
    world = SourceWorld(CLONE, a_class(provisioner="kubernetes.io/aws-ebs"))
    world.show(world.caches.persistent_volumes, its_volume(in_tree=True))
    world.ec2.answers = [COPIED]

    await world.provisioner.reconcile(UID)

    assert [each.source_volume_id for each in world.ec2.requests] == [VOLUME]


async def test_a_waiting_clone_is_made_beside_its_source_and_its_pod_follows():
    claim = a_claim(source=OF_CLAIM, node="node-2")
    world = SourceWorld(claim, waiting())
    world.caches.pods._store.apply(a_pod())
    world.ec2.answers = [COPIED]

    await world.provisioner.reconcile(UID)

    assert [each.zone for each in world.ec2.requests] == [ZONE]
    assert any("node-2 is in us-east-1b" in told for told in world.events.told)


async def test_a_class_that_excludes_the_zone_of_the_source_is_told_why():
    world = SourceWorld(CLONE, a_class(allowed=[a_term(zone=[OTHER_ZONE])]))

    with pytest.raises(StorageError, match="a copy is made in the same zone"):
        await world.provisioner.reconcile(UID)

    assert world.ec2.requests == []


def source_gone(world: SourceWorld) -> None:
    world.caches.claims._store.remove("shop/origin", "9999")


def source_deleting(world: SourceWorld) -> None:
    world.show(world.caches.claims, a_source(deleting=True))


def volume_gone(world: SourceWorld) -> None:
    world.ec2.known.clear()


@pytest.mark.parametrize("change", [source_gone, source_deleting, volume_gone])
async def test_a_source_that_goes_while_it_may_be_copied_changes_nothing(change: Any):  # race 3
    world = SourceWorld(CLONE)
    world.ec2.answers = [LOST, COPIED]
    with pytest.raises(StorageError):
        await world.provisioner.reconcile(UID)
    change(world)

    await world.provisioner.reconcile(UID)

    first, second = world.ec2.requests
    assert first == second
    assert world.written()[-1] == "create persistentvolumes"


@pytest.mark.parametrize("change", [source_gone, source_deleting, volume_gone])
def test_whoever_takes_over_copies_nothing_by_what_is_written_on_the_claim_alone(change: Any):
    source = CLONE.note(str(Source(volume_id=VOLUME, size_gib=1)))
    pinned = annotated(CLONE, "8", **{PINNED_ZONE: CLONE.pin(ZONE), PINNED_SOURCE: source})

    async def story(clock: Clock) -> tuple[float, SourceWorld]:
        world = SourceWorld(pinned)
        world.provisioner.takeover.begin([pinned], from_stranger=False)
        change(world)
        await until_told(world, UID)
        await world.provisioner.close()
        return clock(), world

    took_s, world = in_virtual_time(story)

    assert took_s >= 60  # a volume that was begun would show by now
    assert world.ec2.requests == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (source_gone, "does not exist"),
        (source_deleting, "is being deleted"),
        (volume_gone, "not there any more in EC2"),
    ],
)
async def test_a_source_that_is_gone_before_anything_was_sent_is_told(change: Any, words: str):
    world = SourceWorld(CLONE)
    change(world)

    with suppress(StorageError):  # what EC2 does not know may only not be shown yet
        await world.provisioner.reconcile(UID)

    assert words in world.events.told[-1]
    assert world.ec2.requests == []


async def test_the_second_clone_of_a_volume_waits_its_turn():
    world = SourceWorld(CLONE)
    world.caches.claims._store.apply(SECOND)
    world.ec2.answers = [an_ec2_error(Reason.COPY_RATE), COPIED, a_copy(source_volume_id=VOLUME)]

    await world.provisioner.reconcile(UID)  # EC2 still fills the copy before
    await world.provisioner.reconcile(THIRD_UID)

    assert len(world.ec2.requests) == 1
    assert "claim shop/data came first" in world.events.told[-1]
    world.looks_at()

    await world.provisioner.reconcile(UID)

    assert THIRD_UID in world.looks_at()
    await world.provisioner.reconcile(THIRD_UID)
    first, again, second = [each.client_token for each in world.ec2.requests]
    assert first == again != second


async def test_too_many_copies_are_no_failure():
    world = SourceWorld(CLONE)
    refused = an_ec2_error(Reason.COPY_RATE)
    refused.retry_after_s = 30.0
    world.ec2.answers = [refused, refused]

    waits_s = [await world.provisioner.reconcile(UID) for _ in range(2)]

    assert waits_s == [30.0, 30.0]
    assert [each for each in world.events.told if "asked for again" in each] == world.events.told
    assert len(world.events.told) == 1


async def test_a_claim_that_goes_gives_its_turn_away():
    world = SourceWorld(CLONE)
    world.caches.claims._store.apply(SECOND)
    world.ec2.answers = [an_ec2_error(Reason.COPY_RATE)]
    await world.provisioner.reconcile(UID)
    await world.provisioner.reconcile(THIRD_UID)
    world.looks_at()

    world.provisioner._claim_changed(CLONE, None)

    assert THIRD_UID in world.looks_at()


async def test_a_copy_that_may_have_been_begun_does_not_stand_in_line():
    source = CLONE.note(str(Source(volume_id=VOLUME, size_gib=1)))
    pinned = annotated(CLONE, "8", **{PINNED_ZONE: CLONE.pin(ZONE), PINNED_SOURCE: source})
    world = SourceWorld(pinned)
    world.caches.claims._store.apply(SECOND)
    world.provisioner.takeover.begin([pinned], from_stranger=False)
    world.ec2.answers = [an_ec2_error(Reason.COPY_RATE), COPIED]
    await world.provisioner.reconcile(THIRD_UID)

    await world.provisioner.reconcile(UID)

    assert world.written()[-1] == "create persistentvolumes"


def crossing(world: SourceWorld) -> SourceWorld:
    """The whole way to another zone, in virtual time."""

    async def story(_: Clock) -> SourceWorld:
        await until_settled(world)
        await world.provisioner.close()
        return world

    return in_virtual_time(story)


def a_crossing(claim: Claim = CLONE, **more: Any) -> SourceWorld:
    world = SourceWorld(claim, ACROSS, **more)
    world.snapshots.answers = [PENDING]
    world.ec2.answers = [CROSSED]
    return world


def test_a_clone_comes_to_another_zone_by_a_snapshot():
    world = crossing(a_crossing())

    assert [each.volume_id for each in world.snapshots.asked] == [VOLUME]
    assert dict(world.snapshots.asked[0].tags)[CROSSING_FOR] == UID
    assert [(each.snapshot_id, each.zone) for each in world.ec2.requests] == [
        (TEMPORARY, OTHER_ZONE)
    ]
    assert world.written() == [
        "patch persistentvolumeclaims finalizers",
        "patch persistentvolumeclaims crossing",
        "patch persistentvolumeclaims source zone",
        "create persistentvolumes",
    ]
    assert any("can take long" in told for told in world.events.told)


def test_its_snapshot_is_deleted_once_the_claim_is_bound():
    world = a_crossing()

    async def story(_: Clock) -> None:
        await until_settled(world)
        crossings = asyncio.create_task(world.provisioner.sources.crossings.run())
        await asyncio.sleep(1)
        assert world.snapshots.deleted == []
        claim = world.caches.claim(UID)
        assert claim is not None
        bound = replaced(claim, spec=replaced(claim.spec, volume_name=claim.persistent_volume_name))
        world.provisioner._claim_changed(claim, bound)
        await asyncio.sleep(1)
        crossings.cancel()
        await asyncio.gather(crossings, return_exceptions=True)
        await world.provisioner.close()

    in_virtual_time(story)

    assert world.snapshots.deleted == [TEMPORARY]


@pytest.mark.parametrize("is_bound", [True, False])
def test_what_a_process_before_us_has_left_is_deleted(*, is_bound: bool):
    tags = {CROSSING: "prod", CROSSING_FOR: UID}
    left = EbsSnapshot(TEMPORARY, VOLUME, SnapshotState.COMPLETED, 1, tags=tags)
    name = f"pvc-{UID}" if is_bound else ""
    world = SourceWorld(a_claim(volume_name=name, source=OF_CLAIM), ACROSS)
    world.snapshots.there = {TEMPORARY: left}

    async def story(_: Clock) -> None:
        await world.provisioner.sources.crossings.sweep()
        await world.provisioner.close()

    in_virtual_time(story)

    assert world.snapshots.deleted == ([TEMPORARY] if is_bound else [])


@pytest.mark.parametrize("is_there", [True, False])
def test_a_lost_reply_to_createsnapshot_is_looked_for_a_minute_before_a_second_one(
    *, is_there: bool
):
    world = a_crossing()
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
    begun = annotated(CLONE, "8", **{CROSSING: CLONE.note(VOLUME)})
    world = a_crossing(begun)
    tags = {CROSSING: "prod", CROSSING_FOR: UID}
    world.snapshots.answers = []
    world.snapshots.there = {
        TEMPORARY: EbsSnapshot(TEMPORARY, VOLUME, SnapshotState.PENDING, 1, tags=tags)
    }

    crossing(world)

    assert world.snapshots.asked == []
    assert [each.snapshot_id for each in world.ec2.requests] == [TEMPORARY]


def test_whoever_takes_over_goes_on_with_the_very_snapshot_by_which_the_clone_comes():
    begun = annotated(
        CLONE,
        "8",
        **{
            CROSSING: CLONE.note(VOLUME),
            PINNED_ZONE: CLONE.pin(OTHER_ZONE),
            PINNED_SOURCE: CLONE.note(str(Source(snapshot_id=TEMPORARY, size_gib=1))),
        },
    )
    world = a_crossing(begun)
    tags = {CROSSING: "prod", CROSSING_FOR: UID}
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
    world = a_crossing()
    tags = {CROSSING: "prod", CROSSING_FOR: "a claim that is gone"}
    left = EbsSnapshot(TEMPORARY, VOLUME, SnapshotState.COMPLETED, 1, tags=tags)

    async def story(clock: Clock) -> float:
        crossings = world.provisioner.sources.crossings
        running = asyncio.create_task(crossings.run())
        await asyncio.sleep(1)
        world.snapshots.there = {TEMPORARY: left}
        while TEMPORARY not in world.snapshots.deleted:
            crossings._left_over.add("snap-0ended")
            crossings._ended.set()
            await asyncio.sleep(100)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await world.provisioner.close()
        return clock()

    assert in_virtual_time(story) < 500


def test_nothing_is_taken_before_the_wish_is_written():
    world = a_crossing()
    world.kube.failures = [(KubeError(Reason.FORBIDDEN, "no"), False)]

    async def story(_: Clock) -> None:
        with pytest.raises(StorageError):
            await world.provisioner.reconcile(UID)
        await world.provisioner.close()

    in_virtual_time(story)

    assert world.snapshots.asked == []


def test_a_snapshot_that_fails_is_deleted_and_another_one_taken():
    world = a_crossing()
    failed = EbsSnapshot("snap-0bad", VOLUME, SnapshotState.ERROR, 1, message="key is gone")
    world.snapshots.answers = [failed, PENDING]

    crossing(world)

    assert len(world.snapshots.asked) == 2
    assert any("key is gone" in told for told in world.events.told)
    assert [each.snapshot_id for each in world.ec2.requests] == [TEMPORARY]


def test_a_snapshot_that_somebody_deletes_is_taken_again():
    world = a_crossing()
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

    crossing(world)

    assert world.snapshots.asked == []
    assert [each.source_volume_id for each in world.ec2.requests] == [VOLUME]


def test_a_waiting_clone_goes_to_the_node_that_the_scheduler_chose():
    across = replaced(ACROSS, allowed_topologies=None, volume_binding_mode="WaitForFirstConsumer")
    world = a_crossing(a_claim(source=OF_CLAIM, node="node-2"))
    world.caches.classes._store.apply(across)
    world.caches.pods._store.apply(a_pod())

    crossing(world)

    assert [(each.snapshot_id, each.zone) for each in world.ec2.requests] == [
        (TEMPORARY, OTHER_ZONE)
    ]


def test_without_a_cluster_id_no_snapshot_is_taken_that_nobody_could_delete():
    world = crossing(a_crossing(cluster_id=""))

    assert world.snapshots.asked == []
    assert "--cluster-id" in world.events.told[-1]


async def test_a_finalizer_comes_off_once_nobody_needs_it():
    world = SourceWorld(CLONE)
    world.show(
        world.caches.claims,
        replaced(
            a_source(),
            metadata=replaced(a_source().metadata, finalizers=["kubernetes.io/x", CLAIM_FINALIZER]),
        ),
    )
    finalizers = world.provisioner.sources.finalizers

    await finalizers.reconcile(CLONE.source_key)
    assert world.kube.sent == []

    world.caches.claims._store.remove(CLONE.key, "9999")
    await finalizers.reconcile(CLONE.source_key)

    [(_, _, body)] = world.kube.sent
    assert body["finalizers"] == ["kubernetes.io/x"]
    assert body["resourceVersion"]


async def test_a_finalizer_stays_while_a_volume_is_made_for_a_claim_that_is_gone():  # race 27
    world = SourceWorld(CLONE)
    world.ec2.answers = [LOST, COPIED]
    with pytest.raises(StorageError):
        await world.provisioner.reconcile(UID)
    world.caches.claims._store.remove(CLONE.key, "9999")
    finalizers = world.provisioner.sources.finalizers
    before = len(world.kube.sent)

    await finalizers.reconcile(CLONE.source_key)
    assert len(world.kube.sent) == before

    await world.provisioner.reconcile(UID)
    assert CLONE.source_key in finalizers.queue._entries
    await finalizers.reconcile(CLONE.source_key)
    assert world.written()[-1] == "patch persistentvolumeclaims finalizers"


async def test_a_conflict_over_finalizers_is_read_again_and_none_is_brought_back():  # race 16
    world = SourceWorld(CLONE)
    world.kube.failures = [(KubeError(Reason.CONFLICT, "changed"), False)]

    await world.provisioner.sources.finalizers.hold(CLONE)

    assert len(world.kube.sent) == 2
    source = world.caches.claim(OTHER_UID)
    assert source is not None
    assert source.finalizers == [CLAIM_FINALIZER]


async def test_a_source_of_another_driver_is_left_to_it():
    world = SourceWorld(a_claim(volume_name="x"))
    held = replaced(
        a_source(), metadata=replaced(a_source().metadata, finalizers=[CLAIM_FINALIZER])
    )
    world.show(world.caches.claims, held)
    world.show(world.caches.persistent_volumes, its_volume(driver="disk.example"))

    await world.provisioner.sources.finalizers.reconcile(CLONE.source_key)

    assert world.kube.sent == []


async def test_a_claim_is_looked_at_when_its_source_is_bound():
    world = SourceWorld(CLONE)
    world.show(world.caches.claims, a_source(volume_name="", phase="Pending"))
    world.provisioner.subscribe()
    world.looks_at()
    assert await world.provisioner.reconcile(UID) is None

    world.show(world.caches.claims, a_source())

    assert UID in world.looks_at()


async def test_the_persistent_volume_of_a_clone_names_the_copy():
    world = SourceWorld(CLONE)
    world.ec2.answers = [COPIED]

    await world.provisioner.reconcile(UID)

    body = world.kube.sent[-1][2]
    assert body["spec"]["csi"]["volumeHandle"] == MADE
    assert body["metadata"]["name"] == a_persistent_volume().name


async def test_who_waits_for_a_node_holds_up_no_other_clone():
    waits = a_claim(source=OF_CLAIM, node="node-1")
    second = a_claim("second", uid=THIRD_UID, source=OF_CLAIM, node="node-1")
    world = SourceWorld(waits, waiting())
    world.caches.claims._store.apply(second)
    world.ec2.answers = [an_ec2_error(Reason.COPY_RATE), COPIED]
    await world.provisioner.reconcile(UID)
    await world.provisioner.reconcile(THIRD_UID)
    world.looks_at()
    world.show(world.caches.claims, a_claim(source=OF_CLAIM))

    await world.provisioner.reconcile(UID)

    assert THIRD_UID in world.looks_at()
    await world.provisioner.reconcile(THIRD_UID)
    assert world.written()[-1] == "create persistentvolumes"
