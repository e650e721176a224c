"""What somebody does to a claim while a pod is to check its new volume, or to copy its files.

The controller pauses before it creates the pod, whose claims and PersistentVolumes are there.
"""

from __future__ import annotations

from typing import Any, ClassVar

from tests.cluster import hands
from tests.cluster.hands import PVS, Json
from tests.cluster.move_copy_stories import MoveChecks, MoveCopies
from tests.cluster.move_edge_stories import (
    ClaimDeleted,
    EdgeStory,
    MoveDeleted,
    MoveEdited,
    NamespaceDeleted,
    PodSneaksIn,
)
from tests.cluster.move_states import State, kept


class WithPod(EdgeStory, MoveCopies):
    """However it ends, nothing is left of the pod, its claims and their PersistentVolumes."""

    PHASE: ClassVar[str] = "Copying"
    WISH: ClassVar[Json] = {"to": {"size": "2Gi"}}

    @property
    def phase(self) -> str:
        return self.PHASE

    async def ask(self, **spec: Any) -> None:
        await super().ask(**self.WISH | spec)

    async def tell(self) -> None:
        async with self._kubelet():
            await super().tell()
            await self.comes_to(self.ends())  # pods end as long as there is a kubelet

    async def check(self) -> None:
        await super().check()
        names = {each["metadata"]["name"] for each in await hands.items(self.world.api, PVS)}
        assert not [each for each in names if self.uid in each and not each.endswith(self.uid)]
        for plural in ("pods", "persistentvolumeclaims"):
            path = f"/api/v1/namespaces/{self.world.namespace}/{plural}"
            found = await hands.items(self.world.api, path)
            assert not [each for each in found if self.uid in each["metadata"]["name"]]


class InCheck(WithPod, MoveChecks):
    """A pod is to check the new volume."""

    PHASE, WISH = "Checking", {"check": True}


class ClaimDeletedInCheck(InCheck, ClaimDeleted):
    """Its user deletes the claim."""


class MoveDeletedInCheck(InCheck, MoveDeleted):
    """Its user deletes the VolumeMove."""


class MoveEditedInCheck(InCheck, MoveEdited):
    """Its user asks for another zone, which is refused, and then to abort it."""


class NamespaceDeletedInCheck(InCheck, NamespaceDeleted):
    """The namespace is deleted, with claim, VolumeMove and what is there for the pod."""


class PodSneaksInCheck(InCheck, PodSneaksIn):
    """A pod of the claim comes, and waits until the claim can be exchanged."""

    async def check(self) -> None:
        """The new volume was checked all the same."""
        await super().check()
        move = await self.world.api.get(self.move_path)
        assert move["status"]["checked"].items() >= self.REPORT.items()


class ClaimDeletedInCopy(WithPod, ClaimDeleted):
    """Its user deletes the claim."""


class MoveDeletedInCopy(WithPod, MoveDeleted):
    """Its user deletes the VolumeMove."""


class MoveEditedInCopy(WithPod, MoveEdited):
    """Its user asks for another zone, which is refused, and then to abort it."""


class NamespaceDeletedInCopy(WithPod, NamespaceDeleted):
    """The namespace is deleted, with claim, VolumeMove and what is there for the pod."""


class PodSneaksInCopy(WithPod, PodSneaksIn):
    """A pod of the claim comes: the copy is thrown away, and the pod gets the old volume."""

    async def finish(self) -> None:
        await self.until("the pod has the old volume", self.is_attached)
        await self.end_pod()

    def ends(self) -> State:
        return kept()


EVERY: tuple[type[WithPod], ...] = (
    *(ClaimDeletedInCheck, MoveDeletedInCheck, MoveEditedInCheck, NamespaceDeletedInCheck),
    *(ClaimDeletedInCopy, MoveDeletedInCopy, MoveEditedInCopy, NamespaceDeletedInCopy),
    *(PodSneaksInCheck, PodSneaksInCopy),
)
