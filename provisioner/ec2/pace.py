"""One budget of describes for all who look at EC2 again and again."""

import asyncio
from collections import deque

from provisioner import clock
from provisioner.ec2.look_rules import looks_a_second


class Pace:
    """Turns to look, in the order of asking; used on one event loop.

    No second has more than ``looks_a_second`` of them, by how many things are in transition. After
    a quiet time the first few need not wait: of a volume, its modification, and more.
    """

    def __init__(self) -> None:
        self._taken: deque[float] = deque()  # when, in the last second
        self._things: dict[str, int] = {}
        self._turns = asyncio.Lock()

    def expect(self, kind: str, things: int) -> None:
        """So many things of a kind are looked at again and again from now on."""
        self._things[kind] = things

    async def turn(self) -> None:
        """Wait for a turn to send one describe; who is cancelled takes none."""
        async with self._turns:
            wait_s = self._wait_s()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            self._taken.append(clock.now_s())

    def _wait_s(self) -> float:
        # The loop's clock, since it is the loop that sleeps.
        now = clock.now_s()
        while self._taken and self._taken[0] + 1 <= now:
            self._taken.popleft()
        most = looks_a_second(sum(self._things.values()))
        return self._taken[-most] + 1 - now if len(self._taken) >= most else 0.0
