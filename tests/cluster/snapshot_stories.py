"""Snapshots of volumes, as the snapshot-controller and the driver take them together."""

from __future__ import annotations

import asyncio

from provisioner.sandbox.snapshots import GROUP
from tests.cluster import hands
from tests.cluster.hands import Json
from tests.cluster.source_stories import SIZE_GIB, SourceStory

SNAPSHOT_CLASSES = f"{GROUP}/volumesnapshotclasses"
CONTENTS = f"{GROUP}/volumesnapshotcontents"
API_VERSION = "snapshot.storage.k8s.io/v1"


class SnapshotStory(SourceStory):
    """What stories with snapshots share."""

    @property
    def snapshots_path(self) -> str:
        return f"{GROUP}/namespaces/{self.world.namespace}/volumesnapshots"

    @property
    def snapshot_path(self) -> str:
        return f"{self.snapshots_path}/{self.name}"

    async def snapshots(self) -> dict[str, Json]:
        """What EC2 holds of this story."""
        return await asyncio.to_thread(self.world.hand.snapshots_of, self.cluster_id)

    async def make_snapshot(self, spec: Json) -> None:
        metadata = {"name": self.name}
        kind = {"apiVersion": API_VERSION, "kind": "VolumeSnapshot", "metadata": metadata}
        await self.world.api.create(self.snapshots_path, kind | {"spec": spec})

    async def is_ready(self) -> Json:
        return await self.object_when(
            "the snapshot is ready",
            self.snapshot_path,
            lambda seen: seen.get("status", {}).get("readyToUse"),
        )

    async def clear(self) -> None:
        found = await hands.items(self.world.api, CONTENTS)
        await self.remove(self.snapshot_path)
        for each in found:
            if each["spec"]["driver"] == self.slot.driver:
                await self.remove(f"{CONTENTS}/{each['metadata']['name']}")
        await super().clear()
        for snapshot_id in await self.snapshots():
            await asyncio.to_thread(self._delete_snapshot, snapshot_id)

    def _delete_snapshot(self, snapshot_id: str) -> None:
        self.world.hand.ec2.delete_snapshot(SnapshotId=snapshot_id)


class Snapshot(SnapshotStory):
    """A snapshot is taken of a claim, becomes ready, and is deleted."""

    LEAST = frozenset(
        {
            "CreateSnapshot",
            "DeleteSnapshot",
            "PATCH volumesnapshotcontents",
            "PATCH volumesnapshotcontents/status",
        }
    )

    async def furnish(self) -> None:
        body = {
            "apiVersion": API_VERSION,
            "kind": "VolumeSnapshotClass",
            "metadata": {"name": self.cluster_id},
            "driver": self.slot.driver,
            "deletionPolicy": "Delete",
            "parameters": self.parameters(),
        }
        await self.world.api.create(SNAPSHOT_CLASSES, body)
        await super().furnish()

    def parameters(self) -> dict[str, str]:
        """Of the class of snapshots."""
        return {}

    async def clear(self) -> None:
        await super().clear()
        await hands.discard(self.world.api, f"{SNAPSHOT_CLASSES}/{self.cluster_id}")

    async def take(self) -> str:
        """Have a snapshot taken; once it is ready, the path of its content."""
        source = {"persistentVolumeClaimName": self.name}
        await self.make_snapshot({"volumeSnapshotClassName": self.cluster_id, "source": source})
        snapshot = await self.is_ready()
        assert snapshot["status"]["restoreSize"] == f"{SIZE_GIB}Gi"
        assert len(await self.snapshots()) == 1
        return f"{CONTENTS}/{snapshot['status']['boundVolumeSnapshotContentName']}"

    async def tell(self) -> None:
        content = await self.take()
        await self.world.api.delete(self.snapshot_path)
        await self.is_gone(self.snapshot_path)
        await self.is_gone(content)

    async def check(self) -> None:
        """One snapshot was ever taken, and none is left."""
        await self.was_taken_once()
        assert await self.snapshots() == {}
        self.check_log()

    async def was_taken_once(self) -> None:
        taken = await self.calls("CreateSnapshot", about=self.volume_id)
        assert len(taken) == 1, taken


class FastLockedSnapshot(Snapshot):
    """A snapshot is taken whose class wants it locked, and fast to restore; it is kept."""

    LEAST = frozenset({"CreateSnapshot", "EnableFastSnapshotRestores", "LockSnapshot"})

    def parameters(self) -> dict[str, str]:
        return {
            "fastSnapshotRestoreAvailabilityZones": self.zone,
            "lockMode": "governance",
            "lockDuration": "1",
        }

    async def tell(self) -> None:
        await self.take()
        (snapshot_id,) = await self.snapshots()

        async def locked() -> bool:
            return await asyncio.to_thread(self._is_fast_and_locked, snapshot_id)

        await self.until("the snapshot is locked, and fast to restore", locked)

    def _is_fast_and_locked(self, snapshot_id: str) -> bool:
        ec2 = self.world.hand.ec2
        about = [{"Name": "snapshot-id", "Values": [snapshot_id]}]
        fast = ec2.describe_fast_snapshot_restores(Filters=about)["FastSnapshotRestores"]
        locks = ec2.describe_locked_snapshots(SnapshotIds=[snapshot_id])["Snapshots"]
        zones = [each["AvailabilityZone"] for each in fast]
        return zones == [self.zone] and [each["LockState"] for each in locks] == ["governance"]

    async def check(self) -> None:
        """One snapshot was ever taken."""
        await self.was_taken_once()
        self.check_log()

    def _delete_snapshot(self, snapshot_id: str) -> None:
        ec2 = self.world.hand.ec2
        ec2.unlock_snapshot(SnapshotId=snapshot_id)
        ec2.disable_fast_snapshot_restores(
            AvailabilityZones=[self.zone], SourceSnapshotIds=[snapshot_id]
        )
        super()._delete_snapshot(snapshot_id)
