"""Claims of a StatefulSet on real nodes get other volumes while its pods write (VolumeMove).

EC2 answers as slowly as the real one, so the time for which a pod stops can be told.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from provisioner.model.driver import EBS_DRIVER, IN_TREE_DRIVER
from provisioner.sandbox.installed.archive import read
from provisioner.sandbox.real_node.node import RealNode
from provisioner.sandbox.strict_ec2.world import REAL_DELAYS
from tests.cluster import diaries, real_pods
from tests.cluster.background import Background
from tests.cluster.cluster import NODES, PVS, Cluster, Json
from tests.cluster.diaries import Diaries, Line, longest_pause_s
from tests.cluster.move_restart_stories import pods_held_back
from tests.cluster.move_stories import MOVES, moves_installed
from tests.cluster.place import Place, a_place
from tests.cluster.replicas import installed
from tests.image import checkout
from tests.sandbox import lab

pytestmark = pytest.mark.asyncio(loop_scope="module")

REPLICAS = (0, 1, 2)
MIDDLE, HIGHEST = 1, 2
"""The highest one is the only one that stops when its StatefulSet is scaled down."""

AFTER_IT_S = REAL_DELAYS["create_s"] + REAL_DELAYS["attach_s"]
SNAPSHOT_S = REAL_DELAYS["snapshot_s"]
FINAL_SNAPSHOT_S = SNAPSHOT_S - REAL_DELAYS["snapshot_saves_s"]
UNDISTURBED_S = REAL_DELAYS["detach_s"]
"""Less than any stop could be: a volume is detached for it."""

MOVE_S = 240.0


@pytest.fixture(scope="module")
def two_zones() -> Iterator[Background]:
    yield from real_pods.background(nodes=0, zones=2, real_zones=2, latency="real")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The image of this checkout, whose pods copy files."""
    path = tmp_path_factory.mktemp("image") / "image.tar"
    path.write_bytes(checkout.build().archive.data)
    return path


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(two_zones: Background, archive: Path) -> AsyncIterator[Cluster]:
    sandbox = await installed(two_zones)
    for node in real_pods.fleet_of(sandbox).nodes:
        await two_zones.call(node.import_images(archive))
    copies = f"--copy-image={read(archive).name}"
    watched = real_pods.watched(two_zones, "--volume-moves", copies)
    async with watched as running, moves_installed(running.api), pods_held_back(sandbox):
        yield running


@dataclass(frozen=True)
class Moved:
    """What was seen of one move.

    Attributes:
        old, new: both PersistentVolumes, as they were before and afterwards.
        last, first: the lines around the stop.
        said: by the command.
    """

    old: Json
    new: Json
    last: Line
    first: Line
    said: str

    @property
    def volume_ids(self) -> tuple[str, str]:
        return volume_in(self.old), volume_in(self.new)

    @property
    def stop_s(self) -> float:
        return self.first.at_s - self.last.at_s


def volume_in(pv: Json) -> str:
    if "csi" in pv["spec"]:
        return str(pv["spec"]["csi"]["volumeHandle"])
    return str(pv["spec"]["awsElasticBlockStore"]["volumeID"]).rpartition("/")[2]


@pytest_asyncio.fixture(loop_scope="module")
async def place(cluster: Cluster) -> AsyncIterator[Place]:
    async with a_place(cluster) as opened:
        yield opened
        await forget_moves(opened)


async def forget_moves(place: Place) -> None:
    """Delete the moves, and have the kept volumes deleted with their PersistentVolumes."""
    moves = f"{MOVES}/namespaces/{place.name}/volumemoves"
    for move in (await place.api.get(moves))["items"]:
        await place.remove(f"{moves}/{move['metadata']['name']}")
    for pv in (await place.api.get(PVS))["items"]:
        if pv["spec"].get("claimRef", {}).get("namespace") == place.name:
            policy = {"spec": {"persistentVolumeReclaimPolicy": "Delete"}}
            await place.api.patch(f"{PVS}/{pv['metadata']['name']}", policy)


async def run_move(place: Place, *words: str) -> str:
    """``kubectl ebs move``; what it printed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "provisioner.cli", "ebs", "move", *words),
        *("--kubeconfig", str(place.cluster.sandbox.plane.kubeconfig)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(MOVE_S):
        out, _ = await process.communicate()
    assert process.returncode == 0, out.decode()
    return out.decode()


async def ask_for(place: Place, claim: str, **spec: Any) -> str:
    """Create a VolumeMove of one's own and follow it to its end; what the command printed."""
    body = {
        "apiVersion": "ebs-provisioner.io/v1alpha1",
        "kind": "VolumeMove",
        "metadata": {"name": "by-hand"},
        "spec": {"claimName": claim, **spec},
    }
    await place.api.create(f"{MOVES}/namespaces/{place.name}/volumemoves", body)
    return await run_move(place, "--resume", f"{place.name}/by-hand")


