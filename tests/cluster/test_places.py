"""Volumes in a zone named by its id, on an Outpost, and on two nodes at once."""

from __future__ import annotations

import asyncio

import pytest

from provisioner.model.attachment import attachment_name
from provisioner.model.zone import OUTPOST_KEYS
from provisioner.sandbox.nodes import DRIVER
from tests.cluster.by_hand import holders
from tests.cluster.cluster import ATTACHMENTS, NODES, Cluster, Json, handle_of
from tests.cluster.place import Place
from tests.cluster.together import Together

pytestmark = pytest.mark.asyncio(loop_scope="module")
together = Together()

ARN = "arn:aws:outposts:us-east-1:111122223333:outpost/op-1"
ON_OUTPOST = dict(zip(OUTPOST_KEYS, ("us-east-1", "aws", "111122223333", "op-1"), strict=True))
ZONE_LABEL = "topology.kubernetes.io/zone"


def affinity_of(pv: Json) -> dict[str, list[str]]:
    """What a node has to be labelled with."""
    (term,) = pv["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    return {each["key"]: each["values"] for each in term["matchExpressions"]}


async def zone_id_of(cluster: Cluster, zone: str) -> str:
    found = await asyncio.to_thread(cluster.ec2.describe_availability_zones, ZoneNames=[zone])
    return next(str(z["ZoneId"]) for z in found["AvailabilityZones"] if z["ZoneName"] == zone)


@together.test
async def test_the_zone_of_an_id_is_written_down_by_its_name(place: Place):
    zone_id = await zone_id_of(place.cluster, "us-east-1b")
    terms = [{"matchLabelExpressions": [{"key": "topology.k8s.aws/zone-id", "values": [zone_id]}]}]
    name = await place.storage_class(allowedTopologies=terms)

    await place.claim(name)

    pv = await place.bound()
    volume = await place.cluster.volume(handle_of(pv))
    assert volume is not None
    assert (volume["AvailabilityZone"], volume["AvailabilityZoneId"]) == ("us-east-1b", zone_id)
    assert affinity_of(pv) == {ZONE_LABEL: ["us-east-1b"]}


@together.test
async def test_a_zone_id_of_another_region_is_told_with_those_that_there_are(place: Place):
    terms = [
        {"matchLabelExpressions": [{"key": "topology.k8s.aws/zone-id", "values": ["euc1-az1"]}]}
    ]
    await place.claim(await place.storage_class(allowedTopologies=terms))

    zone_id = await zone_id_of(place.cluster, "us-east-1a")
    await place.told("euc1-az1 is not a zone ID of this region", f"{zone_id} (us-east-1a)")
    assert await place.volumes() == []


@together.test
async def test_a_volume_for_a_node_on_an_outpost_lies_on_that_outpost(place: Place):
    cluster = place.cluster
    async with cluster.extra_node() as instance:
        node = instance.private_dns_name
        there = {"zone": instance.zone, "instances": [instance.instance_id]}
        await cluster.control(outposts={ARN: there})
        await cluster.api.patch(f"{NODES}/{node}", {"metadata": {"labels": ON_OUTPOST}})
        await place.choose_node(await place.waiting_claim(), node)

        pv = await place.bound()
        attachment = await place.attachment(pv["metadata"]["name"], node)
        await place.attached(attachment)

        volume = await cluster.volume(handle_of(pv))
        assert volume is not None
        assert volume["OutpostArn"] == ARN
        assert affinity_of(pv) == {
            ZONE_LABEL: [instance.zone],
            **{key: [value] for key, value in ON_OUTPOST.items()},
        }
        await place.remove(f"{ATTACHMENTS}/{attachment}")
        await place.remove(f"{place.claims}/data")
        await cluster.until("the volume is deleted", place.is_empty)


RAW = {"volumeDevices": [{"name": "data", "devicePath": "/dev/xvda"}]}
MOUNTED = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}


async def a_pod(place: Place, name: str, node: str, uses: Json) -> None:
    spec: Json = {
        "nodeSelector": {"kubernetes.io/hostname": node},
        "containers": [{"name": "main", "image": "main"} | uses],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
    }
    await place.api.create(place.pods, {"metadata": {"name": name}, "spec": spec})


