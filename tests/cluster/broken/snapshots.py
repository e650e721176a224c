"""Snapshots that do not become ready."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.cluster import copies, growing, snapshot_hands
from tests.cluster.broken.record import Matrix
from tests.cluster.copies import snapshots_of
from tests.cluster.place import Place

matrix = Matrix()
broken = matrix.broken


@broken("The snapshot names a snapshot class that does not exist", "SnapshotClassMissing")
@asynccontextmanager
async def no_such_class(place: Place) -> AsyncIterator[str]:
    await snapshot_hands.a_source(place)
    await copies.take(place, "monday", of="data")
    await snapshot_hands.error_of(place, place.name)
    yield "snapshot monday"
    await place.remove(f"{snapshots_of(place)}/monday")


@broken("The claim that the snapshot is of does not exist", "SourceMissing")
@asynccontextmanager
async def no_such_claim(place: Place) -> AsyncIterator[str]:
    async with snapshot_hands.a_class(place):
        await copies.take(place, "monday", of="nowhere")
        await growing.told(place, "", "cannot get claim", name="monday")
        yield "snapshot monday"
        await place.remove(f"{snapshots_of(place)}/monday")


@broken("The EBS snapshot was deleted by hand", "SnapshotNotFound")
@asynccontextmanager
async def snapshot_is_gone(place: Place) -> AsyncIterator[str]:
    """A content that names it was made after that, as a restored backup does."""
    volume_id = await snapshot_hands.a_source(place)
    snapshot_id = await snapshot_hands.make_ec2_snapshot(place, volume_id, {})
    await snapshot_hands.delete_ec2_snapshot(place, snapshot_id)
    await snapshot_hands.give(place, snapshot_id)
    await _told_of_content(place, snapshot_id)
    yield "snapshot given"
    await place.remove(f"{snapshots_of(place)}/given")


async def _told_of_content(place: Place, words: str) -> None:
    """Wait for an event about the story's content, which is kept in default."""

    async def seen() -> bool:
        path = "/api/v1/namespaces/default/events"
        found = await place.api.get(path, fieldSelector=f"involvedObject.name={place.name}")
        return any(words in each["message"] for each in found["items"])

    await place.cluster.until(f"an event with {words}", seen)
