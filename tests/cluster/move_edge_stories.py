"""What somebody does to a claim while its move stands in one of its phases, and how that ends.

The controller pauses before one numbered request, with all that it has read; then somebody acts,
and it goes on. Each story says in which state the cluster ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import os
import signal
import time
from typing import Any, ClassVar

from provisioner.sandbox.api import ApiError
from tests.cluster import hands
from tests.cluster.hands import ATTACHMENTS, PVS, Json
from tests.cluster.move_states import (
    NOTES,
    PHASE_AT,
    UNTIL_SWAP,
    State,
    both,
    gone,
    kept,
    moved,
    only_old,
)
from tests.cluster.move_stories import MoveStory
from tests.cluster.source_stories import SIZE_GIB, storage
from tests.cluster.walk_world import World


class EdgeStory(MoveStory):
    """Something happens to a move in one of its phases."""

    STEP_S = 90.0
    uid = ""  # of the move

    async def ask(self, **spec: Any) -> None:
        """No webhook holds pods back here, so that some can come in between."""
        consumers = {"withoutHold": True} | spec.pop("consumers", {})
        await super().ask(consumers=consumers, **spec)
        self.uid = (await self.world.api.get(self.move_path))["metadata"]["uid"]

    @property
    def phase(self) -> str:
        """The phase in which it pauses."""
        return PHASE_AT[self.at]

    async def tell(self) -> None:
        await self.ask()
        await self.until(f"it pauses before {self.at}", self.is_standing)
        found = await self.seen_move()
        assert found == self.phase, f"it paused in {found} instead of {self.phase}"
        await self.act()
        os.kill(self.pids[-1], signal.SIGCONT)
        await self.finish()

    async def is_standing(self) -> bool:
        return self.is_reached

    async def act(self) -> None:
        """What somebody does."""
        raise NotImplementedError

    async def finish(self) -> None:
        """What somebody does afterwards."""

    def ends(self) -> State:
        """How it ends."""
        raise NotImplementedError

    async def check(self) -> None:
        """It ends as it says, and the claim's volume has all that was written."""
        await self.comes_to(self.ends())
        await self.check_data()
        self.check_log()

    async def comes_to(self, wanted: State) -> None:
        """Wait for a state; the last one is told if it does not come."""
        last: list[State] = []

        async def is_so() -> bool:
            last[:] = [await self.state()]
            return last == [wanted]

        with contextlib.suppress(AssertionError):
            await self.until("the end", is_so)
        assert last == [wanted], f"it ended as {last}, not as {wanted}"

    async def seen_move(self) -> str | None:
        with contextlib.suppress(ApiError):
            found = await self.world.api.get(self.move_path)
            return str((found.get("status") or {}).get("phase", ""))
        return None

    async def told(self) -> str:
        """What the move says."""
        found = await self.world.api.get(self.move_path)
        return str((found.get("status") or {}).get("message", ""))

    def role(self, volume_id: str) -> str:
        return "old" if volume_id == self.volume_id else "new"

    async def state(self) -> State:
        """What there is now."""
        objects, notes = {}, []
        for each in await self.persistent_volumes():
            role = "old" if each["metadata"]["name"] == self.pv else "new"
            objects[role] = each["spec"]["persistentVolumeReclaimPolicy"]
            on_it = each["metadata"].get("annotations", {})
            notes += [f"{role} {note}" for note in NOTES if any(n.endswith(note) for n in on_it)]
        volumes = await self.volumes()
        snapshots = await self.snapshots()
        return State(
            await self._bound_to(),
            objects,
            frozenset(map(self.role, volumes)),
            await self.seen_move(),
            sorted(
                [
                    *notes,
                    *snapshots,
                    *(f"doubled {each}" for each in list(volumes)[2:]),
                    *(f"attached {self.role(k)}" for k, v in volumes.items() if v["Attachments"]),
                ]
            ),
        )

    async def _bound_to(self) -> str:
        with contextlib.suppress(ApiError):
            claim = await self.world.api.get(self.claim_path)
            if claim["status"].get("phase") != "Bound":
                return str(claim["status"].get("phase"))
            found = await self.world.api.get(f"{PVS}/{claim['spec']['volumeName']}")
            return self.role(found["spec"]["csi"]["volumeHandle"])
        return ""

    async def check_data(self) -> None:
        """Nobody could write to the old volume after the snapshot of the one that the claim has."""
        if await self._bound_to() != "new":
            return
        taken = [  # those before the stop are marked otherwise
            each
            for each in await self.calls("CreateSnapshot", about=self.volume_id)
            if self.uid in each["params"].values()
        ]
        (since_s,) = [each["at_s"] for each in taken]
        for action in ("AttachVolume", "DetachVolume"):
            late = [
                each
                for each in await self.calls(action, about=self.volume_id)
                if each["at_s"] > since_s
            ]
            assert late == [], f"stale: {action} of the old volume after its snapshot"

    # -- pods of which no kubelet knows

    @property
    def pod_path(self) -> str:
        return f"{hands.pods_of(self.world.namespace)}/{self.name}"

    async def start_pod(self) -> None:
        """A pod on the node of the old zone."""
        spec = self.pod_template(self.name)["spec"] | {"nodeName": self.node_here}
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": self.name}}]
        body = {"metadata": {"name": self.name}, "spec": spec}
        await self.world.api.create(self.pod_path.rpartition("/")[0], body)

    async def end_pod(self) -> None:
        await hands.discard(self.world.api, self.pod_path)
        await self.is_gone(self.pod_path)
        await self.until("nobody wants the volume", self._is_unwanted)

    async def _attachments(self) -> list[Json]:
        found = await hands.items(self.world.api, ATTACHMENTS)
        return [each for each in found if each["spec"]["attacher"] == self.slot.driver]

    async def beat(self) -> None:
        """Kubernetes detaches nothing until a kubelet tells again what it has mounted."""
        beat = {"metadata": {"annotations": {"example.com/heartbeat": str(time.monotonic())}}}
        nodes = {each["spec"]["nodeName"] for each in await self._attachments()}
        for node in {self.node_here, *nodes}:
            await self.world.api.patch(f"/api/v1/nodes/{node}", beat)

    async def _is_unwanted(self) -> bool:
        await self.beat()
        found = await self._attachments()
        return all(each["metadata"].get("deletionTimestamp") for each in found)

    async def is_attached(self) -> bool:
        volume = (await self.volumes()).get(self.volume_id, {})
        return any(each["State"] == "attached" for each in volume.get("Attachments", ()))

    async def clear(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pids[-1], signal.SIGKILL)
        await hands.discard(self.world.api, self.pod_path)
        await super().clear()


