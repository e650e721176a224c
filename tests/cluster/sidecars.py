"""What the stock sidecars do with an object, step by step: attach, detach, delete.

Played by their own rules, so that a test can have them lead before us and after us.
Source: external-attacher 4.12 pkg/controller/csi_handler.go, sig-storage-lib v13 shouldDelete and
deleteVolumeOperation, Kubernetes 1.36 csi-translation-lib plugins/aws_ebs.go.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass

from provisioner.sandbox.api import Api
from tests.cluster import hands
from tests.cluster.hands import ATTACHMENTS, DRIVER, PVS, Ec2Hand, Json
from tests.cluster.replicas import eventually

CSI_NODES = "/apis/storage.k8s.io/v1/csinodes"
ATTACHER = "external-attacher/ebs-csi-aws-com"
PROVISIONER = "external-provisioner.volume.kubernetes.io/finalizer"
NODE_ID = "csi.alpha.kubernetes.io/node-id"
IN_TREE = "kubernetes.io/aws-ebs"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
MIGRATED_TO = "pv.kubernetes.io/migrated-to"


def handle(persistent_volume: Json, driver: str = DRIVER) -> str:
    """Its volume, as the translation reads it; only these forms are read."""
    spec = persistent_volume["spec"]
    if "csi" in spec:
        assert spec["csi"]["driver"] == driver
        return str(spec["csi"]["volumeHandle"])
    found = re.fullmatch(r"(?:aws://[^/]*/)?(vol-[^/]+)", spec["awsElasticBlockStore"]["volumeID"])
    assert found is not None
    return found[1]


@dataclass(frozen=True, slots=True)
class Sidecars:
    """external-attacher and external-provisioner of aws-ebs-csi-driver, with its controller.

    ``driver``: the name that it was given.
    """

    api: Api
    hand: Ec2Hand
    driver: str = DRIVER

    @property
    def attacher(self) -> str:
        """The finalizer of its attacher; in a driver's name, other characters become dashes."""
        return "external-attacher/" + re.sub(r"[^a-zA-Z0-9-]", "-", self.driver)

    async def attached_to(self, persistent_volume: str) -> list[Json]:
        """The attachments that name a persistent volume."""
        return [
            each
            for each in await hands.items(self.api, ATTACHMENTS)
            if each["spec"]["source"].get("persistentVolumeName") == persistent_volume
        ]

    async def wanted(self, persistent_volume: str) -> Json:
        """What the controller manager wants attached, once it says so."""

        async def found() -> list[Json]:
            return await self.attached_to(persistent_volume)

        [va] = await eventually(f"{persistent_volume} is to be attached", found)
        return dict(va)

    async def unwanted(self, persistent_volume: str) -> Json:
        """What the controller manager wants detached, once it says so."""

        async def found() -> list[Json]:
            there = await self.attached_to(persistent_volume)
            return [va for va in there if va["metadata"].get("deletionTimestamp")]

        [va] = await eventually(f"{persistent_volume} is to be detached", found)
        return dict(va)

    async def attach(self, persistent_volume: str, device: str) -> None:
        """Attach what the controller manager wants attached."""
        await self.begin_to_attach(persistent_volume, device)
        va = await self.wanted(persistent_volume)
        status = {"attached": True, "attachmentMetadata": {"devicePath": device}}
        path = f"{ATTACHMENTS}/{va['metadata']['name']}"
        await self.api.patch(f"{path}/status", {"status": status})

    async def begin_to_attach(self, persistent_volume: str, device: str) -> None:
        """The same up to what EC2 says; the attachment's status is not written."""
        va = await self.wanted(persistent_volume)
        holds = {"metadata": {"finalizers": [self.attacher]}}
        await self.api.patch(f"{PVS}/{persistent_volume}", holds, "strategic")
        meta = {"finalizers": [self.attacher], "annotations": {NODE_ID: await self.node_id(va)}}
        await self.api.patch(f"{ATTACHMENTS}/{va['metadata']['name']}", {"metadata": meta})
        await self.attach_in_ec2(persistent_volume, device)

    async def attach_in_ec2(self, persistent_volume: str, device: str) -> None:
        """What the plugin did: no object tells of it."""
        va = await self.wanted(persistent_volume)
        volume_id = handle(await self.api.get(f"{PVS}/{persistent_volume}"), self.driver)
        self.hand.ec2.attach_volume(
            VolumeId=volume_id, InstanceId=await self.node_id(va), Device=device
        )
        await self._seen(volume_id, "in-use")

    async def detach(self, persistent_volume: str) -> None:
        """Detach what the controller manager wants detached, then let go of the attachment."""
        va = await self.begin_to_detach(persistent_volume)
        await self._let_go(f"{ATTACHMENTS}/{va['metadata']['name']}", self.attacher)

    async def begin_to_detach(self, persistent_volume: str) -> Json:
        """The same up to what EC2 says; the attachment is still held."""
        va = await self.unwanted(persistent_volume)
        assert va["metadata"]["finalizers"] == [self.attacher]  # else it counts as detached already
        volume_id = handle(await self.api.get(f"{PVS}/{persistent_volume}"), self.driver)
        self.hand.ec2.detach_volume(VolumeId=volume_id, InstanceId=await self.node_id(va))
        await self._seen(volume_id, "available")
        return va

    async def delete(self, persistent_volume: str) -> None:
        """Delete the volume of a released persistent volume, then the object."""
        path = f"{PVS}/{persistent_volume}"
        await self.begin_to_delete(persistent_volume)
        await self.api.delete(path)
        await self._let_go(path, PROVISIONER, self.attacher)

    async def begin_to_delete(self, persistent_volume: str) -> None:
        """The same up to what EC2 says; the object is still there."""

        async def released() -> Json | None:
            pv: Json = await self.api.get(f"{PVS}/{persistent_volume}")
            return pv if pv["status"].get("phase") == "Released" else None

        pv = await eventually(f"{persistent_volume} is Released", released)
        annotations = pv["metadata"].get("annotations", {})
        assert pv["spec"]["persistentVolumeReclaimPolicy"] == "Delete"
        known = {annotations.get(PROVISIONED_BY), annotations.get(MIGRATED_TO)}
        assert known & {self.driver, IN_TREE}
        assert PROVISIONER in pv["metadata"]["finalizers"]
        assert not await self.attached_to(persistent_volume)
        self.hand.ec2.delete_volume(VolumeId=handle(pv, self.driver))

    async def node_id(self, va: Json) -> str:
        """The instance that it is about."""
        csi_node = await self.api.get(f"{CSI_NODES}/{va['spec']['nodeName']}")
        [node_id] = [d["nodeID"] for d in csi_node["spec"]["drivers"] if d["name"] == self.driver]
        return str(node_id)

    async def _let_go(self, path: str, *finalizers: str) -> None:
        body = {"metadata": {"$deleteFromPrimitiveList/finalizers": list(finalizers)}}
        await self.api.patch(path, body, "strategic")

    async def _seen(self, volume_id: str, state: str) -> None:
        async def is_so() -> bool:
            found = await asyncio.to_thread(self.hand.ec2.describe_volumes, VolumeIds=[volume_id])
            return str(found["Volumes"][0]["State"]) == state

        await eventually(f"{volume_id} is {state}", is_so)
