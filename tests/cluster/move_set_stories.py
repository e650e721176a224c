"""A StatefulSet whose claims are moved by `kubectl ebs move sts/NAME`, replica by replica."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import itertools
from typing import ClassVar

from provisioner.model.names import MOVED_SET
from provisioner.sandbox.api import ApiError
from tests.cluster import hands
from tests.cluster.hands import PVS, Json
from tests.cluster.move_restart_stories import MoveRestarts
from tests.cluster.move_stories import MOVES, MoveStory
from tests.cluster.source_stories import SIZE_GIB, in_zone, storage

REPLICAS = 3


async def make_bound_claim(story: MoveStory, claim_name: str) -> None:
    """A claim that is bound to a volume of its own in the zone of this story."""
    name, api = f"{story.cluster_id}-{claim_name}", story.world.api
    tags = {f"kubernetes.io/cluster/{story.cluster_id}": "owned", "CSIVolumeName": name}
    made = await asyncio.to_thread(
        story.world.hand.ec2.create_volume,
        AvailabilityZone=story.zone,
        Size=SIZE_GIB,
        VolumeType="gp3",
        TagSpecifications=hands.tag_list(tags | {"ebs.csi.aws.com/cluster": "true"}),
    )
    shared: Json = {"accessModes": ["ReadWriteOnce"], "storageClassName": story.slot.driver}
    volume = {
        "capacity": {"storage": f"{SIZE_GIB}Gi"},
        "persistentVolumeReclaimPolicy": "Delete",
        "csi": {"driver": story.slot.driver, "volumeHandle": str(made["VolumeId"])},
        "claimRef": {"namespace": story.world.namespace, "name": claim_name},
        "nodeAffinity": in_zone(story.zone),
    }
    wish = {"volumeName": name, "resources": storage(SIZE_GIB)}
    await api.create(PVS, {"metadata": {"name": name}, "spec": shared | volume})
    await api.create(story.world.claims, {"metadata": {"name": claim_name}, "spec": shared | wish})


class MoveSetByCommand(MoveRestarts):
    """Of three replicas the highest goes first, and each waits until the others are Ready."""

    LEAST: ClassVar[frozenset[str]] = frozenset()

    @property
    def moves_path(self) -> str:
        return f"{MOVES}/namespaces/{self.world.namespace}/volumemoves"

    @property
    def others(self) -> list[str]:
        """The claims of the other replicas."""
        return [f"data-{self.set_name}-{number}" for number in range(1, REPLICAS)]

    @property
    def pods(self) -> list[str]:
        space = hands.pods_of(self.world.namespace)
        return [f"{space}/{self.set_name}-{number}" for number in range(REPLICAS)]

    async def furnish(self) -> None:
        for each in self.others:
            await make_bound_claim(self, each)
        await super().furnish()
        await self.scale(REPLICAS)

    async def move(self) -> None:
        """Without kubelets, pods are Ready by hand once they have a node."""
        kubelet = asyncio.create_task(self._make_ready())
        try:
            for path in self.pods:
                await self.object_when("the pod is Ready", path, _is_ready)
            words = ("--to-zone", self.there, "--keep-source", "1h", "--yes")
            self.told = await self.run_move(f"sts/{self.world.namespace}/{self.set_name}", *words)
        finally:
            kubelet.cancel()
            await asyncio.gather(kubelet, return_exceptions=True)

    async def _make_ready(self) -> None:
        while True:
            for path in self.pods:
                with contextlib.suppress(ApiError):
                    pod = await self.world.api.get(path)
                    if pod["spec"].get("nodeName") and not _is_ready(pod):
                        at = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
                        ready = {"type": "Ready", "status": "True", "lastTransitionTime": at}
                        status = {"phase": "Running", "conditions": [ready]}
                        await self.world.api.patch(
                            f"{path}/status", {"status": status}, "strategic"
                        )
            await asyncio.sleep(0.2)

    async def moves(self) -> list[Json]:
        """Those of the StatefulSet, in the order in which they were made."""
        found = await hands.items(self.world.api, self.moves_path)
        mine = [e for e in found if e["metadata"].get("labels", {}).get(MOVED_SET) == self.set_name]
        return sorted(mine, key=lambda each: str(each["metadata"]["creationTimestamp"]))

    async def check(self) -> None:
        """One after the other, all of them are in the other zone, and so are their pods."""
        code, out, err = self.told
        assert code == 0, (out, err)
        assert (
            out.splitlines()[-1] == f"StatefulSet {self.world.namespace}/{self.set_name} is moved"
        )
        assert f"all {REPLICAS} take about" in out
        moves = await self.moves()
        claims = [self.name, *self.others]
        assert [each["spec"]["claimName"] for each in moves] == claims[::-1]
        for before, after in itertools.pairwise(moves):
            ended = dt.datetime.fromisoformat(before["status"]["phaseSince"])
            made = str(after["metadata"]["creationTimestamp"])
            assert ended <= dt.datetime.fromisoformat(made), (before, after)
        assert [len(each["status"]["restarts"]) for each in moves] == [1] * REPLICAS
        volumes = await self.volumes()
        for name in claims:
            claim = await self.world.api.get(f"{self.world.claims}/{name}")
            new = await self.world.api.get(f"{PVS}/{claim['spec']['volumeName']}")
            made = new["spec"]["csi"]["volumeHandle"]
            assert volumes[made]["AvailabilityZone"] == self.there
        assert len(volumes) == 2 * REPLICAS
        for path in self.pods:
            assert (await self.world.api.get(path))["spec"]["nodeName"] == self.node_there
        await self.check_volumes()

    async def clear(self) -> None:
        await hands.discard(self.world.api, f"{self.sets_path}/{self.set_name}")
        for path in self.pods:
            await self.is_gone(path)
        for each in await self.moves():
            await self.remove(f"{self.moves_path}/{each['metadata']['name']}")
        named = await hands.items(self.world.api, PVS)
        for name in self.others:
            await self.remove(f"{self.world.claims}/{name}")
            for each in named:
                if (each["spec"].get("claimRef") or {}).get("name") == name:
                    await self.remove(f"{PVS}/{each['metadata']['name']}")
        await super().clear()


def _is_ready(pod: Json) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)
