"""A cluster that changes hands: workloads of ours and of others, watched as they live on."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Self

from provisioner.sandbox.api import Api
from tests.cluster import epochs, hands, stock
from tests.cluster.background import Background
from tests.cluster.hands import PVS, Ec2Hand, Json
from tests.cluster.predecessors import Predecessors, Workload
from tests.cluster.replicas import Replica, eventually, installed
from tests.cluster.sidecars import IN_TREE, handle
from tests.cluster.stock import Stock


class House:
    """What these tests share; the namespace's name is the cluster id, too.

    Its classes: NAMESPACE-new of the driver, NAMESPACE-old of the in-tree plugin.
    """

    def __init__(self, background: Background, api: Api, namespace: str) -> None:
        self.api = api
        self.namespace = namespace
        self.sandbox = background.sandbox
        self.hand = Ec2Hand(background.sandbox.ec2_endpoint)
        self.before = Predecessors(api, self.hand, namespace)

    def replica(self) -> Replica:
        return Replica(self.sandbox, "--cluster-id", self.namespace, name=self.namespace)

    async def provisioned(self, name: str, class_name: str) -> Workload:
        """A pod of ours that runs with its volume attached."""
        await hands.make_claim(self.api, self.namespace, name, class_name)
        await hands.make_pod(self.api, self.namespace, name, name)
        claim: Json = {}

        async def bound() -> bool:
            claim.update(await self.api.get(f"{hands.claims_of(self.namespace)}/{name}"))
            return bool(claim["status"].get("phase") == "Bound")

        await eventually(f"{name} is Bound", bound)
        pv = claim["spec"]["volumeName"]
        made = Workload(name, pv, handle(await self.api.get(f"{PVS}/{pv}")))
        await self.attached(made)
        return made

    async def attached(self, workload: Workload) -> None:
        async def reported() -> bool:
            found = await self.before.sidecars.attached_to(workload.persistent_volume)
            return bool(found and (found[0].get("status") or {}).get("attached"))

        await eventually(f"{workload.name} is attached", reported)
        assert self.state(workload) == "in-use"

    async def detached(self, workload: Workload) -> None:
        async def gone() -> bool:
            return not await self.before.sidecars.attached_to(workload.persistent_volume)

        await eventually(f"{workload.name} is detached", gone)
        assert self.state(workload) == "available"

    async def deleted(self, workload: Workload) -> None:
        async def gone() -> bool:
            return not await hands.persistent_volumes(self.api, self.namespace)

        await eventually("all persistent volumes are gone", gone)
        assert self.state(workload) == ""

    def state(self, workload: Workload) -> str:
        """Of its volume in EC2; "" when there is none."""
        found = {v["VolumeId"]: str(v["State"]) for v in self.hand.volumes()}
        return found.get(workload.volume_id, "")

    async def remove_pod(self, name: str) -> None:
        path = f"{hands.pods_of(self.namespace)}/{name}"
        await self.api.delete(path)

        async def gone() -> bool:
            found = await hands.items(self.api, hands.pods_of(self.namespace))
            return name not in {pod["metadata"]["name"] for pod in found}

        await eventually(f"pod {name} is gone", gone)

    async def remove_claim(self, name: str) -> None:
        await self.api.delete(f"{hands.claims_of(self.namespace)}/{name}")

    def touched(self, after_s: float) -> set[str]:
        """The volumes that a call since then was to change."""
        calls = self.hand.changes(after_s=after_s)
        return {str(call["params"].get("VolumeId", "")) for call in calls} - {""}

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, background: Background, api: Api, namespace: str) -> AsyncIterator[Self]:
        """With classes, EC2 watched, and leases nobody holds; cleared when left."""
        await installed(background)
        await epochs.of_ours(api)
        made = cls(background, api, namespace)
        await hands.make_class(api, f"{namespace}-new")
        await hands.make_class(api, f"{namespace}-old", driver=IN_TREE)
        made.hand.watch()
        yield made
        made.hand.control(**hands.CALM)
        await hands.wipe(api, made.hand, namespace)
        for suffix in ("new", "old"):
            await hands.discard(api, f"{hands.CLASSES}/{namespace}-{suffix}")

    @contextlib.asynccontextmanager
    async def stock_leads(self) -> AsyncIterator[Stock]:
        """The stock driver's sidecars hold their leases."""
        stock_driver = Stock(self.api)
        async with stock_driver.running():
            await eventually("stock leads", stock_driver.leads, 2 * stock.RETRY_S)
            yield stock_driver

    @contextlib.asynccontextmanager
    async def ours_takes_over(self, stock_driver: Stock) -> AsyncIterator[Replica]:
        """Stock ends, and a controller of ours leads."""
        async with self.replica() as ours:
            for sidecar in stock_driver.sidecars:
                await stock_driver.stop(sidecar)
            await eventually("ours leads", ours.leads, 2 * stock.RETRY_S)
            yield ours