class ClaimDeleted(EdgeStory):
    """Its user deletes the claim."""

    async def act(self) -> None:
        await self.delete(self.claim_path)

    def ends(self) -> State:
        if self.phase in UNTIL_SWAP:
            return gone()
        return moved() if self.phase == "Swapping" else only_old()


class MoveDeleted(EdgeStory):
    """Its user deletes the VolumeMove."""

    async def act(self) -> None:
        await self.delete(self.move_path)

    def ends(self) -> State:
        return kept(None) if self.phase in UNTIL_SWAP else moved(None)


class MoveEdited(EdgeStory):
    """Its user asks for another zone, which is refused, and then to abort it."""

    async def act(self) -> None:
        other = {"zone": self.zone, "size": "9Gi"}
        self.refusals = [
            await self._refusal({"to": other}),
            await self._refusal({"consumers": {"policy": "ScaleDown"}}),
        ]
        await self.world.api.patch(self.move_path, {"spec": {"abort": True}})
        self.refusals.append(await self._refusal({"abort": False}))

    async def _refusal(self, spec: Json) -> int:
        try:
            await self.world.api.patch(self.move_path, {"spec": spec})
        except ApiError as error:
            return error.status
        return 0

    async def check(self) -> None:
        """It is refused whatever the phase is."""
        assert self.refusals == [422, 422, 422]
        await super().check()

    def ends(self) -> State:
        return kept() if self.phase in UNTIL_SWAP else moved()


class PodSneaksIn(EdgeStory):
    """A pod that uses the claim comes; its node never has the old volume once that is held."""

    WAITS: ClassVar[frozenset[str]] = frozenset({"", "Planned", "Warming", "Held"})

    async def act(self) -> None:
        await self.start_pod()
        await self.until("it is to be attached", self._attachments)

    async def finish(self) -> None:
        if self.phase in self.WAITS:
            await self.until("the pod has the old volume", self.is_attached)
        else:
            await self.is_in("Done" if self.phase == "Cleaning" else "Swapping")
        await self.end_pod()
        await self.is_in("Done")

    def ends(self) -> State:
        return moved()


class Warm(EdgeStory):
    """A pod has the volume from the beginning, so the first snapshot is taken in Warming."""

    @property
    def phase(self) -> str:
        return "Warming"

    async def tell(self) -> None:
        await self.start_pod()
        await self.until("the pod has the volume", self.is_attached)
        await super().tell()

    async def finish(self) -> None:
        await self.end_pod()
        await super().finish()