async def moved(
    place: Place, diary: Diaries, replica: int, move: Callable[[str], Awaitable[str]]
) -> Moved:
    """Have a replica's claim moved; nobody loses a line, and the others write on."""
    old, others = await place.bound(diary.claim(replica)), {*REPLICAS} - {replica}
    before = {each: await diary.container(each) for each in others}
    since = {each: diary.acknowledged(each)[-1].number for each in REPLICAS}
    said = await move(diary.claim(replica))
    await diary.goes_on(replica, diary.acknowledged(replica)[-1].number)
    for each in others:
        assert await diary.container(each) == before[each]
        lines = (await diary.read(each))[since[each] - 1 :]
        assert longest_pause_s(lines) < UNDISTURBED_S, diary.pod(each)
        assert lines[-1].at_s - lines[0].at_s > REAL_DELAYS["detach_s"]
    lines = (await diary.read(replica))[since[replica] - 1 :]
    last, first = max(pairwise(lines), key=lambda pair: pair[1].at_s - pair[0].at_s)
    return Moved(old, await place.bound(diary.claim(replica)), last, first, said)


async def show(place: Place, what: str, found: Moved, ec2_s: float) -> None:
    """Print how long the pod stopped, and what EC2 was asked for meanwhile.

    ``ec2_s``: what snapshot, creation and attachment take, and nobody can change.
    """
    told = [f"{what}: no line for {found.stop_s:.1f} s; the goal is {ec2_s:g} + 5 s"]
    now = await place.cluster.control()
    clock_s = time.clock_gettime(time.CLOCK_BOOTTIME) - now["clock_s"]
    made = await place.cluster.volume(found.volume_ids[1]) or {}
    about = {*found.volume_ids, made.get("SnapshotId", "")} - {""}
    calls = [call for each in about for call in await place.cluster.calls(each)]
    for call in sorted(calls, key=lambda call: call["at_s"]):
        at_s = call["at_s"] + clock_s - found.last.at_s
        if not call["action"].startswith("Describe") and 0 < at_s < found.stop_s:
            told.append(f"  {at_s:5.1f} s {call['action']}")
    print("\n".join(told))  # noqa: T201 -- what the run is for


async def same_data(place: Place, found: Moved) -> None:
    """The volume that is kept has the file system and the diary that the new one began with."""
    disks = real_pods.fleet_of(place.cluster.sandbox).disks
    old, new = (disks.content_of(each) for each in found.volume_ids)
    uuids = [await asyncio.to_thread(diaries.uuid_of, each) for each in (old, new)]
    assert uuids[0] == uuids[1] != ""
    await the_old_is_kept(place, found)


async def the_old_is_kept(place: Place, found: Moved) -> None:
    """The old volume ends with the line before the stop, and nobody deletes it."""
    old = real_pods.fleet_of(place.cluster.sandbox).disks.content_of(found.volume_ids[0])
    kept = await asyncio.to_thread(diaries.diary_on, old)
    # The very last line may be on disk without anybody having been told.
    assert kept[-1].number in (found.last.number, found.first.number - 1)
    policy = (await place.api.get(f"{PVS}/{found.old['metadata']['name']}"))["spec"]
    assert policy["persistentVolumeReclaimPolicy"] == "Retain"


async def a_key(cluster: Cluster) -> str:
    """The ARN of a new KMS key."""
    kms = lab.client(cluster.sandbox.ec2_endpoint, service="kms")
    made = await asyncio.to_thread(kms.create_key)
    return str(made["KeyMetadata"]["Arn"])


async def may_be_used(place: Place, node: RealNode, *, by_pods: bool) -> None:
    await place.api.patch(f"{NODES}/{node.name}", {"spec": {"unschedulable": not by_pods}})


async def test_claims_are_converted_moved_shrunk_encrypted_and_brought_back_while_others_write_on(
    place: Place,
):
    here, there = real_pods.fleet_of(place.cluster.sandbox).nodes
    assert here.instance.zone != there.instance.zone
    diary = Diaries(place, (here, there), len(REPLICAS), size="2Gi")
    in_tree = await place.storage_class("in-tree", waits=True, provisioner=IN_TREE_DRIVER)
    await may_be_used(place, there, by_pods=False)
    await diary.start(in_tree)
    await may_be_used(place, there, by_pods=True)

    await the_highest_becomes_csi(place, diary, here)
    await the_highest_goes(place, diary, here, there)
    await the_highest_shrinks(place, diary, there)
    await the_middle_one_is_restarted_encrypted(place, diary, here, there)
    await the_set_becomes_csi(place, diary)
    await the_set_comes_back(place, diary, here)

    left = await asyncio.to_thread(place.cluster.ec2.describe_snapshots, OwnerIds=["self"])
    assert left["Snapshots"] == []
    await diary.stop()


