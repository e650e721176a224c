"""What is written to a clone's claim is followed as far as its class goes: anybody can write it."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from provisioner.model.claim import Claim
from provisioner.model.data_source import CLAIM_FINALIZER, Source
from provisioner.model.errors import Reason
from provisioner.model.meta import ObjectMeta
from provisioner.model.names import CLONE_ACROSS_ZONES, PINNED_SOURCE, PINNED_ZONE
from provisioner.model.storage_class import StorageClass
from tests.builders import UID, VOLUME, ZONE, a_class, a_term, a_volume, an_ec2_error
from tests.controller.provisioning.test_flow import annotated
from tests.controller.source_world import MADE, OTHER_ZONE, SourceWorld, a_copy
from tests.controller.sources.test_cross_zone import PENDING, TEMPORARY, until_settled
from tests.ec2.virtual_time import Clock, in_virtual_time
from tests.sources import CLONE, OTHER_UID, a_source, replaced

FAR_ZONE = "us-east-1f"
OLD_VOLUME = "vol-0eeeeeeeeeeeeeee1"


def pinned(zone: str, source: Source | None = None) -> Claim:
    more = {} if source is None else {PINNED_SOURCE: CLONE.note(str(source))}
    return annotated(CLONE, "8", **{PINNED_ZONE: CLONE.pin(zone)}, **more)


def across(*zones: str) -> StorageClass:
    found = a_class(allowed=[a_term(zone=list(zones))])
    return replaced(
        found, metadata=ObjectMeta(name="fast", annotations={CLONE_ACROSS_ZONES: "true"})
    )


def taken_over(world: SourceWorld, claim: Claim) -> float:
    """Settle a claim that was there before us; the seconds that it took."""

    async def story(clock: Clock) -> float:
        world.provisioner.takeover.begin([claim], from_stranger=False)
        world.snapshots.answers = [PENDING]
        await until_settled(world)
        await world.provisioner.close()
        return clock()

    return in_virtual_time(story)


@pytest.mark.parametrize("source", [None, Source(volume_id=VOLUME, size_gib=1)])
def test_a_zone_that_a_tenant_has_written_takes_no_clone_across(source: Source | None):
    claim = pinned(OTHER_ZONE, source)
    world = SourceWorld(claim)
    world.ec2.answers = [a_copy(source_volume_id=VOLUME)]

    took_s = taken_over(world, claim)

    assert world.snapshots.asked == []
    assert [(each.zone, each.source_volume_id) for each in world.ec2.requests] == [(ZONE, VOLUME)]
    assert took_s >= 60  # a volume that was begun would show by now


def test_a_written_zone_that_the_class_does_not_allow_is_not_gone_to():
    claim = pinned(FAR_ZONE)
    world = SourceWorld(claim, across(OTHER_ZONE))
    world.ec2.answers = [a_copy(zone=OTHER_ZONE, snapshot_id=TEMPORARY)]

    taken_over(world, claim)

    assert [each.zone for each in world.ec2.requests] == [OTHER_ZONE]


def test_a_written_zone_of_the_source_itself_is_not_copied_in_against_the_class():
    claim = pinned(ZONE, Source(volume_id=VOLUME, size_gib=1))
    world = SourceWorld(claim, across(OTHER_ZONE))
    world.ec2.answers = [a_copy(zone=OTHER_ZONE, snapshot_id=TEMPORARY)]

    taken_over(world, claim)

    assert [each.zone for each in world.ec2.requests] == [OTHER_ZONE]


def test_a_source_bound_anew_in_another_zone_is_copied_there():
    claim = pinned(ZONE, Source(volume_id=OLD_VOLUME, size_gib=1))
    world = SourceWorld(claim, source=a_volume(zone=OTHER_ZONE))
    world.ec2.answers = [a_copy(zone=OTHER_ZONE, source_volume_id=VOLUME)]

    taken_over(world, claim)

    assert world.snapshots.asked == []
    assert [each.zone for each in world.ec2.requests] == [OTHER_ZONE]


def test_what_was_begun_there_all_the_same_is_used():
    claim = pinned(OTHER_ZONE)
    world = SourceWorld(claim)  # the class went across zones when the volume was begun
    tags = {"CSIVolumeName": claim.persistent_volume_name}
    begun = dataclasses.replace(a_volume(MADE, zone=OTHER_ZONE), snapshot_id=TEMPORARY, tags=tags)

    async def story(_: Clock) -> None:
        world.provisioner.takeover.begin([claim], from_stranger=False)
        asyncio.get_running_loop().call_later(20, world.ec2.shown.append, begun)
        await until_settled(world)
        await world.provisioner.close()

    in_virtual_time(story)

    assert world.ec2.requests == []
    assert world.written()[-1] == "create persistentvolumes"
    assert world.kube.sent[-1][2]["spec"]["csi"]["volumeHandle"] == MADE


def test_a_written_zone_that_the_class_allows_is_gone_to():
    claim = pinned(OTHER_ZONE, Source(volume_id=VOLUME, size_gib=1))
    world = SourceWorld(claim, across(ZONE, OTHER_ZONE))
    world.ec2.answers = [a_copy(zone=OTHER_ZONE, snapshot_id=TEMPORARY)]

    taken_over(world, claim)

    (request,) = world.ec2.requests
    assert (request.zone, request.snapshot_id) == (OTHER_ZONE, TEMPORARY)


async def test_the_source_of_a_copy_that_may_have_been_begun_is_held():
    claim = pinned(ZONE, Source(volume_id=VOLUME, size_gib=1))
    world = SourceWorld(claim)
    world.provisioner.takeover.begin([claim], from_stranger=False)
    world.ec2.answers = [an_ec2_error(Reason.COPY_RATE)]

    await world.provisioner.reconcile(UID)

    source = world.caches.claim(OTHER_UID)
    assert source is not None
    assert source.finalizers == [CLAIM_FINALIZER]
    assert a_source().finalizers == []