@together.test
async def test_two_nodes_share_a_raw_device_and_one_leaves_without_the_other(place: Place):
    cluster = place.cluster
    first, second = cluster.instance(number=0), cluster.instance(number=1)
    kind = {"type": "io2", "iops": "100"}
    name = await place.storage_class(waits=True, parameters=kind)
    size = {"requests": {"storage": "4Gi"}}
    await place.claim(name, accessModes=["ReadWriteMany"], volumeMode="Block", resources=size)
    await a_pod(place, "first", first.private_dns_name, RAW)
    await a_pod(place, "second", second.private_dns_name, RAW)
    pv = await place.bound()
    volume_id = handle_of(pv)

    async def on(*instances: str) -> bool:
        return sorted(await holders(cluster, volume_id)) == sorted(instances)

    both = (first.instance_id, second.instance_id)
    await cluster.until("both nodes have it", lambda: on(*both))
    await cluster.until("both are told", lambda: are_attached(place, pv, 2))
    volume = await cluster.volume(volume_id)
    assert volume is not None
    assert volume["MultiAttachEnabled"] is True

    await place.api.delete(f"{place.pods}/first", gracePeriodSeconds="0")

    await cluster.until("the second node alone is told", lambda: are_attached(place, pv, 1))
    assert await on(second.instance_id)
    detaches = await cluster.calls(volume_id, "DetachVolume")
    assert {each["params"]["InstanceId"] for each in detaches} == {first.instance_id}


async def are_attached(place: Place, pv: Json, count: int) -> bool:
    found = await attachments_of(place, pv["metadata"]["name"])
    return sum(bool(each.get("status", {}).get("attached")) for each in found) == count


async def attachments_of(place: Place, pv: str) -> list[Json]:
    found = (await place.api.get(ATTACHMENTS))["items"]
    return [each for each in found if each["spec"]["source"].get("persistentVolumeName") == pv]


async def a_shared_volume(cluster: Cluster, zone: str) -> str:
    made = await asyncio.to_thread(
        cluster.ec2.create_volume,
        AvailabilityZone=zone,
        Size=4,
        VolumeType="io2",
        Iops=100,
        MultiAttachEnabled=True,
    )
    return str(made["VolumeId"])


@together.test
async def test_two_nodes_never_have_one_file_system_to_write_to(place: Place):
    """With two modes the volume controller attaches twice; a kubelet tells the first one only."""
    cluster = place.cluster
    first, second = cluster.instance(number=0), cluster.instance(number=1)
    volume_id = await a_shared_volume(cluster, first.zone)
    name = await place.static_pv(volume_id, accessModes=["ReadWriteOnce", "ReadWriteMany"])
    await place.claim(place.name, volumeName=name)
    pv = await place.bound()
    await a_pod(place, "first", first.private_dns_name, MOUNTED)
    await cluster.until("the first node is told", lambda: are_attached(place, pv, 1))

    await a_pod(place, "second", second.private_dns_name, MOUNTED)

    async def asked_for_both() -> bool:
        return len(await attachments_of(place, name)) == 2

    await cluster.until("the volume controller wants both", asked_for_both)
    late = attachment_name(volume_id, DRIVER, second.private_dns_name)
    await place.attach_error(late, first.instance_id, "Multi-Attach", "Block")
    assert await holders(cluster, volume_id) == [first.instance_id]

    await place.api.delete(f"{place.pods}/first", gracePeriodSeconds="0")

    await place.attached(late, timeout_s=120)
    assert await holders(cluster, volume_id) == [second.instance_id]


@together.test
@pytest.mark.parametrize(
    ("kind", "mode", "words"),
    [
        ({"type": "gp3"}, "Block", ["ReadWriteMany requires type io2 or io1", "not gp3"]),
        ({"type": "io2", "iops": "100"}, "Filesystem", ["ReadWriteMany requires volumeMode Block"]),
    ],
    ids=["gp3", "a file system"],
)
async def test_what_cannot_be_shared_is_refused_with_the_reason(
    place: Place, kind: Json, mode: str, words: list[str]
):
    name = await place.storage_class(parameters=kind)
    size = {"requests": {"storage": "4Gi"}}
    await place.claim(name, accessModes=["ReadWriteMany"], volumeMode=mode, resources=size)

    await place.told(*words)
    assert await place.volumes() == []
