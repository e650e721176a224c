"""What real nodes never format and what they say of it; how many volumes fit, and their metrics."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shlex
from collections.abc import AsyncIterator

import aiohttp
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from provisioner.sandbox.chapters import in_tree
from provisioner.sandbox.kubectl import kubectl
from provisioner.sandbox.real_node.node import PLUGIN, RealNode
from tests.cluster import real_pods
from tests.cluster.cluster import CLASSES, CSI_NODES, PVS
from tests.cluster.place import Place
from tests.cluster.real_pods import READ, WRITE, nodes_of, ran
from tests.cluster.together import Together

RESTORED = ("VolumeNotBlank: ", "blkid finds no file system on it", "it was created from snap-")
READ_ONLY = "read-only volumes are never formatted"

pytestmark = pytest.mark.asyncio(loop_scope="module")
together = Together("real_stories")

CSI_DRIVER = "/apis/storage.k8s.io/v1/csidrivers/ebs.csi.aws.com"
EMPTY = 26  # m5.large: 27 with the root volume
PERIOD_S = 10  # the shortest that the API server takes

MIB = 2**20
AT = 600 * MIB
"""Where the database has its bytes: far behind all that a look at the beginning would see."""

DATABASE = b"no file system, and all that somebody has\n" * 50_000


async def a_raw_database(place: Place) -> str:
    """A claim "raw" of mode Block to which a pod has written a database; its volume."""
    await real_pods.a_claim(place, "raw", volumeMode="Block")
    text = DATABASE.split(b"\n")[0].decode()
    write = f"yes '{text}' | head -n 50000 | dd of=/dev/xvdz bs=1M seek=600 conv=fsync"
    await ran(place, "database", write, {}, devices={"/dev/xvdz": "raw"})
    await real_pods.detached(place, "raw")
    volume_id = await real_pods.volume_of(place, "raw")
    assert await real_pods.content_of(place, volume_id, AT, len(DATABASE)) == DATABASE
    return volume_id


async def restored(place: Place, source: str) -> str:
    """A volume that is restored from a snapshot of another, by hand."""
    ec2 = place.cluster.ec2
    snapshot = await asyncio.to_thread(ec2.create_snapshot, VolumeId=source)
    made = await asyncio.to_thread(
        ec2.create_volume,
        AvailabilityZone="us-east-1a",
        SnapshotId=snapshot["SnapshotId"],
        VolumeType="gp3",
    )
    await asyncio.to_thread(ec2.delete_snapshot, SnapshotId=snapshot["SnapshotId"])
    return str(made["VolumeId"])


async def claimed(place: Place, volume_id: str) -> str:
    """A claim "data" of a volume that somebody has made by hand; its persistent volume."""
    name = await place.static_pv(volume_id)
    await place.claim(place.name, volumeName=name)
    await place.bound()
    return name


@together.test
async def test_a_restored_raw_database_is_never_formatted_and_the_pod_says_why(place: Place):
    source = await a_raw_database(place)
    volume_id = await restored(place, source)
    await claimed(place, volume_id)

    await real_pods.start(place, "user", READ)
    await real_pods.said(place, "user", "FailedMount", volume_id, *RESTORED)

    await real_pods.gone(place, "user")
    await real_pods.detached(place)
    assert await real_pods.content_of(place, volume_id, AT, len(DATABASE)) == DATABASE
    assert await real_pods.content_of(place, volume_id, 0, 64 * MIB) == bytes(64 * MIB)


@together.test
async def test_the_command_in_the_refusal_is_what_lets_a_volume_be_formatted(place: Place):
    volume_id = await restored(place, await a_raw_database(place))
    await claimed(place, volume_id)
    await real_pods.start(place, "user", WRITE)
    said = await real_pods.said(place, "user", "FailedMount", "kubectl annotate")
    joined = re.sub(r"\s+", " ", said)
    command = re.search(r"kubectl (annotate .*?yes-erase-[-\w]+)", joined)
    assert command is not None, said

    arguments = shlex.split(command[1].replace("'", "").replace('"', ""))
    await kubectl(place.cluster.sandbox.plane, *arguments)

    written = await real_pods.end_of(place, "user")
    await real_pods.gone(place, "user")
    assert await ran(place, "reader", READ, node=nodes_of(place)[1]) == written


@together.test
async def test_a_read_only_claim_of_a_blank_volume_is_not_formatted(place: Place):
    made = await asyncio.to_thread(
        place.cluster.ec2.create_volume, AvailabilityZone="us-east-1a", Size=1, VolumeType="gp3"
    )
    volume_id = made["VolumeId"]
    name = await place.static_pv(volume_id, accessModes=["ReadOnlyMany"])
    await place.claim(place.name, volumeName=name, accessModes=["ReadOnlyMany"])

    await real_pods.start(place, "user", READ)
    await real_pods.said(place, "user", "FailedMount", volume_id, READ_ONLY)

    await real_pods.gone(place, "user")
    await real_pods.detached(place)
    assert await real_pods.content_of(place, volume_id, 0, 16 * MIB) == bytes(16 * MIB)


@together.test
async def test_the_class_of_the_removed_plugin_keeps_bytes_too(place: Place):
    """The class and the claim of the worked example; the pod has an image of ours."""
    made_class, claim, _ = yaml.safe_load_all(in_tree._EXAMPLE)
    name = f"{place.name}-{made_class['metadata']['name']}"
    await place.api.create(CLASSES, made_class | {"metadata": {"name": name}})
    spec = claim["spec"] | {"storageClassName": name}
    await place.api.create(place.claims, claim | {"spec": spec})
    claims = {"/data": "ebs-standard-30g"}
    await place.bound("ebs-standard-30g")

    written = await ran(place, "writer", WRITE, claims, node=nodes_of(place)[0])
    assert await ran(place, "reader", READ, claims, node=nodes_of(place)[1]) == written

    pv = await real_pods.detached(place, "ebs-standard-30g")
    volume_id = await real_pods.volume_of(place, "ebs-standard-30g")
    found = await place.api.get(f"{PVS}/{pv}")
    assert "awsElasticBlockStore" in found["spec"]
    await place.remove(f"{place.claims}/ebs-standard-30g")
    await place.remove(f"{PVS}/{pv}")  # the class says Retain
    await asyncio.to_thread(place.cluster.ec2.delete_volume, VolumeId=volume_id)


async def fits(place: Place, node: RealNode, count: int) -> None:
    """Wait until the kubelet has written this count."""

    async def seen() -> bool:
        found = await place.api.get(f"{CSI_NODES}/{node.name}")
        drivers = found["spec"]["drivers"] or ()  # none while the plugin registers anew
        counts = [each["allocatable"]["count"] for each in drivers]
        return bool(counts == [count])

    await place.cluster.until(f"{count} volumes fit on {node.name}", seen, 6 * PERIOD_S)


class Foreign:
    """A volume that somebody attaches to a node past Kubernetes."""

    def __init__(self, place: Place, node: RealNode, device: str) -> None:
        self._ec2 = place.cluster.ec2
        self._node = node.instance
        self._device = device
        self._id = ""

    async def attach(self) -> None:
        made = await asyncio.to_thread(
            self._ec2.create_volume, AvailabilityZone=self._node.zone, Size=1
        )
        self._id = made["VolumeId"]
        await asyncio.to_thread(
            self._ec2.attach_volume,
            VolumeId=self._id,
            InstanceId=self._node.instance_id,
            Device=self._device,
        )

    async def detach(self) -> None:
        await asyncio.to_thread(self._ec2.detach_volume, VolumeId=self._id)
        await asyncio.to_thread(self._ec2.delete_volume, VolumeId=self._id)


@contextlib.asynccontextmanager
async def a_root(place: Place, node: RealNode) -> AsyncIterator[None]:
    """A disk in the place of the root, which real nodes of the sandbox do not show.

    The kubelet asks often enough meanwhile how many volumes fit.
    """
    often = {"spec": {"nodeAllocatableUpdatePeriodSeconds": PERIOD_S}}
    await place.api.patch(CSI_DRIVER, often)
    root = Foreign(place, node, "/dev/sdy")
    await root.attach()
    yield
    await root.detach()


@together.test
async def test_the_count_follows_interfaces_and_foreign_volumes(place: Place):
    node = real_pods.fleet_of(place.cluster.sandbox).nodes[1]
    foreign = Foreign(place, node, "/dev/sdz")
    async with a_root(place, node):
        node.metadata.macs.append("02:00:00:00:00:02")
        await fits(place, node, EMPTY - 1)

        await foreign.attach()
        await fits(place, node, EMPTY - 2)

        node.metadata.macs.pop()
        await foreign.detach()
        await fits(place, node, EMPTY)


@together.test
async def test_volumes_of_ours_are_measured_and_take_no_place_after_a_restart(place: Place):
    node = real_pods.fleet_of(place.cluster.sandbox).nodes[0]
    await real_pods.a_claim(place)
    await real_pods.start(place, "user", f"{WRITE}; sync; sleep 1000", node=node.name)
    await real_pods.is_running(place, "user")

    async def measured() -> dict[str, float] | None:
        found = await series(node, place)
        return found if "device_bytes" in found else None

    found = await place.cluster.until("the volume is measured", measured)
    assert found["device_bytes"] == 2**30
    assert found["unreadable"] == 0

    await place.cluster.background.call(node.restart(PLUGIN))
    foreign = Foreign(place, node, "/dev/sdz")
    async with a_root(place, node):
        await foreign.attach()
        await fits(place, node, EMPTY - 1)

        await foreign.detach()
        await fits(place, node, EMPTY)
    await real_pods.gone(place, "user")


async def series(node: RealNode, place: Place) -> dict[str, float]:
    """What the node plugin shows of the claim "data", by the names without their beginning."""
    url = f"http://{node.probes}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        text = await answer.text()
    beginning = "ebs_provisioner_node_volume_"
    return {
        each.name.removeprefix(beginning): each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
        if each.name.startswith(beginning)
        and (each.labels["namespace"], each.labels["claim"]) == (place.name, "data")
    }
