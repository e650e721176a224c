"""Volumes that somebody has made by hand, and the objects that name them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from provisioner.sandbox.api import Api
from provisioner.sandbox.kubectl import kubectl
from provisioner.sandbox.up import Sandbox
from tests.cluster.hands import (
    ATTACHMENTS,
    DRIVER,
    PVS,
    Ec2Hand,
    claims_of,
    items,
    pods_of,
    remove,
)
from tests.cluster.replicas import eventually

ZONE = "topology.kubernetes.io/zone"

Json = dict[str, Any]


@dataclass
class Store:
    """Volumes in EC2 and the objects that name them, of one test."""

    sandbox: Sandbox
    api: Api
    namespace: str
    made: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.hand = Ec2Hand(self.sandbox.ec2_endpoint)

    def volume(self, zone: str) -> str:
        made = self.hand.ec2.create_volume(AvailabilityZone=zone, Size=4)
        self.made.append(made["VolumeId"])
        return self.made[-1]

    async def persistent_volume(
        self, name: str, volume: str, zone: str | None = None, **changes: Any
    ) -> Json:
        body = self.described(name, volume, zone)
        body["metadata"] |= changes.get("metadata", {})
        made: Json = await self.api.create(PVS, body)
        return made

    async def create(self, name: str, volume: str, zone: str | None = None) -> Json:
        """A persistent volume as a user makes it: ``kubectl create``."""
        text = json.dumps(self.described(name, volume, zone))
        made: Json = json.loads(
            await kubectl(self.sandbox.plane, "create", "-f", "-", "-o", "json", text=text)
        )
        return made

    def described(self, name: str, volume: str, zone: str | None = None) -> Json:
        body: Json = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"{self.namespace}-{name}"},
            "spec": {
                "capacity": {"storage": "4Gi"},
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": "",
                "csi": {"driver": DRIVER, "volumeHandle": volume},
            },
        }
        if zone is not None:
            body["spec"]["nodeAffinity"] = pinned(zone)
        return body

    async def read(self, name: str) -> Json:
        found: Json = await self.api.get(f"{PVS}/{self.namespace}-{name}")
        return found

    async def claim(self, name: str, zone: str) -> str:
        """A claim that is bound to a persistent volume in a zone."""
        await self.persistent_volume(name, self.volume(zone))
        await self.api.create(
            claims_of(self.namespace),
            {
                "metadata": {"name": name},
                "spec": {
                    "storageClassName": "",
                    "volumeName": f"{self.namespace}-{name}",
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "4Gi"}},
                },
            },
        )

        async def bound() -> bool:
            found = await self.api.get(f"{claims_of(self.namespace)}/{name}")
            return bool(found["status"].get("phase") == "Bound")

        await eventually(f"claim {name} is bound", bound)
        return name

    async def pod(self, *claims: str, name: str = "pod", **spec: Any) -> Json:
        made: Json = await self.api.create(
            pods_of(self.namespace), a_pod(*claims, name=name, **spec)
        )
        return made

    def node_in(self, zone: str) -> str:
        return next(each.private_dns_name for each in self.sandbox.instances if each.zone == zone)

    async def cleared(self) -> None:
        """Remove all of it, also what Kubernetes made of it: nobody detaches these volumes."""
        for kind in ("replicasets", "statefulsets"):  # or they make each pod anew
            await self.api.delete(f"/apis/apps/v1/namespaces/{self.namespace}/{kind}")
        await self.api.delete(pods_of(self.namespace))

        async def no_pods() -> bool:
            return not await items(self.api, pods_of(self.namespace))

        await eventually("the pods are gone", no_pods)
        for each in await items(self.api, ATTACHMENTS):
            if (each["spec"]["source"].get("persistentVolumeName") or "").startswith(
                self.namespace
            ):
                await remove(self.api, f"{ATTACHMENTS}/{each['metadata']['name']}")
        for each in await items(self.api, PVS):
            if each["metadata"]["name"].startswith(self.namespace):
                await remove(self.api, f"{PVS}/{each['metadata']['name']}")
        self.hand.remove(self.made)


def pinned(zone: str) -> Json:
    within = {"key": ZONE, "operator": "In", "values": [zone]}
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [within]}]}}


def a_pod(*claims: str, name: str = "pod", **spec: Any) -> Json:
    volumes = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims]
    containers = [{"name": "main", "image": "main"}]
    wanted = {"terminationGracePeriodSeconds": 0, "containers": containers, "volumes": volumes}
    return {"metadata": {"name": name}, "spec": wanted | spec}