class ClaimDeletedWarm(Warm, ClaimDeleted):
    """Its user deletes the claim in Warming; it goes with its pod."""


class MoveDeletedWarm(Warm, MoveDeleted):
    """Its user deletes the VolumeMove in Warming."""


class MoveEditedWarm(Warm, MoveEdited):
    """Its user asks for another zone in Warming, and then to abort it."""


class Apart(EdgeStory):
    """A story in a namespace of its own."""

    def __init__(self, world: World, *args: Any, **options: Any) -> None:
        own = copy.copy(world)
        own.namespace = f"{world.namespace}-{next(world.numbers)}"
        own.claims = hands.claims_of(own.namespace)
        super().__init__(own, *args, **options)

    @property
    def namespace_path(self) -> str:
        return f"/api/v1/namespaces/{self.world.namespace}"

    async def furnish(self) -> None:
        body = {"metadata": {"name": self.world.namespace}}
        await self.world.api.create("/api/v1/namespaces", body)
        await super().furnish()

    async def clear(self) -> None:
        await super().clear()
        await hands.discard(self.world.api, self.namespace_path)


class NamespaceDeleted(Apart):
    """The namespace is deleted, with claim and VolumeMove."""

    async def act(self) -> None:
        await self.delete(self.namespace_path)

    async def finish(self) -> None:
        await self.is_gone(self.namespace_path)

    def ends(self) -> State:
        if self.phase in UNTIL_SWAP:
            return gone(None)
        return both() if self.phase == "Swapping" else only_old(None)


class NamespaceDeletedWarm(Warm, NamespaceDeleted):
    """The namespace is deleted in Warming, with the pod, too."""


class QuotaFull(Apart):
    """A ResourceQuota that comes in Swapping does not let the claim in again, until it is raised."""

    @property
    def _quotas(self) -> str:
        return f"{self.namespace_path}/resourcequotas"

    async def act(self) -> None:
        spec = {"hard": {"persistentvolumeclaims": "0"}}
        await self.world.api.create(self._quotas, {"metadata": {"name": "full"}, "spec": spec})

        async def in_force() -> bool:
            said = await hands.refusal_of_claim(self.world.api, self.world.namespace)
            return "exceeded quota: full" in said

        await self.until("the quota is in force", in_force)

    async def finish(self) -> None:
        async def says_so() -> bool:
            return "exceeded quota: full" in await self.told()

        await self.until("the move names the quota", says_so)
        await self.delete(f"{self._quotas}/full")

    def ends(self) -> State:
        return moved()


class Refusing(EdgeStory):
    """EC2 refuses what the phase needs: the move says so, and can be aborted."""

    CODE: ClassVar[str] = ""
    ACTION: ClassVar[str] = "CreateVolume"

    async def act(self) -> None:
        move = await self.world.api.get(self.move_path)
        match = {"VolumeId": self.volume_id}
        if self.ACTION == "CreateVolume":
            match = {"SnapshotId": move["status"]["snapshot"]}
        fault = {"action": self.ACTION, "do": "error", "n": 1000, "match": match}
        fault |= {"code": self.CODE, "message": f"No: {self.CODE}.", "http_status": 400}
        await asyncio.to_thread(lambda: self.world.hand.control(faults=[fault]))

    async def finish(self) -> None:
        async def says_so() -> bool:
            return self.CODE in await self.told()

        await self.until("the move says what EC2 says", says_so)
        await self.world.api.patch(self.move_path, {"spec": {"abort": True}})

    def ends(self) -> State:
        return kept()


class ZoneFull(Refusing):
    """The zone has no room."""

    CODE = "InsufficientVolumeCapacity"


class VolumesFull(Refusing):
    """The account's quota of volumes is used up."""

    CODE = "VolumeLimitExceeded"


class SnapshotsFull(Refusing):
    """The account's quota of snapshots is used up."""

    CODE, ACTION = "SnapshotLimitExceeded", "CreateSnapshot"


class SnapshotFails(EdgeStory):
    """The snapshot ends in state error: the move is undone, and says so."""

    async def act(self) -> None:
        await asyncio.to_thread(lambda: self.world.hand.control(failing_snapshots=1))

    async def check(self) -> None:
        """It says what became of the snapshot."""
        await super().check()
        assert "is in state error" in await self.told()

    def ends(self) -> State:
        return kept()


class VolumeFails(EdgeStory):
    """EC2 makes a volume that ends in state error, as for a key that is denied; another one helps."""

    async def act(self) -> None:
        await asyncio.to_thread(lambda: self.world.hand.control(failing_creates=1))

    def ends(self) -> State:
        return moved()


