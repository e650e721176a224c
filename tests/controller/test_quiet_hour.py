"""An hour in which nothing happens, in virtual time: what the whole controller asks meanwhile."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from typing import Any, cast

import pytest

from provisioner.controller.app import Controller
from provisioner.controller.shared.settings import Settings
from provisioner.kube.client import KubeClient
from provisioner.kube.resources import (
    ATTACHMENTS,
    CLAIMS,
    CSI_NODES,
    NODES,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
    Resource,
)
from provisioner.kube.wire import WatchLine
from provisioner.metrics import Metrics
from provisioner.model.persistent_volume import PROVISIONER_FINALIZER, finalizer_of_attacher
from tests.builders import (
    DRIVER,
    UID,
    a_claim,
    a_class,
    a_csi_node,
    a_node,
    a_persistent_volume,
    a_volume,
    an_attachment,
)
from tests.controller.cloud import Cloud
from tests.controller.full_zones import with_volume
from tests.controller.shared.test_caches import KINDS
from tests.ec2.virtual_time import Clock, in_virtual_time
from tests.kube.behind import Behind

HOUR_S = 3600.0
_SETTLES_S = 600.0


class Kube(Behind):
    """Its watches end when they should, as the API server's do. Counts questions by kind."""

    def __init__(self) -> None:
        super().__init__(serves=KINDS)
        self.counts: Counter[str] = Counter()

    async def list(self, resource: Resource[Any], *, most: int = 0, **more: Any) -> Any:
        self.counts[f"{'page' if most else 'list'} {resource.plural}"] += 1
        return await super().list(resource, most=most, **more)

    async def get(self, resource: Resource[Any], name: str, namespace: str = "") -> Any:
        self.counts[f"get {resource.plural}"] += 1
        return await super().get(resource, name, namespace)

    async def patch(self, resource: Resource[Any], name: str, _: Any, **more: Any) -> Any:
        self.counts[f"patch {resource.plural}"] += 1
        return await super().patch(resource, name, _, **more)

    async def watch(
        self, resource: Resource[Any], *, resource_version: str, timeout_s: int, **_: Any
    ) -> AsyncGenerator[WatchLine]:
        self.counts[f"watch {resource.plural}"] += 1
        await asyncio.sleep(timeout_s)
        nothing: tuple[WatchLine, ...] = ()
        for line in nothing:
            yield line


class Ec2(Cloud):
    """It has the volume, in an inventory too; notes by which tags it was asked."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.inventories: Counter[str] = Counter()

    def _answer(self, action: str, params: Mapping[str, Any]) -> dict[str, Any]:
        if action == "DescribeSnapshots":
            return {"Snapshots": [], "NextToken": None}
        tags = {each["Name"] for each in params.get("Filters", ()) if "tag" in each["Name"]}
        if action != "DescribeVolumes" or not tags:
            return super()._answer(action, params)
        of_unclaimed = any("unclaimed" in str(each) for each in params["Filters"])
        self.inventories["unclaimed" if of_unclaimed else "all"] += 1
        return {"Volumes": [] if of_unclaimed else [a_volume()], "NextToken": None}


def settled(kube: Kube) -> None:
    """One volume of everything, bound and attached."""
    finalizers = (PROVISIONER_FINALIZER, finalizer_of_attacher(DRIVER))
    kube.put(STORAGE_CLASSES, a_class())
    kube.put(NODES, a_node())
    kube.put(CSI_NODES, a_csi_node())
    kube.put(PERSISTENT_VOLUMES, a_persistent_volume(finalizers=finalizers))
    kube.put(CLAIMS, with_volume(a_claim(), f"pvc-{UID}"))
    kube.put(ATTACHMENTS, an_attachment(attached=True))


def test_in_a_quiet_hour_nothing_is_listed_and_all_volumes_are_described_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(clock: Clock) -> tuple[Counter[str], Counter[str], Counter[str]]:
        kube, ec2, stop = Kube(), Ec2(clock), asyncio.Event()
        settled(kube)
        client = cast("KubeClient", kube)
        settings = Settings(cluster_id="bench", leader_elect=False)
        controller = Controller(settings, client, client, ec2, Metrics())
        monkeypatch.setattr(controller.leases, "read", lambda: asyncio.sleep(0))
        monkeypatch.setattr(controller.leases, "prove", lambda *_, **__: asyncio.sleep(0))
        running = asyncio.create_task(controller.run(stop))
        await controller.leading.wait()
        await asyncio.sleep(_SETTLES_S)
        assert kube.counts["list persistentvolumes"] == 1  # or what is counted is not what is asked
        for counts in (kube.counts, ec2.counts, ec2.inventories):
            counts.clear()
        await asyncio.sleep(HOUR_S)
        found = (Counter(kube.counts), Counter(ec2.counts), Counter(ec2.inventories))
        stop.set()
        await running
        ec2.limiter.close()
        return found

    of_kube, of_ec2, inventories = in_virtual_time(story)

    watched = {f"watch {each.plural}" for each in KINDS}
    assert set(of_kube) == watched, of_kube
    assert all(6 <= count <= 12 for count in of_kube.values()), of_kube
    assert inventories == {"unclaimed": 12, "all": 1}
    assert of_ec2 == {"DescribeVolumes": 13}
