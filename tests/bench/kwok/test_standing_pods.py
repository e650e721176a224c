"""The large cluster with pods: what stands in etcd and what is put into EC2 belong together."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from provisioner.kube import wire
from provisioner.kube.resources import ATTACHMENTS, CLAIMS, CSI_NODES, NODES, PODS
from provisioner.model.attachment import attachment_name
from provisioner.model.driver import EBS_DRIVER
from provisioner.model.names import PERSISTENT_VOLUME_NAME
from provisioner.sandbox import kwok
from provisioner.sandbox.strict_ec2.client import StrictEc2
from provisioner.sandbox.strict_ec2.instances import make_instances
from tests.bench import standing
from tests.bench.kwok import ec2, standing_pods
from tests.bench.kwok.ec2 import Wanted
from tests.bench.kwok.standing_pods import Populated
from tests.bench.standing import ZONES
from tests.sandbox import lab

INSTANCES = [f"i-real{n}" for n in range(6)]
THERE = Populated(volumes=30, attachments=18, instances=INSTANCES, classes=3)
KINDS: dict[str, Any] = {
    "minions": NODES,
    "csinodes": CSI_NODES,
    "pods": PODS,
    "persistentvolumeclaims": CLAIMS,
    "volumeattachments": ATTACHMENTS,
}


@pytest.fixture(scope="module")
def stored() -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for key, body in THERE.stored():
        found.setdefault(key.split("/")[2], []).append(body)
    return found


@pytest.fixture(scope="module")
def account() -> Iterator[StrictEc2]:
    with StrictEc2(module=ec2.__name__) as running:
        yield running


def test_the_product_can_read_what_stands_there(stored: dict[str, list[Any]]):
    for kind, resource in KINDS.items():
        for body in stored[kind]:
            wire.decode_object(resource, json.dumps(body).encode())


def test_each_attached_volume_has_a_running_pod_on_the_node_that_says_so(
    stored: dict[str, list[Any]],
):
    nodes = {each["metadata"]["name"]: each for each in stored["minions"]}
    volumes = {each["metadata"]["name"]: each for each in stored["persistentvolumes"]}
    claims = {each["metadata"]["name"]: each for each in stored["persistentvolumeclaims"]}
    users = {
        each["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"]: each
        for each in stored["pods"]
    }
    assert len(users) == len(stored["volumeattachments"]) == 18
    for each in stored["volumeattachments"]:
        volume = volumes[each["spec"]["source"]["persistentVolumeName"]]
        pod = users[volume["spec"]["claimRef"]["name"]]
        node = nodes[each["spec"]["nodeName"]]
        name = standing_pods.unique_name(volume["spec"]["csi"]["volumeHandle"])
        handle = volume["spec"]["csi"]["volumeHandle"]
        of_controller = attachment_name(handle, EBS_DRIVER, each["spec"]["nodeName"])
        assert each["metadata"]["name"] == of_controller
        assert pod["spec"]["nodeName"] == each["spec"]["nodeName"]
        assert pod["status"]["phase"] == "Running"
        assert name in node["status"]["volumesInUse"]
        assert name in [x["name"] for x in node["status"]["volumesAttached"]]
    unused = [
        name for name, each in claims.items() if each["status"]["conditions"][0]["status"] == "True"
    ]
    assert not set(unused) & users.keys()
    assert len(unused) == 12


def test_volumes_are_spread_over_classes_of_which_each_team_has_one(stored: dict[str, list[Any]]):
    classes = Counter(each["spec"]["storageClassName"] for each in stored["persistentvolumes"])
    assert classes == {each["metadata"]["name"]: 10 for each in stored["storageclasses"]}
    assert len(classes) == 3
    of_volumes = {
        each["spec"]["claimRef"]["name"]: each["spec"]["storageClassName"]
        for each in stored["persistentvolumes"]
    }
    for each in stored["persistentvolumeclaims"]:
        assert each["spec"]["storageClassName"] == of_volumes[each["metadata"]["name"]]
    new = standing_pods.class_name(30_000, 3)
    assert new in classes
    assert new == standing_pods.class_name(30_000 + standing.TEAMS, 3), "the same team"


def test_a_class_has_a_thousand_volumes_unless_there_are_fewer():
    assert standing_pods.classes_for(20_000) == 20
    assert standing_pods.classes_for(500) == 1


def test_nodes_are_those_of_kwok_and_have_the_instances_of_the_account(
    stored: dict[str, list[Any]],
):
    plugins = {each["metadata"]["name"]: each for each in stored["csinodes"]}
    for n, node in enumerate(stored["minions"]):
        key, value = kwok.FAKE_NODE
        assert node["metadata"]["annotations"][key] == value
        assert node["spec"]["providerID"].endswith(f"/{INSTANCES[n]}")
        plugin = plugins[node["metadata"]["name"]]
        assert plugin["spec"]["drivers"][0]["nodeID"] == INSTANCES[n]
    assert '"i-0000' not in json.dumps(stored), "only ids that the account has"


def test_the_strict_ec2_has_the_standing_volumes_and_obeys_its_rules_for_them(
    account: StrictEc2,
):
    instances = make_instances(account.endpoint, 6, ZONES)
    wanted = Wanted(30, 18, "bench", [each.instance_id for each in instances])

    there = ec2.put(account.endpoint, wanted)

    assert len(there.volumes) == 30
    assert sum(len(held) for _, held in there.volumes.values()) == 18
    assert {len(ids) for ids in there.made.values()} == {1}
    volume_id = next(key for key, (_, held) in there.volumes.items() if held)
    client = account_client(account)
    with pytest.raises(client.exceptions.ClientError, match="VolumeInUse"):
        client.delete_volume(VolumeId=volume_id)
    client.detach_volume(VolumeId=volume_id)
    client.delete_volume(VolumeId=volume_id)
    assert volume_id not in ec2.there(account.endpoint).volumes


def test_every_volume_that_is_made_for_one_persistent_volume_is_remembered(account: StrictEc2):
    client = account_client(account)
    tag = {"Key": PERSISTENT_VOLUME_NAME, "Value": "pvc-twice"}
    of_volume = [{"ResourceType": "volume", "Tags": [tag]}]
    for _ in range(2):
        made = client.create_volume(
            AvailabilityZone=ZONES[0], Size=1, VolumeType="gp3", TagSpecifications=of_volume
        )
        client.delete_volume(VolumeId=made["VolumeId"])

    assert len(ec2.there(account.endpoint).made["pvc-twice"]) == 2


def test_only_questions_by_tag_are_inventories(account: StrictEc2):
    client = account_client(account)
    before = ec2.inventories(account.endpoint)

    client.describe_volumes(Filters=[{"Name": "volume-id", "Values": ["vol-00000000000000001"]}])
    client.describe_volumes(Filters=[{"Name": "tag:CSIVolumeName", "Values": ["pvc-1"]}])
    client.describe_instances(Filters=[{"Name": "tag:Name", "Values": ["x"]}])

    assert ec2.inventories(account.endpoint) == before + 1


def account_client(account: StrictEc2) -> Any:

    return lab.client(account.endpoint)


def test_nodes_are_as_many_in_each_zone():
    assert standing_pods.nodes_for(20_000) == 2001
    assert standing_pods.nodes_for(500) == 51
    assert standing_pods.nodes_for(1) == 6
