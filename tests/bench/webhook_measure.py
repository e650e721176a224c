"""The webhook's figures: latency, memory, what it adds to a pod's creation, and a rotation."""

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

from tests.bench import webhook_pods, webhook_rotation, webhook_world
from tests.bench.webhook_load import Load, Outcome, drive
from tests.bench.webhook_numbers import Spread, at_random, evenly
from tests.bench.webhook_pods import CROWDED, ONE, Created
from tests.bench.webhook_reviews import Reviews
from tests.bench.webhook_world import Meter, Served, full_cluster, serving
from tests.bench.world import World

OBJECTS = 10_000
PER_S = 500.0
LOAD_S = 30.0
PODS = 1000
_WARM_UP_S = 3.0
_SEED = 4


@dataclass(frozen=True, slots=True)
class Answered:
    """One load.

    Attributes:
        arrivals: how reviews came.
        took: milliseconds from when a review was due to its answer.
        late: milliseconds from when it was due until it was sent.
        cpu_ms: of the webhook, for each review.
        foreign: the share of the machine that others used meanwhile.
    """

    arrivals: str
    took: Spread
    late: Spread
    failures: dict[str, int]
    cpu_ms: float
    foreign: float


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident MiB."""

    floor_mib: float
    cached_mib: float
    loaded_mib: float
    peak_mib: float


@dataclass(frozen=True, slots=True)
class Rotated:
    """What a rotation under load cost."""

    reviews: int
    connections: int
    failures: dict[str, int]
    took: Spread


@dataclass(frozen=True, slots=True)
class Webhook:
    """Everything measured. ``review_bytes``: of one body; ``ready_s``: from start to ready."""

    objects: int
    per_s: float
    review_bytes: int
    ready_s: float
    answered: list[Answered]
    memory: Memory
    created: list[Created]
    rotated: Rotated


async def measure(
    parent: Path,
    binaries: Path,
    *,
    objects: int = OBJECTS,
    seconds: float = LOAD_S,
    pods: int = PODS,
) -> Webhook:
    """Measure all of it in one world, each part with a webhook of its own."""
    floor_mib = await asyncio.to_thread(webhook_world.floor_mib)
    async with full_cluster(parent, binaries, objects) as made:
        reviews = await webhook_world.reviews(made, objects)
        async with serving(made) as served:
            cached_mib, _ = served.memory_mib()
            answered = await answered_by(served, reviews, seconds)
            loaded_mib, peak_mib = served.memory_mib()
            ready_s = served.ready_s
        # Those of the webhook before, which would be trusted for a while yet.
        await webhook_world.unconfigure(made)
        rotated = await _rotated(made, reviews)
        await webhook_world.unconfigure(made)
        created = await _created(made, reviews, pods)
    memory = Memory(floor_mib, cached_mib, loaded_mib, peak_mib)
    return Webhook(objects, PER_S, reviews.size, ready_s, answered, memory, created, rotated)


async def answered_by(served: Served, reviews: Reviews, seconds: float = LOAD_S) -> list[Answered]:
    """The webhook on one core, the load on the other."""
    count = round(seconds * PER_S)
    others = _pin(served)
    found = []
    async with webhook_rotation.following(served.made) as follower:
        for arrivals, due_s in (
            ("warm-up", evenly(round(_WARM_UP_S * PER_S), PER_S)),
            ("evenly", evenly(count, PER_S)),
            ("at random", at_random(count, PER_S, _SEED)),
        ):
            load = Load(served.port, reviews, due_s, follower.trust, cores=others)
            found.append(await _one(served.made, arrivals, load))
    return found[1:]


async def _one(made: World, arrivals: str, load: Load) -> Answered:
    meter = Meter(made)
    outcome: Outcome = await asyncio.to_thread(drive, load)
    return Answered(
        arrivals,
        Spread.of(outcome.took_ms),
        Spread.of(outcome.late_ms),
        dict(outcome.failures),
        meter.used_s()["contestant"] / len(load.due_s) * 1000,
        meter.foreign(),
    )


async def _rotated(made: World, reviews: Reviews) -> Rotated:
    due = await webhook_rotation.put_old_certificate(made, webhook_rotation.DUE_IN_S)
    async with serving(made, module="tests.bench.webhook_rotation") as served:
        outcome = await webhook_rotation.rotate(served, reviews, due, PER_S, _pin(served))
    took = Spread.of(outcome.took_ms)
    return Rotated(
        took.count + outcome.failures.total(), outcome.opened, dict(outcome.failures), took
    )


async def _created(made: World, reviews: Reviews, count: int) -> list[Created]:
    async with webhook_pods.creating(made, reviews) as creations:
        return [await creations.measure(count, pace) for pace in (ONE, CROWDED)]


def _pin(served: Served) -> frozenset[int]:
    """Put the webhook on one core; the others."""
    first, *others = sorted(os.sched_getaffinity(0))
    webhook_world.pin(served.made.pid, first)
    return frozenset(others)
