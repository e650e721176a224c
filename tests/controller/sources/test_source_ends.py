"""A source that is deleted while its clone is on the way: both come to an end."""

from __future__ import annotations

import pytest

from provisioner.model.data_source import CLAIM_FINALIZER
from provisioner.model.decision import SETTLED
from provisioner.model.errors import Reason
from provisioner.model.storage_class import StorageClass
from tests.builders import UID, VOLUME, a_class, an_ec2_error
from tests.controller.source_world import OTHER_ZONE, SourceWorld, a_copy
from tests.controller.sources.test_cross_zone import ACROSS, PENDING, until_settled
from tests.ec2.virtual_time import Clock, in_virtual_time
from tests.sources import CLONE, OTHER_UID, a_source, replaced


def world_of(storage_class: StorageClass) -> SourceWorld:
    """EC2 has no time for the first copy; a snapshot is taken at once."""
    world = SourceWorld(CLONE, storage_class)
    world.snapshots.answers = [PENDING]
    busy = an_ec2_error(Reason.COPY_RATE)
    busy.retry_after_s = 30.0
    is_across = storage_class is ACROSS
    crossed = a_copy(zone=OTHER_ZONE, snapshot_id=PENDING.snapshot_id)
    world.ec2.answers = [crossed] if is_across else [busy, a_copy(source_volume_id=VOLUME)]
    return world


@pytest.mark.parametrize("storage_class", [a_class(), ACROSS], ids=["in line", "across"])
def test_the_clone_is_made_and_the_source_let_go(storage_class: StorageClass):
    world = world_of(storage_class)

    async def story(_: Clock) -> None:
        assert await world.provisioner.reconcile(UID) != SETTLED
        held = world.caches.claim(OTHER_UID)
        assert held is not None
        assert held.finalizers == [CLAIM_FINALIZER]
        world.show(world.caches.claims, a_source(deleting=True, finalizers=held.finalizers))
        world.kube._version = 5000
        await until_settled(world)
        world._version = 9000
        clone = world.caches.claim(UID)
        assert clone is not None
        bound = replaced(clone, spec=replaced(clone.spec, volume_name=clone.persistent_volume_name))
        world.show(world.caches.claims, replaced(bound, status=a_source().status))
        await world.provisioner.sources.finalizers.reconcile(CLONE.source_key)
        await world.provisioner.close()

    in_virtual_time(story)

    assert world.written()[-2:] == [
        "create persistentvolumes",
        "patch persistentvolumeclaims finalizers",
    ]
    source = world.caches.claim(OTHER_UID)
    assert source is not None
    assert source.finalizers == []
