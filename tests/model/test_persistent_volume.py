import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from provisioner.model.driver import IN_TREE_DRIVER
from provisioner.model.persistent_volume import (
    MIGRATED_TO,
    PROVISIONED_BY,
    PersistentVolume,
    finalizer_of_attacher,
    sanitised,
)
from provisioner.model.volume import serial_of
from tests.builders import DRIVER, VOLUME, a_persistent_volume


def test_it_is_read_as_the_api_server_sends_it():
    found = msgspec.json.decode(
        b'{"metadata": {"name": "pv", "finalizers": null},'
        b' "spec": {"persistentVolumeReclaimPolicy": "Retain", "claimRef": {"uid": "u"},'
        b'  "awsElasticBlockStore": {"volumeID": "aws://us-east-1a/vol-1", "fsType": "ext4"},'
        b'  "nodeAffinity": {"required": {"nodeSelectorTerms": null}}},'
        b' "status": {"phase": "Released"}}',
        type=PersistentVolume,
    )

    assert (found.key, found.phase, found.reclaim_policy) == ("pv", "Released", "Retain")
    assert found.volume_id(DRIVER) == "vol-1"


@pytest.mark.parametrize(
    ("spec", "is_file_system", "is_for_readers"),
    [
        ({}, True, False),
        ({"volumeMode": "Filesystem", "accessModes": ["ReadWriteOnce"]}, True, False),
        ({"accessModes": ["ReadOnlyMany"]}, True, True),
        ({"volumeMode": "Filesystem", "accessModes": ["ReadOnlyMany"]}, True, True),
        ({"accessModes": ["ReadOnlyMany", "ReadWriteOnce"]}, True, True),
        ({"accessModes": ["ReadWriteOnce", "ReadOnlyMany"]}, True, False),
        ({"accessModes": []}, True, False),
        ({"volumeMode": None, "accessModes": None}, True, False),
        ({"volumeMode": "SomethingNew", "accessModes": ["ReadWriteMany"]}, True, False),
        ({"volumeMode": "Block", "accessModes": ["ReadWriteMany"]}, False, False),
        ({"volumeMode": "Block", "accessModes": ["ReadOnlyMany"]}, False, False),
    ],
)
def test_whether_nodes_mount_it_and_for_what_the_kubelet_will_do_so(
    spec, is_file_system, is_for_readers
):
    found = msgspec.convert({"spec": spec}, PersistentVolume).spec

    assert (found.is_file_system, found.is_for_readers) == (is_file_system, is_for_readers)


def test_a_new_one_has_no_phase():
    assert PersistentVolume().phase == ""


@pytest.mark.parametrize(
    ("found", "volume_id"),
    [
        pytest.param(a_persistent_volume(), VOLUME, id="CSI"),
        pytest.param(
            a_persistent_volume(handle=f"aws://z/{VOLUME}"), VOLUME, id="CSI, once in-tree"
        ),
        pytest.param(a_persistent_volume(driver="x"), None, id="another driver"),
        pytest.param(a_persistent_volume(in_tree=True), VOLUME, id="in-tree"),
        pytest.param(
            a_persistent_volume(in_tree=True, handle=f"aws://z/{VOLUME}"),
            VOLUME,
            id="in-tree with zone",
        ),
        pytest.param(a_persistent_volume(handle=""), None, id="no handle"),
        pytest.param(PersistentVolume(), None, id="another kind of volume"),
    ],
)
def test_which_volume_it_names(found, volume_id):
    assert found.volume_id(DRIVER) == volume_id


def test_another_driver_can_name_the_same_volume():
    under_another_name = a_persistent_volume(driver="x", handle=f"aws://z/{VOLUME}")

    assert under_another_name.named_volume == VOLUME
    assert under_another_name.volume_id(DRIVER) is None


@pytest.mark.parametrize(
    ("found", "ours"),
    [
        pytest.param(a_persistent_volume(), True, id="provisioned by us"),
        pytest.param(
            a_persistent_volume(annotations={PROVISIONED_BY: "x"}), False, id="by another"
        ),
        pytest.param(a_persistent_volume(annotations={}), True, id="race 19: by hand"),
        pytest.param(
            a_persistent_volume(annotations={}, driver="x"), False, id="by hand, another driver"
        ),
        pytest.param(
            a_persistent_volume(annotations={}, in_tree=True), False, id="by hand, in-tree"
        ),
        pytest.param(
            a_persistent_volume(annotations={PROVISIONED_BY: IN_TREE_DRIVER, MIGRATED_TO: DRIVER}),
            True,
            id="race 32: migrated",
        ),
        pytest.param(
            a_persistent_volume(annotations={PROVISIONED_BY: IN_TREE_DRIVER}),
            False,
            id="not migrated",
        ),
    ],
)
def test_whose_volume_it_is_to_delete(found, ours):
    assert found.is_deleted_by(DRIVER) is ours


def test_the_attachers_finalizer_is_the_one_of_external_attacher():
    assert finalizer_of_attacher(DRIVER) == "external-attacher/ebs-csi-aws-com"


@given(st.text(max_size=30))
def test_a_sanitised_name_has_only_letters_digits_and_dashes(name):
    clean = sanitised(name)

    assert len(clean) == len(name)
    assert all(c.isascii() and (c.isalnum() or c == "-") for c in clean)
    assert sanitised(clean) == clean


@pytest.mark.parametrize(
    ("handle", "in_tree", "called"),
    [
        (VOLUME, False, VOLUME),
        (serial_of(VOLUME), False, serial_of(VOLUME)),
        (f"aws:///{VOLUME}", False, f"aws:///{VOLUME}"),
        (f"aws:///{VOLUME}", True, VOLUME),
    ],
)
def test_attachments_are_called_by_the_handle_as_it_is_written_in_csi_form(
    handle: str, called: str, *, in_tree: bool
):
    """Of the in-tree form, Kubernetes makes a bare id first (csi-translation-lib)."""
    found = a_persistent_volume(handle=handle, in_tree=in_tree)

    assert found.handle == called
    assert found.named_volume == VOLUME


def test_a_cache_keeps_nothing_of_what_strangers_write_to_one():
    place = {"topology.kubernetes.io/zone": "us-east-1a", "topology.kubernetes.io/region": "us"}
    found = a_persistent_volume(annotations={PROVISIONED_BY: DRIVER, "example.com/team": "a"})
    meta = structs.replace(found.metadata, labels=place | {"example.com/release": "r-7"})

    kept = structs.replace(found, metadata=meta).as_cached(DRIVER)

    assert (kept.labels, kept.annotations) == (place, {PROVISIONED_BY: DRIVER})
    assert kept.as_cached(DRIVER) is kept
