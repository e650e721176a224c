"""The arithmetic of the webhook's bench: when reviews are due, and what became of them."""

import math
import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeVar

T = TypeVar("T")


def percentile(values: Collection[float], share: float) -> float:
    """The smallest value that at least ``share`` (above 0, up to 1) of all do not exceed.

    By nearest rank: always a value that was measured, never a better one between two.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("no values")
    return sorted(values)[math.ceil(share * len(values)) - 1]


@dataclass(frozen=True, slots=True)
class Spread:
    """How a cost is spread, in the unit of its values."""

    count: int
    p50: float
    p99: float
    worst: float

    @classmethod
    def of(cls, values: Collection[float]) -> "Spread":
        """The spread of at least one value."""
        return cls(len(values), percentile(values, 0.5), percentile(values, 0.99), max(values))


def evenly(count: int, per_s: float) -> list[float]:
    """Seconds from the start at which each of ``count`` is due, one like the other."""
    return [number / per_s for number in range(count)]


def at_random(count: int, per_s: float, seed: int) -> list[float]:
    """The same at random (a Poisson process): as many users who know nothing of each other come."""
    chance = random.Random(seed)
    return list(accumulate(chance.expovariate(per_s) for _ in range(count)))


def blocks(each: int, size: int, ways: Sequence[T]) -> Iterator[tuple[T, int]]:
    """Turns of several ways to do ``each`` things, ``size`` at a time: which way, and how many.

    Every other round goes backwards: a machine that gets slower all the while gets slower for all.
    """
    for number, begin in enumerate(range(0, each, size)):
        for way in ways if number % 2 == 0 else reversed(ways):
            yield way, min(size, each - begin)


def runs_of(values: Sequence[str]) -> list[str]:
    """Values one after the other, each as often as it came back, not as often as it was seen."""
    return [value for at, value in enumerate(values) if at == 0 or values[at - 1] != value]
