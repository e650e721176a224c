"""Claims whose files a pod copies to a smaller volume; a hand plays the kubelet that runs the pod."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, ClassVar

from provisioner.sandbox.api import ApiError
from tests.cluster import hands
from tests.cluster.hands import PVS, Json
from tests.cluster.move_stories import LABEL, MoveStory

_COPY_OF = "ebs-provisioner.io/copy-of"
_DONE = {"done": True, "files": 3, "bytes": 12288, "seconds": 1}
_LOOK_S = 0.2


class MoveCopies(MoveStory):
    """Files are copied to a volume of half the size; its old volume is kept."""

    OPTIONS: ClassVar[Mapping[str, object]] = {"volume_moves": True, "copy_image": "copy:1"}
    REPORT: ClassVar[Json] = _DONE
    LEAST = frozenset(
        {
            "PATCH volumemoves",
            "PATCH volumemoves/status",
            "PATCH persistentvolumes",
            "CreateVolume",
            "POST persistentvolumes",
            "POST persistentvolumeclaims",
            "POST pods",
            "DELETE pods",
            "DELETE persistentvolumeclaims",
            "DELETE persistentvolumes",
        }
    )

    @property
    def there(self) -> str:
        return self.zone

    @property
    def pods(self) -> str:
        return f"/api/v1/namespaces/{self.world.namespace}/pods"

    async def tell(self) -> None:
        async with self._kubelet():
            await self.ask(to={"size": "2Gi"})
            self.move = await self._end()

    async def _end(self) -> Json:
        return await self.is_in("Done")

    @contextlib.asynccontextmanager
    async def _kubelet(self) -> AsyncIterator[None]:
        """Runs the pod that copies to its end, and lets it go."""
        working = asyncio.create_task(self._run_pods())
        try:
            yield
        finally:
            working.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await working

    async def _run_pods(self) -> None:
        while True:
            with contextlib.suppress(ApiError):  # the move or the pod has gone meanwhile
                for pod in await self.copying("pods"):
                    path = f"{self.pods}/{pod['metadata']['name']}"
                    if "deletionTimestamp" in pod["metadata"]:
                        await self.world.api.delete(path, gracePeriodSeconds="0")
                    elif pod["status"]["phase"] != "Succeeded":
                        await self.world.api.patch(f"{path}/status", {"status": self._ended()})
            await asyncio.sleep(_LOOK_S)

    def _ended(self) -> Json:
        ended = {"exitCode": 0, "message": json.dumps(self.REPORT)}
        status = {
            "name": "copy",
            "image": "copy:1",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": {"terminated": ended},
        }
        return {"phase": "Succeeded", "containerStatuses": [status]}

    async def copying(self, plural: str) -> list[Json]:
        """Pods or claims of the copy."""
        path = f"/api/v1/namespaces/{self.world.namespace}/{plural}"
        move = await self.world.api.get(self.move_path)
        found = await hands.items(self.world.api, path)
        uid = move["metadata"]["uid"]
        return [e for e in found if e["metadata"].get("labels", {}).get(_COPY_OF) == uid]

    async def _nothing_left(self) -> None:
        assert await self.copying("pods") == []
        assert await self.copying("persistentvolumeclaims") == []
        uid = self.move["metadata"]["uid"]
        names = {each["metadata"]["name"] for each in await hands.items(self.world.api, PVS)}
        assert not names & {f"pvc-{uid}-{end}" for end in ("from", "to", "check")}, names
        assert await self.snapshots() == {}

    async def check(self) -> None:
        """One claim, Bound to the smaller volume; the old volume is there; no trace of the copy."""
        claim = await self.world.api.get(self.claim_path)
        assert claim["status"]["phase"] == "Bound", claim
        assert claim["metadata"]["labels"] == LABEL
        assert claim["spec"]["resources"]["requests"]["storage"] == "2Gi"
        new = await self.world.api.get(f"{PVS}/{claim['spec']['volumeName']}")
        made = new["spec"]["csi"]["volumeHandle"]
        volumes = await self.volumes()
        assert set(volumes) == {self.volume_id, made}, volumes
        assert volumes[made]["Size"] == 2
        assert len(await self.made()) == 1
        await self._nothing_left()
        self.check_log()

    async def clear(self) -> None:
        with contextlib.suppress(ApiError):
            for pod in await self.copying("pods"):
                path = f"{self.pods}/{pod['metadata']['name']}"
                await self.world.api.delete(path, gracePeriodSeconds="0")
            for claim in await self.copying("persistentvolumeclaims"):
                name = claim["metadata"]["name"]
                await self.remove(f"{self.world.claims}/{name}")
            uid = (await self.world.api.get(self.move_path))["metadata"]["uid"]
            for end in ("from", "to", "check"):
                await self.remove(f"{PVS}/pvc-{uid}-{end}")
        await super().clear()


class MoveCopyUndone(MoveCopies):
    """Nothing is left of the move, and the claim has its old volume."""

    async def check(self) -> None:
        claim = await self.world.api.get(self.claim_path)
        assert claim["spec"]["volumeName"] == self.pv, claim
        assert set(await self.volumes()) == {self.volume_id}
        assert len(await self.persistent_volumes()) == 1
        await self._nothing_left()
        self.check_log()


class MoveTooSmall(MoveCopyUndone):
    """The files do not fit."""

    REPORT: ClassVar[Json] = {"done": False, "refused": "ask for a larger size"}

    async def _end(self) -> Json:
        move: Any = await self.is_in("Aborted")
        assert "ask for a larger size" in move["status"]["message"], move["status"]
        return dict(move)


class MoveCopyAborted(MoveCopyUndone):
    """It is aborted while its pod copies."""

    async def _end(self) -> Json:
        async def copying() -> bool:
            return bool(await self.copying("pods"))

        await self.until("a pod copies", copying)
        await self.world.api.patch(self.move_path, {"spec": {"abort": True}})
        return await self.is_in("Aborted")

    def _ended(self) -> Json:
        return {"phase": "Running"}


class MoveChecks(MoveCopies):
    """A move to another zone whose new volume a pod there mounts before the claim gets it."""

    REPORT: ClassVar[Json] = {"fileSystem": "ext4", "uuid": "c1b9d5a2-f162-11cf-9ece-0020afc76f16"}
    LEAST = MoveCopies.LEAST | {"CreateSnapshot", "DeleteSnapshot"}

    @property
    def there(self) -> str:
        return self.slot.elsewhere.zone

    async def tell(self) -> None:
        async with self._kubelet():
            await self.ask(check=True)
            self.move = await self._end()

    async def check(self) -> None:
        """One claim, Bound to the checked volume; the old volume is there; no trace of the check."""
        made, volumes = await self.bound_volume(), await self.volumes()
        assert set(volumes) == {self.volume_id, made}, volumes
        assert volumes[made]["AvailabilityZone"] == self.there
        assert not volumes[made]["Attachments"]
        found = self.move["status"]["checked"]
        assert found.items() >= self.REPORT.items(), found
        assert len(await self.made()) == 1
        await self._nothing_left()
        self.check_log()


class MoveCheckRefused(MoveCopyUndone):
    """The new volume cannot be read."""

    REPORT: ClassVar[Json] = {"refused": "its root directory cannot be listed: I/O error"}

    async def tell(self) -> None:
        async with self._kubelet():
            await self.ask(to={"size": "8Gi"}, check=True)
            self.move = await self.is_in("Aborted")
        assert self.REPORT["refused"] in self.move["status"]["message"], self.move["status"]


class MoveCheckAborted(MoveCopyAborted):
    """It is aborted while its pod checks."""

    async def tell(self) -> None:
        async with self._kubelet():
            await self.ask(to={"size": "8Gi"}, check=True)
            self.move = await self._end()
