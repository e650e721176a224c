"""Controllers side by side: each has leases, a class, a cluster id and an access key of its own.

Stories about leases take turns at those of one driver, and mostly wait for one of them to expire.
With a driver each they wait at the same time. What only the name of the stock driver shows (in-tree
volumes, nodes, the rights of the manifests) is no matter for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, Self

from provisioner.sandbox.api import Api
from tests.cluster import epochs, hands, stock
from tests.cluster.background import Background
from tests.cluster.hands import Ec2Hand, Json
from tests.cluster.replicas import Replica, installed


class Tenant:
    """One of them; the name of its namespace is the cluster id and that of its class, too."""

    def __init__(self, background: Background, api: Api, namespace: str) -> None:
        self.api = api
        self.namespace = namespace
        self.driver = f"{namespace}.example"
        self.key = f"AKIA{namespace}".upper()
        self.sandbox = background.sandbox
        self.hand = Ec2Hand(self.sandbox.ec2_endpoint)
        self.stock = stock.Stock(api, self.driver)
        self.by_hand: list[str] = []
        """Ids of volumes to delete at the end."""

    def replica(self, name: str, *options: str, **other: Any) -> Replica:
        """A controller of this tenant's driver."""
        own = ("--driver-name", self.driver, "--cluster-id", self.namespace, *options)
        other.setdefault("environment", {"AWS_ACCESS_KEY_ID": self.key})
        return Replica(self.sandbox, *own, name=f"{self.namespace}-{name}", **other)

    async def changes(self, *actions: str, after_s: float = 0.0) -> list[Json]:
        """What was called with a key that begins with ours, as ``Ec2Hand.changes`` has it."""
        made = await asyncio.to_thread(partial(self.hand.changes, *actions, after_s=after_s))
        return [call for call in made if call["key"].startswith(self.key)]

    async def deny(self, action: str) -> None:
        """Have EC2 refuse an action to this tenant's key from now on."""
        denied = {"code": "UnauthorizedOperation", "http_status": 403, "n": 10**6}
        fault = {"action": action, "do": "error", "key": self.key, **denied}
        await asyncio.to_thread(lambda: self.hand.control(faults=[fault]))

    async def volumes(self) -> dict[str, Json]:
        """Those with the tag of this tenant's cluster, by id."""
        return await asyncio.to_thread(self.hand.of_cluster, self.namespace)

    async def claim(self, name: str) -> Json:
        """A claim of this tenant's class."""
        return await hands.make_claim(self.api, self.namespace, name, self.namespace)

    async def _moves_in(self) -> None:
        await epochs.let_work_as(self.api, self.namespace, self.driver)
        await epochs.of_ours(self.api, self.driver)
        await hands.make_class(self.api, self.namespace, driver=self.driver)

    async def _moves_out(self) -> None:
        await hands.wipe(self.api, self.hand, self.namespace)
        await asyncio.to_thread(self.hand.remove, self.by_hand)
        await hands.discard(self.api, f"{hands.CLASSES}/{self.namespace}")
        await stock.forget(self.api, self.driver)
        await epochs.forget_rights(self.api, self.namespace)

    @classmethod
    @contextlib.asynccontextmanager
    async def settled(cls, background: Background, api: Api) -> AsyncIterator[Self]:
        """A tenant in a namespace of its own, of whom nothing is left afterwards."""
        namespace = f"t-{uuid.uuid4().hex[:8]}"
        await api.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
        tenant = cls(background, api, namespace)
        try:
            await tenant._moves_in()
            yield tenant
        finally:
            await tenant._moves_out()
            await api.delete(f"/api/v1/namespaces/{namespace}")


@contextlib.asynccontextmanager
async def house(background: Background) -> AsyncIterator[Api]:
    """Where tenants live: all manifests are applied, and EC2's calls are logged."""
    sandbox = await installed(background)
    plane, hand = sandbox.plane, Ec2Hand(sandbox.ec2_endpoint)
    await asyncio.to_thread(hand.watch)
    admin = plane.credentials.tokens["admin"]
    try:
        async with Api(plane.server, plane.credentials.authority, admin) as api:
            yield api
    finally:
        await asyncio.to_thread(lambda: hand.control(**hands.CALM))
