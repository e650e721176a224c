"""Which instance this is and what it has, from its metadata service or its Node object."""

import asyncio

import pytest

from provisioner.model.errors import NodeError, Reason
from provisioner.node.instance.metadata import Imds, Metadata
from provisioner.node.runtime.sysfs import SystemDirs
from provisioner.sandbox.real_node.imds import InstanceMetadata, serving

pytest_plugins = ("tests.node.kube_fixtures",)

ARN = "arn:aws:outposts:us-east-1:123456789012:outpost/op-0123456789abcdef0"
LABELS = {
    "node.kubernetes.io/instance-type": "c5.xlarge",
    "topology.kubernetes.io/zone": "us-east-1b",
}


@pytest.fixture
def service():
    return InstanceMetadata("i-0a1b", "m5.large", "us-east-1a")


@pytest.fixture
async def imds(service):
    async with serving(service) as url, Imds(url, pauses_s=(0.0,)) as client:
        yield client


@pytest.fixture
def metadata(imds, kube, tmp_path):
    dirs = SystemDirs(sys=tmp_path)
    return Metadata(imds, kube, dirs, wait_s=0.0, poll_s=0.01, ask_again_s=0.0)


def without_imds(kube, tmp_path, wait_s=0.0):
    return Metadata(None, kube, SystemDirs(sys=tmp_path), wait_s=wait_s, poll_s=0.01)


async def test_the_metadata_service_tells(metadata, kube_server):
    identity = await metadata.identity()

    assert (identity.instance_id, identity.instance_type) == ("i-0a1b", "m5.large")
    assert (identity.zone, identity.outpost_arn) == ("us-east-1a", "")
    assert kube_server.asked == []


async def test_an_outpost_is_told(metadata, service):
    service.outpost_arn = ARN

    assert (await metadata.identity()).outpost_arn == ARN


async def test_it_is_asked_once(metadata, service):
    first = await metadata.identity()
    service.instance_id = "i-other"

    assert await metadata.identity() is first


async def test_the_node_object_tells_where_the_service_does_not(metadata, service, kube_server):
    service.is_on = False
    kube_server.has_node(spec={"providerID": "aws:///us-east-1b/i-0c"}, metadata={"labels": LABELS})

    identity = await metadata.identity()

    assert (identity.instance_id, identity.instance_type) == ("i-0c", "c5.xlarge")
    assert identity.zone == "us-east-1b"


async def test_a_node_object_of_an_outpost_keeps_it(kube, kube_server, tmp_path):
    keys = ("region", "partition", "account-id", "outpost-id")
    values = ("us-east-1", "aws", "123456789012", "op-0123456789abcdef0")
    outpost = {f"topology.ebs.csi.aws.com/{key}": v for key, v in zip(keys, values, strict=True)}
    kube_server.has_node(
        spec={"providerID": "aws:///us-east-1b/i-0c"}, metadata={"labels": LABELS | outpost}
    )

    assert (await without_imds(kube, tmp_path).identity()).outpost_arn == ARN


async def test_a_node_object_without_all_of_it_is_waited_for(kube, kube_server, tmp_path):
    kube_server.has_node()
    waiting = asyncio.create_task(without_imds(kube, tmp_path, wait_s=60.0).identity())
    await kube_server.times(3)
    kube_server.has_node(spec={"providerID": "i-0c"}, metadata={"labels": LABELS})

    assert (await waiting).instance_id == "i-0c"


async def test_who_should_set_what_is_missing_is_told(kube, kube_server, tmp_path):
    kube_server.has_node(metadata={"labels": {"topology.kubernetes.io/zone": "us-east-1b"}})

    with pytest.raises(NodeError) as caught:
        await without_imds(kube, tmp_path).identity()

    assert caught.value.reason is Reason.METADATA_UNAVAILABLE
    assert (
        "Node node-1 lacks spec.providerID of an EC2 instance and the label "
        "node.kubernetes.io/instance-type; run a cloud controller manager or our "
        "controller with --initialize-nodes" in caught.value.message
    )


async def test_a_node_object_is_believed_only_until_the_service_answers(
    imds, kube, kube_server, service, tmp_path
):
    """It is that of a machine which had the name before; its plugin must not stay that machine."""
    others = []
    metadata = Metadata(
        imds,
        kube,
        SystemDirs(sys=tmp_path),
        wait_s=0.0,
        ask_again_s=0.0,
        on_other=lambda: others.append(1),
    )
    kube_server.has_node(spec={"providerID": "i-0c"}, metadata={"labels": LABELS})
    service.is_on = False
    before = [(await metadata.identity()).instance_id for _ in range(2)]
    service.is_on = True
    after = [(await metadata.identity()).instance_id for _ in range(2)]

    assert (before, after) == (["i-0c", "i-0c"], ["i-0a1b", "i-0a1b"])
    assert others == [1]


