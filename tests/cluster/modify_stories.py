"""A volume is made larger and given other attributes, by one change of its claim."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import ClassVar

from tests.cluster import growing, hands
from tests.cluster.cluster import ATTRIBUTES_CLASSES
from tests.cluster.hands import PVS, Json
from tests.cluster.source_stories import SourceStory, storage


class GrowAndChange(SourceStory):
    """A claim asks for a larger size and other attributes in one change; kubelet grows the rest."""

    LEAST = frozenset(
        {
            "ModifyVolume",
            "CreateTags",
            "PATCH persistentvolumes",
            "PATCH persistentvolumeclaims/status",
        }
    )
    GROWN_GIB: ClassVar[int] = 8
    IOPS: ClassVar[int] = 4000
    ASKS: ClassVar[Mapping[str, str]] = {"iops": "4000"}
    TAGS: ClassVar[Mapping[str, str]] = {"pace": "fast"}

    @property
    def attributes(self) -> str:
        return f"{self.cluster_id}-fast"

    async def furnish(self) -> None:
        parameters = {**self.ASKS, "tagSpecification_1": "pace=fast"}
        body = {"driverName": self.slot.driver, "parameters": parameters}
        await self.world.api.create(
            ATTRIBUTES_CLASSES, {"metadata": {"name": self.attributes}, **body}
        )
        await super().furnish()

    async def clear(self) -> None:
        await hands.discard(self.world.api, f"{ATTRIBUTES_CLASSES}/{self.attributes}")
        await super().clear()

    async def tell(self) -> None:
        wish = {"resources": storage(self.GROWN_GIB), "volumeAttributesClassName": self.attributes}
        await self.world.api.patch(self.claim_path, {"spec": wish})
        await self.claim_when("changed", self._is_changed)
        await self.finish()
        await self.object_when("the persistent volume is done", f"{PVS}/{self.pv}", self._is_done)

    def _is_changed(self, claim: Json) -> bool:
        status = claim["status"]
        current = status.get("currentVolumeAttributesClassName")
        waits = (status.get("allocatedResourceStatuses") or {}).get("storage")
        return current == self.attributes and waits == "NodeResizePending"

    async def finish(self) -> None:
        """Grow the file system as kubelet does, and say so as it does."""
        claim = await self.world.api.get(self.claim_path)
        volume = await self.world.api.get(f"{PVS}/{self.pv}")
        resizing = {"Resizing", "FileSystemResizePending"}
        conditions = claim["status"].get("conditions") or ()
        status = {
            "capacity": {"storage": volume["spec"]["capacity"]["storage"]},
            "allocatedResourceStatuses": None,
            "conditions": [each for each in conditions if each["type"] not in resizing],
        }
        await self.world.api.patch(f"{self.claim_path}/status", {"status": status})

    def _is_done(self, volume: Json) -> bool:
        annotations = volume["metadata"].get("annotations", {})
        return (
            volume["spec"]["capacity"]["storage"] == f"{self.GROWN_GIB}Gi"
            and volume["spec"].get("volumeAttributesClassName") == self.attributes
            and "volume.alpha.kubernetes.io/pre-resize-capacity" not in annotations
        )

    async def check(self) -> None:
        """One modification was made, with both wishes; nothing more was asked of EC2."""
        calls = await asyncio.to_thread(self.world.hand.changes, "ModifyVolume")
        calls = [each for each in calls if each["params"]["VolumeId"] == self.volume_id]
        assert len(calls) == 1, calls
        volume = (await self.volumes())[self.volume_id]
        assert (volume["Size"], volume["Iops"]) == (self.GROWN_GIB, self.IOPS)
        assert hands.tags_of(volume).items() >= self.TAGS.items()
        claim = await self.world.api.get(self.claim_path)
        status = claim["status"]
        assert status["capacity"]["storage"] == f"{self.GROWN_GIB}Gi"
        assert not status.get("modifyVolumeStatus")
        assert not growing.conditions(claim)
        self.check_log()


class GrowBlock(GrowAndChange):
    """The same of a claim for a raw block, which needs nobody on the node; IOPS follow its size."""

    MODE = "Block"
    ASKS: ClassVar[Mapping[str, str]] = {
        "iopsPerGB": "500",
        "allowAutoIOPSIncreaseOnModify": "true",
    }
    TAGS: ClassVar[Mapping[str, str]] = {
        "pace": "fast",
        "ebs.csi.aws.com/IOPSPerGb": "500",
        "ebs.csi.aws.com/AllowAutoIOPSIncreaseOnModify": "true",
    }

    def _is_changed(self, claim: Json) -> bool:
        status = claim["status"]
        current = status.get("currentVolumeAttributesClassName")
        return current == self.attributes and not status.get("allocatedResourceStatuses")

    async def finish(self) -> None:
        """Nothing is left to do."""
        await self.claim_when(
            "grown",
            lambda claim: claim["status"]["capacity"]["storage"] == f"{self.GROWN_GIB}Gi",
        )


class GrowByAnnotations(GrowBlock):
    """A claim for a raw block asks for a larger size, and for IOPS by an annotation."""

    LEAST = frozenset(
        {"ModifyVolume", "PATCH persistentvolumes", "PATCH persistentvolumeclaims/status"}
    )
    OPTIONS: ClassVar[Mapping[str, object]] = {"modify_annotations": True}
    TAGS: ClassVar[Mapping[str, str]] = {}

    @property
    def asked(self) -> dict[str, str]:
        return {f"{self.slot.driver}/iops": str(self.IOPS)}

    async def furnish(self) -> None:
        await SourceStory.furnish(self)

    async def clear(self) -> None:
        await SourceStory.clear(self)

    async def tell(self) -> None:
        wish = {"resources": storage(self.GROWN_GIB)}
        both = {"metadata": {"annotations": self.asked}, "spec": wish}
        await self.world.api.patch(self.claim_path, both)
        await self.finish()
        await self.object_when("the persistent volume is done", f"{PVS}/{self.pv}", self._is_done)

    def _is_done(self, volume: Json) -> bool:
        annotations = volume["metadata"].get("annotations", {})
        size = volume["spec"]["capacity"]["storage"]
        return bool(size == f"{self.GROWN_GIB}Gi" and self.asked.items() <= annotations.items())


class BringTags(SourceStory):
    """A volume is there, and gets the extra tags that came later; nobody else's tag changes."""

    LEAST = frozenset({"CreateTags"})
    OPTIONS: ClassVar[Mapping[str, object]] = {
        "reconcile_extra_tags": True,
        "extra_tags_interval_s": 5.0,
        "extra_tags": ["team=shop", "env=prod"],
    }

    async def furnish(self) -> None:
        await super().furnish()
        self.before = hands.tags_of((await self.volumes())[self.volume_id])

    async def tell(self) -> None:
        async def tagged() -> bool:
            return "team" in hands.tags_of((await self.volumes())[self.volume_id])

        await self.until("the volume has the tag", tagged)

    async def check(self) -> None:
        """All tags are there, and those from before are as they were."""
        has = hands.tags_of((await self.volumes())[self.volume_id])
        assert has == self.before | {"team": "shop", "env": "prod"}
        self.check_log()
