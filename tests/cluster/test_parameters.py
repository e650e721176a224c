"""A class's parameters, from the API server to EC2 and to the persistent volume."""

from __future__ import annotations

import pytest

from tests.cluster.cluster import handle_of, token_of
from tests.cluster.place import Place
from tests.cluster.together import Together

pytestmark = pytest.mark.asyncio(loop_scope="module")
together = Together()

EVERY = {
    "type": "GP3",
    "iopsPerGB": "200",
    "allowAutoIOPSPerGBIncrease": "True",
    "allowAutoIOPSIncreaseOnModify": "yes",
    "throughput": "250",
    "volumeInitializationRate": "200",
    "encrypted": "T",
    "fstype": "ext4",
    "BLOCKSIZE": "4096",
    "inodeSize": "512",
    "bytesPerInode": "8192",
    "ext4BigAlloc": "true",
    "ext4ClusterSize": "16384",
    "ext4EncryptionSupport": "true",
    "blockAttachUntilInitialized": "true",
    "blockExpress": "true",
    "tagSpecification_1": "claim={{ .PVCNamespace }}/{{ .PVCName | toUpper }}",
    "tagSpecification_2": "Name={{ .PVName }}",
}


@together.test
async def test_every_parameter_reaches_ec2_or_the_persistent_volume(place: Place):
    name = await place.storage_class(parameters=EVERY, mountOptions=["noatime"])
    await place.claim(name, resources={"requests": {"storage": "20Gi"}})

    pv = await place.bound()

    volume = await place.cluster.volume(handle_of(pv))
    assert volume is not None
    assert (volume["VolumeType"], volume["Size"], volume["Encrypted"]) == ("gp3", 20, True)
    assert (volume["Iops"], volume["Throughput"]) == (4_000, 250)
    tags = {each["Key"]: each["Value"] for each in volume["Tags"]}
    assert tags["claim"] == f"{place.name}/DATA"
    assert tags["Name"] == pv["metadata"]["name"]
    assert tags["ebs.csi.aws.com/IOPSPerGb"] == "200"
    assert tags["ebs.csi.aws.com/AllowAutoIOPSIncreaseOnModify"] == "true"
    assert pv["spec"]["mountOptions"] == ["noatime"]
    assert pv["spec"]["csi"]["fsType"] == "ext4"
    attributes = pv["spec"]["csi"]["volumeAttributes"]
    attributes.pop("storage.kubernetes.io/csiProvisionerIdentity")
    assert attributes == {
        "blocksize": "4096",
        "inodesize": "512",
        "bytesperinode": "8192",
        "ext4bigalloc": "true",
        "ext4clustersize": "16384",
        "ext4encryptionsupport": "true",
        "blockattachuntilinitialized": "true",
    }


@together.test
async def test_a_template_that_fails_for_one_claim_refuses_that_one_alone(place: Place):
    tag = 'team={{ .PVCName | field "-" 1 }}'
    name = await place.storage_class(parameters={"type": "gp3", "tagSpecification_1": tag})
    claim = await place.claim(name)
    await place.claim(name, "data-shop")

    await place.told("tag 'team'", "'data' has no part number 1")
    pv = await place.bound("data-shop")

    assert await place.cluster.calls(token_of(claim)) == []
    volume = await place.cluster.volume(handle_of(pv))
    assert volume is not None
    assert {"Key": "team", "Value": "shop"} in volume["Tags"]
