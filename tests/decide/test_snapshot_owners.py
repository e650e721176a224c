from __future__ import annotations

import pytest

from provisioner.decide.snapshot_owners import keeps, owns
from provisioner.model import volume_snapshot as v
from provisioner.model.meta import ObjectReference
from tests.snapshot_builders import a_content, a_snapshot

BEING_DELETED = {v.BEING_DELETED: v.YES}
UNBOUND = ObjectReference(namespace="shop", name="daily")


def test_an_owner_made_anew_is_another_one():
    assert owns(a_content(), a_snapshot())
    assert not owns(a_content(), a_snapshot(uid="made-anew"))
    assert not owns(a_content(), None)


@pytest.mark.parametrize("owner_is_gone", [True, False])
@pytest.mark.parametrize(
    ("content", "kept"),
    [
        (a_content(), True),
        (a_content(policy=v.RETAIN), True),
        (a_content(policy=v.RETAIN, deleting=True), True),
        (a_content(policy=v.RETAIN, deleting=True, annotations=BEING_DELETED), True),
        (a_content(deleting=True, annotations=BEING_DELETED), False),
        (a_content(given="snap-given", owner=UNBOUND, deleting=True), False),
    ],
)
def test_which_contents_keep_the_snapshot_of_another(
    content: v.VolumeSnapshotContent, *, kept: bool, owner_is_gone: bool
):
    assert keeps(content, owner_is_gone=owner_is_gone) is kept


def test_one_that_waits_for_the_end_of_its_volumesnapshot_keeps_it():
    assert keeps(a_content(deleting=True), owner_is_gone=False)
    assert not keeps(a_content(deleting=True), owner_is_gone=True)
