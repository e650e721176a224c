"""Clones: beside their source, and one at a time."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from provisioner.model.data_source import CLAIM_FINALIZER, Source
from provisioner.model.decision import SETTLED, Later
from provisioner.model.ebs_snapshot import EbsSnapshot, SnapshotState
from provisioner.model.errors import KubeError, Outcome, Reason, StorageError
from provisioner.model.meta import ObjectMeta
from provisioner.model.names import CLONE_ACROSS_ZONES, PINNED_SOURCE, PINNED_ZONE
from provisioner.model.storage_class import StorageClass
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
from tests.controller.provisioning.test_flow import annotated
from tests.controller.source_world import MADE, OTHER_ZONE, SourceWorld, a_copy, until_told
from tests.ec2.virtual_time import Clock, in_virtual_time
from tests.pods import a_pod
from tests.sources import CLONE, OF_CLAIM, OTHER_UID, a_source, its_volume, replaced

TEMPORARY = "snap-0ccccccccccccccc3"
THIRD_UID = "0c5a1b2e-7f00-4a7e-9d61-3b1f00000003"
SECOND = a_claim("second", uid=THIRD_UID, source=OF_CLAIM)
COPIED = a_copy(source_volume_id=VOLUME)
PENDING = EbsSnapshot(TEMPORARY, VOLUME, SnapshotState.PENDING, 1)
LOST = an_ec2_error(Reason.REPLY_LOST, Outcome.UNKNOWN)
REPLY_LOST = KubeError(Reason.REPLY_LOST, "the reply was lost", outcome=Outcome.UNKNOWN)


def waiting(name: str = "fast", **more: Any) -> StorageClass:
    return a_class(name, waits=True, **more)


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

    with pytest.raises(StorageError, match="a copy is created in the same zone"):
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
        (volume_gone, "no longer exists in EC2"),
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
    assert "claim shop/data, which came first" in world.events.told[-1]
    world.looks_at()

    await world.provisioner.reconcile(UID)

    assert THIRD_UID in world.looks_at()
    await world.provisioner.reconcile(THIRD_UID)
    first, again, second = [each.client_token for each in world.ec2.requests]
    assert first == again != second


async def test_too_many_copies_are_no_failure():
    world = SourceWorld(CLONE)
    refusals = [an_ec2_error(Reason.COPY_RATE) for _ in range(2)]
    for refused in refusals:
        refused.retry_after_s = 30.0
    world.ec2.answers = [*refusals]

    followings = [await world.provisioner.reconcile(UID) for _ in range(2)]

    pauses_s = [following.seconds for following in followings if isinstance(following, Later)]
    assert pauses_s == [pytest.approx(30.0, rel=0.1), pytest.approx(60.0, rel=0.1)]
    assert [each for each in world.events.told if "will try again" in each] == world.events.told
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


async def test_a_claim_is_looked_at_when_its_source_is_bound():
    world = SourceWorld(CLONE)
    world.show(world.caches.claims, a_source(volume_name="", phase="Pending"))
    world.provisioner.subscribe()
    world.looks_at()
    assert await world.provisioner.reconcile(UID) == SETTLED

    world.show(world.caches.claims, a_source())

    assert UID in world.looks_at()


async def test_the_persistent_volume_of_a_clone_names_the_copy():
    world = SourceWorld(CLONE)
    world.ec2.answers = [COPIED]

    await world.provisioner.reconcile(UID)

    body = world.kube.sent[-1][2]
    assert body["spec"]["csi"]["volumeHandle"] == MADE
    assert body["metadata"]["name"] == a_persistent_volume().name


@pytest.mark.parametrize(
    "parameters", [{"type": "st1"}, {"type": "gp3", "iops": "3000", "throughput": "2000"}]
)
@pytest.mark.parametrize("zone", [ZONE, OTHER_ZONE])
async def test_what_can_never_be_made_takes_no_snapshot_and_no_turn(
    parameters: dict[str, str], zone: str
):
    storage_class = a_class(parameters=parameters, allowed=[a_term(zone=[zone])])
    meta = ObjectMeta(name="fast", annotations={CLONE_ACROSS_ZONES: "true"})
    world = SourceWorld(CLONE, replaced(storage_class, metadata=meta))
    world.snapshots.answers = [PENDING]

    with pytest.raises(StorageError, match="cannot be created"):
        await world.provisioner.reconcile(UID)

    assert world.snapshots.asked == []
    assert world.written() == []
    await world.provisioner.close()


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
