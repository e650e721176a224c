"""Several replicas at once, at random and killed anywhere: one chain, and nobody turned away.

Each story runs the product's keepers against one API server in memory, in virtual time. The world
looks at every change whether a replica that is ready shows a certificate that a published bundle,
or one that an API server may still hold, does not trust; x509 is verified for it, not modelled.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable
from datetime import timedelta

import pytest

from tests.ec2.virtual_time import Clock, in_virtual_time
from tests.webhook import pairs
from tests.webhook.certificate_replicas import Replica
from tests.webhook.certificate_world import (
    AFTER,
    BEFORE,
    LOST,
    WAITS,
    World,
    data_of,
    former,
)
from tests.webhook.pairs import NAMES, NOW
from webhook.certificates import issuing

OLD = pairs.issue(NAMES, NOW - timedelta(days=70))
NEXT = pairs.issue(NAMES, NOW)
# A certificate that is due, and an authority whose key is gone or that is due.
ANCIENT = pairs.issue(NAMES, NOW - timedelta(days=2500))
FORMER = {
    "former release": former(OLD),
    "former release, publishing": former(OLD, NEXT),
    "former release, swapped": former(NEXT) | {"ca.crt": NEXT.authority + OLD.authority},
    "former release, pruned": former(NEXT) | {"retired.crt": OLD.authority},
}
ROTATION_S = WAITS.settle_s + 300
BEGINNINGS = {
    "empty": {},
    "due": data_of(OLD),
    "authority due": data_of(ANCIENT) | {"tls.crt": OLD.certificate, "tls.key": OLD.key},
    "replaced": data_of(NEXT),
    **FORMER,
}
BEGINNINGS["authority due"]["ca.crt"] += OLD.authority
FATES = ("", BEFORE, AFTER, LOST)


def settled(world: World) -> None:
    """All agree on one young chain of one authority that can sign, and it is trusted."""
    secret = world.secret
    known = issuing.authorities(secret["ca.crt"])
    authority = issuing.signing_key(secret["ca.key"], known)
    leaf = issuing.read_leaf(secret["tls.crt"], secret["tls.key"])

    assert issuing.signer(leaf, known) == authority
    assert leaf.not_after - world.now > timedelta(days=80)
    assert authority.certificate.not_valid_after_utc - world.now > timedelta(days=3000)
    assert secret.keys() == {"ca.crt", "ca.key", "tls.crt", "tls.key"}
    for bundle in world.bundles:
        assert authority in issuing.authorities(bundle)
        assert {*issuing.authorities(bundle)} <= {*known}
    living = [replica for replica in world.replicas if replica.alive]
    assert living
    assert {replica.chain for replica in living} == {secret["tls.crt"]}


class Story:
    """Replicas that are born again a while after each death, until the story ends."""

    def __init__(self, clock: Clock, beginning: str, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = World(clock, rng=self.rng, slow_s=self.rng.choice([0.01, 0.2, 3.0]))
        self.world.register()
        if data := BEGINNINGS[beginning]:
            self.world.put_secret(data)
            # What the one before had published by then.
            unpublished = beginning in {"replaced", "former release, publishing"}
            both = NEXT.authority + OLD.authority
            pruned = beginning == "former release, pruned"
            published = both if pruned else data["ca.crt"]
            self.world.trust(OLD.authority if unpublished else published)
        self.replicas: list[Replica] = []
        self.calm = asyncio.Event()

    def fates(self, often: float) -> Callable[[str], str]:
        """At random, until calm returns."""

        def fate(_: str) -> str:
            dies = not self.calm.is_set() and self.rng.random() < often
            return self.rng.choice(FATES[1:]) if dies else ""

        return fate

    async def keep_alive(self, replica: Replica, again_after_s: float) -> None:
        """Born again and again."""
        self.replicas.append(replica)
        while True:
            replica.start()
            await replica.ended()
            await asyncio.sleep(self.rng.uniform(0.0, again_after_s))

    async def end(self, alive: list[asyncio.Task[None]]) -> None:
        for task in alive:
            if task.done():
                task.result()
            task.cancel()
        await asyncio.gather(*alive, return_exceptions=True)
        for replica in self.replicas:
            await replica.kill()


@pytest.mark.parametrize(
    ("beginning", "seed"), list(itertools.product(BEGINNINGS, range(6))), ids=str
)
def test_two_replicas_that_die_at_random_converge_and_turn_nobody_away(beginning: str, seed: int):
    async def tell(clock: Clock) -> World:
        story = Story(clock, beginning, seed)
        skews = (-3600.0, 3600.0) if seed % 2 else (0.0, 0.0)
        alive = [
            asyncio.create_task(
                story.keep_alive(
                    Replica(story.world, f"r{n}", off_s=off_s, fates=story.fates(0.25)), 30.0
                )
            )
            for n, off_s in enumerate(skews)
        ]
        await asyncio.sleep(3 * ROTATION_S)
        story.calm.set()
        await asyncio.sleep(2 * ROTATION_S + 600)
        settled(story.world)
        await story.end(alive)
        return story.world

    world = in_virtual_time(tell)

    assert world.outages == []


@pytest.mark.parametrize("seed", range(10))
def test_three_that_begin_at_the_same_moment_agree_on_one(seed: int):
    async def tell(clock: Clock) -> World:
        story = Story(clock, "empty", seed)
        alive = [
            asyncio.create_task(story.keep_alive(Replica(story.world, f"r{n}"), 1.0))
            for n in range(3)
        ]
        await asyncio.sleep(120)
        settled(story.world)
        await story.end(alive)
        return story.world

    world = in_virtual_time(tell)

    assert world.outages == []
    # Three may make an authority, one may save it; every webhook is written to once.
    assert sorted(label.partition(" #")[0] for label in world.writes) == [
        "APPLY mutatingwebhookconfigurations",
        "APPLY validatingwebhookconfigurations",
        "MERGE secrets",
        "create secrets",
    ]


def requests_of(beginning: str) -> list[str]:
    """All requests by which one replica changes something, until it has nothing to do."""

    async def tell(clock: Clock) -> list[str]:
        story = Story(clock, beginning, seed=0)
        replica = Replica(story.world)
        replica.start()
        await asyncio.sleep(2 * ROTATION_S + 60)
        settled(story.world)
        made = list(story.world.writes)
        await replica.kill()
        return made

    return in_virtual_time(tell)


PATCHES = "APPLY mutatingwebhookconfigurations", "APPLY validatingwebhookconfigurations"
PUBLISHED = [f"{patch} #1" for patch in PATCHES]
WALK = {
    # Make, publish, sign.
    "empty": ["create secrets #1", *PUBLISHED, "MERGE secrets #1"],
    "due": ["MERGE secrets #1"],
    "authority due": ["MERGE secrets #1", *PUBLISHED, "MERGE secrets #2"],
    "former release": ["MERGE secrets #1", *PUBLISHED, "MERGE secrets #2"],
    # Adopt, publish.
    "replaced": ["MERGE secrets #1", *PUBLISHED],
}
STEPS = [(beginning, label) for beginning, labels in WALK.items() for label in labels]


@pytest.mark.parametrize("beginning", WALK)
def test_the_walk_goes_through_every_phase(beginning: str):
    assert requests_of(beginning) == WALK[beginning]


@pytest.mark.parametrize("helped", [False, True], ids=["alone", "with another"])
@pytest.mark.parametrize("fate", FATES[1:])
@pytest.mark.parametrize(("beginning", "label"), STEPS, ids=lambda value: value.replace(" ", "-"))
def test_a_death_at_any_request_is_resumed(beginning: str, label: str, fate: str, *, helped: bool):
    died: list[str] = []

    def once(request: str) -> str:
        if request == label and not died:
            died.append(request)
            return fate
        return ""

    async def tell(clock: Clock) -> World:
        story = Story(clock, beginning, seed=1)
        alive = [asyncio.create_task(story.keep_alive(Replica(story.world, fates=once), 5.0))]
        if helped:
            other = Replica(story.world, "other", fates=once)
            alive.append(asyncio.create_task(story.keep_alive(other, 5.0)))
        await asyncio.sleep(3 * ROTATION_S)
        settled(story.world)
        await story.end(alive)
        return story.world

    world = in_virtual_time(tell)

    assert died
    assert world.outages == []


@pytest.mark.parametrize("seed", range(12))
def test_whatever_is_done_to_the_secret_meanwhile(seed: int):
    rng = random.Random(seed)
    spoilt: list[dict[str, bytes]] = [
        {},
        {"tls.crt": b"rubbish", "tls.key": b"rubbish"},
        data_of(OLD) | {"tls.key": NEXT.key},
        data_of(pairs.issue(NAMES, NOW)),
        data_of(OLD) | {"ca.key": NEXT.authority_key},
        *FORMER.values(),
        data_of(NEXT) | {"ca.crt": b""},
    ]

    async def tell(clock: Clock) -> World:
        story = Story(clock, rng.choice([*BEGINNINGS]), seed)
        alive = [
            asyncio.create_task(
                story.keep_alive(Replica(story.world, f"r{n}", fates=story.fates(0.05)), 10.0)
            )
            for n in range(2)
        ]
        for _ in range(4):
            await asyncio.sleep(rng.uniform(1.0, ROTATION_S))
            story.world.put_secret(rng.choice(spoilt))
        await asyncio.sleep(60)
        story.calm.set()
        await asyncio.sleep(4 * ROTATION_S)
        settled(story.world)
        await story.end(alive)
        return story.world

    world = in_virtual_time(tell)

    assert world.outages == []
