"""Snapshots that another process has begun: the stock sidecar, or one of ours."""

from __future__ import annotations

import pytest

from tests.cluster import copies, epochs, stock
from tests.cluster.cluster import Cluster, Json
from tests.cluster.copies import CONTENTS, snapshots_in_ec2, snapshots_of
from tests.cluster.place import Place, a_place
from tests.cluster.snapshot_hands import a_class, a_source, make_ec2_snapshot, take

pytestmark = pytest.mark.asyncio(loop_scope="module")
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
BEING_CREATED = {"snapshot.storage.kubernetes.io/volumesnapshot-being-created": "yes"}


async def content_of(place: Place, uid: str) -> Json:
    async def seen() -> Json | None:
        return await place.cluster.get(f"{CONTENTS}/snapcontent-{uid}")

    return await place.cluster.until("snapshot-controller has made a content", seen)


@pytest.mark.parametrize(
    ("annotated", "by_stock"),
    [(True, True), (False, True), (True, False)],
    ids=["stock was cut off", "stock heard nothing", "ours was cut off"],
)
async def test_a_snapshot_that_was_begun_before_us_is_ours_now(
    cluster: Cluster, *, annotated: bool, by_stock: bool
):
    async with a_place(cluster) as place:
        volume_id = await a_source(place)
        await cluster.stop()
        async with a_class(place):
            uid = await take(place)
            content = await content_of(place, uid)
            name = {"CSIVolumeSnapshotName": f"snapshot-{uid}", "ebs.csi.aws.com/cluster": "true"}
            begun = await make_ec2_snapshot(place, volume_id, name)
            if annotated:
                path = f"{CONTENTS}/{content['metadata']['name']}"
                await place.api.patch(path, {"metadata": {"annotations": BEING_CREATED}})
            await (stock.forget if by_stock else epochs.of_ours)(place.api)
            await cluster.start()

            assert await copies.id_of(place) == begun
            assert await snapshots_in_ec2(place, volume_id) == [begun]
            ready = await copies.ready(place)
            assert not BEING_CREATED.keys() & ready["metadata"].get("annotations", {}).keys()
            await place.remove(f"{snapshots_of(place)}/monday")
