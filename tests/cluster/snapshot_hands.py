"""What users of snapshots write beyond ``copies``, and what they are told."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping

from provisioner.sandbox import nodes
from tests.cluster import copies
from tests.cluster.cluster import PATIENCE_S, Json, handle_of
from tests.cluster.copies import API_VERSION, CONTENTS, SNAPSHOT_CLASSES, in_zones, snapshots_of
from tests.cluster.place import Place


async def a_source(place: Place) -> str:
    """A bound claim "data" in us-east-1a; its volume."""
    await place.claim(await place.storage_class(allowedTopologies=in_zones("us-east-1a")))
    return handle_of(await place.bound())


@contextlib.asynccontextmanager
async def a_class(
    place: Place, parameters: Mapping[str, str] | None = None, policy: str = "Delete"
) -> AsyncIterator[None]:
    """A snapshot class of the story's name, for as long as the story needs it."""
    body = {
        "apiVersion": API_VERSION,
        "kind": "VolumeSnapshotClass",
        "metadata": {"name": place.name},
        "driver": nodes.DRIVER,
        "deletionPolicy": policy,
        "parameters": dict(parameters or {}),
    }
    await place.api.create(SNAPSHOT_CLASSES, body)
    try:
        yield
    finally:
        await place.api.delete(f"{SNAPSHOT_CLASSES}/{place.name}")


async def take(place: Place, name: str = "monday") -> str:
    """Ask for a snapshot of the claim "data"; the UID that its content is named after."""
    await copies.take(place, name, of="data")
    snapshot = await place.api.get(f"{snapshots_of(place)}/{name}")
    return str(snapshot["metadata"]["uid"])


async def give(place: Place, snapshot_id: str, *, policy: str = "Delete") -> None:
    """Make a content of a snapshot that exists, and a VolumeSnapshot "given" of it."""
    made = {"apiVersion": API_VERSION}
    spec = {
        "driver": nodes.DRIVER,
        "deletionPolicy": policy,
        "source": {"snapshotHandle": snapshot_id},
        "volumeSnapshotRef": {"namespace": place.name, "name": "given"},
    }
    kind = {"kind": "VolumeSnapshotContent", "metadata": {"name": place.name}}
    await place.api.create(CONTENTS, {**made, **kind, "spec": spec})
    kind = {"kind": "VolumeSnapshot", "metadata": {"name": "given"}}
    source = {"source": {"volumeSnapshotContentName": place.name}}
    await place.api.create(snapshots_of(place), {**made, **kind, "spec": source})


async def told(place: Place, *words: str, name: str = "monday") -> Json:
    """Wait for an event about a snapshot, by us, that holds all of these words."""

    async def event() -> Json | None:
        return next((e for e in await told_by_us(place, name) if _has(e, words)), None)

    return await place.cluster.until(f"an event with {words}", event)


async def told_by_us(place: Place, name: str = "monday") -> list[Json]:
    """The events about a snapshot that are ours, not snapshot-controller's."""
    path = f"/api/v1/namespaces/{place.name}/events"
    found = await place.api.get(path, fieldSelector=f"involvedObject.name={name}")
    ours = f"csi-snapshotter {nodes.DRIVER}"
    return [each for each in found["items"] if each["source"].get("component") == ours]


def _has(event: Json, words: tuple[str, ...]) -> bool:
    return all(word in event["message"] for word in words)


async def error_of(
    place: Place, *words: str, name: str = "monday", timeout_s: float = PATIENCE_S
) -> Json:
    """Wait until a VolumeSnapshot's status tells of an error with all of these words."""

    async def seen() -> Json | None:
        found = await place.cluster.get(f"{snapshots_of(place)}/{name}")
        error: Json = ((found or {}).get("status") or {}).get("error") or {}
        return error if error and all(w in error["message"] for w in words) else None

    return await place.cluster.until(f"status.error with {words}", seen, timeout_s)


async def ec2_snapshot(place: Place, snapshot_id: str) -> Json | None:
    """A snapshot as EC2 shows it; None when there is none."""
    wanted = [{"Name": "snapshot-id", "Values": [snapshot_id]}]
    found = await asyncio.to_thread(
        place.cluster.ec2.describe_snapshots, OwnerIds=["self"], Filters=wanted
    )
    return next((dict(each) for each in found["Snapshots"]), None)


async def make_ec2_snapshot(place: Place, volume_id: str, tags: Mapping[str, str]) -> str:
    """A snapshot that somebody else takes."""
    given = [{"Key": key, "Value": value} for key, value in tags.items()]
    made = await asyncio.to_thread(
        place.cluster.ec2.create_snapshot,
        VolumeId=volume_id,
        TagSpecifications=[{"ResourceType": "snapshot", "Tags": given}] if given else [],
    )
    return str(made["SnapshotId"])


async def delete_ec2_snapshot(place: Place, snapshot_id: str) -> None:
    """Clear up by hand."""
    await asyncio.to_thread(place.cluster.ec2.delete_snapshot, SnapshotId=snapshot_id)
