"""CRDs that go while a replica begins or stands by: whatever does not need them goes on."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from provisioner.kube import resources
from provisioner.kube.client import KubeClient
from provisioner.kube.resources import Resource
from provisioner.kube.wire import Listing
from provisioner.metrics import Metrics
from provisioner.model.errors import KubeError, Reason
from provisioner.reconcile import caches as caches_module
from provisioner.reconcile.caches import Caches
from tests.builders import DRIVER
from tests.reconcile.test_caches import KINDS, SNAPSHOT_KINDS, SlowKube


class Kube(SlowKube):
    """An API server whose snapshot CRDs can be deleted; ``broken``: their lists fail."""

    def __init__(self) -> None:
        super().__init__(resources.EVENTS)
        self.broken = False

    async def list(self, resource: Resource[Any], **given: Any) -> Listing[Any]:
        if resource not in self.kinds or (self.broken and resource in SNAPSHOT_KINDS):
            raise KubeError(Reason.REJECTED, "404 page not found", status=404)
        return await super().list(resource, **given)

    def delete_crds(self) -> None:
        self.kinds = tuple(kind for kind in KINDS if kind not in SNAPSHOT_KINDS)


class HastyKube(Kube):
    """The CRDs go right after the first discovery."""

    async def served(self) -> frozenset[tuple[str, str]]:
        found = await super().served()
        self.delete_crds()
        return found


async def test_a_standby_takes_over_though_the_crds_went_meanwhile():
    kube = Kube()
    caches = Caches(cast("KubeClient", kube), Metrics(), DRIVER)
    following = asyncio.create_task(caches.run())
    async with asyncio.timeout(5):
        await caches.synced()
        kube.delete_crds()

        await caches.refresh()

    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def test_a_list_that_fails_of_a_kind_that_is_served_keeps_us_from_taking_over():
    kube = Kube()
    caches = Caches(cast("KubeClient", kube), Metrics(), DRIVER)
    following = asyncio.create_task(caches.run())
    async with asyncio.timeout(5):
        await caches.synced()
        kube.broken = True

        with pytest.raises(KubeError):
            await caches.refresh()

    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def test_crds_that_go_before_their_first_list_hold_nobody_up(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(caches_module, "_DISCOVER_AGAIN_S", 0.01)
    kube = HastyKube()
    caches = Caches(cast("KubeClient", kube), Metrics(), DRIVER)
    following = asyncio.create_task(caches.run())
    async with asyncio.timeout(5):
        await caches.synced()

    assert caches.is_synced
    assert caches.claims.synced.is_set()
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
