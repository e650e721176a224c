"""EC2's side of throttling, in virtual time: a real token bucket, arrival and reply delays."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from provisioner.ec2.limiter import Limiter, Rate, Urgency


@dataclass
class Run:
    """What a run of many calls came to."""

    seconds: float = 0.0
    sent: int = 0
    throttled_at: list[float] = field(default_factory=list)

    @property
    def throttled_share(self) -> float:
        return len(self.throttled_at) / self.sent

    def __str__(self) -> str:
        share = f"{len(self.throttled_at)} throttled ({100 * self.throttled_share:.1f} %)"
        return f"{self.seconds:.1f} s, {self.sent} calls, {share}"


class SimulatedEc2:
    """Admits calls by a bucket; answers after 100 to 400 ms."""

    def __init__(self, quota: Rate, clock: Callable[[], float], *, tokens: float | None = None):
        self._quota, self._clock = quota, clock
        self._tokens = quota.burst if tokens is None else tokens
        self._filled_at = clock()
        self._random = random.Random(1)

    async def answer(self) -> bool:
        await asyncio.sleep(self._random.uniform(0.005, 0.025))
        now = self._clock()
        self._tokens += (now - self._filled_at) * self._quota.per_s
        self._tokens = min(self._tokens, self._quota.burst)
        self._filled_at = now
        admitted = self._tokens >= 1
        self._tokens -= admitted
        await asyncio.sleep(self._random.uniform(0.1, 0.4))
        return admitted


async def run(
    count: int,
    action: str,
    quota: Rate,
    clock: Callable[[], float],
    *,
    tokens: float | None = None,
    after_s: float = 0.0,
    limiter: Limiter | None = None,
    urgency: Urgency = Urgency.NORMAL,
) -> Run:
    """Send ``count`` calls at once through a limiter that believes in the documented quota.

    Each is worth ``after_s`` more until its object has become what it should. A ``limiter`` is one
    that knows other actions already.
    """
    ec2, limiter = SimulatedEc2(quota, clock, tokens=tokens), limiter or Limiter(clock=clock)
    result, started = Run(), clock()

    async def one() -> None:
        place: int | None = None
        while True:
            grant = await limiter.acquire(action, urgency, place=place)
            result.sent += 1
            admitted = await ec2.answer()
            if not admitted:
                limiter.throttled(grant)
                result.throttled_at.append(clock() - started)
            limiter.release()
            if admitted:
                break
            place = grant.place
        await asyncio.sleep(after_s)

    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(one())
    result.seconds = clock() - started
    limiter.close()
    return result
