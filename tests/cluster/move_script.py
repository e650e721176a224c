"""The control that must fail: a script that moves a claim as those on the web do.

It deletes the claim, and then creates the volume, the PersistentVolume and the claim. It is run
again after it has died. It sets Retain first, which not all of them do.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar, TypeVar

from botocore.exceptions import ClientError

from provisioner.sandbox.api import ApiError
from tests.cluster import hands
from tests.cluster.hands import PVS, Json
from tests.cluster.mortal import BEFORE
from tests.cluster.move_edge_stories import EdgeStory
from tests.cluster.move_states import State
from tests.cluster.source_stories import SIZE_GIB, in_zone, storage

T = TypeVar("T")
CLAIM_LOST = "the claim is gone"
VOLUME_LEAKED, SNAPSHOT_LEAKED = "a volume is left over", "a snapshot is left over"


class DiedError(Exception):
    """The machine on which the script ran is gone, or its connection."""


def losses(state: State) -> set[str]:
    """What is wrong with a moved claim, by kind."""
    found = set()
    if not state.claim:
        found.add(CLAIM_LOST)
    if any(each.startswith("doubled") for each in state.left):
        found.add(VOLUME_LEAKED)
    if state.claim != "new" and "new" in state.volumes:
        found.add(VOLUME_LEAKED)
    if any(each.startswith("snap-") for each in state.left):
        found.add(SNAPSHOT_LEAKED)
    return found


class ScriptStory(EdgeStory):
    """A script moves a claim; ``script_at``, ``script_fate``: where it dies, and how."""

    OPTIONS: ClassVar[Mapping[str, object]] = {}  # the controller is an ordinary one

    def __init__(self, *args: Any, at: str = "", fate: str = "", **options: Any) -> None:
        super().__init__(*args, **options)
        self.script_at, self.script_fate = at, fate
        self.steps: list[str] = []
        self.found: set[str] = set()
        self.made_ids: set[str] = set()

    async def tell(self) -> None:
        try:
            await self._run()
        except DiedError:
            with contextlib.suppress(ApiError, ClientError):  # it says so and ends
                await self._run()  # its user runs it again
        await self.until("EC2 shows what was made", self._shows_all)
        await self.until("the claim is bound, if there is one", self._is_bound_or_gone)
        self.found = losses(await self.state())

    async def check(self) -> None:
        """It is the test that says which losses are found."""

    async def _step(self, label: str, act: Callable[[], Awaitable[T]]) -> T:
        fate = self.script_fate if label == self.script_at and label not in self.steps else ""
        self.steps.append(label)
        if fate == BEFORE:
            raise DiedError
        done = await act()
        if fate:
            raise DiedError
        return done

    async def _ec2(self, label: str, call: Callable[..., Any], **params: Any) -> Json:
        async def act() -> Json:
            found: Json = await asyncio.to_thread(lambda: call(**params))
            self.made_ids.add(found.get("VolumeId", "") if label == "CreateVolume" else "")
            return found

        return await self._step(label, act)

    async def _shows_all(self) -> bool:
        return self.made_ids - {""} <= set(await self.volumes())

    async def _is_bound_or_gone(self) -> bool:
        """A claim is bound a moment after it is made; whether it ever is was in the script's hand."""
        return (await self.state()).claim in {"", "old", "new"}

    async def _run(self) -> None:
        api, ec2 = self.world.api, self.world.hand.ec2
        claim = await api.get(self.claim_path)
        old = claim["spec"]["volumeName"]
        source = (await api.get(f"{PVS}/{old}"))["spec"]["csi"]["volumeHandle"]
        tags = {f"kubernetes.io/cluster/{self.cluster_id}": "owned"}
        policy = {"spec": {"persistentVolumeReclaimPolicy": "Retain"}}
        await self._step("PATCH persistentvolumes", lambda: api.patch(f"{PVS}/{old}", policy))
        wish = {"VolumeId": source, "TagSpecifications": hands.tag_list(tags, "snapshot")}
        taken = await self.until("EC2 takes another snapshot", lambda: self._snapshot(wish))
        snapshot = taken["SnapshotId"]
        await self.until("the snapshot is completed", lambda: self._is_completed(snapshot))
        await self._step("DELETE persistentvolumeclaims", lambda: api.delete(self.claim_path))
        await self.is_gone(self.claim_path)
        made = await self._ec2(
            "CreateVolume",
            ec2.create_volume,
            SnapshotId=snapshot,
            AvailabilityZone=self.there,
            VolumeType="gp3",
            TagSpecifications=hands.tag_list(tags),
        )
        shared = {"accessModes": ["ReadWriteOnce"], "storageClassName": self.slot.driver}
        volume = {
            "capacity": storage(SIZE_GIB)["requests"],
            "persistentVolumeReclaimPolicy": "Delete",
            "csi": {"driver": self.slot.driver, "volumeHandle": made["VolumeId"]},
            "claimRef": {"namespace": self.world.namespace, "name": self.name},
            "nodeAffinity": in_zone(self.there),
        }
        body = {"metadata": {"name": f"{self.cluster_id}-moved"}, "spec": shared | volume}
        await self._step("POST persistentvolumes", lambda: api.create(PVS, body))
        named = {"volumeName": f"{self.cluster_id}-moved", "resources": storage(SIZE_GIB)}
        again = {"metadata": {"name": self.name}, "spec": shared | named}
        await self._step(
            "POST persistentvolumeclaims", lambda: api.create(self.world.claims, again)
        )
        await self.claim_when("Bound", lambda found: found["status"].get("phase") == "Bound")
        await self._ec2("DeleteSnapshot", ec2.delete_snapshot, SnapshotId=snapshot)

    async def _snapshot(self, wish: Json) -> Json | None:
        """EC2 takes one of a volume every 15 s."""
        try:
            return await self._ec2("CreateSnapshot", self.world.hand.ec2.create_snapshot, **wish)
        except ClientError as error:
            if "RateExceeded" not in str(error):
                raise
            return None

    async def _is_completed(self, snapshot: str) -> bool:
        found = (await self.snapshots()).get(snapshot, {})
        return bool(found.get("State") == "completed")
