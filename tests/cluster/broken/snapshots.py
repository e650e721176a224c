"""Snapshots that do not become ready."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.cluster import copies, growing, snapshot_hands
from tests.cluster.broken.record import Matrix, Section
from tests.cluster.copies import snapshots_of
from tests.cluster.place import Place

matrix = Matrix(Section.SNAPSHOT)
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
