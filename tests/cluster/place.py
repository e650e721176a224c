"""A story's place in the cluster: what its users write there, and what they see."""

from __future__ import annotations

import contextlib
import hashlib
import uuid
from collections.abc import AsyncIterator, Mapping
from typing import Any

from provisioner.sandbox import nodes
from provisioner.sandbox.api import ApiError
from tests.cluster.cluster import (
    ATTACHMENTS,
    ATTRIBUTES_CLASSES,
    CLASSES,
    PATIENCE_S,
    PVS,
    SELECTED_NODE,
    Cluster,
    Json,
)

_PASSING = {404, 409, 429, 500, 503, 504}
"""Gone already, changed by somebody else meanwhile, or a server that is busy."""
LEAVING_S = 120.0
"""After an outage the controller manager itself needs half a minute to let go of claims."""


class Place:
    """One story's namespace: what its users write, and what they see."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.api = cluster.api
        self.name = name
        self.claims = f"/api/v1/namespaces/{name}/persistentvolumeclaims"
        self.pods = f"/api/v1/namespaces/{name}/pods"

    async def accepts_pods(self) -> Json | None:
        return await self.cluster.get(f"/api/v1/namespaces/{self.name}/serviceaccounts/default")

    # -- what is written

    async def storage_class(
        self, suffix: str = "class", *, waits: bool = False, **changes: Any
    ) -> str:
        """Make a gp3 class, or what ``changes`` make of it; its name."""
        body = {
            "metadata": {"name": f"{self.name}-{suffix}"},
            "provisioner": nodes.DRIVER,
            "parameters": {"type": "gp3"},
            "volumeBindingMode": "WaitForFirstConsumer" if waits else "Immediate",
        }
        made = await self.api.create(CLASSES, body | changes)
        return str(made["metadata"]["name"])

    async def claim(self, class_name: str, name: str = "data", **changes: Any) -> Json:
        """Make a 1Gi claim, or what ``changes`` of its spec make of it."""
        spec = {
            "storageClassName": class_name,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        }
        body = {"metadata": {"name": name}, "spec": spec | changes}
        made: Json = await self.api.create(self.claims, body)
        return made

    async def waiting_claim(self, name: str = "data") -> Json:
        """A claim that EC2 hears of only after ``choose_node``, so that faults can wait for it."""
        if await self.cluster.get(f"{CLASSES}/{self.name}-waits") is None:
            await self.storage_class("waits", waits=True)
        return await self.claim(f"{self.name}-waits", name)

    async def choose_node(self, claim: Json, node: str = "") -> None:
        """Do what the scheduler does for a claim's pod."""
        chosen = node or self.cluster.instance().private_dns_name
        annotations = {"metadata": {"annotations": {SELECTED_NODE: chosen}}}
        await self.api.patch(f"{self.claims}/{claim['metadata']['name']}", annotations)

    async def pod(self, claim: Json, *, gated: bool = False, **changes: Any) -> Json:
        """Make a pod that uses a claim; a gated one is not scheduled until ``lift_gate``."""
        name = claim["metadata"]["name"]
        spec: Json = {
            "containers": [{"name": "main", "image": "main"}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}],
            "schedulingGates": [{"name": "story"}] if gated else [],
        }
        body = {"metadata": {"name": name}, "spec": spec | changes}
        made: Json = await self.api.create(self.pods, body)
        return made

    async def lift_gate(self, pod: Json) -> None:
        path = f"{self.pods}/{pod['metadata']['name']}"
        await self.api.patch(path, {"spec": {"schedulingGates": []}})

    async def static_pv(self, volume_id: str, suffix: str = "static", **changes: Any) -> str:
        """Make a persistent volume for a volume that nobody here has made; its name."""
        spec = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": self.name,
            "csi": {"driver": nodes.DRIVER, "volumeHandle": volume_id},
        }
        name = f"{self.name}-{suffix}"
        await self.api.create(PVS, {"metadata": {"name": name}, "spec": spec | changes})
        return name

    async def attachment(self, pv: str, node: str = "", volume_id: str = "") -> str:
        """Ask for a persistent volume on a node, as the volume controller does; its name."""
        handle = volume_id or (await self.api.get(f"{PVS}/{pv}"))["spec"]["csi"]["volumeHandle"]
        node = node or await self._node_beside(handle)
        digest = hashlib.sha256(f"{handle}{nodes.DRIVER}{node}".encode()).hexdigest()
        source = {"persistentVolumeName": pv}
        spec = {"attacher": nodes.DRIVER, "nodeName": node, "source": source}
        labels = {"story": self.name}
        metadata = {"name": f"csi-{digest}", "labels": labels}
        await self.api.create(ATTACHMENTS, {"metadata": metadata, "spec": spec})
        return f"csi-{digest}"

    async def _node_beside(self, volume_id: str) -> str:
        volume = await self.cluster.volume(volume_id)
        zone = volume["AvailabilityZone"] if volume is not None else "us-east-1a"
        return self.cluster.instance(zone).private_dns_name

    async def remove(self, path: str) -> None:
        """Delete an object and wait until it is gone."""

        async def gone() -> bool:
            found = await self.cluster.get(path)
            if found is not None and "deletionTimestamp" not in found["metadata"]:
                await self._delete(path)
            return found is None

        await self.cluster.until(f"{path} is gone", gone)

    async def _delete(self, path: str) -> None:
        try:
            await self.api.delete(path)
        except ApiError as error:
            if error.status not in _PASSING:
                raise

    async def is_gone(self, path: str, timeout_s: float = PATIENCE_S) -> None:
        async def gone() -> bool:
            return await self.cluster.get(path) is None

        await self.cluster.until(f"{path} is gone", gone, timeout_s)

    # -- what is seen

    async def events(self, name: str = "data", *, namespace: str = "") -> list[Json]:
        """The events about an object; those about one without a namespace are in default."""
        path = f"/api/v1/namespaces/{namespace or self.name}/events"
        found = await self.api.get(path, fieldSelector=f"involvedObject.name={name}")
        return [each for each in found["items"] if self._is_ours(each)]

    @staticmethod
    def _is_ours(event: Mapping[str, Any]) -> bool:
        return str(event["source"].get("component", "")).startswith(nodes.DRIVER)

    async def told(
        self, *words: str, name: str = "data", namespace: str = "", timeout_s: float = PATIENCE_S
    ) -> Json:
        """Wait for a Warning about a claim, or another object, that holds all of these words."""

        async def event() -> Json | None:
            found = await self.events(name, namespace=namespace)
            return next(
                (
                    each
                    for each in found
                    if each["type"] == "Warning" and all(w in each["message"] for w in words)
                ),
                None,
            )

        return await self.cluster.until(f"an event with {words}", event, timeout_s)

    async def bound(self, name: str = "data", timeout_s: float = PATIENCE_S) -> Json:
        """Wait until a claim is Bound; its persistent volume."""

        async def seen() -> Json | None:
            claim = await self.cluster.get(f"{self.claims}/{name}")
            if claim is None or claim["status"].get("phase") != "Bound":
                return None
            return await self.cluster.get(f"{PVS}/{claim['spec']['volumeName']}")

        return await self.cluster.until(f"{name} is Bound", seen, timeout_s)

    async def a_volume(self, name: str = "data") -> Json:
        """Make a claim and wait for its persistent volume."""
        if await self.cluster.get(f"{CLASSES}/{self.name}-class") is None:
            await self.storage_class()
        await self.claim(f"{self.name}-class", name)
        return await self.bound(name)

    async def node_of(self, pod: Json) -> str:
        """Wait until a pod has a node; its name."""

        async def seen() -> str:
            found = await self.api.get(f"{self.pods}/{pod['metadata']['name']}")
            return str(found["spec"].get("nodeName", ""))

        return await self.cluster.until("the pod has a node", seen)

    async def attached(self, attachment: str, timeout_s: float = PATIENCE_S) -> Json:
        """Wait until an attachment says that it is attached."""

        async def seen() -> Json | None:
            found = await self.cluster.get(f"{ATTACHMENTS}/{attachment}")
            return found if found and found.get("status", {}).get("attached") else None

        return await self.cluster.until(f"{attachment} is attached", seen, timeout_s)

    async def attach_error(self, attachment: str, *words: str) -> Json:
        """Wait for an attachError with all of these words."""

        async def seen() -> Json | None:
            found = await self.cluster.get(f"{ATTACHMENTS}/{attachment}")
            error: Json = (found or {}).get("status", {}).get("attachError") or {}
            return error if error and all(w in error["message"] for w in words) else None

        return await self.cluster.until(f"an attachError with {words}", seen)

    async def is_requested(self, about: str, action: str = "*", times: int = 1) -> None:
        """Wait until EC2 was called for something so many times."""

        async def seen() -> bool:
            return len(await self.cluster.calls(about, action)) >= times

        await self.cluster.until(f"{action} of {about}", seen)

    # -- the end

    async def leave(self) -> None:
        """Delete all that the story wrote; what is left after that was leaked."""
        await self.api.delete(self.pods, gracePeriodSeconds="0")
        await self.api.delete(ATTACHMENTS, labelSelector=f"story={self.name}")
        await self.api.delete(self.claims)
        try:
            await self.cluster.until("nothing of the story is left", self.is_empty, LEAVING_S)
        except AssertionError as error:
            raise AssertionError(f"{await self._leftovers()}\n{error}") from error
        assert await self.volumes() == []
        for path in (CLASSES, PVS, ATTRIBUTES_CLASSES):
            # Kubernetes 1.33 serves no VolumeAttributesClasses of v1.
            served = await self.cluster.get(path) or {"items": []}
            for each in served["items"]:
                if self._is_ours_alone(each):
                    await self.api.delete(f"{path}/{each['metadata']['name']}")
        await self.api.delete(f"/api/v1/namespaces/{self.name}")

    async def volumes(self) -> list[str]:
        """What EC2 holds for claims of this namespace."""
        return await self.cluster.volumes_tagged(
            "kubernetes.io/created-for/pvc/namespace", self.name
        )

    async def is_empty(self) -> bool:
        return not await self._leftovers()

    async def _leftovers(self) -> list[str]:
        volumes = [each for each in (await self.api.get(PVS))["items"] if self._is_ours_alone(each)]
        names = {each["metadata"]["name"] for each in volumes}
        # Those of pods, too: the next file's controller would find them, with no volume in EC2.
        attachments = [
            each
            for each in (await self.api.get(ATTACHMENTS))["items"]
            if each["metadata"].get("labels", {}).get("story") == self.name
            or each["spec"]["source"].get("persistentVolumeName") in names
        ]
        objects = [
            *(await self.api.get(self.claims))["items"],
            *attachments,
            *(each for each in volumes if self._is_deleted(each)),
        ]
        left = [f"{each['metadata']['name']} {each.get('status')}" for each in objects]
        return [*left, *await self.volumes()]

    def _is_ours_alone(self, document: Json) -> bool:
        """Whether an object without a namespace was made by or for this story."""
        claim = document.get("spec", {}).get("claimRef", {})
        by_name = str(document["metadata"]["name"]).startswith(self.name)
        return by_name or claim.get("namespace") == self.name

    def _is_deleted(self, pv: Json) -> bool:
        """Whether the end of its claim is the end of it."""
        spec = pv["spec"]
        ours = spec.get("claimRef", {}).get("namespace") == self.name
        return bool(ours and spec["persistentVolumeReclaimPolicy"] == "Delete")


def away_from(zone: str) -> Json:
    """The node affinity of a pod that would rather be in another zone."""
    key = "topology.kubernetes.io/zone"
    others = {"matchExpressions": [{"key": key, "operator": "NotIn", "values": [zone]}]}
    preferred = [{"weight": 100, "preference": others}]
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}


@contextlib.asynccontextmanager
async def a_place(cluster: Cluster) -> AsyncIterator[Place]:
    """A namespace of its own; at the end nothing of it may be left, in EC2 either."""
    name = f"story-{uuid.uuid4().hex[:8]}"
    await cluster.api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    place = Place(cluster, name)
    await cluster.until("a namespace that accepts pods", place.accepts_pods)
    yield place
    await place.leave()
    cluster.sandbox.crew.check()
