"""CRDs that go while a replica begins or stands by: whatever does not need them goes on."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from provisioner.controller.shared import caches as caches_module
from provisioner.controller.shared.caches import Caches
from provisioner.kube import resources
from provisioner.kube.client import KubeClient
from provisioner.kube.resources import Resource
from provisioner.kube.wire import Listing
from provisioner.metrics import Metrics
from provisioner.model.errors import KubeError, Reason
from tests.builders import DRIVER
from tests.controller.shared.test_caches import KINDS, SNAPSHOT_KINDS, SlowKube
from tests.snapshot_builders import a_content

FAILURES = [
    KubeError(Reason.REPLY_LOST, "conversion webhook for snapshot.storage.k8s.io failed"),
    KubeError(Reason.FORBIDDEN, "may not list it", status=403),
]


class Kube(SlowKube):
    """An API server whose snapshot CRDs can be deleted; ``broken``: their lists fail."""

    def __init__(self) -> None:
        super().__init__(resources.EVENTS)
        self.broken = False
        self.failures: dict[Resource[Any], KubeError] = {}
        self.contents: list[Any] = []

    async def list(self, resource: Resource[Any], **given: Any) -> Listing[Any]:
        if resource in self.failures:
            raise self.failures[resource]
        if resource is resources.SNAPSHOT_CONTENTS and not self.broken:
            return Listing(self.contents, "1")
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
    async with asyncio.timeout(30):
        await caches.synced()
        kube.delete_crds()

        await caches.refresh()

    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def test_an_older_kubernetes_without_crds_costs_one_line_a_kind_that_names_what_is_left_out():
    kube = Kube()  # as 1.33: it has no VolumeAttributesClasses
    kube.delete_crds()
    caches = Caches(cast("KubeClient", kube), Metrics(), DRIVER)
    with capture_logs() as lines:
        following = asyncio.create_task(caches.run())
        async with asyncio.timeout(30):
            await caches.synced()
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)

    told = {line["kind"]: line for line in lines if "does not serve a kind" in line["event"]}
    assert {line["log_level"] for line in told.values()} == {"info"}
    assert set(told) == {
        "VolumeAttributesClass",
        *("VolumeSnapshot", "VolumeSnapshotContent", "VolumeSnapshotClass"),
    }
    assert "serves the kind as v1 from 1.34 on" in told["VolumeAttributesClass"]["left_out"]
    assert "install the CRDs" in told["VolumeSnapshot"]["left_out"]


@pytest.mark.parametrize(
    "kind", [*SNAPSHOT_KINDS, resources.ATTRIBUTES_CLASSES], ids=lambda kind: kind.plural
)
@pytest.mark.parametrize("failure", FAILURES, ids=["conversion", "rights"])
async def test_an_optional_kind_that_cannot_be_listed_costs_its_own_feature_only(
    monkeypatch: pytest.MonkeyPatch, kind: Resource[Any], failure: KubeError
):
    monkeypatch.setattr(caches_module, "_DISCOVER_AGAIN_S", 0.01)
    monkeypatch.setattr(caches_module, "_OPTIONAL_S", 0.3)
    kube = Kube()
    kube.kinds = tuple({*KINDS, resources.ATTRIBUTES_CLASSES})
    kube.failures[kind] = failure
    caches = Caches(cast("KubeClient", kube), Metrics(), DRIVER)
    following = asyncio.create_task(caches.run())
    with capture_logs() as lines:
        async with asyncio.timeout(30):
            await caches.synced()
        await asyncio.sleep(0.5)  # it is asked for again, and fails again

    told = [line for line in lines if line["log_level"] == "warning"]
    assert [line["event"].partition(";")[0] for line in told] == [
        "cannot watch a kind",
        "cannot list a kind that the API server serves",
    ]
    assert caches.is_synced
    assert caches.has_snapshots is (kind is not resources.VOLUME_SNAPSHOTS)
    await caches.refresh()

    kube.failures.clear()
    async with asyncio.timeout(30):
        await caches._kinds[kind].synced.wait()
    assert caches.has_snapshots
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def test_a_kind_that_is_needed_is_waited_for_however_long_it_cannot_be_listed(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(caches_module, "_DISCOVER_AGAIN_S", 0.01)
    monkeypatch.setattr(caches_module, "_OPTIONAL_S", 0.05)
    kube = Kube()
    kube.failures[resources.ATTACHMENTS] = FAILURES[1]
    caches = Caches(cast("KubeClient", kube), Metrics(), DRIVER)
    following = asyncio.create_task(caches.run())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await caches.synced()

    assert not caches.is_synced
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def test_a_list_that_fails_at_the_takeover_leaves_nothing_old_to_act_on():
    kube = Kube()
    kube.contents = [a_content()]
    caches = Caches(cast("KubeClient", kube), Metrics(), DRIVER)
    following = asyncio.create_task(caches.run())
    async with asyncio.timeout(30):
        await caches.synced()
        assert len(caches.contents.values()) == 1
        kube.broken = True

        await caches.refresh()

        assert not caches.contents.values()
        assert not caches.contents.synced.is_set()
        assert caches.is_synced
        assert caches.persistent_volumes in caches._first  # which it cannot do without
        kube.broken = False
        await caches.contents.synced.wait()

    assert len(caches.contents.values()) == 1
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def test_crds_that_go_before_their_first_list_hold_nobody_up(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(caches_module, "_DISCOVER_AGAIN_S", 0.01)
    kube = HastyKube()
    caches = Caches(cast("KubeClient", kube), Metrics(), DRIVER)
    following = asyncio.create_task(caches.run())
    async with asyncio.timeout(30):
        await caches.synced()

    assert caches.is_synced
    assert caches.claims.synced.is_set()
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
