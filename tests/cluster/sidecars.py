"""What the stock sidecars do with an object, step by step: attach, detach, delete.

Played by their own rules, so that a test can have them lead before us and after us.
Source: external-attacher 4.12 pkg/controller/csi_handler.go, sig-storage-lib v13 shouldDelete and
deleteVolumeOperation, Kubernetes 1.36 csi-translation-lib plugins/aws_ebs.go.
"""

from __future__ import annotations

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


def handle(persistent_volume: Json) -> str:
    """Its volume, as the translation reads it; only these forms are read."""
    spec = persistent_volume["spec"]
    if "csi" in spec:
        assert spec["csi"]["driver"] == DRIVER
        return str(spec["csi"]["volumeHandle"])
    found = re.fullmatch(r"(?:aws://[^/]*/)?(vol-[^/]+)", spec["awsElasticBlockStore"]["volumeID"])
    assert found is not None
    return found[1]


@dataclass(frozen=True, slots=True)
class Sidecars:
    """external-attacher and external-provisioner of aws-ebs-csi-driver, with its controller."""

    api: Api
    hand: Ec2Hand

    async def attached_to(self, persistent_volume: str) -> list[Json]:
        """The attachments that name a persistent volume."""
        return [
            each
            for each in await hands.items(self.api, ATTACHMENTS)
            if each["spec"]["source"].get("persistentVolumeName") == persistent_volume
        ]

    async def attach(self, persistent_volume: str, device: str) -> None:
        """Attach what the controller manager wants attached."""

        async def wanted() -> list[Json]:
            return await self.attached_to(persistent_volume)

        [va] = await eventually(f"{persistent_volume} is to be attached", wanted)
        pv = await self.api.get(f"{PVS}/{persistent_volume}")
        await self.api.patch(
            f"{PVS}/{persistent_volume}", {"metadata": {"finalizers": [ATTACHER]}}, "strategic"
        )
        node_id = await self._node_id(va)
        path = f"{ATTACHMENTS}/{va['metadata']['name']}"
        meta = {"finalizers": [ATTACHER], "annotations": {NODE_ID: node_id}}
        await self.api.patch(path, {"metadata": meta})
        self.hand.ec2.attach_volume(VolumeId=handle(pv), InstanceId=node_id, Device=device)
        self._await(handle(pv), "in-use")
        status = {"attached": True, "attachmentMetadata": {"devicePath": device}}
        await self.api.patch(f"{path}/status", {"status": status})

    async def detach(self, persistent_volume: str) -> None:
        """Detach what the controller manager wants detached, then let go of the attachment."""

        async def unwanted() -> list[Json]:
            found = await self.attached_to(persistent_volume)
            return [va for va in found if va["metadata"].get("deletionTimestamp")]

        [va] = await eventually(f"{persistent_volume} is to be detached", unwanted)
        assert va["metadata"]["finalizers"] == [ATTACHER]  # else it counts as detached already
        pv = await self.api.get(f"{PVS}/{persistent_volume}")
        node_id = await self._node_id(va)
        self.hand.ec2.detach_volume(VolumeId=handle(pv), InstanceId=node_id)
        self._await(handle(pv), "available")
        await self._let_go(f"{ATTACHMENTS}/{va['metadata']['name']}", ATTACHER)

    async def delete(self, persistent_volume: str) -> None:
        """Delete the volume of a released persistent volume, then the object."""
        path = f"{PVS}/{persistent_volume}"

        async def released() -> Json | None:
            pv: Json = await self.api.get(path)
            return pv if pv["status"].get("phase") == "Released" else None

        pv = await eventually(f"{persistent_volume} is Released", released)
        annotations = pv["metadata"].get("annotations", {})
        assert pv["spec"]["persistentVolumeReclaimPolicy"] == "Delete"
        known = {annotations.get(PROVISIONED_BY), annotations.get(MIGRATED_TO)}
        assert known & {DRIVER, IN_TREE}
        assert PROVISIONER in pv["metadata"]["finalizers"]
        assert not await self.attached_to(persistent_volume)
        self.hand.ec2.delete_volume(VolumeId=handle(pv))
        await self.api.delete(path)
        await self._let_go(path, PROVISIONER, ATTACHER)

    async def _node_id(self, va: Json) -> str:
        csi_node = await self.api.get(f"{CSI_NODES}/{va['spec']['nodeName']}")
        [node_id] = [d["nodeID"] for d in csi_node["spec"]["drivers"] if d["name"] == DRIVER]
        return str(node_id)

    async def _let_go(self, path: str, *finalizers: str) -> None:
        body = {"metadata": {"$deleteFromPrimitiveList/finalizers": list(finalizers)}}
        await self.api.patch(path, body, "strategic")

    def _await(self, volume_id: str, state: str) -> None:
        self.hand.ec2.get_waiter(f"volume_{state.replace('-', '_')}").wait(
            VolumeIds=[volume_id], WaiterConfig={"Delay": 1, "MaxAttempts": 30}
        )
