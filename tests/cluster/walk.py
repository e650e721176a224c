"""The whole story of one volume, told to a controller that may die on the way.

A claim is Bound, its volume attached by a VolumeAttachment, detached, and the claim deleted. Many
stories run at once against one control plane: each has a driver name, a cluster id, a node and
controllers of its own, so nothing of one can help or disturb another.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import signal
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from tests.cluster import hands, mortal
from tests.cluster.hands import ATTACHMENTS, PVS, Json
from tests.cluster.mortal import AFTER, BEFORE, Order
from tests.cluster.walk_world import Slot, World

STEP_S = 45.0
_POLL_S = 0.15


@dataclass(frozen=True, slots=True)
class Ending:
    """What a story came to: ``wrong`` is "" when it ended as it should."""

    at: str
    fate: str
    reached: bool
    lives: int
    took_s: float
    wrong: str

    def __str__(self) -> str:
        came = "ended well" if not self.wrong else f"WRONG: {self.wrong}"
        unreached = "" if self.reached or not self.at else " (never came to that request)"
        return (
            f"{self.at or 'no crash':36} {self.fate:22} {self.lives} lives {self.took_s:5.1f} s"
            f"  {came}{unreached}"
        )


@dataclass
class Story:
    """One volume's life. ``pids``: of the controllers, the last one lives."""

    world: World
    slot: Slot
    name: str
    at: str
    fate: str
    freezes: tuple[str, ...]
    pids: list[int] = field(default_factory=list)
    pv: str = ""
    volume_id: str = ""
    may_live: asyncio.Event = field(default_factory=asyncio.Event)
    step_s: float = STEP_S

    def __post_init__(self) -> None:
        self.cluster_id = f"{self.name}-{uuid.uuid4().hex[:6]}"
        folder = self.world.folder
        self.records_path = folder / f"{self.cluster_id}.records"
        self.log_path = folder / f"{self.cluster_id}.log"
        node = self.slot.instance.private_dns_name
        self.claim_path = f"{self.world.claims}/{self.name}"
        self._node = node
        self.may_live.set()

    # -- the controllers

    @contextlib.asynccontextmanager
    async def supervised(self) -> AsyncIterator[None]:
        """Run controllers, the next one as soon as the last has died, as Kubernetes would."""
        await self._bear(self.at, self.fate)
        await self.until("it leads", self._leads)
        task = asyncio.create_task(self._supervise(), name=f"supervisor of {self.name}")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self._kill()

    async def _bear(self, at: str = "", fate: str = "") -> None:
        sandbox = self.world.sandbox
        order = Order(
            kubeconfig=str(sandbox.controller_kubeconfig),
            driver=self.slot.driver,
            cluster_id=self.cluster_id,
            records=str(self.records_path),
            log=str(self.log_path),
            ec2=sandbox.ec2_endpoint,
            at=at,
            fate=fate,
            freezes=self.freezes,
        )
        self.pids.append(await self.world.bear(order))

    async def _supervise(self) -> None:
        while True:
            if not is_alive(self.pids[-1]):
                await self.may_live.wait()
                await self._bear()
            await asyncio.sleep(_POLL_S)

    async def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pids[-1], signal.SIGKILL)
        await self.until("it is dead", self.is_dead)

    async def is_dead(self) -> bool:
        """Whether the last controller is dead."""
        return not is_alive(self.pids[-1])

    async def _leads(self) -> bool:
        return self._count("leads") > 0

    async def leads_again(self) -> bool:
        """Whether a second life has taken over."""
        return self._count("leads") > 1

    def _count(self, key: str) -> int:
        return sum(key in each for each in mortal.records_of(self.records_path))

    async def freeze(self) -> None:
        """The watches of ``freezes`` stand still from here on."""
        before = self._count("frozen")
        os.kill(self.pids[-1], signal.SIGUSR1)

        async def frozen() -> bool:
            return self._count("frozen") > before

        await self.until("the watches stand still", frozen)

    def thaw(self) -> None:
        """They go on, with all that was held back."""
        os.kill(self.pids[-1], signal.SIGUSR2)

    @property
    def labels(self) -> list[str]:
        """The changing requests so far, in order, of all lives."""
        records = mortal.records_of(self.records_path)
        return [each["label"] for each in records if "label" in each]

    @property
    def is_reached(self) -> bool:
        """Whether the ordered request came about."""
        return any(each.get("fate") for each in mortal.records_of(self.records_path))

    @property
    def log(self) -> str:
        """What all lives have logged."""
        return self.log_path.read_text() if self.log_path.exists() else ""

    # -- what the users do, and see

    async def tell(self) -> None:
        """From the claim to nothing."""
        await self.make_claim()
        await self.is_bound()
        await self.ask_for_attachment()
        await self.is_attached()
        await self.delete(self.attachment_path)
        await self.is_gone(self.attachment_path)
        await self.delete(self.claim_path)
        await self.is_gone(f"{PVS}/{self.pv}")

    async def make_claim(self) -> None:
        namespace = self.world.claims.split("/")[4]
        await hands.make_claim(self.world.api, namespace, self.name, self.slot.driver)

    async def is_bound(self) -> None:
        async def bound() -> Json | None:
            claim: Json = await self.world.api.get(self.claim_path)
            return claim if claim["status"].get("phase") == "Bound" else None

        claim = await self.until("the claim is Bound", bound)
        self.pv = claim["spec"]["volumeName"]
        found = await self.world.api.get(f"{PVS}/{self.pv}")
        self.volume_id = found["spec"]["csi"]["volumeHandle"]

    @property
    def attachment_path(self) -> str:
        told = f"{self.volume_id}{self.slot.driver}{self._node}"
        return f"{ATTACHMENTS}/csi-{hashlib.sha256(told.encode()).hexdigest()}"

    async def ask_for_attachment(self) -> None:
        spec = {
            "attacher": self.slot.driver,
            "nodeName": self._node,
            "source": {"persistentVolumeName": self.pv},
        }
        metadata = {"name": self.attachment_path.rpartition("/")[2]}
        await self.world.api.create(ATTACHMENTS, {"metadata": metadata, "spec": spec})

    async def is_attached(self) -> None:
        async def attached() -> bool:
            found = await self.world.api.get(self.attachment_path)
            return bool(found.get("status", {}).get("attached"))

        await self.until("the volume is attached", attached)
        assert await self.on_instance(), "the attachment says attached, EC2 does not"

    async def on_instance(self) -> bool:
        """Whether EC2 shows the volume on the story's instance."""
        volume = (await self.volumes()).get(self.volume_id)
        on = [each["InstanceId"] for each in volume["Attachments"]] if volume else []
        return on == [self.slot.instance.instance_id]

    async def volumes(self) -> dict[str, Json]:
        """All that EC2 holds of this story."""
        return await asyncio.to_thread(self.world.hand.of_cluster, self.cluster_id)

    async def delete(self, path: str) -> None:
        await self.world.api.delete(path)

    async def is_gone(self, path: str) -> None:
        async def gone() -> bool:
            collection, _, name = path.rpartition("/")
            one = {"fieldSelector": f"metadata.name={name}"}
            return not (await self.world.api.get(collection, **one))["items"]

        await self.until(f"{path} is gone", gone)

    async def made(self) -> set[tuple[str, str]]:
        """The volumes that EC2 ever made for this story: equal requests give one volume."""
        log = await asyncio.to_thread(self.world.hand.changes, "CreateVolume")
        return {
            (each["params"]["ClientToken"], each["params"]["AvailabilityZone"])
            for each in log
            if self.cluster_id in each["params"].values() and each["outcome"].startswith("ok")
        }

    async def check(self, volumes: int = 1) -> None:
        """Exactly so many volumes were ever made, and nothing is left."""
        assert await self.volumes() == {}, "a volume is left"
        made = await self.made()
        assert len(made) == volumes, f"{len(made)} volumes were made: {made}"
        assert "handler failed" not in self.log
        assert "Traceback" not in self.log

    async def until(self, what: str, look: Callable[[], Awaitable[Any]]) -> Any:
        """Look until there is something to see."""
        deadline_s = time.monotonic() + self.step_s
        while not (seen := await look()):
            assert time.monotonic() < deadline_s, f"not seen in {self.step_s:.0f} s: {what}"
            await asyncio.sleep(_POLL_S)
        return seen


@contextlib.asynccontextmanager
async def a_story(
    world: World, at: str = "", fate: str = "", freezes: tuple[str, ...] = ()
) -> AsyncIterator[Story]:
    """A story in a free slot, its first controller alive; killed at the end."""
    slot = await world.slots.get()
    story = Story(world, slot, f"walk-{next(world.numbers)}", at, fate, freezes)
    try:
        async with story.supervised():
            yield story
    finally:
        world.slots.put_nowait(slot)


async def tell(world: World, at: str = "", fate: str = "") -> Ending:
    """The whole story, with one crash or lost reply in it."""
    async with a_story(world, at, fate) as story:
        began_s = time.monotonic()
        wrong = ""
        try:
            await story.tell()
            if fate in (BEFORE, AFTER) and story.is_reached:
                await story.until("the next life leads", story.leads_again)
            await story.check()
        except AssertionError as error:
            wrong = f"{error}\n{story.log[-3000:]}"
        took_s = time.monotonic() - began_s
        return Ending(at, fate, story.is_reached, len(story.pids), took_s, wrong)


def is_alive(pid: int) -> bool:
    """Whether a process of the nursery lives; it has no zombies."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
