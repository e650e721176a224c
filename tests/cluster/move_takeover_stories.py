"""The stock driver leads in the middle of a move: it knows nothing of the move, nor of the hold.

Our controller dies in a phase. Stock's rules then act on the same objects, and ours comes back.
"""

from __future__ import annotations

import asyncio

from tests.cluster.hands import PVS, Json
from tests.cluster.mortal import AFTER, BEFORE
from tests.cluster.move_edge_stories import EdgeStory
from tests.cluster.move_states import UNTIL_SWAP, State, gone, kept, moved
from tests.cluster.sidecars import PROVISIONED_BY, PROVISIONER, Sidecars

DEVICE = "/dev/xvdba"
# Where our controller dies, how, and in which phase the move is then.
DEATHS: dict[tuple[str, str], str] = {
    ("PATCH volumemoves/status #1", BEFORE): "",
    ("PATCH volumemoves #1", BEFORE): "Planned",
    ("PATCH persistentvolumes #1", AFTER): "Held",
    ("CreateSnapshot #1", BEFORE): "Snapshotting",
    ("CreateSnapshot #1", AFTER): "Snapshotting",
    ("CreateVolume #1", AFTER): "Creating",
    ("PATCH persistentvolumes #2", AFTER): "Creating",
    ("DELETE persistentvolumeclaims #1", BEFORE): "Swapping",
}
_BEFORE_SNAPSHOT = frozenset({"", "Planned", "Held"})


class TakeoverStory(EdgeStory):
    """Stock leads for a while, and acts."""

    died_in: str | None = None

    @property
    def phase(self) -> str:
        """The phase in which ours dies: as stated, or as it is found to be."""
        return DEATHS.get((self.at, self.fate), self.died_in or "")

    @property
    def sidecars(self) -> Sidecars:
        return Sidecars(self.world.api, self.world.hand, self.slot.driver)

    async def furnish(self) -> None:
        await super().furnish()
        meta = {"annotations": {PROVISIONED_BY: self.slot.driver}, "finalizers": [PROVISIONER]}
        await self.world.api.patch(f"{PVS}/{self.pv}", {"metadata": meta}, "strategic")

    async def tell(self) -> None:
        self.may_live.clear()
        await self.ask()
        await self.comes_in_between()
        await self.until(f"ours dies at {self.at}", self.is_dead)
        self.died_in = await self.seen_move()
        assert self.died_in == self.phase, f"it died in {self.died_in} instead of {self.phase}"
        await self.act()
        self.may_live.set()
        await self.finish()

    async def comes_in_between(self) -> None:
        """What happens while ours still lives."""

    async def attach(self) -> None:
        """A pod comes, and stock attaches the old volume to its node: it is written to."""
        await self.start_pod()
        await self.sidecars.attach(self.pv, DEVICE)

    async def detach(self) -> None:
        """The pod goes, and stock detaches the volume."""
        await self.end_pod()
        await self.sidecars.detach(self.pv)


class Undisturbed(TakeoverStory):
    """Nobody dies, and nobody comes: it shows which requests there are."""

    async def tell(self) -> None:
        await self.ask()
        await self.is_in("Done")

    def ends(self) -> State:
        return moved()


class PodUnderStock(TakeoverStory):
    """A pod comes, writes, and goes while stock leads: the claim keeps what was written."""

    async def act(self) -> None:
        await self.attach()
        await self.detach()

    def ends(self) -> State:
        return moved() if self.phase in _BEFORE_SNAPSHOT else kept()


class PodStaysUnderStock(TakeoverStory):
    """A pod comes while stock leads, and still writes when ours is back."""

    async def act(self) -> None:
        await self.attach()

    async def finish(self) -> None:
        await self.is_in("Held" if self.phase in _BEFORE_SNAPSHOT else "Aborted")
        await self.until("ours leads again", self.leads_again)
        await self.end_pod()

    def ends(self) -> State:
        return moved() if self.phase in _BEFORE_SNAPSHOT else kept()


class ClaimDeletedUnderStock(TakeoverStory):
    """Its user deletes the claim, and stock the volume by its policy, unless that is Retain."""

    async def act(self) -> None:
        await self.delete(self.claim_path)
        found = await self.world.api.get(f"{PVS}/{self.pv}")
        if found["spec"]["persistentVolumeReclaimPolicy"] == "Delete":
            await self.sidecars.delete(self.pv)

    def ends(self) -> State:
        if self.phase in UNTIL_SWAP:
            return gone("Refused" if self.phase == "" else "Aborted")
        return moved()


class ClaimCreatedUnderStock(TakeoverStory):
    """Between deletion and creation of the claim, somebody creates it: it gets the new volume."""

    @property
    def phase(self) -> str:
        return "Swapping"

    async def act(self) -> None:
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": self.slot.driver,
            "resources": {"requests": {"storage": "1Gi"}},
        }
        await self.world.api.create(
            self.world.claims, {"metadata": {"name": self.name}, "spec": spec}
        )
        await self.claim_when("Bound", lambda claim: claim["status"].get("phase") == "Bound")

    def ends(self) -> State:
        return moved()


class PodOfDeletedClaim(TakeoverStory):
    """Stock attaches the old volume to a pod that has waited since before the claim was deleted.

    Then both volumes have something: a human chooses. Here, the old one.
    """

    @property
    def phase(self) -> str:
        return "Swapping"

    async def ask(self, **spec: object) -> None:
        match = {"VolumeId": self.volume_id}
        slow = {"action": "CreateSnapshot", "do": "delay", "delay_s": 3.0, "match": match}
        await asyncio.to_thread(lambda: self.world.hand.control(faults=[slow]))
        await super().ask(**spec)

    async def comes_in_between(self) -> None:
        await self.is_in("Snapshotting")
        await self.start_pod()
        await self.sidecars.wanted(self.pv)

    async def act(self) -> None:
        claim = await self.world.api.get(self.claim_path)
        assert claim["metadata"].get("deletionTimestamp"), claim
        await self.sidecars.attach(self.pv, DEVICE)
        await self.detach()
        await self.is_gone(self.claim_path)

    async def finish(self) -> None:
        async def asked() -> bool:
            return "create claim" in await self.told()

        await self.until("a human is asked", asked)
        await self.choose()

    async def choose(self) -> None:
        """The old volume, as the message says."""
        api, path = self.world.api, f"{PVS}/{self.pv}"
        claim_ref = {"name": self.name, "namespace": self.world.namespace}
        await api.patch(path, {"spec": {"claimRef": None}})
        recorded: Json = await api.get(self.move_path)
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": self.slot.driver,
            "volumeName": self.pv,
            "resources": {"requests": {"storage": "4Gi"}},
        }
        assert recorded["status"]["claim"]
        await api.create(self.world.claims, {"metadata": claim_ref, "spec": spec})

    def ends(self) -> State:
        return kept()


class PodOfDeletedClaimForgotten(PodOfDeletedClaim):
    """The same; a human chooses the new volume."""

    async def choose(self) -> None:
        found = await self.world.api.get(f"{PVS}/{self.pv}")
        left = [f for f in found["metadata"]["finalizers"] if f != self.sidecars.attacher]
        await self.world.api.patch(f"{PVS}/{self.pv}", {"metadata": {"finalizers": left}})

    async def check_data(self) -> None:
        """A human has said that it does not matter."""

    def ends(self) -> State:
        return moved()
