"""A controller that may not read snapshots: all else works, and snapshots do once it may."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from provisioner.sandbox.api import Api
from tests.cluster import copies
from tests.cluster.background import Background
from tests.cluster.cluster import Cluster, Json, opened
from tests.cluster.copies import snapshots_in_ec2
from tests.cluster.place import a_place
from tests.cluster.snapshot_hands import a_class, a_source, take

pytestmark = pytest.mark.asyncio(loop_scope="module")
ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/ebs-provisioner-controller"
LATE_S = 120.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def rules(background: Background) -> AsyncIterator[list[Json]]:
    """The controller's rights, without those to snapshots for as long as the module lasts."""
    if background.sandbox.controller_kubeconfig is None:
        await background.call(background.sandbox.install_controller())
    plane = background.sandbox.plane
    async with Api(
        plane.server, plane.credentials.authority, plane.credentials.tokens["admin"]
    ) as api:
        every: list[Json] = (await api.get(ROLE))["rules"]
        left = [each for each in every if each.get("apiGroups") != ["snapshot.storage.k8s.io"]]
        await api.patch(ROLE, {"rules": left})
        try:
            yield every
        finally:
            await api.patch(ROLE, {"rules": every})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(background: Background, rules: list[Json]) -> AsyncIterator[Cluster]:
    async with opened(background) as running:
        yield running


async def test_rights_that_are_missing_for_snapshots_cost_snapshots_only(
    cluster: Cluster, rules: list[Json]
):
    async with a_place(cluster) as place:
        volume_id = await a_source(place)
        assert len(cluster.said("cannot list a kind", "VolumeSnapshotContent")) == 1

        await cluster.api.patch(ROLE, {"rules": rules})

        async def followed() -> bool:
            return bool(
                await asyncio.to_thread(cluster.said, "cache filled", "VolumeSnapshotContent")
            )

        await cluster.until("it follows them", followed, LATE_S)
        async with a_class(place):
            await take(place)
            await copies.ready(place)
            assert len(await snapshots_in_ec2(place, volume_id)) == 1
            await place.remove(f"{copies.snapshots_of(place)}/monday")
