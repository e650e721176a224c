"""Stories that begin with a volume that is there already, made and bound by hand.

So only the requests that a story is about are recorded, and its controllers have less to do.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, ClassVar

from provisioner.sandbox.api import ApiError
from tests.cluster import hands
from tests.cluster.hands import PVS, Json
from tests.cluster.stories import Story

SIZE_GIB = 4


class SourceStory(Story):
    """A claim that is bound to a volume. ``volume_id``: its volume; ``pv``: the object's name.

    Attributes:
        MODE: the volume mode of the claim.
    """

    MODE: ClassVar[str] = "Filesystem"
    volume_id = ""

    @property
    def pv(self) -> str:
        return f"{self.cluster_id}-source"

    @property
    def claim_path(self) -> str:
        return f"{self.world.claims}/{self.name}"

    @property
    def zone(self) -> str:
        return self.slot.instance.zone

    async def furnish(self) -> None:
        self.volume_id = await asyncio.to_thread(self._make_volume, self.pv, self.zone)
        await self.until("EC2 shows the volume", self.volumes)
        shared: Json = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": self.slot.driver,
            "volumeMode": self.MODE,
        }
        claim = {"namespace": self.world.namespace, "name": self.name}
        volume = {
            "capacity": {"storage": f"{SIZE_GIB}Gi"},
            "persistentVolumeReclaimPolicy": "Retain",
            **self.named_volume(),
            "claimRef": claim,
            "nodeAffinity": in_zone(self.zone),
        }
        wish = {"volumeName": self.pv, "resources": storage(SIZE_GIB)}
        api = self.world.api
        await api.create(PVS, {"metadata": {"name": self.pv}, "spec": shared | volume})
        await api.create(
            self.world.claims, {"metadata": {"name": self.name}, "spec": shared | wish}
        )
        await self.claim_when("Bound", lambda claim: claim["status"].get("phase") == "Bound")

    def named_volume(self) -> Json:
        """How the persistent volume names its volume."""
        return {"csi": {"driver": self.slot.driver, "volumeHandle": self.volume_id}}

    def _make_volume(self, name: str, zone: str) -> str:
        tags = {
            f"kubernetes.io/cluster/{self.cluster_id}": "owned",
            "CSIVolumeName": name,
            "ebs.csi.aws.com/cluster": "true",
        }
        made = self.world.hand.ec2.create_volume(
            AvailabilityZone=zone,
            Size=SIZE_GIB,
            VolumeType="gp3",
            TagSpecifications=hands.tag_list(tags),
        )
        return str(made["VolumeId"])

    async def clear(self) -> None:
        await self.remove(self.claim_path)
        await self.remove(f"{PVS}/{self.pv}")
        left = await self.volumes()
        await asyncio.to_thread(self.world.hand.remove, left)

    async def remove(self, path: str) -> None:
        """Delete an object that may be gone, whoever holds it."""
        await hands.remove(self.world.api, path)

    async def claim_when(self, what: str, is_so: Any, path: str = "") -> Json:
        """Wait until a claim looks so."""
        return await self.object_when(f"the claim is {what}", path or self.claim_path, is_so)

    async def object_when(self, what: str, path: str, is_so: Any) -> Json:
        """Wait until an object looks so; what it looked like last is told if it does not."""
        last: Json = {}

        async def seen() -> Json | None:
            with contextlib.suppress(ApiError):
                last.update(await self.world.api.get(path))
                return dict(last) if is_so(last) else None
            return None

        try:
            found: Json = await self.until(what, seen)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{last}") from error
        return found


def storage(gib: int) -> Json:
    """``resources`` of a claim for so many GiB."""
    return {"requests": {"storage": f"{gib}Gi"}}


def in_zone(zone: str) -> Json:
    """``nodeAffinity`` of a persistent volume that is in a zone."""
    key = "topology.kubernetes.io/zone"
    here = [{"key": key, "operator": "In", "values": [zone]}]
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": here}]}}
