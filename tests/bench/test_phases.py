"""How the time of a phase is read from what the bench has seen."""

import asyncio
import os
from typing import Any
from unittest.mock import AsyncMock, Mock

from tests.bench import phases
from tests.bench.hands import Eye
from tests.bench.phases import Phase


async def test_cpu_of_a_phase_is_told_within_its_seconds_and_until_nothing_is_left_to_do() -> None:
    used = iter(({"contestant": 1.0}, {"contestant": 6.0}, {"contestant": 9.0}))
    report: dict[str, dict[str, int]] = {"calls": {}, "throttled": {}, "errors": {}}
    world = Mock(pid=os.getpid(), quiet=AsyncMock(), cpu_s=lambda: next(used))
    world.ec2 = Mock(report=lambda: report, log=list)

    async with phases.measured(world, "bound", 3) as phase:
        pass

    assert (phase.cpu_within_s, phase.cpu_s) == ({"contestant": 5.0}, {"contestant": 8.0})


async def test_a_phase_has_the_time_of_its_last_object_and_of_its_median_one() -> None:
    class Seen(Eye):
        async def __aenter__(self) -> Any:
            return self

        async def wait_for(self, count: int, timeout_s: float) -> float:
            now_s = asyncio.get_running_loop().time()
            self.at_s = {f"data-{n}": now_s + after_s for n, after_s in enumerate((10, 20, 90))}
            return now_s + 90

    world = Mock()
    world.hands.send_all = AsyncMock()
    phase = Phase("bound", 3)

    await phases.until(world, phase, Seen(world.hands, "", Mock()), [])

    assert (round(phase.seconds), round(phase.median_s)) == (90, 20)
