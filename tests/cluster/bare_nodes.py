"""Nodes as a kubelet registers them, before anybody has looked after them."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from provisioner.model.tags import cluster_key
from provisioner.sandbox import nodes
from provisioner.sandbox.api import ApiError
from provisioner.sandbox.strict_ec2.instances import Instance, make_instances
from tests.cluster import audit
from tests.cluster.cluster import CSI_NODES, NODES, Cluster, Json

LONG_AGO = (datetime.now(UTC) - timedelta(minutes=5)).strftime("%Y-%m-%dT%H:%M:%SZ")
AGENT = {"key": f"{nodes.DRIVER}/agent-not-ready", "value": "", "effect": "NoExecute"}
UNINITIALIZED = {
    "key": "node.cloudprovider.kubernetes.io/uninitialized",
    "value": "true",
    "effect": "NoSchedule",
    "timeAdded": LONG_AGO,
}


class Nodes:
    """Nodes of one test; all gone at its end."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._made: list[str] = []

    async def instances(self, count: int = 1, cluster_id: str = "", **more: Any) -> list[Instance]:
        """Running instances with the tag of the sandbox's cluster, or of another one."""
        sandbox = self.cluster.sandbox
        tags = {cluster_key(cluster_id or sandbox.cluster_id): "owned"}
        return await asyncio.to_thread(
            make_instances, sandbox.ec2_endpoint, count, sandbox.zones, tags=tags, **more
        )

    async def born(
        self,
        name: str = "",
        *,
        labels: Mapping[str, str] | None = None,
        taints: Sequence[Mapping[str, str]] = (UNINITIALIZED,),
        provider_id: str = "",
        address: str = "",
        ready: str = "",
    ) -> Json:
        """Register a node; no pod comes there. With ``ready``: the condition's status."""
        name = name or f"bare-{uuid.uuid4().hex[:8]}"
        spec: Json = {"taints": list(taints), "unschedulable": True}
        if provider_id:
            spec["providerID"] = provider_id
        metadata = {"name": name, "labels": {"kubernetes.io/hostname": name} | dict(labels or {})}
        document = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec}
        # With the Node itself, so that nobody sees it without.
        document["status"] = {
            "addresses": [{"type": "InternalIP", "address": address}] if address else [],
            "conditions": [{"type": "Ready", "status": ready}] if ready else [],
        }
        made: Json = await self.cluster.api.create(NODES, document)
        self._made.append(name)
        return made

    async def register(self, name: str, owner: Json, allocatable: Json | None) -> None:
        """Write a CSINode with the driver, as kubelet does for a Node that owns it."""
        about = owner["metadata"]
        reference = {"apiVersion": "v1", "kind": "Node", "name": about["name"], "uid": about["uid"]}
        driver: Json = {"name": nodes.DRIVER, "nodeID": "i-0123456789abcdef0", "topologyKeys": []}
        if allocatable is not None:
            driver["allocatable"] = allocatable
        await self.cluster.api.create(
            CSI_NODES,
            {
                "metadata": {"name": name, "ownerReferences": [reference]},
                "spec": {"drivers": [driver]},
            },
        )

    async def now(self, name: str) -> Json:
        """A node as it is."""
        found: Json = await self.cluster.api.get(f"{NODES}/{name}")
        return found

    async def without_taint(self, name: str, key: str) -> Json:
        """Wait until a taint is gone; the node then."""

        async def gone() -> Json | None:
            node = await self.now(name)
            return node if key not in taints_of(node) else None

        return await self.cluster.until(f"{name} without {key}", gone)

    async def event(self, name: str, reason: str) -> str:
        """Wait for an event about a node; its message."""

        async def told() -> str:
            query = f"involvedObject.kind=Node,involvedObject.name={name},reason={reason}"
            found = await self.cluster.api.get(
                "/api/v1/namespaces/default/events", fieldSelector=query
            )
            return next((str(each["message"]) for each in found["items"]), "")

        return await self.cluster.until(f"event {reason} of {name}", told)

    async def wake(self, name: str) -> None:
        """Change something about a node, so that it is looked at now and not in a minute."""
        note = {"metadata": {"annotations": {"woken": uuid.uuid4().hex}}}
        await self.cluster.api.patch(f"{NODES}/{name}", note)

    async def patches(self, name: str) -> int:
        """How many patches of a node the controller has sent."""
        sandbox = self.cluster.sandbox
        await audit.written(sandbox, sandbox.controller_kubeconfig)
        return sum(
            record["verb"] == "patch" and record["objectRef"].get("name") == name
            for record in audit.records(sandbox, audit.CONTROLLER)
            if record.get("objectRef", {}).get("resource") == "nodes"
        )

    async def remove(self, name: str) -> None:
        """Delete a node and its CSINode."""
        for path in (f"{NODES}/{name}", f"{CSI_NODES}/{name}"):
            with contextlib.suppress(ApiError):
                await self.cluster.api.delete(path)

    async def clear(self) -> None:
        for name in self._made:
            await self.remove(name)


@contextlib.asynccontextmanager
async def some(cluster: Cluster) -> AsyncIterator[Nodes]:
    """Nodes that are gone afterwards."""
    made = Nodes(cluster)
    try:
        yield made
    finally:
        await made.clear()


def taints_of(node: Json) -> set[str]:
    """The keys of a node's taints."""
    return {each["key"] for each in node["spec"].get("taints", ())}
