"""Volumes that were there before an option in a cluster: their extra tags, and their costs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import aiohttp
import pytest
from botocore.exceptions import ClientError

from provisioner.model.names import UNCLAIMED
from tests.cluster.background import Background
from tests.cluster.cluster import Cluster, handle_of, opened
from tests.cluster.hands import tag_list, tags_of
from tests.cluster.place import Place, a_place

OPTIONS = (
    "--extra-tags",
    "team=storage,for={{ .PVCName }}",
    "--reconcile-extra-tags",
    "--volume-costs",
)


@pytest.fixture
async def place(background: Background) -> AsyncIterator[Place]:
    async with opened(background) as running, a_place(running) as found:
        yield found


@contextlib.asynccontextmanager
async def by_hand(cluster: Cluster, has: dict[str, str]) -> AsyncIterator[str]:
    """A volume that no controller of this test has made; its id."""
    asked = {"AvailabilityZone": "us-east-1a", "Size": 1, "VolumeType": "gp3"}
    made = await asyncio.to_thread(
        cluster.ec2.create_volume, **asked, TagSpecifications=tag_list(has)
    )
    yield made["VolumeId"]
    with contextlib.suppress(ClientError):
        await asyncio.to_thread(cluster.ec2.delete_volume, VolumeId=made["VolumeId"])


async def tags_in_ec2(place: Place, volume_id: str) -> dict[str, str]:
    volume = await place.cluster.volume(volume_id)
    assert volume is not None
    return tags_of(volume)


async def has(place: Place, volume_id: str, wanted: dict[str, str]) -> None:
    async def seen() -> bool:
        return await tags_in_ec2(place, volume_id) == wanted

    await place.cluster.until(f"{volume_id} has {wanted}", seen)


async def costs(place: Place) -> dict[str, str]:
    """What the controller shows of this place's volumes, by their claims."""
    url = f"http://{place.cluster.probes}/metrics"
    async with aiohttp.ClientSession() as http, http.get(url) as answer:
        lines = (await answer.text()).splitlines()
    ours = [
        line
        for line in lines
        if line.startswith("ebs_provisioner_volume_usd_per_month{")
        and f'namespace="{place.name}"' in line
    ]
    return {line.partition('claim="')[2].partition('"')[0]: line.split()[-1] for line in ours}


async def test_volumes_that_were_there_get_what_they_lack_and_others_keep_what_they_have(
    place: Place,
):
    cluster = place.cluster
    ours = handle_of(await place.a_volume())
    before = await tags_in_ec2(place, ours)
    before.pop(UNCLAIMED, None)  # comes off at about this time
    of_stock = {"CSIVolumeName": f"{place.name}-stock", "ebs.csi.aws.com/cluster": "true"}
    name = {"CSIVolumeName": f"{place.name}-settled"}
    chosen = {**of_stock, **name, "team": "chosen by somebody", "for": "them"}
    async with (
        by_hand(cluster, of_stock) as stocks,
        by_hand(cluster, chosen) as settled,
        by_hand(cluster, {"Name": "static"}) as static,
    ):
        await place.static_pv(static)
        await place.static_pv(settled, "settled")
        await place.static_pv(stocks, "stock")
        await cluster.control(reset_counts=True)
        await cluster.stop(grace_s=10)

        await cluster.start(*OPTIONS)

        await has(place, ours, {**before, "team": "storage", "for": "data"})
        await has(place, stocks, {**of_stock, "team": "storage"})  # it has no claim to name
        assert await tags_in_ec2(place, static) == {"Name": "static"}
        assert await tags_in_ec2(place, settled) == chosen

        async def seen() -> bool:
            return await costs(place) == {"data": "0.08"}  # 1 GiB of gp3

        await cluster.until("the claim has a cost", seen)