def scaling_down(place: Place, *words: str) -> Callable[[str], Awaitable[str]]:
    """``kubectl ebs move`` of a claim, whose StatefulSet is scaled down."""
    more = (*words, "--scale-down", "--yes")
    return lambda claim: run_move(place, f"pvc/{place.name}/{claim}", *more)


async def the_highest_becomes_csi(place: Place, diary: Diaries, here: RealNode) -> None:
    move = scaling_down(place, "--form", "csi", "--keep-source", "0h")
    found = await moved(place, diary, HIGHEST, move)
    await show(place, "made CSI", found, REAL_DELAYS["attach_s"])
    assert found.old["spec"]["awsElasticBlockStore"]["volumeID"]
    assert found.new["spec"]["csi"]["driver"] == EBS_DRIVER
    assert found.volume_ids[0] == found.volume_ids[1]
    assert found.first.node == here.name


async def the_highest_goes(place: Place, diary: Diaries, here: RealNode, there: RealNode) -> None:
    move = scaling_down(place, "--to-zone", there.instance.zone)
    found = await moved(place, diary, HIGHEST, move)
    await show(place, "moved to another zone", found, FINAL_SNAPSHOT_S + AFTER_IT_S)
    assert "] Warming: " in found.said
    assert (found.last.node, found.first.node) == (here.name, there.name)
    await same_data(place, found)


async def the_highest_shrinks(place: Place, diary: Diaries, there: RealNode) -> None:
    """A pod copies its files to a volume of half the size; ``moved`` has compared each line."""
    move = scaling_down(place, "--size", "1Gi")
    found = await moved(place, diary, HIGHEST, move)
    await show(place, "shrunk", found, AFTER_IT_S)
    assert "a pod copies the files" in found.said
    assert (found.last.node, found.first.node) == (there.name, there.name)
    sizes = [await place.cluster.volume(each) for each in found.volume_ids]
    assert [each and each["Size"] for each in sizes] == [2, 1]
    await the_old_is_kept(place, found)


async def the_middle_one_is_restarted_encrypted(
    place: Place, diary: Diaries, here: RealNode, there: RealNode
) -> None:
    """In one copy: to the other zone, encrypted and no longer in-tree; nobody is scaled."""
    key, before = await a_key(place.cluster), await place.api.get(diary.path)
    to = {"zone": there.instance.zone, "encrypted": True, "kmsKeyId": key, "form": "csi"}
    spec: Json = {"to": to, "consumers": {"policy": "Restart"}, "warm": False}
    found = await moved(place, diary, MIDDLE, lambda claim: ask_for(place, claim, **spec))
    await show(place, "moved and encrypted", found, SNAPSHOT_S + AFTER_IT_S)
    after = await place.api.get(diary.path)
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    assert found.old["spec"]["awsElasticBlockStore"]["volumeID"]
    assert (found.last.node, found.first.node) == (here.name, there.name)
    volume = await place.cluster.volume(found.volume_ids[1])
    assert volume is not None
    assert (volume["Encrypted"], volume["KmsKeyId"]) == (True, key)
    await same_data(place, found)


async def the_set_becomes_csi(place: Place, diary: Diaries) -> None:
    """By one command for all; those that are CSI already are not touched."""
    before = {each: await diary.container(each) for each in (MIDDLE, HIGHEST)}
    await move_set(place, diary, "--form", "csi", "--keep-source", "0h")
    assert {each: await diary.container(each) for each in before} == before
    assert "csi" in (await place.bound(diary.claim(0)))["spec"]


async def the_set_comes_back(place: Place, diary: Diaries, here: RealNode) -> None:
    """One replica after the other; the one that never left is not touched."""
    since = {each: diary.acknowledged(each)[-1].number for each in REPLICAS}
    untouched = await diary.container(0)
    await move_set(place, diary, "--to-zone", here.instance.zone, "--no-warm")
    stops: list[tuple[Line, Line]] = []
    for each in REPLICAS:
        await diary.goes_on(each, diary.acknowledged(each)[-1].number)
        lines = (await diary.read(each))[since[each] - 1 :]
        assert lines[-1].node == here.name
        stops.append(max(pairwise(lines), key=lambda pair: pair[1].at_s - pair[0].at_s))
    told = [f"{first.at_s - last.at_s:.1f} s" for last, first in stops]
    print(f"replicas of a set, no line for: {', '.join(told)}")  # noqa: T201 -- as in ``show``
    assert await diary.container(0) == untouched
    assert stops[HIGHEST][1].at_s < stops[MIDDLE][0].at_s  # it writes before the next one stops


async def move_set(place: Place, diary: Diaries, *words: str) -> None:
    said = await run_move(place, f"sts/{place.name}/{diary.NAME}", *words, "--yes")
    assert f"StatefulSet {place.name}/{diary.NAME} is moved" in said
    for each in REPLICAS:
        await diary.goes_on(each, diary.acknowledged(each)[-1].number)
