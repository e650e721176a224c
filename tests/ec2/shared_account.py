"""Several clusters in one account, each with a bucket of its own, in simulated time.

EC2 has one bucket for all of them, and none knows of the others. A call takes 0.1 to 0.4 s.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field

from provisioner.ec2.limiter import Bucket, Rate

AT_ONCE = 64
_STEP_S = 0.005
_HALF_S = (0.05, 0.2)  # to EC2, and back


@dataclass(slots=True)
class Cluster:
    """One that wants ``left`` calls; ``ended_s``: when EC2 had carried out all of them."""

    bucket: Bucket
    left: int
    free: int = AT_ONCE
    done: int = 0
    ended_s: float = 0.0
    is_hungry: bool = False


@dataclass(slots=True)
class Account:
    """EC2's own bucket, and the clusters that share it."""

    rate: Rate
    clusters: list[Cluster]
    chance: random.Random
    throttled: int = 0
    _tokens: float = field(init=False)
    _at_s: float = 0.0
    _events: list[tuple[float, int, Cluster, float, bool | None]] = field(default_factory=list)
    _count: int = 0

    def __post_init__(self) -> None:
        self._tokens = self.rate.burst

    def live(self, each: int) -> None:
        """Let time pass until every cluster has had ``each`` calls carried out."""
        now_s = 0.0
        while any(cluster.done < each for cluster in self.clusters):
            while self._events and self._events[0][0] <= now_s:
                at_s, _, cluster, sent_s, is_taken = heapq.heappop(self._events)
                if is_taken is None:
                    self._later(at_s, cluster, sent_s, is_taken=self._take(at_s))
                else:
                    self._answer(cluster, sent_s, at_s, each, is_taken=is_taken)
            for cluster in self.clusters:
                self._send(cluster, now_s)
            now_s += _STEP_S

    def _take(self, at_s: float) -> bool:
        self._tokens += (at_s - self._at_s) * self.rate.per_s
        self._tokens, self._at_s = min(self._tokens, self.rate.burst), at_s
        is_taken = self._tokens >= 1
        self._tokens -= is_taken
        self.throttled += not is_taken
        return is_taken

    def _answer(
        self, cluster: Cluster, sent_s: float, at_s: float, each: int, *, is_taken: bool
    ) -> None:
        cluster.free += 1
        if not is_taken:
            cluster.bucket.throttled(sent_s, at_s)
            cluster.left += 1
            return
        cluster.done += 1
        if cluster.done == each:
            cluster.ended_s = at_s

    def _send(self, cluster: Cluster, now_s: float) -> None:
        cluster.bucket.advance(now_s, hungry=cluster.is_hungry)
        while cluster.left and cluster.free and cluster.bucket.take():
            cluster.left -= 1
            cluster.free -= 1
            self._later(now_s, cluster, now_s)
        cluster.is_hungry = cluster.left > 0 and cluster.free > 0

    def _later(
        self, at_s: float, cluster: Cluster, sent_s: float, *, is_taken: bool | None = None
    ) -> None:
        self._count += 1
        at_s += self.chance.uniform(*_HALF_S)
        heapq.heappush(self._events, (at_s, self._count, cluster, sent_s, is_taken))


def lived(clusters: int, each: int, rate: Rate, *, seed: int) -> Account:
    """What becomes of so many clusters of which each wants so many calls."""
    some = [Cluster(Bucket(rate, 0.0), each) for _ in range(clusters)]
    account = Account(rate, some, random.Random(seed))
    account.live(each)
    return account
