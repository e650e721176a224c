"""Two claims of one pod that are moved together, while the pod restarts."""

from __future__ import annotations

import contextlib
from typing import Any, ClassVar

from provisioner.sandbox.api import ApiError
from tests.cluster import hands
from tests.cluster.hands import PVS, Json
from tests.cluster.move_restart_stories import MoveRestarts, gates_of
from tests.cluster.move_set_stories import make_bound_claim
from tests.cluster.move_stories import OF_MOVES

_ENDS = {"Done", "Aborted"}


class MoveTogether(MoveRestarts):
    """A pod with two claims restarts once, and has both of them in the other zone."""

    LEAST: ClassVar[frozenset[str]] = MoveRestarts.LEAST

    @property
    def names(self) -> tuple[str, str]:
        """Of the claims, and of their moves; the first one leads."""
        return self.name, f"{self.name}-logs"

    def path_of(self, move: str) -> str:
        return f"{self.move_path.rpartition('/')[0]}/{move}"

    def pod_template(self, label: str) -> Json:
        template = super().pod_template(label)
        logs = {"name": "logs", "persistentVolumeClaim": {"claimName": self.names[1]}}
        spec = template["spec"]
        spec["volumes"] = [logs]
        spec["containers"][0]["volumeMounts"].append({"name": "logs", "mountPath": "/logs"})
        return template

    async def furnish(self) -> None:
        await make_bound_claim(self, self.names[1])
        await super().furnish()

    async def tell(self) -> None:
        async def attached() -> bool:
            return all(each["Attachments"] for each in (await self.volumes()).values())

        await self.until("both volumes are attached", attached)
        self.before = set(await self.volumes())
        self.first_pod = (await self.world.api.get(self.pod_path))["metadata"]["uid"]
        await self.move()

    async def move(self) -> None:
        for name, other in (self.names, self.names[::-1]):
            body: dict[str, Any] = {
                "apiVersion": "ebs-provisioner.io/v1alpha1",
                "kind": "VolumeMove",
                "metadata": {"name": name},
                "spec": {
                    "claimName": name,
                    "to": {"zone": self.there},
                    "keepSource": "1h",
                    "movedWith": [other],
                    "consumers": {"policy": "Restart"},
                },
            }
            await self.world.api.create(self.path_of(name).rpartition("/")[0], body)
        await self.act()
        self.ended = [await self.end_of(name) for name in self.names]

    async def act(self) -> None:
        """What somebody does meanwhile."""

    async def end_of(self, name: str) -> Json:
        """A move that has ended."""
        return await self.object_when(
            f"move {name} has ended",
            self.path_of(name),
            lambda move: move.get("status", {}).get("phase") in _ENDS,
        )

    async def check(self) -> None:
        """Both claims are in the other zone, with the pod; both old volumes are kept."""
        assert [each["status"]["phase"] for each in self.ended] == ["Done", "Done"], self.ended
        evicted = [uid for each in self.ended for uid in each["status"].get("restarts", ())]
        assert set(evicted) == {self.first_pod}, self.ended
        await self.check_moved()

    async def check_moved(self) -> None:
        """Four volumes, of which the pod has the two new ones."""
        volumes, zones = await self.volumes(), []
        for name in self.names:
            claim = await self.world.api.get(f"{self.world.claims}/{name}")
            assert claim["status"]["phase"] == "Bound", claim
            new = await self.world.api.get(f"{PVS}/{claim['spec']['volumeName']}")
            zones.append(volumes[new["spec"]["csi"]["volumeHandle"]]["AvailabilityZone"])
        assert zones == [self.there, self.there]
        assert len(volumes) == 4, volumes
        assert self.before < set(volumes)
        kept = [each for each in await self._objects() if self._is_old(each)]
        policies = [each["spec"]["persistentVolumeReclaimPolicy"] for each in kept]
        assert policies == ["Retain", "Retain"], kept
        await self._check_pod(self.node_there)

    def _is_old(self, volume: Json) -> bool:
        return volume["spec"]["csi"]["volumeHandle"] in self.before

    async def _objects(self) -> list[Json]:
        return [
            each
            for each in await hands.items(self.world.api, PVS)
            if (each["spec"].get("claimRef") or {}).get("name") in self.names
        ]

    async def _check_pod(self, node: str) -> None:
        """Nothing is left of the moves, and the pod has a node in the zone of its volumes."""
        assert await self.snapshots() == {}
        for each in await self._objects():
            assert not OF_MOVES & (each["metadata"].get("annotations") or {}).keys(), each
        pod = await self.pod_when("has a node", lambda pod: "nodeName" in pod["spec"])
        assert (gates_of(pod), pod["spec"]["nodeName"]) == ([], node)
        self.check_log()

    async def clear(self) -> None:
        await hands.discard(self.world.api, f"{self.sets_path}/{self.set_name}")
        await self.is_gone(self.pod_path)
        await self._free_volumes()
        named, logs = await self._objects(), self.names[1]
        await self.remove(self.path_of(logs))
        await self.remove(f"{self.world.claims}/{logs}")
        for each in named:
            if each["spec"]["claimRef"]["name"] == logs:
                await self.remove(f"{PVS}/{each['metadata']['name']}")
        await super().clear()


