"""One operation per volume at a time, whatever comes and goes."""

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.model.errors import NodeError, Reason
from provisioner.node.runtime.operations import Operations, shielded
from tests.node.runtime.test_operations import turns

pytestmark = pytest.mark.usefixtures("no_leaked_tasks")


class Chaos:
    """Requests that come and leave at random; what is found to be wrong is in ``broken``."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.operations = Operations()
        self.running: dict[str, int] = {"a": 0, "b": 0}
        self.broken: list[str] = []

    async def work(self, volume_id: str, key: str) -> str:
        self.running[volume_id] += 1
        if self.running[volume_id] > 1:
            self.broken.append("two at a time")
        try:
            for _ in range(self.chance.randrange(4)):
                await turns(self.chance.randrange(2))
                with shielded("mkfs"):
                    await self.stretch()
            return key
        finally:
            self.running[volume_id] -= 1

    async def stretch(self) -> None:
        try:
            await turns(self.chance.randrange(4))
        except asyncio.CancelledError:
            self.broken.append("cancelled within a stretch")
            raise

    async def ask(self, volume_id: str, key: str) -> None:
        try:
            answer = await self.operations.run(
                volume_id, key, lambda: self.work(volume_id, key), what="It"
            )
        except NodeError as error:
            if error.reason is not Reason.OPERATION_RUNNING:
                raise
        else:
            if answer != key:
                self.broken.append("the answer of another request")

    async def story(self) -> None:
        tasks: list[asyncio.Task[None]] = []
        for _ in range(40):
            asked = self.ask(self.chance.choice("ab"), self.chance.choice("xy"))
            tasks.append(asyncio.ensure_future(asked))
            await turns(self.chance.randrange(3))
            if self.chance.random() < 0.5:
                self.chance.choice(tasks).cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        self.broken += [
            repr(each) for each in found if not isinstance(each, asyncio.CancelledError | None)
        ]
        await turns(40)


@given(seed=st.integers(0, 2**32))
def test_whatever_comes_and_goes_at_most_one_runs_and_none_is_left(seed):
    chaos = Chaos(seed)

    asyncio.run(chaos.story())

    assert chaos.broken == []
    assert len(chaos.operations) == 0
    assert set(chaos.running.values()) == {0}
