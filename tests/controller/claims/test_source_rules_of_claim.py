"""What a claim can be cloned from: each rule of the contract with its sentence."""

from __future__ import annotations

import pytest

from provisioner.controller.claims.source_rules import of_claim
from provisioner.model.claim import Claim, ClaimStatus, DataSource
from provisioner.model.data_source import CLAIM_FINALIZER, Source, parse
from provisioner.model.decision import Refuse
from provisioner.model.persistent_volume import PersistentVolume
from tests.builders import DRIVER, UID, VOLUME, a_claim
from tests.sources import (
    CLONE,
    OF_CLAIM,
    OF_SNAPSHOT,
    RESTORE,
    a_source,
    its_volume,
    refused,
    replaced,
    waited_for,
)


def cloned(
    claim: Claim = CLONE, source: Claim | None = None, volume: PersistentVolume | None = None
) -> Source | Refuse:
    return of_claim(claim, source or a_source(), volume or its_volume(), driver=DRIVER)


def test_a_bound_claim_is_cloned():
    assert cloned() == Source(volume_id=VOLUME)


def test_a_claim_that_is_being_deleted_is_cloned_while_it_is_held():
    going = a_source(deleting=True, finalizers=[CLAIM_FINALIZER])

    assert cloned(source=going) == Source(volume_id=VOLUME)


def test_a_claim_of_the_in_tree_plugin_is_cloned():
    in_tree = its_volume(handle=f"aws://us-east-1a/{VOLUME}", in_tree=True)

    assert cloned(volume=in_tree) == Source(volume_id=VOLUME)


@pytest.mark.parametrize(
    ("source", "volume", "words"),
    [
        pytest.param(a_source(deleting=True), its_volume(), "is being deleted", id="deleting"),
        pytest.param(a_source(class_name=None), its_volume(), "no StorageClass", id="no class"),
        pytest.param(a_source(), its_volume(driver="disk.example"), "'disk.example'", id="driver"),
        pytest.param(a_source(), its_volume(handle="x"), "is not an EBS volume", id="odd handle"),
        pytest.param(a_source(), its_volume(handle=""), "cannot be cloned", id="no handle"),
        pytest.param(a_source(), its_volume(phase="Released"), "is Released", id="released"),
        pytest.param(a_source(), its_volume(phase=""), "without a phase", id="no phase"),
        pytest.param(a_source(), its_volume(claim_uid="x"), "another claim", id="uid"),
        pytest.param(a_source(), its_volume(claim_uid=None), "another claim", id="nobody's"),
        pytest.param(a_source(), its_volume(claim_name="x"), "another claim", id="name"),
        pytest.param(a_source(uid=UID), its_volume(), "names itself", id="itself"),
    ],
)
def test_nothing_is_cloned_from(source: Claim, volume: PersistentVolume, words: str):
    assert words in refused(cloned(source=source, volume=volume))


@pytest.mark.parametrize(
    "source",
    [
        a_source(volume_name="", phase="Pending"),
        a_source(phase="Pending"),
        replaced(a_source(), status=None),
    ],
    ids=["no volume", "binding", "no status"],
)
def test_a_claim_that_is_not_bound_yet_is_waited_for(source: Claim):
    assert "not bound yet" in waited_for(cloned(source=source))


def test_a_claim_that_does_not_exist():
    assert "does not exist" in refused(of_claim(CLONE, None, None, driver=DRIVER))


def test_a_persistent_volume_that_does_not_exist():
    assert "does not exist" in refused(of_claim(CLONE, a_source(), None, driver=DRIVER))


def test_an_old_claim_names_its_class_in_an_annotation():
    old = a_source(class_name=None, annotations={"volume.beta.kubernetes.io/storage-class": "x"})

    assert isinstance(cloned(source=old), Source)


@pytest.mark.parametrize(
    "source",
    [
        Source(snapshot_id="snap-1", size_gib=7),
        Source(volume_id="vol-1"),
        Source(snapshot_id="snap-2"),
    ],
)
def test_a_source_is_read_as_it_was_written(source: Source):
    assert parse(str(source)) == source


@pytest.mark.parametrize("text", ["", "x", "snap-1+x", "vol-1+²"])
def test_what_is_no_source_says_nothing(text: str):
    assert parse(text) is None


@pytest.mark.parametrize(
    ("source", "key"),
    [
        (RESTORE.spec.data_source, "VolumeSnapshot shop/monday"),
        (CLONE.spec.data_source, "PersistentVolumeClaim shop/origin"),
        (DataSource(kind="VolumeSnapshot", name="s", api_group="example.com"), ""),
        (replaced(OF_CLAIM, namespace="shop"), "PersistentVolumeClaim shop/origin"),
        (replaced(OF_CLAIM, namespace="bank"), ""),  # a stranger holds nothing
        (replaced(OF_SNAPSHOT, namespace="bank"), ""),
        (None, ""),
    ],
)
def test_claims_are_found_by_what_they_are_made_from(source: DataSource | None, key: str):
    assert a_claim(source=source).source_key == key
    assert a_claim(source_ref=source).source_key == key


def test_a_source_that_is_bound_has_a_status():
    assert a_source().status == ClaimStatus(phase="Bound")