def board(sys, tag):
    folder = sys / "class" / "dmi" / "id"
    folder.mkdir(parents=True)
    (folder / "board_asset_tag").write_text(f"{tag}\n")


async def test_a_node_object_of_another_machine_is_told_by_the_board(
    kube, kube_server, service, imds, tmp_path
):
    kube_server.has_node(
        spec={"providerID": "aws:///us-east-1b/i-0123456789abcdef0"}, metadata={"labels": LABELS}
    )
    board(tmp_path, "i-0fedcba9876543210")

    with pytest.raises(NodeError) as caught:
        await without_imds(kube, tmp_path, wait_s=60.0).identity()

    assert caught.value.reason is Reason.METADATA_UNAVAILABLE
    assert (
        "Node node-1 names i-0123456789abcdef0, but this machine is i-0fedcba9876543210 ("
        in caught.value.message
    )
    told = await Metadata(imds, kube, SystemDirs(sys=tmp_path)).identity()
    assert told.instance_id == service.instance_id


@pytest.mark.parametrize("tag", ["i-0123456789abcdef0", "Not Specified", "", "i-", "i-0/../x"])
async def test_a_board_that_agrees_or_has_no_id_changes_nothing(kube, kube_server, tmp_path, tag):
    spec = {"providerID": "aws:///us-east-1b/i-0123456789abcdef0"}
    kube_server.has_node(spec=spec, metadata={"labels": LABELS})
    board(tmp_path, tag)

    found = await without_imds(kube, tmp_path).identity()

    assert found.instance_id == "i-0123456789abcdef0"


async def test_an_api_server_that_says_no_is_told(kube, tmp_path):
    with pytest.raises(NodeError, match="cannot get nodes node-1"):
        await without_imds(kube, tmp_path).identity()


async def test_interfaces_are_counted_anew_each_time(metadata, service):
    await metadata.identity()
    assert await metadata.interfaces() == 1

    service.macs.append("02:00:00:00:00:02")
    assert await metadata.interfaces() == 2

    service.macs.pop()
    assert await metadata.interfaces() == 1


async def test_while_the_service_is_silent_the_last_number_holds_and_this_is_told_once(
    metadata, service, capsys
):
    service.macs.append("02:00:00:00:00:02")
    await metadata.interfaces()
    service.is_on = False

    assert [await metadata.interfaces() for _ in range(3)] == [2, 2, 2]
    service.is_on = True
    service.macs.append("02:00:00:00:00:03")
    assert await metadata.interfaces() == 3

    said = capsys.readouterr().out
    assert said.count("counting interfaces and volumes without") == 1
    assert said.count("the metadata service answers again") == 1


async def test_a_silent_service_is_not_waited_for_at_each_turn(imds, kube, service, tmp_path):
    metadata = Metadata(imds, kube, SystemDirs(sys=tmp_path), ask_again_s=60.0)
    service.macs.append("02:00:00:00:00:02")
    await metadata.interfaces()
    service.is_on = False
    await metadata.interfaces()
    service.is_on = True
    service.macs.clear()

    assert await metadata.interfaces() == 2


def adapter(sys, name, vendor, device):
    folder = sys / "bus" / "pci" / "devices" / name
    folder.mkdir(parents=True)
    (folder / "vendor").write_text(f"{vendor}\n")
    (folder / "device").write_text(f"{device}\n")


async def test_without_the_service_the_adapters_on_the_bus_are_counted(kube, tmp_path):
    metadata = without_imds(kube, tmp_path)
    assert await metadata.interfaces() == 1

    adapter(tmp_path, "0000:00:03.0", "0x1d0f", "0x8061")  # an EBS controller
    adapter(tmp_path, "0000:00:05.0", "0x1d0f", "0xec20")
    adapter(tmp_path, "0000:00:06.0", "0x1d0f", "0xec20")
    assert await metadata.interfaces() == 2


async def test_a_service_that_comes_later_is_believed(metadata, service, kube_server):
    service.is_on = False
    kube_server.has_node(spec={"providerID": "i-0c"}, metadata={"labels": LABELS})
    await metadata.identity()
    assert await metadata.interfaces() == 1

    service.is_on = True
    service.macs.append("02:00:00:00:00:02")
    assert await metadata.interfaces() == 2


async def test_the_mapping_is_read_once(metadata, service):
    service.block_devices = {"ami": "xvda", "ebs1": "sdf", "ephemeral0": "sdb", "ebs2": "sdg"}
    assert await metadata.mapped_devices() == {"sdf", "sdg"}

    service.block_devices = {}
    assert await metadata.mapped_devices() == {"sdf", "sdg"}


async def test_no_mapping_is_no_device(kube, tmp_path, metadata, service):
    assert await without_imds(kube, tmp_path).mapped_devices() == frozenset()
    service.is_on = False
    assert await metadata.mapped_devices() == frozenset()
    service.is_on = True
    service.block_devices["ebs1"] = "sdf"
    assert await metadata.mapped_devices() == {"sdf"}
