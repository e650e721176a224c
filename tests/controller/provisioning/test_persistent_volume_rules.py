import pytest

from provisioner.controller.provisioning.persistent_volume_rules import (
    conflict,
    manifest,
    zone_affinity,
)
from provisioner.model.errors import Reason
from tests.builders import (
    DRIVER,
    UID,
    VOLUME,
    a_claim,
    a_class,
    a_persistent_volume,
    a_plan,
    a_volume,
)


def written(claim=None, storage_class=None, volume=None):
    return manifest(
        a_plan(claim, storage_class), volume or a_volume(), driver=DRIVER, identity="1-2-ebs"
    )


def test_the_object_has_the_fields_of_external_provisioner_and_the_label_of_its_zone():
    storage_class = a_class(mount_options=["noatime"], reclaim_policy="Retain")
    claim = a_claim(size="30Gi", volume_mode="Filesystem")

    body = written(claim, storage_class, a_volume(size_gib=30, zone="us-east-1c"))

    assert body == {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": f"pvc-{UID}",
            "annotations": {
                "pv.kubernetes.io/provisioned-by": "ebs.csi.aws.com",
                "volume.kubernetes.io/provisioner-deletion-secret-name": "",
                "volume.kubernetes.io/provisioner-deletion-secret-namespace": "",
            },
            "labels": {"topology.kubernetes.io/zone": "us-east-1c"},  # what that one leaves out
            "finalizers": ["external-provisioner.volume.kubernetes.io/finalizer"],
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "30Gi"},
            "claimRef": {
                "kind": "PersistentVolumeClaim",
                "apiVersion": "v1",
                "namespace": "shop",
                "name": "data",
                "uid": UID,
                "resourceVersion": "7",
            },
            "storageClassName": "fast",
            "mountOptions": ["noatime"],
            "persistentVolumeReclaimPolicy": "Retain",
            "volumeMode": "Filesystem",
            "nodeAffinity": {
                "required": {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [
                                {
                                    "key": "topology.kubernetes.io/zone",
                                    "operator": "In",
                                    "values": ["us-east-1c"],
                                }
                            ]
                        }
                    ]
                }
            },
            "csi": {
                "driver": "ebs.csi.aws.com",
                "volumeHandle": VOLUME,
                "fsType": "ext4",
                "volumeAttributes": {"storage.kubernetes.io/csiProvisionerIdentity": "1-2-ebs"},
            },
        },
    }


def test_what_the_class_and_the_claim_leave_open_is_left_to_the_api_server():
    spec = written(a_claim(), a_class(reclaim_policy=None))["spec"]

    assert not {"mountOptions", "persistentVolumeReclaimPolicy", "volumeMode"} & spec.keys()


def test_a_raw_device_has_no_file_system():  # race 33
    spec = written(a_claim(volume_mode="Block"))["spec"]

    assert spec["volumeMode"] == "Block"
    assert "fsType" not in spec["csi"]


def test_the_zone_is_the_one_where_the_volume_really_is():  # race 4
    body = written(volume=a_volume(zone="us-east-1f"))

    assert body["spec"]["nodeAffinity"] == zone_affinity(a_volume(zone="us-east-1f"))


def test_the_region_is_a_label_only_where_all_nodes_have_it():
    body = manifest(
        a_plan(), a_volume(zone="us-west-2-lax-1a"), driver=DRIVER, identity="i", labels_region=True
    )

    assert body["metadata"]["labels"] == {
        "topology.kubernetes.io/zone": "us-west-2-lax-1a",
        "topology.kubernetes.io/region": "us-west-2",
    }


def test_a_volume_on_an_outpost_is_for_nodes_on_it():
    arn = "arn:aws:outposts:us-east-1:111122223333:outpost/op-1"

    (term,) = zone_affinity(a_volume(outpost_arn=arn))["required"]["nodeSelectorTerms"]

    # As the stock driver's answer becomes a term, in whatever order.
    assert {e["key"]: (e["operator"], e["values"]) for e in term["matchExpressions"]} == {
        "topology.kubernetes.io/zone": ("In", ["us-east-1a"]),
        "topology.ebs.csi.aws.com/region": ("In", ["us-east-1"]),
        "topology.ebs.csi.aws.com/partition": ("In", ["aws"]),
        "topology.ebs.csi.aws.com/account-id": ("In", ["111122223333"]),
        "topology.ebs.csi.aws.com/outpost-id": ("In", ["op-1"]),
    }


@pytest.mark.parametrize(("size", "capacity"), [("1", "1Gi"), ("1500M", "2Gi"), ("30Gi", "30Gi")])
def test_the_capacity_is_never_less_than_what_the_claim_asks_for(size, capacity):  # race 21
    plan = a_plan(a_claim(size=size))

    body = manifest(
        plan, a_volume(size_gib=plan.request.size_gib), driver=DRIVER, identity="1-2-ebs"
    )

    assert body["spec"]["capacity"] == {"storage": capacity}


def test_an_object_that_is_there_already_is_ours_if_claim_and_volume_are():  # race 6
    assert conflict(a_persistent_volume(), a_plan(), a_volume(), driver=DRIVER) is None


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(a_persistent_volume(claim_uid="other"), id="another claim"),
        pytest.param(a_persistent_volume(claim_uid=None), id="no claim"),
        pytest.param(a_persistent_volume(driver="other.csi"), id="another driver"),
    ],
)
def test_a_foreign_object_of_our_name_is_told(found):  # race 6
    error = conflict(found, a_plan(), a_volume(), driver=DRIVER)

    assert error is not None
    assert error.reason is Reason.CONFLICT
    assert (
        f"PersistentVolume pvc-{UID} already exists, but does not give this claim volume"
        in error.message
    )


def test_nobody_is_told_to_delete_the_object_that_holds_the_claims_data():  # race 6
    error = conflict(a_persistent_volume(handle="vol-1"), a_plan(), a_volume(), driver=DRIVER)

    assert error is not None
    assert error.message == (
        f"PersistentVolume pvc-{UID} already gives the claim volume vol-1; volume {VOLUME} was "
        "created as well and is not needed: delete it in EC2"
    )


def test_the_node_plugin_is_told_how_to_make_the_file_system():
    storage_class = a_class(
        parameters={"fstype": "xfs", "blockSize": "4096", "blockAttachUntilInitialized": "true"}
    )

    source = written(storage_class=storage_class)["spec"]["csi"]

    assert source["fsType"] == "xfs"
    assert source["volumeAttributes"] == {
        "blocksize": "4096",
        "blockattachuntilinitialized": "true",
        "storage.kubernetes.io/csiProvisionerIdentity": "1-2-ebs",
    }
