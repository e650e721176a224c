"""Snapshots without what a cluster needs for them, in a control plane that begins with none of it.

One after the other in one namespace; no controller runs, for none of this is its part.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import yaml

from provisioner.sandbox import snapshots
from provisioner.sandbox.api import Api
from provisioner.sandbox.programs import SNAPSHOT_CRDS
from provisioner.sandbox.up import Sandbox
from tests.cluster import copies, snapshot_hands
from tests.cluster.background import Background
from tests.cluster.broken import looking
from tests.cluster.broken.record import Broken, Matrix, Section
from tests.cluster.cluster import Cluster
from tests.cluster.place import Place, a_place

matrix = Matrix(Section.SNAPSHOT)
broken = matrix.broken

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_MINUTE_S = 61.0
"""``doctor`` gives a snapshot-controller a minute."""
_KIND_GOES_S = 300.0
"""The API server empties a kind first, and pauses twice as long after each failure; on a machine
that four processes of tests used, one was there after 90 s (2026-11-30)."""


async def told(ways: list[Broken]) -> dict[str, looking.Said]:
    """Look at each way with both commands; what they say, by ``what``."""
    if not ways:
        return {}
    started = Sandbox.start(
        nodes=1, zones=1, latency="none", throttle="none", controller=False, snapshots=False
    )
    background = Background(started)
    await asyncio.to_thread(background.__enter__)
    try:
        plane = background.sandbox.plane
        admin = plane.credentials.tokens["admin"]
        async with (
            Api(plane.server, plane.credentials.authority, admin) as api,
            a_place(Cluster(background, api)) as place,
        ):
            return {each.what: await looking.said(place, each) for each in ways}
    finally:
        await asyncio.to_thread(background.__exit__)


@broken("The snapshot CRDs are not installed", "SnapshotCrdsMissing", check="snapshot-crds")
@asynccontextmanager
async def no_kinds(place: Place) -> AsyncIterator[str]:
    await place.claim(await place.storage_class(), "copy", **copies.of_snapshot("monday"))
    yield "snapshot monday"
    await place.remove(f"{place.claims}/copy")


@broken("The snapshot CRDs are of an old version", "SnapshotCrdsMissing", check="snapshot-crds")
@asynccontextmanager
async def old_kinds(place: Place) -> AsyncIterator[str]:
    """As external-snapshotter had them before v4: v1beta1 only."""
    file = place.cluster.sandbox.plane.binaries / SNAPSHOT_CRDS
    found = await asyncio.to_thread(lambda: [*yaml.safe_load_all(file.read_text())])
    paths = []
    for crd in filter(None, found):
        [now] = [each for each in crd["spec"]["versions"] if each["name"] == "v1"]
        crd["spec"]["versions"] = [{**now, "name": "v1beta1"}]
        await place.api.create(_CRDS, crd)
        paths.append(f"{_CRDS}/{crd['metadata']['name']}")

    async def is_known() -> bool:
        return await place.cluster.get("/apis/snapshot.storage.k8s.io/v1beta1") is not None

    await place.cluster.until("v1beta1 is served", is_known)
    yield "snapshot monday"
    for path in paths:
        await place.api.delete(path)
    for path in paths:
        await place.is_gone(path, _KIND_GOES_S)


@broken("No snapshot-controller runs", "SnapshotControllerMissing", check="snapshot-controller")
@asynccontextmanager
async def no_controller(place: Place) -> AsyncIterator[str]:
    await snapshots.define(place.api, place.cluster.sandbox.plane.binaries)
    await place.claim(await place.storage_class("source"))
    async with snapshot_hands.a_class(place):
        await snapshot_hands.take(place)
        await asyncio.sleep(_MINUTE_S)
        yield "snapshot monday"
        await place.api.delete(f"{copies.snapshots_of(place)}/monday")
