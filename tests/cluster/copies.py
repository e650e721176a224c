"""What users of copies write and see: snapshots of claims, and claims that are made from others."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from provisioner.sandbox import nodes
from provisioner.sandbox.snapshots import GROUP
from tests.cluster.cluster import PATIENCE_S, Json, handle_of
from tests.cluster.place import Place

API_VERSION = "snapshot.storage.k8s.io/v1"
SNAPSHOT_CLASSES = f"{GROUP}/volumesnapshotclasses"
CONTENTS = f"{GROUP}/volumesnapshotcontents"
ACROSS = {"ebs-provisioner.io/clone-across-zones": "true"}
ZONE_LABEL = "topology.kubernetes.io/zone"


def snapshots_of(place: Place) -> str:
    """The path of the snapshots in the story's namespace."""
    return f"{GROUP}/namespaces/{place.name}/volumesnapshots"


def of_snapshot(name: str) -> Json:
    """``spec`` of a claim that is restored."""
    group = "snapshot.storage.k8s.io"
    return {"dataSource": {"apiGroup": group, "kind": "VolumeSnapshot", "name": name}}


def of_claim(name: str = "data") -> Json:
    """``spec`` of a claim that is cloned."""
    return {"dataSource": {"kind": "PersistentVolumeClaim", "name": name}}


def size(text: str) -> Json:
    """``spec`` of a claim of that size."""
    return {"resources": {"requests": {"storage": text}}}


def in_zones(*zones: str) -> list[Json]:
    """``allowedTopologies`` of a class."""
    return [{"matchLabelExpressions": [{"key": ZONE_LABEL, "values": list(zones)}]}]


@contextlib.asynccontextmanager
async def a_snapshot(place: Place, name: str = "monday", *, of: str = "data") -> AsyncIterator[str]:
    """A snapshot of a claim, ready to use, and deleted at the end; its name."""
    made = {"apiVersion": API_VERSION, "metadata": {"name": place.name}}
    rules = {"driver": nodes.DRIVER, "deletionPolicy": "Delete"}
    if await place.cluster.get(f"{SNAPSHOT_CLASSES}/{place.name}") is None:
        await place.api.create(SNAPSHOT_CLASSES, {**made, "kind": "VolumeSnapshotClass", **rules})
    await take(place, name, of=of)
    await ready(place, name)
    yield name
    await place.remove(f"{snapshots_of(place)}/{name}")
    await place.api.delete(f"{SNAPSHOT_CLASSES}/{place.name}")


async def take(place: Place, name: str, *, of: str) -> None:
    """Ask for a snapshot of a claim."""
    source = {"source": {"persistentVolumeClaimName": of}}
    body = {
        "apiVersion": API_VERSION,
        "kind": "VolumeSnapshot",
        "metadata": {"name": name},
        "spec": {"volumeSnapshotClassName": place.name, **source},
    }
    await place.api.create(snapshots_of(place), body)


async def ready(place: Place, name: str = "monday") -> Json:
    """Wait until a snapshot is ready to use; its content."""

    async def seen() -> Json | None:
        found = await place.cluster.get(f"{snapshots_of(place)}/{name}")
        status = (found or {}).get("status") or {}
        if not status.get("readyToUse"):
            return None
        return await place.cluster.get(f"{CONTENTS}/{status['boundVolumeSnapshotContentName']}")

    return await place.cluster.until(f"snapshot {name} is ready", seen, 60)


async def id_of(place: Place, name: str = "monday") -> str:
    """The EBS snapshot behind a snapshot."""
    return str((await ready(place, name))["status"]["snapshotHandle"])


async def finalizers(place: Place, path: str) -> list[str]:
    """Those of external-provisioner on an object."""
    found = await place.cluster.get(path) or {"metadata": {}}
    names = found["metadata"].get("finalizers", [])
    return [each for each in names if each.startswith("provisioner.storage.kubernetes.io/")]


async def volume_of(place: Place, name: str, timeout_s: float = PATIENCE_S) -> Json:
    """Wait until a claim is bound; its volume as EC2 shows it."""
    pv = await place.bound(name, timeout_s)
    volume = await place.cluster.volume(handle_of(pv))
    assert volume is not None
    return volume


async def noted(place: Place, *words: str, name: str) -> Json:
    """Wait for a Normal event about a claim that holds all of these words."""

    async def event() -> Json | None:
        told = [each for each in await place.events(name) if each["type"] == "Normal"]
        return next((e for e in told if all(word in e["message"] for word in words)), None)

    return await place.cluster.until(f"a note with {words}", event)


async def one_event_and_no_volume(place: Place, name: str) -> None:
    """A claim that is looked at again, because it was marked, is not told of twice."""
    path = f"{place.claims}/{name}"
    before = len(await place.events(name))
    for number in range(2):
        await place.api.patch(path, {"metadata": {"annotations": {"story": str(number)}}})
    uid = (await place.api.get(path))["metadata"]["uid"]
    assert await place.cluster.volumes_tagged("CSIVolumeName", f"pvc-{uid}") == []
    assert len(await place.events(name)) == before


async def snapshots_in_ec2(place: Place, volume_id: str) -> list[str]:
    """The snapshots of a volume, as EC2 shows them."""
    wanted: Any = [{"Name": "volume-id", "Values": [volume_id]}]
    found = await asyncio.to_thread(
        place.cluster.ec2.describe_snapshots, OwnerIds=["self"], Filters=wanted
    )
    return [str(each["SnapshotId"]) for each in found["Snapshots"]]
