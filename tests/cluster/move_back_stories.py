"""Claims that get the old volume of a VolumeMove again."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from provisioner.model.volume_move import MoveTarget
from provisioner.moves import wish_rules
from tests.cluster.hands import PVS, Json
from tests.cluster.move_stories import MOVES, OF_MOVES, WITHOUT_COPY, MoveStory
from tests.cluster.source_stories import SIZE_GIB, in_zone, storage


class MoveBack(MoveStory):
    """A claim was moved to another zone, which is written by hand; it goes back."""

    LEAST = WITHOUT_COPY

    @property
    def done_name(self) -> str:
        return f"{self.name}-done"

    @property
    def done_path(self) -> str:
        return f"{MOVES}/namespaces/{self.world.namespace}/volumemoves/{self.done_name}"

    async def furnish(self) -> None:
        await super().furnish()
        api, pv_path = self.world.api, f"{PVS}/{self.pv}"
        before = await api.get(self.claim_path)
        await api.patch(pv_path, {"spec": {"persistentVolumeReclaimPolicy": "Retain"}})
        await self.remove(self.claim_path)
        await self.object_when(
            "the old volume is kept", pv_path, lambda pv: pv["status"]["phase"] == "Released"
        )
        done = await self._make_move()
        self.newer_pv = f"pvc-{done['metadata']['uid']}"
        self.newer_id = await asyncio.to_thread(self._make_volume, self.newer_pv, self.there)
        await self._make_claim()
        await self._write_done(before["metadata"]["uid"])
        await self.until("EC2 shows the newer volume", self._both_volumes)

    async def _both_volumes(self) -> bool:
        return set(await self.volumes()) == {self.volume_id, self.newer_id}

    async def _make_move(self) -> Json:
        body = {
            "apiVersion": "ebs-provisioner.io/v1alpha1",
            "kind": "VolumeMove",
            "metadata": {"name": self.done_name},
            "spec": {"claimName": self.name, "to": {"zone": self.there}, "keepSource": "1h"},
        }
        made: Json = await self.world.api.create(self.done_path.rpartition("/")[0], body)
        return made

    async def _make_claim(self) -> None:
        shared: Json = {"accessModes": ["ReadWriteOnce"], "storageClassName": self.slot.driver}
        volume = {
            "capacity": {"storage": f"{SIZE_GIB}Gi"},
            "persistentVolumeReclaimPolicy": "Delete",
            "csi": {"driver": self.slot.driver, "volumeHandle": self.newer_id},
            "claimRef": {"namespace": self.world.namespace, "name": self.name},
            "nodeAffinity": in_zone(self.there),
        }
        wish = {"volumeName": self.newer_pv, "resources": storage(SIZE_GIB)}
        api = self.world.api
        await api.create(PVS, {"metadata": {"name": self.newer_pv}, "spec": shared | volume})
        await api.create(
            self.world.claims, {"metadata": {"name": self.name}, "spec": shared | wish}
        )
        await self.claim_when("Bound", lambda claim: claim["status"].get("phase") == "Bound")

    async def _write_done(self, claim_uid: str) -> None:
        until = datetime.now(UTC) + timedelta(hours=1)
        status = {
            "phase": "Done",
            "volume": self.newer_id,
            "sourceKeptUntil": until.isoformat(timespec="seconds"),
            "source": {
                "claimUID": claim_uid,
                "persistentVolume": self.pv,
                "volumeID": self.volume_id,
                "reclaimPolicy": "Delete",
                "driver": self.slot.driver,
            },
        }
        await self.world.api.patch(f"{self.done_path}/status", {"status": status})

    async def tell(self) -> None:
        await self.ask(to={"source": self.done_name})
        await self.is_in("Done")
        await self.is_gone(f"{PVS}/{self.pv}")

    async def check(self) -> None:
        """The claim has its old volume in another object, and the newer one is kept."""
        api = self.world.api
        claim = await api.get(self.claim_path)
        move = await api.get(self.move_path)
        assert claim["status"]["phase"] == "Bound", claim
        assert claim["spec"]["volumeName"] == f"pvc-{move['metadata']['uid']}"
        new = await api.get(f"{PVS}/{claim['spec']['volumeName']}")
        assert new["spec"]["claimRef"]["uid"] == claim["metadata"]["uid"]
        assert new["spec"]["csi"]["volumeHandle"] == self.volume_id
        assert new["spec"]["persistentVolumeReclaimPolicy"] == "Delete"
        newer = await api.get(f"{PVS}/{self.newer_pv}")
        assert newer["status"]["phase"] == "Released"
        assert newer["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
        assert not OF_MOVES & newer["metadata"].get("annotations", {}).keys(), newer
        assert "nothing is lost" in move["status"]["plan"]["notes"][0]
        assert "estimate" not in move["status"]["plan"]
        assert set(await self.volumes()) == {self.volume_id, self.newer_id}
        assert len(await self.persistent_volumes()) == 2
        assert await self.snapshots() == {}
        assert len(await self.made()) == 0
        self.check_log()

    async def clear(self) -> None:
        await self.remove(self.done_path)
        await super().clear()


class MoveBackByCommand(MoveBack):
    """The same by `kubectl ebs move --abort`."""

    async def furnish(self) -> None:
        await super().furnish()
        claim = await self.world.api.get(self.claim_path)
        to = MoveTarget(source=self.done_name)
        wish = wish_rules.Wish(self.world.namespace, self.name, to)
        self.move_name = wish_rules.name_of(wish, claim["metadata"]["uid"], ())

    @property
    def move_path(self) -> str:
        return f"{MOVES}/namespaces/{self.world.namespace}/volumemoves/{self.move_name}"

    async def tell(self) -> None:
        done = f"{self.world.namespace}/{self.done_name}"
        self.unasked = await self.run_move("--abort", done)
        self.told = await self.run_move("--abort", done, "--yes")
        await self.is_gone(f"{PVS}/{self.pv}")

    async def check(self) -> None:
        """The plan says what is lost; the end names both volumes."""
        code, out, err = self.told
        assert code == 0, (out, err)
        assert (self.unasked[0], "give --yes" in self.unasked[2]) == (1, True), self.unasked
        assert f"its volume from before VolumeMove {self.done_name} again" in out
        assert "nothing is lost" in out
        last = out.splitlines()[-1]
        key = f"{self.world.namespace}/{self.name}"
        assert last.startswith(f"claim {key} has volume {self.volume_id} in {self.zone}; ")
        assert f"keeps the newer volume {self.newer_id} until" in last
        await super().check()
