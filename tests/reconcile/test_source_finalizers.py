"""What volumes are made from is held for as long as that takes, and not longer."""

from __future__ import annotations

import pytest

from provisioner.model.data_source import CLAIM_FINALIZER
from provisioner.model.ebs_snapshot import EbsSnapshot, SnapshotState
from provisioner.model.errors import KubeError, Outcome, Reason, StorageError
from tests.builders import (
    UID,
    VOLUME,
    a_claim,
    an_ec2_error,
)
from tests.reconcile.source_world import SourceWorld, a_copy
from tests.sources import CLONE, OTHER_UID, a_source, its_volume, replaced

TEMPORARY = "snap-0ccccccccccccccc3"
COPIED = a_copy(source_volume_id=VOLUME)
PENDING = EbsSnapshot(TEMPORARY, VOLUME, SnapshotState.PENDING, 1)
LOST = an_ec2_error(Reason.REPLY_LOST, Outcome.UNKNOWN)
REPLY_LOST = KubeError(Reason.REPLY_LOST, "the reply was lost", outcome=Outcome.UNKNOWN)


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
