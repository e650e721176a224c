"""What real nodes never format, what they say of it, and what an administrator does then."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
import yaml

from provisioner.sandbox.chapters import in_tree
from provisioner.sandbox.kubectl import kubectl
from tests.cluster import real_pods
from tests.cluster.background import Background
from tests.cluster.cluster import CLASSES, PVS, Cluster
from tests.cluster.place import Place
from tests.cluster.real_pods import READ, WRITE, nodes_of, ran
from tests.cluster.together import Stories, Together

RESTORED = ("VolumeNotBlank: ", "blkid finds no file system on it", "it was made from snap-")
READ_ONLY = "a volume asked for read-only is never formatted"

pytestmark = pytest.mark.asyncio(loop_scope="module")
together = Together()

MIB = 2**20
AT = 600 * MIB
"""Where the database has its bytes: far behind all that a look at the beginning would see."""

DATABASE = b"no file system, and all that somebody has\n" * 50_000


@pytest.fixture(scope="module")
def real() -> Iterator[Background]:
    yield from real_pods.background()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(real: Background) -> AsyncIterator[Cluster]:
    async with real_pods.watched(real) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stories(cluster: Cluster, request: pytest.FixtureRequest) -> AsyncIterator[Stories]:
    async with together.started(cluster, request) as running:
        yield running


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
    claims = {"/data": "myclaim"}
    await place.bound("myclaim")

    written = await ran(place, "writer", WRITE, claims, node=nodes_of(place)[0])
    assert await ran(place, "reader", READ, claims, node=nodes_of(place)[1]) == written

    pv = await real_pods.detached(place, "myclaim")
    volume_id = await real_pods.volume_of(place, "myclaim")
    found = await place.api.get(f"{PVS}/{pv}")
    assert "awsElasticBlockStore" in found["spec"]
    await place.remove(f"{place.claims}/myclaim")
    await place.remove(f"{PVS}/{pv}")  # the class says Retain
    await asyncio.to_thread(place.cluster.ec2.delete_volume, VolumeId=volume_id)
