"""A cluster that gets the kinds of snapshots while we work; a control plane of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from provisioner.sandbox.up import Sandbox
from tests.cluster import copies
from tests.cluster.background import Background
from tests.cluster.cluster import Cluster, Json, opened
from tests.cluster.copies import CONTENTS, snapshots_in_ec2, snapshots_of
from tests.cluster.place import Place, a_place
from tests.cluster.snapshot_hands import a_class, a_source, take

pytestmark = pytest.mark.asyncio(loop_scope="module")
LATE_S = 90.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster() -> AsyncIterator[Cluster]:
    start = Sandbox.start(
        nodes=3, zones=3, latency="none", throttle="none", controller=False, snapshots=False
    )
    with Background(start) as background:
        async with opened(background) as running:
            yield running


async def test_snapshots_begin_when_their_kinds_are_installed(cluster: Cluster):
    async with a_place(cluster) as place:
        assert len(cluster.said("does not serve a kind", "VolumeSnapshotContent")) == 1
        volume_id = await a_source(place)  # everything else works

        await cluster.background.call(cluster.sandbox.plane.start_snapshots())

        await cluster.until("it follows them", lambda: _said(cluster, "serves a kind now"), LATE_S)
        async with a_class(place):
            await take(place)
            await content_of(place)
            await copies.ready(place)

            assert len(await snapshots_in_ec2(place, volume_id)) == 1
            await place.remove(f"{snapshots_of(place)}/monday")


async def _said(cluster: Cluster, *words: str) -> bool:
    return bool(await asyncio.to_thread(cluster.said, *words))


async def content_of(place: Place) -> Json:
    """What snapshot-controller, which has just begun as well, makes of the snapshot."""
    uid = (await place.api.get(f"{snapshots_of(place)}/monday"))["metadata"]["uid"]

    async def seen() -> Json | None:
        return await place.cluster.get(f"{CONTENTS}/snapcontent-{uid}")

    return await place.cluster.until("snapshot-controller has made a content", seen, LATE_S)
