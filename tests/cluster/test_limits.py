"""More IOPS than the region gives, and a full quota: through a real API server, to the user."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.cluster.background import Background
from tests.cluster.cluster import Cluster, handle_of, opened
from tests.cluster.place import Place, a_place

pytestmark = pytest.mark.asyncio(loop_scope="module")

CEILING = 20_000
GREEDY = {"type": "gp3", "iops": "90000"}
LARGE = {"requests": {"storage": "1000Gi"}}
CLAIMS = [f"data-{number}" for number in range(5)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(background: Background) -> AsyncIterator[Cluster]:
    async with opened(background) as running:
        await running.control(iops_ceilings={"gp3": CEILING})
        yield running
        await running.control(iops_ceilings={}, quotas={})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(cluster: Cluster) -> AsyncIterator[Place]:
    async with a_place(cluster) as found:
        yield found


async def test_claims_above_the_regions_ceiling_get_what_it_gives_for_one_dry_run(place: Place):
    name = await place.storage_class("greedy", parameters=GREEDY)
    for claim in CLAIMS:
        await place.claim(name, claim, resources=LARGE)

    made = [handle_of(await place.bound(claim)) for claim in CLAIMS]

    volumes = [await place.cluster.volume(each) for each in made]
    assert [volume["Iops"] for volume in volumes if volume] == [CEILING] * len(CLAIMS)
    for claim in CLAIMS:
        told = await place.told("IopsCapped", "requests 90000", f"gets {CEILING}", name=claim)
        assert told["reason"] == "Provisioning"
    [tried] = await place.cluster.calls("IopsLimitDryRun", "CreateVolume")
    assert tried["params"]["DryRun"] == "true"
    assert tried["params"].items() >= {"Size": "4", "Iops": str(2**31 - 1)}.items()
    assert "ebs.csi.aws.com/cluster" in tried["params"].values()


async def test_a_full_quota_is_named_with_what_is_in_use(place: Place):
    await place.storage_class("plain")
    await place.cluster.control(quotas={"gib": {"gp3": 0}})

    await place.claim(f"{place.name}-plain", "one-more")

    await place.told("QuotaExceeded", "L-7A658B76", "volumes of this account", name="one-more")
    await place.cluster.control(quotas={})