class MoveTogetherBack(MoveTogether):
    """After that both go back by one command, as the pod could not start with one of them."""

    async def move(self) -> None:
        await super().move()
        await super().check()
        words = ("--abort", f"{self.world.namespace}/{self.names[1]}", "--restart", "--yes")
        self.told = await self.run_move(*words)

    async def check(self) -> None:
        """The pod has the volumes of before, in their zone; the newer ones are kept."""
        assert self.told[0] == 0, self.told
        volumes = await self.volumes()
        for name in self.names:
            claim = await self.world.api.get(f"{self.world.claims}/{name}")
            volume = await self.world.api.get(f"{PVS}/{claim['spec']['volumeName']}")
            assert self._is_old(volume), volume
        assert len(volumes) == 4, volumes
        await self._check_pod(self.node_here)

    async def clear(self) -> None:
        for each in await hands.items(self.world.api, self.path_of("").rstrip("/")):
            if each["spec"]["claimName"] in self.names:
                await self.remove(self.path_of(each["metadata"]["name"]))
        await super().clear()


class MoveTogetherAborted(MoveTogether):
    """One of the two is aborted late: both are undone, or both are moved."""

    LEAST: ClassVar[frozenset[str]] = frozenset({"PATCH volumemoves/status", "CreateSnapshot"})
    # How far the new volumes are when the abort is heard of.
    BY_CHANCE = frozenset(
        {"POST persistentvolumes", "DELETE persistentvolumes", "DeleteTags", "DeleteVolume"}
    )

    async def act(self) -> None:
        late = {"Creating", "Swapping", "Cleaning", "Done"}
        await self.object_when(
            "a new volume is created",
            self.path_of(self.names[1]),
            lambda move: move.get("status", {}).get("phase") in late,
        )
        with contextlib.suppress(ApiError):
            await self.world.api.patch(self.path_of(self.names[1]), {"spec": {"abort": True}})

    async def check(self) -> None:
        """The pod has both of its claims in one zone, whichever."""
        phases = [each["status"]["phase"] for each in self.ended]
        if phases == ["Done", "Done"]:
            await self.check_moved()
            return
        assert phases == ["Aborted", "Aborted"], self.ended
        assert set(await self.volumes()) == self.before
        objects = await self._objects()
        assert [each["spec"]["persistentVolumeReclaimPolicy"] for each in objects] == ["Delete"] * 2
        for name in self.names:
            claim = await self.world.api.get(f"{self.world.claims}/{name}")
            assert claim["status"]["phase"] == "Bound", claim
        await self._check_pod(self.node_here)


class MoveTogetherUndone(MoveTogetherAborted):
    """One of the two is aborted while pods end: the other does not go on until it could swap."""

    async def act(self) -> None:
        logs = self.path_of(self.names[1])
        await self.object_when(
            "pods are stopped", logs, lambda move: move.get("status", {}).get("phase") == "Held"
        )
        await self.world.api.patch(logs, {"spec": {"abort": True}})

    async def check(self) -> None:
        """Both are undone, and the first one without a snapshot that took pods' time."""
        first, logs = (each["status"]["undoneFrom"] for each in self.ended)
        # It looks every two seconds whether the other one is as far, and may not have stopped yet.
        assert first in {"Warming", "Held"}, self.ended
        assert logs == "Held", self.ended
        await super().check()
