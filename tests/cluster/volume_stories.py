"""The life of one volume: from its claim to nothing, attached meanwhile, or past full zones."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from typing import ClassVar

from provisioner.controller.placement.zone_rules import spread
from tests.cluster import hands
from tests.cluster.hands import ATTACHMENTS, CLASSES, PVS, Json
from tests.cluster.stories import Story

A, B, C = ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
FULL = [{"zone": zone, "type": "gp2"} for zone in (A, B)]


class VolumeLife(Story):
    """A claim is Bound, its volume attached by a VolumeAttachment, detached, the claim deleted."""

    LEAST = frozenset(
        {
            "CreateVolume",
            "AttachVolume",
            "DetachVolume",
            "DeleteVolume",
            "DeleteTags",
            "POST persistentvolumes",
            "PATCH persistentvolumes",
            "DELETE persistentvolumes",
            "PATCH volumeattachments",
            "PATCH volumeattachments/status",
            "PATCH persistentvolumeclaims",
        }
    )
    SWEEP_S = 1.0
    pv = ""
    volume_id = ""

    @property
    def claim_path(self) -> str:
        return f"{self.world.claims}/{self.name}"

    @property
    def class_name(self) -> str:
        return self.slot.driver

    async def tell(self) -> None:
        await self.make_claim()
        await self.is_bound()
        await self.ask_for_attachment()
        await self.is_attached()
        await self.delete(self.attachment_path)
        await self.is_gone(self.attachment_path)
        await self.delete(self.claim_path)
        await self.is_gone(f"{PVS}/{self.pv}")

    async def make_claim(self) -> None:
        await hands.make_claim(self.world.api, self.world.namespace, self.name, self.class_name)

    async def is_bound(self) -> None:
        async def bound() -> Json | None:
            claim: Json = await self.world.api.get(self.claim_path)
            return claim if claim["status"].get("phase") == "Bound" else None

        claim = await self.until("the claim is Bound", bound)
        self.pv = claim["spec"]["volumeName"]
        found = await self.world.api.get(f"{PVS}/{self.pv}")
        self.volume_id = found["spec"]["csi"]["volumeHandle"]

    @property
    def _node(self) -> str:
        return self.slot.instance.private_dns_name

    @property
    def attachment_path(self) -> str:
        told = f"{self.volume_id}{self.slot.driver}{self._node}"
        return f"{ATTACHMENTS}/csi-{hashlib.sha256(told.encode()).hexdigest()}"

    async def ask_for_attachment(self) -> None:
        spec = {
            "attacher": self.slot.driver,
            "nodeName": self._node,
            "source": {"persistentVolumeName": self.pv},
        }
        metadata = {"name": self.attachment_path.rpartition("/")[2]}
        await self.world.api.create(ATTACHMENTS, {"metadata": metadata, "spec": spec})

    async def is_attached(self) -> None:
        async def attached() -> bool:
            found = await self.world.api.get(self.attachment_path)
            return bool(found.get("status", {}).get("attached"))

        await self.until("the volume is attached", attached)
        assert await self.on_instance(), "the attachment says attached, EC2 does not"

    async def on_instance(self) -> bool:
        """Whether EC2 shows the volume on the story's instance."""
        volume = (await self.volumes()).get(self.volume_id)
        on = [each["InstanceId"] for each in volume["Attachments"]] if volume else []
        return on == [self.slot.instance.instance_id]

    async def check(self, volumes: int = 1) -> None:
        """Exactly so many volumes were ever made, and nothing is left."""
        assert await self.volumes() == {}, "a volume is left"
        made = await self.made()
        assert len(made) == volumes, f"{len(made)} volumes were made: {made}"
        self.check_log()


class FullZones(VolumeLife):
    """Two of the three zones that the class allows are full.

    What a process before may have begun is looked for through some time before another zone is
    asked. The claim's name falls to the first zone. The story ends with the volume.
    """

    LEAST = frozenset({"PATCH persistentvolumeclaims", "CreateVolume", "POST persistentvolumes"})
    SWEEP_S: ClassVar[float] = 300.0

    def _names(self) -> Iterator[str]:
        named = (f"full-{number}" for number in self.world.numbers)
        return (each for each in named if spread(each) % len(ZONES) == 0)

    @property
    def class_name(self) -> str:
        return f"{self.name}-{self.slot.driver}"

    async def furnish(self) -> None:
        key = "topology.kubernetes.io/zone"
        allowed = [{"matchLabelExpressions": [{"key": key, "values": list(ZONES)}]}]
        await self.world.api.create(
            CLASSES,
            {
                "metadata": {"name": self.class_name},
                "provisioner": self.slot.driver,
                "parameters": {"type": "gp2"},
                "allowedTopologies": allowed,
            },
        )

    async def clear(self) -> None:
        await hands.remove(self.world.api, self.claim_path)
        await hands.remove(self.world.api, f"{PVS}/{self.pv}")
        left = await self.volumes()
        await asyncio.to_thread(self.world.hand.remove, left)
        await hands.discard(self.world.api, f"{CLASSES}/{self.class_name}")

    async def tell(self) -> None:
        await self.make_claim()
        await self.is_bound()
        await self.is_unmarked(self.volume_id)

    async def check(self, volumes: int = 1) -> None:
        """One volume was made, in the zone with room."""
        made = await self.made()
        assert len(made) == volumes, made
        assert {zone for _, zone in made} == {C}
        assert [each["AvailabilityZone"] for each in (await self.volumes()).values()] == [C]
        self.check_log()
