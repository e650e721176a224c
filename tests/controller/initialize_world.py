"""A cluster of nodes for ``controller/nodes/initialize.py``, and the instances that EC2 has."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from provisioner.controller.nodes import initialize
from provisioner.controller.nodes.initialize import NodeInitializer
from provisioner.controller.nodes.initialize_rules import LABELS, TAINT
from provisioner.controller.shared.services import Services
from provisioner.controller.shared.settings import Settings
from provisioner.kube.lease import Lease, LeaseSpec
from provisioner.metrics import Metrics
from provisioner.model.errors import Ec2Error, Reason
from provisioner.model.meta import ObjectMeta
from provisioner.model.volume import Instance
from tests.controller.node_api import NodeApi

ID, OTHER_ID = "i-0aaaaaaaaaaaaaaa1", "i-0bbbbbbbbbbbbbbb2"
NAME, ADDRESS = "ip-10-0-0-1.ec2.internal", "10.0.0.1"
FACTS = dict(zip(LABELS, ("us-east-1a", "us-east-1", "m5.large"), strict=True))
WAITING = {"key": TAINT, "value": "true", "effect": "NoSchedule"}
OTHER = {"key": "other", "effect": "NoSchedule"}
LEASE = initialize.LEASES[0]
LONG_AGO = "2026-11-22T05:00:00Z"


class Cloud:
    """EC2's running instances with the cluster's tag; ``asked``: in order."""

    region = "us-east-1"

    def __init__(self) -> None:
        self.running: list[Instance] = [an_instance()]
        self.asked: list[str] = []
        self.failure: Exception | None = None

    async def named(self, name: str) -> list[Instance]:
        return await self._find(name, lambda each: [each.private_dns_name])

    async def addressed(self, address: str) -> list[Instance]:
        return await self._find(address, lambda each: each.private_addresses)

    async def instance(self, instance_id: str) -> Instance:
        found = await self._find(instance_id, lambda each: [each.instance_id])
        if not found:
            raise Ec2Error(Reason.INSTANCE_NOT_FOUND, f"no {instance_id}", action="Describe")
        return found[0]

    async def _find(self, what: str, shown: Any) -> list[Instance]:
        self.asked.append(what)
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        return [each for each in self.running if what in shown(each)]


class World:
    """``told``: the events, as (reason, message)."""

    def __init__(self, *, on: bool = True) -> None:
        self.api, self.cloud = NodeApi(), Cloud()
        self.told: list[tuple[str, str]] = []
        services = SimpleNamespace(
            settings=Settings(initialize_nodes=on, cluster_id="shop"),
            caches=self.api.caches,
            client=self.api,
            node_writes=self.api.writes,
            instances=self.cloud,
            instance_lookups=self.cloud,
            events=SimpleNamespace(record=self._record),
            metrics=Metrics(),
        )
        self.flow = NodeInitializer(cast("Services", services))

    def _record(self, about: Any, *, warning: bool, reason: str, message: str) -> None:
        assert warning is (reason == "NotInitialized")
        self.told.append((reason, message))

    def hold(self, name: str = LEASE, renewed: str = "1", holder: str = "somebody") -> None:
        spec = LeaseSpec(holder_identity=holder, lease_duration_seconds=15, renew_time=renewed)
        self.api.others[name] = Lease(metadata=ObjectMeta(name=name), spec=spec)

    def spec(self, name: str = NAME) -> dict[str, Any]:
        found: dict[str, Any] = self.api.nodes[name]["spec"]
        return found


def an_instance(instance_id: str = ID, **changed: Any) -> Instance:
    return Instance(
        **{
            "instance_id": instance_id,
            "zone": "us-east-1a",
            "state": "running",
            "instance_type": "m5.large",
            "private_dns_name": NAME,
            "private_addresses": (ADDRESS,),
            **changed,
        }
    )


def a_node(name: str = NAME, uid: str = "uid-1", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "uid": uid, "creationTimestamp": LONG_AGO, "labels": {"a": "b"}},
        "spec": {"taints": [OTHER, WAITING]} | spec,
        "status": {"addresses": [{"type": "InternalIP", "address": ADDRESS}]},
    }


def is_initialized(world: World, name: str = NAME) -> bool:
    node = world.api.nodes[name]
    return bool(
        node["metadata"]["labels"] == {"a": "b", **FACTS}
        and node["spec"] == {"taints": [OTHER], "providerID": f"aws:///us-east-1a/{ID}"}
    )
