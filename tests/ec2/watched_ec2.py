"""An EC2 of a dictionary, for the watcher in virtual time."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from provisioner.ec2.look_rules import MOST_A_SECOND, Asked
from provisioner.ec2.watcher import Watcher
from provisioner.metrics import Metrics
from provisioner.model.errors import StorageError
from provisioner.model.volume import Volume, VolumeState
from tests.ec2.virtual_time import Clock


class Ec2:
    """Shows the volumes that a test puts in; keeps when it was asked for how many."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.volumes: dict[str, Volume] = {}
        self.looks: list[tuple[float, int]] = []
        self.failure: Exception | None = None
        self.refuses: dict[str, StorageError] = {}
        self.takes_s = 0.1

    async def describe(self, volume_ids: list[str]) -> Mapping[str, Volume | StorageError]:
        self.looks.append((self.clock(), len(volume_ids)))
        if self.failure is not None:
            raise self.failure
        known: dict[str, Volume | StorageError] = {**self.volumes, **self.refuses}
        shown = {each: known[each] for each in volume_ids if each in known}
        await asyncio.sleep(self.takes_s)
        return shown

    look_for = describe

    def put(self, *volumes: Volume) -> None:
        self.volumes |= {volume.volume_id: volume for volume in volumes}


def asked(guess_s: float) -> Asked[Volume]:
    """That a volume be made."""
    return Asked("create", guess_s, lambda seen: seen.state is VolumeState.AVAILABLE)


class Waker:
    """Counts how often it was woken, and remembers when last."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.times: list[float] = []

    def __call__(self) -> None:
        self.times.append(self.clock())


@asynccontextmanager
async def running(ec2: Ec2, metrics: Metrics | None = None) -> AsyncIterator[Watcher[Volume]]:
    watcher = Watcher(ec2, metrics=metrics or Metrics(), most=MOST_A_SECOND, clock=ec2.clock)
    task = asyncio.create_task(watcher.run())
    try:
        yield watcher
    finally:
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