class ClassDeleted(EdgeStory):
    """The claim's class is deleted; all that was needed of it is frozen with the plan."""

    async def act(self) -> None:
        await self.delete(f"{hands.CLASSES}/{self.slot.driver}")

    def ends(self) -> State:
        return moved()

    async def clear(self) -> None:
        await super().clear()
        await hands.make_class(self.world.api, self.slot.driver, driver=self.slot.driver)


class NodeGone(EdgeStory):
    """The only node of the new zone goes; the claim waits there for the next one."""

    async def act(self) -> None:
        await self.delete(f"/api/v1/nodes/{self.node_there}")

    def ends(self) -> State:
        return moved()


class CopyDeleted(EdgeStory):
    """Somebody deletes the new volume in EC2 when Swapping begins: the claim keeps its old one."""

    async def act(self) -> None:
        (copied,) = set(await self.volumes()) - {self.volume_id}
        await asyncio.to_thread(self.world.hand.remove, [copied])

    def ends(self) -> State:
        return kept()


class CopyRestored(CopyDeleted):
    """The same while the claim is being deleted: a human restores it, as the move says."""

    async def finish(self) -> None:
        async def asked() -> bool:
            return "create a volume in zone" in await self.told()

        await self.until("a human is asked", asked)
        api, ec2 = self.world.api, self.world.hand.ec2
        told = (await api.get(self.move_path))["status"]
        tags = hands.tag_list({f"kubernetes.io/cluster/{self.cluster_id}": "owned"})
        restored = await asyncio.to_thread(
            lambda: ec2.create_volume(
                SnapshotId=told["snapshot"],
                AvailabilityZone=self.there,
                VolumeType="gp3",
                TagSpecifications=tags,
            )
        )
        path = f"{PVS}/{told['persistentVolume']['metadata']['name']}"
        found = await api.get(path)
        await self.remove(path)
        await self.is_gone(path)
        spec = found["spec"] | {
            "csi": found["spec"]["csi"] | {"volumeHandle": restored["VolumeId"]}
        }
        await api.create(PVS, {"metadata": {"name": found["metadata"]["name"]}, "spec": spec})

    def ends(self) -> State:
        return moved()


class ClaimGrown(EdgeStory):
    """Its user asks for more in between: the new volume is grown, and not the held one."""

    NEW_GIB: ClassVar[int] = 8
    OLD_GIB: ClassVar[int] = SIZE_GIB

    async def act(self) -> None:
        spec = {"resources": storage(self.NEW_GIB)}
        await self.world.api.patch(self.claim_path, {"spec": spec})

    async def finish(self) -> None:
        async def grown() -> bool:
            found = await self.volumes()
            return {k: v["Size"] for k, v in found.items() if k != self.volume_id} == dict.fromkeys(
                found.keys() - {self.volume_id}, self.NEW_GIB
            )

        await self.is_in("Done")
        await self.until("the new volume is grown", grown)
        assert (await self.volumes())[self.volume_id]["Size"] == self.OLD_GIB

    def ends(self) -> State:
        return moved()


class ClaimGrownBefore(ClaimGrown):
    """The old volume is larger by the time of its snapshot than when the plan was made."""

    OLD_GIB = ClaimGrown.NEW_GIB

    async def act(self) -> None:
        await super().act()
        grow = self.world.hand.ec2.modify_volume
        await asyncio.to_thread(grow, VolumeId=self.volume_id, Size=self.NEW_GIB)

        async def is_grown() -> bool:
            return bool((await self.volumes())[self.volume_id]["Size"] == self.NEW_GIB)

        await self.until("EC2 shows the old volume grown", is_grown)


class TwoMoves(EdgeStory):
    """Two VolumeMoves of one claim: the older one is carried out, the other one is refused."""

    async def act(self) -> None:
        found = await self.world.api.get(self.move_path)
        body = {key: found[key] for key in ("apiVersion", "kind", "spec")}
        body["metadata"] = {"name": f"{self.name}-again"}
        collection = self.move_path.rpartition("/")[0]
        await self.world.api.create(collection, body)

    async def finish(self) -> None:
        other = await self.object_when(
            "the second one is refused",
            f"{self.move_path}-again",
            lambda move: (move.get("status") or {}).get("phase") == "Refused",
        )
        said = other["status"]["message"]
        assert f"VolumeMove {self.name} of the same claim is not finished" in said

    def ends(self) -> State:
        return moved()

    async def clear(self) -> None:
        await self.remove(f"{self.move_path}-again")
        await super().clear()
