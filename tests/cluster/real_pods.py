"""What stories of volumes on real nodes write and see: pods that run, and what they tell at their end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import pytest

from provisioner.sandbox.kubectl import kubectl
from provisioner.sandbox.real_node import requirements
from provisioner.sandbox.real_node.file_pods import pod, told
from provisioner.sandbox.real_node.fleet import Fleet
from provisioner.sandbox.real_node.image import POD_IMAGE
from provisioner.sandbox.up import Sandbox
from tests.cluster.background import Background
from tests.cluster.cluster import ATTACHMENTS, CLASSES, PVS, Cluster, Json, opened
from tests.cluster.place import Place

POD_S = 90.0
"""Two cores shared with others; a pod with a new volume takes five seconds on idle ones."""

LATE_POD_S = 240.0
"""A kubelet looks after a volume that it waits for again after at most 2 min 2 s (Kubernetes
1.37, durationBeforeRetry of nestedpendingoperations): a pod that found it elsewhere comes late."""

READ = "sha256sum /data/file > /dev/termination-log"
WRITE = f"dd if=/dev/urandom of=/data/file bs=1M count=20 2>/dev/null && {READ}"


def background(**options: Any) -> Iterator[Background]:
    """A sandbox with two real nodes in one zone, or what options make of it; a fixture's body."""
    if why := requirements.missing():
        pytest.skip(why)
    usual: dict[str, Any] = {
        "nodes": 1,
        "zones": 1,
        "real_nodes": 2,
        "latency": "none",
        "throttle": "none",
    }
    with Background(Sandbox.start(controller=False, **(usual | options))) as running:
        yield running


@contextlib.asynccontextmanager
async def watched(running: Background, *options: str) -> AsyncIterator[Cluster]:
    """The controller, and at the end a look at what no story may have done to anybody's data."""
    async with opened(running, *options) as cluster:
        yield cluster
    assert [str(each) for each in fleet_of(running.sandbox).disks.torn] == []


def fleet_of(sandbox: Sandbox) -> Fleet:
    """The real nodes and their disks."""
    assert sandbox.fleet is not None
    return sandbox.fleet


def nodes_of(place: Place) -> list[str]:
    """The names of the real nodes."""
    return [each.name for each in fleet_of(place.cluster.sandbox).nodes]


async def a_claim(place: Place, name: str = "data", file_system: str = "ext4", **spec: Any) -> None:
    """A claim of a class for a file system, whose volume is made where its first pod runs."""
    if await place.cluster.get(f"{CLASSES}/{place.name}-{file_system}") is None:
        await place.storage_class(
            file_system,
            waits=True,
            parameters={"type": "gp3", "csi.storage.k8s.io/fstype": file_system},
            allowVolumeExpansion=True,
        )
    await place.claim(f"{place.name}-{file_system}", name, **spec)


async def start(
    place: Place, name: str, script: str, claims: Mapping[str, str] | None = None, **changes: Any
) -> Json:
    """Make a pod on a real node; by default with the claim "data" at /data."""
    claims = {"/data": "data"} if claims is None else claims
    node = changes.pop("node", nodes_of(place)[0])
    body = pod(name, script, claims, image=POD_IMAGE, node=node, **changes)
    made: Json = await place.api.create(place.pods, body)
    return made


async def end_of(place: Place, name: str, timeout_s: float = POD_S) -> str:
    """Wait until a pod has succeeded; what it told."""
    path = f"{place.pods}/{name}"

    async def seen() -> tuple[str] | None:
        message = told(await place.api.get(path))
        return None if message is None else (message,)

    try:
        [message] = await place.cluster.until(f"pod {name} has succeeded", seen, timeout_s)
    except AssertionError as error:
        raise AssertionError(f"{await describe(place, name)}\n{error}") from error
    return message


async def ran(
    place: Place, name: str, script: str, claims: Mapping[str, str] | None = None, **changes: Any
) -> str:
    """Run a pod to its end and delete it; what it told."""
    await start(place, name, script, claims, **changes)
    message = await end_of(place, name)
    await gone(place, name)
    return message


async def is_running(place: Place, name: str) -> Json:
    """Wait until a pod's container runs; the pod."""

    async def seen() -> Json | None:
        found = await place.api.get(f"{place.pods}/{name}")
        states = found["status"].get("containerStatuses") or ()
        return found if any("running" in each["state"] for each in states) else None

    try:
        return await place.cluster.until(f"pod {name} runs", seen, POD_S)
    except AssertionError as error:
        raise AssertionError(f"{await describe(place, name)}\n{error}") from error


async def gone(place: Place, name: str) -> None:
    """Delete a pod and wait until it is gone."""
    await place.api.delete(f"{place.pods}/{name}", gracePeriodSeconds="1")
    await place.is_gone(f"{place.pods}/{name}", POD_S)


async def detached(place: Place, claim: str = "data") -> str:
    """Wait until a claim's volume is on no node, nor in the way of leaving it; its PV."""
    found = await place.api.get(f"{place.claims}/{claim}")
    name = str(found["spec"]["volumeName"])
    volume_id = await volume_of(place, claim)

    async def seen() -> bool:
        every = (await place.api.get(ATTACHMENTS))["items"]
        gone = all(e["spec"]["source"].get("persistentVolumeName") != name for e in every)
        return gone and volume_id not in fleet_of(place.cluster.sandbox).disks.in_use

    await place.cluster.until(f"{name} is detached", seen, POD_S)
    return name


async def volume_of(place: Place, claim: str = "data") -> str:
    """The id of a bound claim's volume, in either form of a persistent volume."""
    found = await place.api.get(f"{place.claims}/{claim}")
    spec = (await place.api.get(f"{PVS}/{found['spec']['volumeName']}"))["spec"]
    if "csi" in spec:
        return str(spec["csi"]["volumeHandle"])
    return str(spec["awsElasticBlockStore"]["volumeID"]).rpartition("/")[2]


async def describe(place: Place, name: str) -> str:
    """``kubectl describe pod``."""
    plane = place.cluster.sandbox.plane
    return await kubectl(plane, "describe", "pod", name, "--namespace", place.name)


async def said(place: Place, name: str, *words: str, timeout_s: float = POD_S) -> str:
    """Wait until ``kubectl describe pod`` holds all of these words; what it printed."""

    async def seen() -> str:
        text = await describe(place, name)
        return text if all(word in text for word in words) else ""

    return await place.cluster.until(f"{name}: {words}", seen, timeout_s)


async def content_of(place: Place, volume_id: str, offset: int, length: int) -> bytes:
    """Bytes of a volume that no machine has."""
    path = fleet_of(place.cluster.sandbox).disks.content_of(volume_id)

    def read() -> bytes:
        with path.open("rb") as content:
            content.seek(offset)
            return content.read(length)

    return await asyncio.to_thread(read)
