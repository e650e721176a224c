"""What every story of ``walk`` has: a slot, controllers that may die, and what EC2 holds of it.

Many stories run at once against one control plane: each has a driver name, a cluster id, a node
and controllers of its own, so nothing of one can help or disturb another.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar

from provisioner.model.names import UNCLAIMED
from tests.cluster import hands, mortal
from tests.cluster.hands import Json
from tests.cluster.mortal import Order
from tests.cluster.walk_world import Slot, World

_REBIRTH_S = 0.15
_LOOK_S = 0.4  # many stories look at once


class Story:
    """A story, told to controllers of which the last one lives. ``pids``: theirs.

    Attributes:
        LEAST: requests, without their numbers, that the story cannot do without.
        BY_CHANCE: those of which it depends on a moment in the story how many there are.
        SWEEP_S: how often the controllers look for orphans.
        OPTIONS: other settings of the controllers, as JSON has them.
        STEP_S: how long each step may take.
    """

    LEAST: ClassVar[frozenset[str]] = frozenset()
    BY_CHANCE: ClassVar[frozenset[str]] = frozenset()
    SWEEP_S: ClassVar[float] = 300.0
    OPTIONS: ClassVar[Mapping[str, object]] = {}
    STEP_S: ClassVar[float] = 150.0

    def __init__(
        self,
        world: World,
        slot: Slot,
        *,
        at: str = "",
        fate: str = "",
        freezes: tuple[str, ...] = (),
    ) -> None:
        self.world, self.slot = world, slot
        self.at, self.fate, self.freezes = at, fate, freezes
        self.pids: list[int] = []
        self.may_live = asyncio.Event()
        self.may_live.set()
        self.name = next(self._names())
        self.cluster_id = f"{self.name}-{uuid.uuid4().hex[:6]}"
        self.records_path = world.folder / f"{self.cluster_id}.records"
        self.log_path = world.folder / f"{self.cluster_id}.log"

    def _names(self) -> Iterator[str]:
        return (f"walk-{number}" for number in self.world.numbers)

    @classmethod
    def title(cls) -> str:
        """The first line of its documentation, as in a summary."""
        return (cls.__doc__ or "").partition("\n")[0].rstrip(".")

    # -- what a kind of story says of itself

    async def furnish(self) -> None:
        """Make what is there before the first controller."""

    async def tell(self) -> None:
        """Do what the users do, and see what they see, to the end."""
        raise NotImplementedError

    async def check(self) -> None:
        """Nothing is lost or doubled."""
        self.check_log()

    async def clear(self) -> None:
        """Remove by hand what the story leaves; no controller lives any more."""

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
            sweep_s=self.SWEEP_S,
            options=dict(self.OPTIONS),
        )
        self.pids.append(await self.world.bear(order))

    async def _supervise(self) -> None:
        while True:
            if not is_alive(self.pids[-1]):
                await self.may_live.wait()
                await self._bear()
            await asyncio.sleep(_REBIRTH_S)

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
        """The requests that changed something so far, in order, of all lives."""
        labels: list[str] = []
        for each in mortal.records_of(self.records_path):
            if "label" in each:
                labels.append(each["label"])
            elif "taken_back" in each:
                del labels[len(labels) - 1 - labels[::-1].index(each["taken_back"])]
        return labels

    @property
    def is_reached(self) -> bool:
        """Whether the ordered request came about."""
        return any(each.get("fate") for each in mortal.records_of(self.records_path))

    @property
    def log(self) -> str:
        """What all lives have logged."""
        return self.log_path.read_text() if self.log_path.exists() else ""

    def check_log(self) -> None:
        """No life came to a fault of its own."""
        assert "handler failed" not in self.log
        assert "Traceback" not in self.log

    # -- what EC2 has

    async def volumes(self) -> dict[str, Json]:
        """All that EC2 holds of this story."""
        return await asyncio.to_thread(self.world.hand.of_cluster, self.cluster_id)

    async def is_unmarked(self, volume_id: str) -> None:
        """Wait until a volume is not marked any more as one that nothing names."""

        async def unmarked() -> bool:
            volume = (await self.volumes()).get(volume_id, {})
            return "Tags" in volume and UNCLAIMED not in hands.tags_of(volume)

        await self.until("the volume's mark is gone", unmarked)

    async def made(self, action: str = "CreateVolume") -> set[tuple[str, str]]:
        """The volumes that EC2 ever made for this story: equal requests give one volume."""
        return {
            (each["params"]["ClientToken"], each["params"].get("AvailabilityZone", ""))
            for each in await self.calls(action, about=self.cluster_id)
        }

    async def calls(self, action: str, *, about: str) -> list[Json]:
        """The calls of an action that EC2 carried out, of those that name a thing."""
        log = await asyncio.to_thread(partial(self.world.hand.changes, action, about=about))
        return [
            each
            for each in log
            if about in each["params"].values() and each["outcome"].startswith("ok")
        ]

    async def delete(self, path: str) -> None:
        """Delete an object."""
        await self.world.api.delete(path)

    async def is_gone(self, path: str) -> None:
        """Wait until an object is gone."""

        async def gone() -> bool:
            collection, _, name = path.rpartition("/")
            one = {"fieldSelector": f"metadata.name={name}"}
            return not (await self.world.api.get(collection, **one))["items"]

        await self.until(f"{path} is gone", gone)

    async def until(self, what: str, look: Callable[[], Awaitable[Any]]) -> Any:
        """Look until there is something to see."""
        deadline_s = time.monotonic() + self.STEP_S
        while not (seen := await look()):
            assert time.monotonic() < deadline_s, f"not seen in {self.STEP_S:.0f} s: {what}"
            await asyncio.sleep(_LOOK_S)
        return seen


def is_alive(pid: int) -> bool:
    """Whether a process of the nursery lives; it has no zombies."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
