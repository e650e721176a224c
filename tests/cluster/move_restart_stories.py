"""Claims that get another volume while their pods restart, held back by a real webhook."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any, ClassVar

from provisioner.sandbox.installation import unregister_webhook
from provisioner.sandbox.up import Sandbox
from tests.cluster import hands
from tests.cluster.hands import PVS, Json
from tests.cluster.move_owner_stories import MoveFought, MoveUnderStatefulSet
from tests.cluster.replicas import WebhookReplica

GATE = "ebs-provisioner.io/volume-move"
HELD = "ebs-provisioner.io/held-for-move"


@contextlib.asynccontextmanager
async def pods_held_back(sandbox: Sandbox) -> AsyncIterator[None]:
    """A webhook that holds the pods of moves back, as manifests/webhook-volume-moves has it."""
    try:
        async with WebhookReplica(sandbox, holds_pods=True, name="webhook-of-moves"):
            yield
    finally:
        await unregister_webhook(sandbox.plane)


def gates_of(pod: Json) -> list[str]:
    return [each["name"] for each in pod["spec"].get("schedulingGates") or ()]


class MoveRestarts(MoveUnderStatefulSet):
    """The pod of a StatefulSet restarts for the move of its claim, and then has the new volume."""

    LEAST = frozenset(
        {
            "PATCH volumemoves",
            "PATCH volumemoves/status",
            "PATCH persistentvolumes",
            "POST pods/eviction",
            "CreateSnapshot",
            "CreateVolume",
            "DELETE persistentvolumeclaims",
            "POST persistentvolumeclaims",
            "PATCH pods",
        }
    )
    first_pod = ""

    async def pod_when(self, what: str, is_so: Any) -> Json:
        """Wait until the pod of the StatefulSet looks so."""
        return await self.object_when(f"the pod {what}", self.pod_path, is_so)

    def is_held_back(self, pod: Json) -> bool:
        """Whether it is another pod that waits for this move."""
        notes = pod["metadata"].get("annotations") or {}
        is_named = notes.get(HELD) == f"{self.world.namespace}/{self.name}"
        return is_named and gates_of(pod) == [GATE] and "nodeName" not in pod["spec"]

    def is_let_go(self, pod: Json) -> bool:
        """Whether it is another pod, which has a node and nothing of ours any more."""
        is_another = pod["metadata"]["uid"] != self.first_pod
        is_marked = HELD in (pod["metadata"].get("annotations") or {})
        return is_another and not is_marked and "nodeName" in pod["spec"]

    async def move(self) -> None:
        """Nobody scales anything."""
        await self.ask(consumers={"policy": "Restart"})
        if not self.at:
            await self.pod_when("is held back", self.is_held_back)
        self.done = await self.is_in("Done")
        await self.a_pod_has_it(self.done)

    async def check(self) -> None:
        """One pod was evicted, and the one that took its place runs in the other zone."""
        status = self.done["status"]
        assert status["restarts"] == [self.first_pod]
        assert status["plan"]["pods"] == [f"{self.set_name}-0"]
        (stop,) = status["plan"]["stops"]
        assert stop.startswith(f"StatefulSet {self.set_name}: pod {self.set_name}-0 is evicted")
        assert "consumers" not in status
        pod = await self.pod_when("is let go", self.is_let_go)
        assert gates_of(pod) == []
        assert pod["spec"]["nodeName"] == self.node_there
        found = await self.world.api.get(f"{self.sets_path}/{self.set_name}")
        assert found["spec"]["replicas"] == 1
        assert found["metadata"]["generation"] == 1
        await self.check_volumes()

    async def check_volumes(self) -> None:
        """The claim has its new volume in the other zone, and the old one was attached once."""
        await super().check()


class MoveRestartsIntruder(MoveRestarts):
    """A pod that no webhook can hold back comes in between phases: it is evicted, too."""

    @property
    def intruder_path(self) -> str:
        return f"{hands.pods_of(self.world.namespace)}/{self.name}-intruder"

    @property
    def owner_path(self) -> str:
        return f"/api/v1/namespaces/{self.world.namespace}/configmaps/{self.name}-owner"

    async def move(self) -> None:
        owner = await self.world.api.create(
            self.owner_path.rpartition("/")[0], {"metadata": {"name": f"{self.name}-owner"}}
        )
        await self.ask(consumers={"policy": "Restart"})
        await self.object_when(
            "the volume is held",
            f"{PVS}/{self.pv}",
            lambda found: HELD in (found["metadata"].get("annotations") or {}),
        )
        pod = self.intruder(f"{self.name}-intruder")
        by = {"apiVersion": "v1", "kind": "ConfigMap", "name": f"{self.name}-owner"}
        pod["metadata"]["ownerReferences"] = [
            by | {"uid": owner["metadata"]["uid"], "controller": True}
        ]
        made = await self.world.api.create(self.intruder_path.rpartition("/")[0], pod)
        self.done = await self.is_in("Done")
        assert gates_of(made) == []
        assert self.done["status"]["restarts"] == [self.first_pod, made["metadata"]["uid"]]
        self.done["status"]["restarts"].pop()
        await self.is_gone(self.intruder_path)

    def intruder(self, name: str) -> Json:
        """A pod that names its node, and uses the claim."""
        pod = self.pod_template(name)
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": self.name}}
        pod["metadata"] = {"name": name}
        pod["spec"]["nodeName"] = self.node_here
        pod["spec"]["volumes"] = [volume]
        return pod

    async def check_volumes(self) -> None:
        """The claim has its new volume; nobody has the old one, at the latest in a moment."""
        claim = await self.world.api.get(self.claim_path)
        assert claim["spec"]["volumeName"] != self.pv
        assert len(await self.volumes()) == 2
        assert await self.snapshots() == {}

        # Kubernetes ends the attachment of the intruder once it was made, which had to wait for the
        # hold, and its node has told since that it does not use the volume.
        async def detached() -> bool:
            await self.nodes_are_ready()
            named = [
                each["spec"]["source"].get("persistentVolumeName")
                for each in await hands.items(self.world.api, hands.ATTACHMENTS)
            ]
            return self.pv not in named

        await self.until("the old volume is attached for nobody", detached)
        assert not (await self.volumes())[self.volume_id].get("Attachments")
        self.check_log()

    async def clear(self) -> None:
        await hands.discard(self.world.api, self.intruder_path)
        await hands.discard(self.world.api, self.owner_path)
        await super().clear()


class MoveRestartUndone(MoveRestartsIntruder, MoveFought):
    """The move is aborted while a pod is held back: the pod starts where it was."""

    LEAST: ClassVar[frozenset[str]] = frozenset()

    async def move(self) -> None:
        await self.ask(consumers={"policy": "Restart"})
        await self.is_in("Held")
        # Nobody would make it again, so the move waits for it.
        pods = self.intruder_path.rpartition("/")[0]
        await self.world.api.create(pods, self.intruder(f"{self.name}-intruder"))
        await self.pod_when("is held back", self.is_held_back)
        await self.undo()
        await self.pod_when("is let go", self.is_let_go)

    async def undo(self) -> None:
        """Have the move end before the exchange."""
        await self.world.api.patch(self.move_path, {"spec": {"abort": True}})
        status = (await self.is_in("Aborted"))["status"]
        assert status["restarts"] == [self.first_pod]
        assert status["message"] == "aborted by its user"

    async def check(self) -> None:
        """The claim has its old volume, and nothing of the move is left."""
        pod = await self.world.api.get(self.pod_path)
        assert pod["spec"]["nodeName"] == self.node_here
        assert gates_of(pod) == []
        claim = await self.world.api.get(self.claim_path)
        assert claim["spec"]["volumeName"] == self.pv
        old = await self.world.api.get(f"{PVS}/{self.pv}")
        assert not [each for each in old["metadata"].get("annotations", {}) if "-move" in each]
        assert set(await self.volumes()) == {self.volume_id}
        assert await self.snapshots() == {}
        self.check_log()


class MoveRestartDeleted(MoveRestartUndone):
    """The move is deleted while a pod is held back: the pod starts where it was."""

    async def undo(self) -> None:
        await self.world.api.delete(self.move_path)
        await self.is_gone(self.move_path)
