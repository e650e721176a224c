"""A restored volume whose class has blockAttachUntilInitialized, with a real API server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.cluster.background import Background
from tests.cluster.cluster import ATTACHMENTS, Cluster, Json, handle_of, opened
from tests.cluster.copies import a_snapshot, noted, of_snapshot
from tests.cluster.place import Place
from tests.cluster.together import Together

pytestmark = pytest.mark.asyncio(loop_scope="module")
together = Together()
ARRIVES_S = 600.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(background: Background) -> AsyncIterator[Cluster]:
    async with opened(background) as running:
        await running.control(delays={"initialize_s": ARRIVES_S})
        yield running
        await running.control(delays={"initialize_s": 0.0})


async def status_of(place: Place, attachment: str) -> Json:
    found: Json = await place.api.get(f"{ATTACHMENTS}/{attachment}")
    return found.get("status") or {}


@together.test
async def test_a_pod_gets_a_restored_volume_once_all_of_its_data_is_there(place: Place):
    await place.a_volume()
    waits = {"type": "gp3", "blockAttachUntilInitialized": "true"}
    await place.storage_class("waits", parameters=waits)
    async with a_snapshot(place):
        await place.claim(f"{place.name}-waits", "copy", **of_snapshot("monday"))
        pv = await place.bound("copy")
        volume_id, name = handle_of(pv), pv["metadata"]["name"]

        attachment = await place.attachment(name)
        told = await noted(place, volume_id, "all data of snapshot", name="copy")
        assert told["reason"] == "WaitingForInitialization"
        await place.is_requested(volume_id, "DescribeVolumeStatus", times=2)
        status = await status_of(place, attachment)
        assert not status.get("attached")
        assert "attachError" not in status

        await place.remove(f"{ATTACHMENTS}/{attachment}")
        assert len(await place.cluster.calls(volume_id, "DetachVolume")) == 1

        attachment = await place.attachment(name)
        await place.is_requested(volume_id, "AttachVolume", times=2)
        await place.cluster.control(advance_s=ARRIVES_S)
        await place.attached(attachment)

        assert len(await place.cluster.calls(volume_id, "AttachVolume")) == 2
        await place.remove(f"{ATTACHMENTS}/{attachment}")
        await place.remove(f"{place.claims}/copy")
