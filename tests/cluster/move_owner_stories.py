"""Claims that get another volume while workloads have pods that use them (VolumeMove)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from provisioner.model.volume_move import MoveTarget
from provisioner.moves import wish_rules
from provisioner.sandbox import kubectl
from provisioner.sandbox.api import ApiError
from tests.cluster import hands
from tests.cluster.hands import PVS, Json
from tests.cluster.move_edge_stories import EdgeStory, Refusing
from tests.cluster.move_states import State, kept, moved
from tests.cluster.move_stories import MOVES, MoveStory
from tests.cluster.source_stories import SIZE_GIB, storage


class MoveUnderStatefulSet(MoveStory):
    """The claim of a StatefulSet is moved once it is scaled down, and its next pod has it."""

    def _names(self) -> Iterator[str]:
        return (f"data-{self._set_of(number)}-0" for number in self.world.numbers)

    @staticmethod
    def _set_of(number: int) -> str:
        return f"moved{number}"

    @property
    def set_name(self) -> str:
        return self.name.removeprefix("data-").removesuffix("-0")

    @property
    def sets_path(self) -> str:
        return f"/apis/apps/v1/namespaces/{self.world.namespace}/statefulsets"

    @property
    def pod_path(self) -> str:
        return f"{hands.pods_of(self.world.namespace)}/{self.set_name}-0"

    async def furnish(self) -> None:
        await super().furnish()
        template = self.pod_template(self.set_name)
        claims = {
            "metadata": {"name": "data"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": self.slot.driver,
                "resources": storage(SIZE_GIB),
            },
        }
        spec = {
            "serviceName": self.set_name,
            "replicas": 1,
            "selector": {"matchLabels": {"app": self.set_name}},
            "template": template,
            "volumeClaimTemplates": [claims],
        }
        await self.world.api.create(
            self.sets_path, {"metadata": {"name": self.set_name}, "spec": spec}
        )

    async def tell(self) -> None:
        async def attached() -> bool:
            volume = (await self.volumes()).get(self.volume_id, {})
            return bool(volume.get("Attachments"))

        await self.until("the volume is attached", attached)
        self.first_pod = (await self.world.api.get(self.pod_path))["metadata"]["uid"]
        await self.move()

    async def move(self) -> None:
        """Have the claim moved while its pod is there."""
        await self.ask(warm=False)
        await self.is_in("Held")
        await self.scale(0)
        await self.is_done_for_kubectl()
        await self.scale(1)

    async def a_pod_has_it(self, move: Json) -> None:
        """A move that stops pods is not Done before the new volume is attached for one."""
        new = (await self.volumes())[move["status"]["volume"]]
        assert [each["State"] for each in new["Attachments"]] == ["attached"], new

    async def is_done_for_kubectl(self) -> None:
        """Wait for the end as the documentation says."""
        namespace, name = self.world.namespace, self.move_path.rpartition("/")[2]
        words = ("wait", f"volumemove/{name}", "--for=condition=Done", "--timeout=90s")
        plane = self.world.sandbox.plane
        status, told, wrong = await kubectl.run(plane, f"--namespace={namespace}", *words)
        assert (status, wrong) == (0, ""), (told, wrong)

    async def scale(self, replicas: int) -> None:
        spec = {"spec": {"replicas": replicas}}
        await self.world.api.patch(f"{self.sets_path}/{self.set_name}", spec)

    async def check(self) -> None:
        """Another pod, the same claim in the other zone; the old volume was attached only once."""
        made, volumes = await self.bound_volume(), await self.volumes()
        assert volumes[made]["AvailabilityZone"] == self.there
        assert not volumes[self.volume_id].get("Attachments")
        assert len(await self.calls("AttachVolume", about=self.volume_id)) == 1
        assert await self.snapshots() == {}

        async def another_pod() -> bool:
            with contextlib.suppress(ApiError):
                pod = await self.world.api.get(self.pod_path)
                return bool(pod["metadata"]["uid"] != self.first_pod)
            return False

        await self.until("another pod is there", another_pod)
        self.check_log()

    async def clear(self) -> None:
        await hands.discard(self.world.api, f"{self.sets_path}/{self.set_name}")
        await self.is_gone(self.pod_path)
        await super().clear()


class MoveScalesDown(MoveUnderStatefulSet):
    """The StatefulSet of the claim is scaled down for its move, and back."""

    async def move(self) -> None:
        tracked = {"metadata": {"annotations": {"argocd.argoproj.io/tracking-id": "shop"}}}
        await self.world.api.patch(f"{self.sets_path}/{self.set_name}", tracked)
        await self.ask(consumers={"policy": "ScaleDown"}, warm=False)
        move = await self.is_in("Done")
        await self.a_pod_has_it(move)
        assert "warm" not in move["status"], move["status"]
        notes = move["status"]["plan"]["notes"]
        assert any(f"Argo CD manages StatefulSet {self.set_name}" in note for note in notes), notes
        (self.scaled,) = move["status"]["consumers"]
        assert move["status"]["plan"]["pods"] == [f"{self.set_name}-0"]
        estimate = move["status"]["plan"]["estimate"]
        assert (estimate["leastMinutes"], estimate["mostMinutes"]) == (2, 3)
        assert (estimate["currency"], estimate["sourceMonth"]) == ("USD", "0.32")

    async def check(self) -> None:
        """It had one replica, and has it again."""
        recorded = {"scaleTo": 0, "replicas": 1, "times": 1, "isBack": True}
        assert self.scaled.items() >= recorded.items()
        found = await self.world.api.get(f"{self.sets_path}/{self.set_name}")
        assert found["spec"]["replicas"] == 1
        await super().check()


class MoveScalesDownByCommand(MoveScalesDown):
    """The same by `kubectl ebs move --scale-down`."""

    async def furnish(self) -> None:
        await super().furnish()
        claim = await self.world.api.get(self.claim_path)
        to = MoveTarget(zone=self.there)
        wish = wish_rules.Wish(self.world.namespace, self.name, to, scale_down=True)
        self.move_name = wish_rules.name_of(wish, claim["metadata"]["uid"], ())

    @property
    def move_path(self) -> str:
        return f"{MOVES}/namespaces/{self.world.namespace}/volumemoves/{self.move_name}"

    async def move(self) -> None:
        claim = f"pvc/{self.world.namespace}/{self.name}"
        self.told = await self.run_move(claim, "--to-zone", self.there, "--scale-down", "--yes")
        (self.scaled,) = (await self.is_in("Done"))["status"]["consumers"]

    async def check(self) -> None:
        """The plan named the owner; the end says that it is back."""
        code, out, err = self.told
        who = f"StatefulSet {self.set_name}"
        assert code == 0, (out, err)
        assert f"  - {who} is scaled from 1 to 0, and back after the swap" in out
        assert "\n[1/7] Warming" in out
        assert f"\n{who} is scaled from 1 to 0\n" in out
        assert f"\n{who} is scaled back to 1" in out
        assert "start its pods again" not in out
        await super().check()


class MoveFought(MoveUnderStatefulSet):
    """Somebody scales the StatefulSet up again each time: the move is undone, and says why."""

    async def move(self) -> None:
        fight = asyncio.create_task(self._fight())
        try:
            await self.ask(consumers={"policy": "ScaleDown"}, warm=False)
            move = await self.is_in("Aborted")
        finally:
            fight.cancel()
            await asyncio.gather(fight, return_exceptions=True)
        self.message = move["status"]["message"]

    async def _fight(self) -> None:
        while True:
            await self.scale(1)
            await asyncio.sleep(0.02)  # the move looks away for less than half a second

    async def check(self) -> None:
        """The claim has its old volume, the StatefulSet its replica, and nothing else is there."""
        assert f"StatefulSet {self.set_name} was scaled down 3 times" in self.message
        claim = await self.world.api.get(self.claim_path)
        assert claim["spec"]["volumeName"] == self.pv
        found = await self.world.api.get(f"{self.sets_path}/{self.set_name}")
        assert found["spec"]["replicas"] == 1
        old = await self.world.api.get(f"{PVS}/{self.pv}")
        notes = old["metadata"].get("annotations", {})
        assert not [each for each in notes if each.endswith("-move")], notes
        assert set(await self.volumes()) == {self.volume_id}
        assert await self.snapshots() == {}
        self.check_log()

    async def clear(self) -> None:
        if await self._is_attached():
            ec2 = self.world.hand.ec2
            await asyncio.to_thread(ec2.detach_volume, VolumeId=self.volume_id, Force=True)
            await self.until("it is detached by hand", self._is_detached)
        await super().clear()

    async def _is_attached(self) -> bool:
        volume = (await self.volumes()).get(self.volume_id, {})
        return bool(volume.get("Attachments"))

    async def _is_detached(self) -> bool:
        return not await self._is_attached()


class MoveUnderTwoOwners(MoveStory):
    """A Deployment and a ReplicaSet use one claim; both are scaled down for its move, and back."""

    @property
    def apps(self) -> str:
        return f"/apis/apps/v1/namespaces/{self.world.namespace}"

    @property
    def owners(self) -> list[str]:
        return [f"{self.apps}/{kind}/{self.name}" for kind in ("deployments", "replicasets")]

    async def furnish(self) -> None:
        await super().furnish()
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": self.name}}
        for path in self.owners:
            kind = path.split("/")[-2]
            template = self.pod_template(f"{self.name}-{kind}")
            spec = {
                "replicas": 1,
                "selector": {"matchLabels": template["metadata"]["labels"]},
                "template": template | {"spec": template["spec"] | {"volumes": [volume]}},
            }
            body = {"metadata": {"name": self.name}, "spec": spec}
            await self.world.api.create(f"{self.apps}/{kind}", body)
        await self.until("two pods use the claim", self._two_pods)

    async def _pods(self) -> list[Json]:
        found = await hands.items(self.world.api, hands.pods_of(self.world.namespace))
        return [each for each in found if each["metadata"]["name"].startswith(f"{self.name}-")]

    async def _two_pods(self) -> bool:
        return len(await self._pods()) == len(self.owners)

    async def tell(self) -> None:
        await self.ask(consumers={"policy": "ScaleDown"}, warm=False)
        move = await self.is_in("Done")
        self.scaled = move["status"]["consumers"]
        await self.until("two pods are there again", self._two_pods)

    async def check(self) -> None:
        """Both had one replica, and have it again; the claim is in the other zone."""
        assert {each["kind"] for each in self.scaled} == {"Deployment", "ReplicaSet"}
        assert [each["replicas"] for each in self.scaled] == [1, 1]
        for path in self.owners:
            assert (await self.world.api.get(path))["spec"]["replicas"] == 1
        claim = await self.world.api.get(self.claim_path)
        new = await self.world.api.get(f"{PVS}/{claim['spec']['volumeName']}")
        volumes = await self.volumes()
        assert volumes[new["spec"]["csi"]["volumeHandle"]]["AvailabilityZone"] == self.there
        self.check_log()

    async def clear(self) -> None:
        for path in self.owners:
            await hands.discard(self.world.api, path)
        for pod in await self._pods():
            await self.is_gone(f"{hands.pods_of(self.world.namespace)}/{pod['metadata']['name']}")
        await super().clear()


class ScaledByMove(MoveUnderStatefulSet, EdgeStory):
    """Something happens in a phase of a move that has scaled the StatefulSet down."""

    async def ask(self, **spec: object) -> None:
        await super().ask(consumers={"policy": "ScaleDown"}, warm=False, **spec)

    async def tell(self) -> None:
        await EdgeStory.tell(self)

    async def has_ended(self, phase: str) -> None:
        """Wait for the last phase; the StatefulSet has its replica by then."""

        async def ended() -> bool:
            await self.beat()
            return await self.seen_move() == phase

        await self.until(f"the move is {phase}", ended)
        found = await self.world.api.get(f"{self.sets_path}/{self.set_name}")
        assert found["spec"]["replicas"] == 1

    async def check(self) -> None:
        """As other moves end, and its pod has the volume."""
        await EdgeStory.check(self)


class ScaledUpInSwapping(ScaledByMove):
    """Its owner is scaled up just before the claim goes: it is scaled down once more, and back."""

    async def act(self) -> None:
        await self.scale(1)
        await self.until("its pod is there", self._has_pod)

    async def _has_pod(self) -> bool:
        with contextlib.suppress(ApiError):
            return bool(await self.world.api.get(self.pod_path))
        return False

    async def finish(self) -> None:
        await self.has_ended("Done")

    def ends(self) -> State:
        return replace(moved(), left=["attached new"])


class GivenUp(ScaledByMove, Refusing):
    """EC2 refuses for too long: the pod that was stopped comes back to its old volume."""

    CODE: ClassVar[str] = "InsufficientVolumeCapacity"
    STEP_S = 180.0

    async def finish(self) -> None:
        await self.has_ended("Aborted")
        said = await self.told()
        assert said.startswith("given up, as it did not get on for "), said
        assert self.CODE in said

    def ends(self) -> State:
        return replace(kept(), left=["attached old"])


class TwoClaimsOfOnePod(MoveUnderTwoOwners):
    """Two claims of one pod are moved at the same time: its owner comes back, and is up at the end."""

    @property
    def other_path(self) -> str:
        return f"{self.world.claims}/{self.name}-more"

    @property
    def owners(self) -> list[str]:
        return [f"{self.apps}/deployments/{self.name}"]

    async def furnish(self) -> None:
        await hands.make_claim(
            self.world.api, self.world.namespace, f"{self.name}-more", self.slot.driver
        )
        await super().furnish()
        volumes = [
            {"name": name, "persistentVolumeClaim": {"claimName": claim}}
            for name, claim in (("data", self.name), ("more", f"{self.name}-more"))
        ]
        template = {"spec": {"volumes": volumes}}
        strategy = {"type": "Recreate", "rollingUpdate": None}
        patch = {"spec": {"strategy": strategy, "template": template}}
        await self.world.api.patch(self.owners[0], patch)
        await self.until("a pod uses both", self._uses_both)

    async def _uses_both(self) -> bool:
        pods = await self._pods()
        return [len(each["spec"]["volumes"]) >= len(("data", "more")) for each in pods] == [True]

    async def tell(self) -> None:
        is_bound = "Bound"
        more = await self.claim_when(
            is_bound, lambda claim: claim["status"].get("phase") == is_bound, self.other_path
        )
        self.more_pv = more["spec"]["volumeName"]
        await self.ask(to={"encrypted": True}, consumers={"policy": "ScaleDown"}, warm=False)
        first = await self.world.api.get(self.move_path)
        wish = first["spec"] | {"claimName": f"{self.name}-more"}
        body = {key: first[key] for key in ("apiVersion", "kind")}
        body |= {"metadata": {"name": f"{self.name}-more"}, "spec": wish}
        await self.world.api.create(self.move_path.rpartition("/")[0], body)
        for path in (self.move_path, f"{self.move_path}-more"):
            await self.object_when(
                "the move is Done",
                path,
                lambda move: (move.get("status") or {}).get("phase") == "Done",
            )

    async def check(self) -> None:
        """Both claims have new volumes, and the owner its replica."""
        for path, old in ((self.claim_path, self.pv), (self.other_path, self.more_pv)):
            claim = await self.world.api.get(path)
            assert claim["status"]["phase"] == "Bound", claim
            assert claim["spec"]["volumeName"] != old
        assert (await self.world.api.get(self.owners[0]))["spec"]["replicas"] == 1
        assert await self.snapshots() == {}
        self.check_log()

    async def clear(self) -> None:
        await self.remove(f"{self.move_path}-more")
        for path in self.owners:
            await hands.discard(self.world.api, path)
        named = [
            each["metadata"]["name"]
            for each in await hands.items(self.world.api, PVS)
            if (each["spec"].get("claimRef") or {}).get("name") == f"{self.name}-more"
        ]
        await self.remove(self.other_path)
        for name in named:
            await self.remove(f"{PVS}/{name}")
        await super().clear()
