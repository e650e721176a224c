"""One budget of describes for all who look at EC2 again and again.

A user's own describes come out of the same bucket of the account, so ours stay few: at most 4 in 3
seconds, of any kind, as long as no kind has more than 500 things to look at; beyond that, so
many more as the largest kind needs calls for one look at all of it.
"""

import asyncio

from provisioner import clock

THINGS_A_CALL = 500
PER_S = 4 / 3
# The first describes after a quiet time need not wait: of a volume, its modification, and more.
BURST = 3.0


class Pace:
    """A bucket of turns, taken in the order of asking; used on one event loop."""

    def __init__(self, per_s: float = PER_S, burst: float = BURST) -> None:
        self._per_s = per_s
        self._burst = burst
        self._tokens = burst
        self._filled_at: float | None = None
        self._things: dict[str, int] = {}
        self._turns = asyncio.Lock()

    def expect(self, kind: str, things: int) -> None:
        """So many things of a kind are looked at again and again from now on."""
        self._fill()
        self._things[kind] = things

    async def turn(self) -> None:
        """Wait for a turn to send one describe; who is cancelled takes none."""
        async with self._turns:
            wait_s = self._wait_s()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
                self._fill()
            self._tokens -= 1

    def _wait_s(self) -> float:
        self._fill()
        return max(0.0, (1 - self._tokens) / self._rate())

    def _rate(self) -> float:
        calls = -(-max(self._things.values(), default=0) // THINGS_A_CALL)
        return self._per_s * max(1, calls)

    def _fill(self) -> None:
        # The loop's clock, since it is the loop that sleeps.
        now = clock.now_s()
        since, self._filled_at = self._filled_at, now
        if since is not None:
            self._tokens = min(self._burst, self._tokens + (now - since) * self._rate())
