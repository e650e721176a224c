"""A LimitRange that comes after the claim does not let it in again: nothing of it is touched."""

from __future__ import annotations

from tests.cluster import hands
from tests.cluster.hands import Json
from tests.cluster.move_edge_stories import Apart
from tests.cluster.move_states import State, moved

_SAYS = "maximum storage usage per PersistentVolumeClaim is 1Gi"


class LimitRefuses(Apart):
    """With it there is no plan; if it comes in Creating, the claim stays until it is gone."""

    @property
    def _limits(self) -> str:
        return f"{self.namespace_path}/limitranges"

    async def tell(self) -> None:
        await self._limit()
        self.refused = await self._planned()
        await self._unlimit()
        await super().tell()

    async def _limit(self) -> None:
        limits = [{"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}]
        body = {"metadata": {"name": "small"}, "spec": {"limits": limits}}
        await self.world.api.create(self._limits, body)
        await self.until("the limit is in force", self._is_limited)

    async def _unlimit(self) -> None:
        await self.delete(f"{self._limits}/small")

        async def free() -> bool:
            return not await self._is_limited()

        await self.until("the limit is not in force any more", free)

    async def _is_limited(self) -> bool:
        return _SAYS in await hands.refusal_of_claim(self.world.api, self.world.namespace)

    async def _planned(self) -> Json:
        name = f"{self.name}-plan"
        body = {
            "apiVersion": "ebs-provisioner.io/v1alpha1",
            "kind": "VolumeMove",
            "metadata": {"name": name},
            "spec": {
                "claimName": self.name,
                "to": {"zone": self.there},
                "consumers": {"withoutHold": True},
                "dryRun": True,
            },
        }
        collection = self.move_path.rpartition("/")[0]
        await self.world.api.create(collection, body)
        made = await self.object_when(
            "the plan is made",
            f"{collection}/{name}",
            lambda move: bool((move.get("status") or {}).get("phase")),
        )
        status: Json = made["status"]
        return status

    async def act(self) -> None:
        await self._limit()

    async def finish(self) -> None:
        async def says_so() -> bool:
            return _SAYS in await self.told()

        await self.until("the move names the limit", says_so)
        assert await self.seen_move() == "Creating"
        await self._unlimit()

    async def check(self) -> None:
        """Nothing was touched for the plan; the move has ended as without a limit."""
        assert self.refused["phase"] == "Refused", self.refused
        assert "the claim could not be created again" in self.refused["message"]
        assert _SAYS in self.refused["message"]
        await super().check()

    def ends(self) -> State:
        return moved()
