"""Claims that get another class, or another driver, and keep their volume."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from provisioner.model.driver import AUTO_MODE_DRIVER
from provisioner.model.persistent_volume import PROVISIONED_BY
from tests.cluster import hands
from tests.cluster.hands import PVS, Json
from tests.cluster.move_stories import LABEL, NOTE, WITHOUT_COPY, MoveStory
from tests.cluster.source_stories import SIZE_GIB

CLASSES = "/apis/storage.k8s.io/v1/storageclasses"


class MoveToClass(MoveStory):
    """A class of which the volume is already as asked: nothing is copied."""

    LEAST = WITHOUT_COPY

    @property
    def class_name(self) -> str:
        return f"{self.name}-other"

    @property
    def provisioner(self) -> str:
        """The driver that the claim has in the end."""
        return self.slot.driver

    async def furnish(self) -> None:
        await super().furnish()
        made_by = {"metadata": {"annotations": {PROVISIONED_BY: self.slot.driver}}}
        await self.world.api.patch(f"{PVS}/{self.pv}", made_by)
        await self.make_class(self.class_name, self.provisioner)

    async def make_class(self, name: str, provisioner: str) -> None:
        body = {
            "metadata": {"name": name},
            "provisioner": provisioner,
            "parameters": {"type": "gp3"},
            "reclaimPolicy": "Delete",
            "volumeBindingMode": "WaitForFirstConsumer",
        }
        await self.world.api.create(CLASSES, body)

    async def tell(self) -> None:
        await self.ask(to={"storageClassName": self.class_name}, keepSource="0h")
        await self.is_in("Done")
        await self.is_gone(f"{PVS}/{self.pv}")

    async def check(self) -> None:
        """One claim, one PersistentVolume, one volume: the same one; nothing was copied."""
        claim = await self.world.api.get(self.claim_path)
        assert claim["status"]["phase"] == "Bound", claim
        assert claim["spec"]["storageClassName"] == self.class_name
        assert claim["metadata"]["labels"] == LABEL
        assert claim["metadata"]["annotations"].items() >= NOTE.items()
        (new,) = await self.persistent_volumes()
        self.check_volume(new, claim)
        assert set(await self.volumes()) == {self.volume_id}
        assert await self.snapshots() == {}
        assert await self.calls("CreateSnapshot", about=self.volume_id) == []
        assert len(await self.made()) == 0
        self.check_log()

    def check_volume(self, new: Json, claim: Json) -> None:
        spec = new["spec"]
        assert spec["claimRef"]["uid"] == claim["metadata"]["uid"]
        assert spec["storageClassName"] == self.class_name
        assert spec["csi"]["driver"] == self.provisioner
        assert spec["csi"]["volumeHandle"] == self.volume_id
        assert spec["capacity"] == {"storage": f"{SIZE_GIB}Gi"}
        assert spec["persistentVolumeReclaimPolicy"] == "Delete"
        assert new["metadata"]["annotations"][PROVISIONED_BY] == self.provisioner

    async def clear(self) -> None:
        await super().clear()
        await self.remove(f"{CLASSES}/{self.class_name}")


class MoveToAutoMode(MoveToClass):
    """The driver of EKS Auto Mode, of which nothing runs here, takes the volume over."""

    TAG: ClassVar[str] = "eks:eks-cluster-name"

    @property
    def provisioner(self) -> str:
        return AUTO_MODE_DRIVER

    async def furnish(self) -> None:
        await super().furnish()
        tag = [{"Key": self.TAG, "Value": "prod"}]
        ec2 = self.world.hand.ec2
        await asyncio.to_thread(ec2.create_tags, Resources=[self.volume_id], Tags=tag)

        async def is_tagged() -> bool:
            found = (await self.volumes()).get(self.volume_id, {})
            return "Tags" in found and self.TAG in hands.tags_of(found)

        await self.until("EC2 shows the tag", is_tagged)

    def check_volume(self, new: Json, claim: Json) -> None:
        super().check_volume(new, claim)
        (term,) = new["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
        where = {each["key"]: each["values"] for each in term["matchExpressions"]}
        assert where["eks.amazonaws.com/compute-type"] == ["auto"]


class MoveFromAutoMode(MoveToClass):
    """A volume of EKS Auto Mode comes to this driver, whose controller carries the move out."""

    def named_volume(self) -> Json:
        return {"csi": {"driver": AUTO_MODE_DRIVER, "volumeHandle": self.volume_id}}

    async def furnish(self) -> None:
        await super().furnish()
        made_by = {"metadata": {"annotations": {PROVISIONED_BY: AUTO_MODE_DRIVER}}}
        await self.world.api.patch(f"{PVS}/{self.pv}", made_by)
