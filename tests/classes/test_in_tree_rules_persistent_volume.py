import copy

import pytest

from provisioner.classes import in_tree_rules
from provisioner.controller.provisioning.persistent_volume_rules import conflict, manifest
from provisioner.model.driver import IN_TREE_DRIVER
from provisioner.model.persistent_volume import PROVISIONED_BY
from provisioner.model.zone import EBS_ZONE_LABEL, ZONE_LABEL
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

REGION_LABEL = "topology.kubernetes.io/region"


def an_old_class(parameters=None, **changes):
    return a_class(provisioner=IN_TREE_DRIVER, parameters=parameters, **changes)


def saved(claim=None, storage_class=None, *, zone="us-east-1a"):
    made = a_plan(claim, storage_class or an_old_class(), zone=zone)
    volume = a_volume(size_gib=made.request.size_gib, zone=zone)
    return manifest(made, volume, driver=DRIVER, identity="1-2-ebs")


def test_the_persistent_volume_is_saved_in_the_plugins_form():
    claim = a_claim(size="30Gi", volume_mode="Filesystem")
    storage_class = an_old_class(
        {"type": "gp2"}, reclaim_policy="Retain", mount_options=["noatime"]
    )

    assert saved(claim, storage_class) == {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": f"pvc-{UID}",
            "labels": {ZONE_LABEL: "us-east-1a", REGION_LABEL: "us-east-1"},
            "annotations": {
                "pv.kubernetes.io/provisioned-by": "kubernetes.io/aws-ebs",
                "volume.kubernetes.io/provisioner-deletion-secret-name": "",
                "volume.kubernetes.io/provisioner-deletion-secret-namespace": "",
            },
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
            "awsElasticBlockStore": {"volumeID": VOLUME, "fsType": "ext4"},
            "nodeAffinity": {
                "required": {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [
                                {"key": ZONE_LABEL, "operator": "In", "values": ["us-east-1a"]},
                                {"key": REGION_LABEL, "operator": "In", "values": ["us-east-1"]},
                            ]
                        }
                    ]
                }
            },
        },
    }


def test_a_raw_device_has_no_file_system_in_either_form():
    assert saved(a_claim(volume_mode="Block"))["spec"]["awsElasticBlockStore"] == {
        "volumeID": VOLUME
    }


def test_the_file_system_that_the_class_names_is_in_the_plugins_form_too():
    body = saved(storage_class=an_old_class({"fsType": "xfs"}))

    assert body["spec"]["awsElasticBlockStore"]["fsType"] == "xfs"


def test_an_object_saved_by_a_lost_reply_is_known_again_in_the_plugins_form():
    plan = a_plan(storage_class=an_old_class())

    there = a_persistent_volume(in_tree=True, annotations={PROVISIONED_BY: IN_TREE_DRIVER})
    assert conflict(there, plan, a_volume(), driver=DRIVER) is None
    other = a_persistent_volume(in_tree=True, handle="vol-0f")
    assert conflict(other, plan, a_volume(), driver=DRIVER) is not None


@pytest.mark.parametrize(
    ("zone", "region"),
    [
        ("us-east-1a", "us-east-1"),
        ("us-gov-east-1a", "us-gov-east-1"),
        ("us-west-2-lax-1a", "us-west-2"),
        ("us-east-1-wl1-bos-wlz-1", "us-east-1"),
        ("us-west-10a", "us-west-10"),
    ],
)
def test_the_region_is_told_by_the_zone(zone, region):
    # Source: Kubernetes 1.36 csi-translation-lib getAwsRegionFromZones names these forms; two
    # digits are what its comment says that it cannot read.
    body = saved(zone=zone)

    assert body["metadata"]["labels"] == {ZONE_LABEL: zone, REGION_LABEL: region}


@pytest.mark.parametrize("zone", ["dc-a", "home", "us-east"])
def test_a_zone_that_tells_no_region_gets_none_and_never_an_empty_one(zone):
    body = saved(zone=zone)

    assert body["metadata"]["labels"] == {ZONE_LABEL: zone}
    [term] = body["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert [e["key"] for e in term["matchExpressions"]] == [ZONE_LABEL]


def a_csi_body(*terms):
    return {
        "metadata": {"name": "pv", "labels": {"mine": "1"}},
        "spec": {
            "csi": {"driver": DRIVER, "volumeHandle": VOLUME, "volumeAttributes": {"a": "b"}},
            "nodeAffinity": {"required": {"nodeSelectorTerms": list(terms)}},
        },
    }


def within(key, *values):
    return {"key": key, "operator": "In", "values": list(values)}


def test_the_drivers_own_zone_key_becomes_the_common_one_and_other_keys_stay():
    outpost = within("topology.ebs.csi.aws.com/outpost-id", "op-1")
    csi = a_csi_body({"matchExpressions": [within(EBS_ZONE_LABEL, "us-east-1a"), outpost]})

    spec = in_tree_rules.persistent_volume(csi)["spec"]

    [term] = spec["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [
        within(ZONE_LABEL, "us-east-1a"),
        outpost,
        within(REGION_LABEL, "us-east-1"),
    ]


def test_several_zones_are_one_label_and_labels_that_are_there_stay():
    csi = a_csi_body(
        {"matchExpressions": [within(ZONE_LABEL, "us-east-1b")]},
        {"matchExpressions": [within(ZONE_LABEL, "us-east-1a")]},
    )

    assert in_tree_rules.persistent_volume(csi)["metadata"]["labels"] == {
        "mine": "1",
        ZONE_LABEL: "us-east-1a__us-east-1b",
        REGION_LABEL: "us-east-1",
    }


def test_a_region_that_is_said_is_not_said_twice():
    said = [within(ZONE_LABEL, "us-east-1a"), within(REGION_LABEL, "us-east-1")]

    spec = in_tree_rules.persistent_volume(a_csi_body({"matchExpressions": said}))["spec"]

    assert spec["nodeAffinity"]["required"]["nodeSelectorTerms"] == [{"matchExpressions": said}]


def test_the_body_in_csi_form_is_left_as_it_was():
    csi = a_csi_body({"matchExpressions": [within(EBS_ZONE_LABEL, "us-east-1a")]})
    before = copy.deepcopy(csi)

    in_tree_rules.persistent_volume(csi)

    assert csi == before
