"""Volumes that are made of others: restored from a snapshot, or cloned."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from tests.cluster import hands
from tests.cluster.hands import CLASSES, PVS, Json
from tests.cluster.snapshot_stories import API_VERSION, CONTENTS, SnapshotStory
from tests.cluster.source_stories import SIZE_GIB, storage

_SOURCE_IS_USED = "provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection"


class _DerivedStory(SnapshotStory):
    """A second claim gets a volume that is made of something."""

    SIZE_GIB: ClassVar[int] = SIZE_GIB

    @property
    def derived_path(self) -> str:
        return f"{self.world.claims}/{self.name}-derived"

    @property
    def derived_class(self) -> str:
        return self.slot.driver

    async def derive(self, source: Json) -> Json:
        """Claim a volume made of the source, and wait for it; the persistent volume."""
        spec = {
            "storageClassName": self.derived_class,
            "accessModes": ["ReadWriteOnce"],
            "resources": storage(self.SIZE_GIB),
            "dataSource": source,
        }
        body = {"metadata": {"name": f"{self.name}-derived"}, "spec": spec}
        await self.world.api.create(self.world.claims, body)
        claim = await self.claim_when(
            "Bound", lambda claim: claim["status"].get("phase") == "Bound", self.derived_path
        )
        found: Json = await self.world.api.get(f"{PVS}/{claim['spec']['volumeName']}")
        await self.is_unmarked(found["spec"]["csi"]["volumeHandle"])
        return found

    async def clear(self) -> None:
        uid = ""
        for each in await hands.items(self.world.api, self.world.claims):
            if each["metadata"]["name"] == f"{self.name}-derived":
                uid = each["metadata"]["uid"]
        await self.remove(self.derived_path)
        await self.remove(f"{PVS}/pvc-{uid}")
        await super().clear()

    async def source_goes(self) -> None:
        """The claim that was cloned can be deleted at once."""
        await self.world.api.delete(self.claim_path)
        await self.is_gone(self.claim_path)

    async def has_two_volumes(self, action: str) -> None:
        """One volume was ever made; there are it and its source."""
        assert len(await self.volumes()) == 2
        made = await self.made(action)
        assert len(made) == 1, made
        self.check_log()


class Restore(_DerivedStory):
    """A snapshot is restored into a larger claim."""

    LEAST = frozenset(
        {
            "CreateVolume",
            "POST persistentvolumes",
            "PATCH persistentvolumeclaims",
            "PATCH volumesnapshots",
        }
    )
    SIZE_GIB = 2 * SIZE_GIB

    async def furnish(self) -> None:
        await super().furnish()
        handle = await asyncio.to_thread(self._take_snapshot)
        ref = {"namespace": self.world.namespace, "name": self.name}
        body = {
            "apiVersion": API_VERSION,
            "kind": "VolumeSnapshotContent",
            "metadata": {"name": self.cluster_id},
            "spec": {
                "driver": self.slot.driver,
                "deletionPolicy": "Retain",
                "source": {"snapshotHandle": handle},
                "volumeSnapshotRef": ref,
                "sourceVolumeMode": self.MODE,
            },
        }
        await self.world.api.create(CONTENTS, body)
        await self.until("EC2 shows the snapshot", self.snapshots)
        status = {
            "snapshotHandle": handle,
            "readyToUse": True,
            "restoreSize": SIZE_GIB * 2**30,
            "creationTime": 1_700_000_000_000_000_000,
        }
        await self.world.api.patch(f"{CONTENTS}/{self.cluster_id}/status", {"status": status})
        await self.make_snapshot({"source": {"volumeSnapshotContentName": self.cluster_id}})
        await self.is_ready()

    def _take_snapshot(self) -> str:
        tags = {f"kubernetes.io/cluster/{self.cluster_id}": "owned"}
        ec2 = self.world.hand.ec2
        made = ec2.create_snapshot(
            VolumeId=self.volume_id, TagSpecifications=hands.tag_list(tags, "snapshot")
        )
        return str(made["SnapshotId"])

    async def tell(self) -> None:
        snapshot = {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot"}
        await self.derive(snapshot | {"name": self.name})
        await self.object_when(
            "nothing protects the snapshot any more",
            self.snapshot_path,
            lambda seen: _SOURCE_IS_USED not in seen["metadata"].get("finalizers", ()),
        )

    async def check(self) -> None:
        """One volume was made, of the snapshot and as large as was asked."""
        await self.has_two_volumes("CreateVolume")
        restored = [each for each in (await self.volumes()).values() if each.get("SnapshotId")]
        assert [each["Size"] for each in restored] == [self.SIZE_GIB]


class Clone(_DerivedStory):
    """A claim is cloned in its own zone, and may go afterwards."""

    LEAST = frozenset({"CopyVolumes", "POST persistentvolumes", "PATCH persistentvolumeclaims"})

    async def tell(self) -> None:
        await self.derive({"kind": "PersistentVolumeClaim", "name": self.name})
        await self.source_goes()

    async def check(self) -> None:
        """One copy was made."""
        await self.has_two_volumes("CopyVolumes")


class CloneAcross(_DerivedStory):
    """A claim is cloned into another zone, by way of a snapshot that nobody sees again.

    What another life has left of those is found by the sweeps.
    """

    SWEEP_S = 5.0
    LEAST = frozenset({"CreateSnapshot", "CreateVolume", "DeleteSnapshot"})

    @property
    def derived_class(self) -> str:
        return f"{self.cluster_id}-across"

    async def furnish(self) -> None:
        zones = [each for each in self.world.sandbox.zones if each != self.zone]
        key = "topology.kubernetes.io/zone"
        body = {
            "metadata": {
                "name": self.derived_class,
                "annotations": {"ebs-provisioner.io/clone-across-zones": "true"},
            },
            "provisioner": self.slot.driver,
            "parameters": {"type": "gp3"},
            "allowedTopologies": [{"matchLabelExpressions": [{"key": key, "values": zones[:1]}]}],
        }
        await self.world.api.create(CLASSES, body)
        await super().furnish()

    async def clear(self) -> None:
        await super().clear()
        await hands.discard(self.world.api, f"{CLASSES}/{self.derived_class}")

    async def tell(self) -> None:
        await self.derive({"kind": "PersistentVolumeClaim", "name": self.name})

        async def no_snapshot() -> bool:
            return not await self.snapshots()

        await self.until("the snapshot on the way is gone", no_snapshot)
        await self.source_goes()

    async def check(self) -> None:
        """One snapshot and one volume were made; the snapshot is gone."""
        await self.has_two_volumes("CreateVolume")
        zones = {each["AvailabilityZone"] for each in (await self.volumes()).values()}
        assert len(zones) == 2
        taken = await self.calls("CreateSnapshot", about=self.volume_id)
        assert len(taken) == 1, taken
        assert await self.snapshots() == {}
