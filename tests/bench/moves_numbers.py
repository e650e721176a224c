"""How fast so many moves can be at best: what EC2's limits leave, computed and not measured."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from provisioner.ec2.limiter import Rate


@dataclass(frozen=True, slots=True)
class Limits:
    """What EC2 lets through, and how long it takes; times in seconds.

    Attributes:
        snapshots: the bucket of CreateSnapshot.
        pending: how many snapshots of the account may be pending.
        creates: the bucket of CreateVolume.
        call_s: from a request to its answer.
        snapshot_s: from the answer until a snapshot is complete.
        create_s: from the answer until a volume is available.
    """

    snapshots: Rate
    pending: int
    creates: Rate
    call_s: float
    snapshot_s: float
    create_s: float


def bound_s(count: int, limits: Limits, others_s: Sequence[float] = ()) -> float:
    """When the last of so many volumes is there at best, from the first CreateSnapshot on.

    A snapshot takes a token and a place among those that are pending; its volume is asked for in
    the moment in which it is complete, and takes a token too. Both buckets are full at first.

    Args:
        count: of moves.
        limits: of EC2.
        others_s: when the volumes of others are asked for, which take tokens as well.
    """
    complete: list[float] = []
    free = iter(complete)
    taken = _Turns(limits.snapshots)
    for number in range(count):
        at_s = taken.next(next(free) if number >= limits.pending else 0.0)
        complete.append(at_s + limits.call_s + limits.snapshot_s)
    made = _Turns(limits.creates)
    asked = sorted([*((at_s, True) for at_s in complete), *((at_s, False) for at_s in others_s)])
    last_s = max(
        (at_s for at_s, ours in [(made.next(t), o) for t, o in asked] if ours), default=0.0
    )
    return last_s + limits.call_s + limits.create_s if count else 0.0


class _Turns:
    """A full token bucket, of which one token is taken after the other."""

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._tokens, self._at_s = rate.burst, 0.0

    def next(self, not_before_s: float) -> float:
        """Take a token; when it is there."""
        at_s = max(self._at_s, not_before_s)
        tokens = min(self._rate.burst, self._tokens + (at_s - self._at_s) * self._rate.per_s)
        wait_s = max(0.0, (1.0 - tokens) / self._rate.per_s)
        self._tokens = tokens + wait_s * self._rate.per_s - 1.0
        self._at_s = at_s + wait_s
        return self._at_s


def delay(
    alone_s: Sequence[float], beside_s: Sequence[float], of: Callable[[Sequence[float]], float]
) -> float:
    """By how much a wait is longer beside moves, as a share of it: of 0.1, it is 10 % longer.

    ``of``: which of the waits, such as ``statistics.median`` or ``max``.
    """
    return of(beside_s) / of(alone_s) - 1.0
