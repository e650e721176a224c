"""Certificates against a real API server, which verifies every handshake as it does in a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from tests.cluster.keepers import NAMES, PLURALS, Keep, data_of, former, issued
from tests.cluster.mortal_keeper import AFTER, BEFORE
from tests.cluster.replicas import eventually
from tests.webhook import pairs
from webhook.certificates import issuing

DUE, FRESH, EXPIRED = issued(70), issued(), issued(100)
AGED = pairs.reissue(issued(2500), datetime.now(UTC), NAMES)


def steps(keep: Keep, step: str) -> int:
    """How often replicas have taken a step, by their logs."""
    return sum(replica.log.count(f'"step": "{step}"') for replica in keep.replicas)


async def test_three_that_begin_at_once_agree_on_one(keep: Keep) -> None:
    replicas = await asyncio.gather(*(keep.replica() for _ in range(3)))
    await asyncio.gather(*(replica.ready() for replica in replicas))
    await keep.settled()

    assert [await keep.ask() for _ in range(10)] == [""] * 10
    assert steps(keep, "Make") == 1
    assert [replica.warnings for replica in replicas] == [[], [], []]


@pytest.mark.parametrize(
    ("secret", "taken"),
    [(data_of(DUE), (0, 1, 1)), (former(FRESH), (1, 1, 1)), (data_of(AGED), (1, 1, 1))],
    ids=["certificate", "former release", "authority"],
)
async def test_a_renewal_under_load_fails_no_review_even_with_clocks_an_hour_off(
    keep: Keep, secret: dict[str, bytes], taken: tuple[int, int, int]
) -> None:
    await keep.put_secret(secret)
    for off_s in (-3600.0, 3600.0):
        await (await keep.replica(off_s=off_s)).ready()
    async with keep.load():
        settled = await keep.settled()

    assert settled["tls.crt"] != secret["tls.crt"]
    assert keep.failures == []
    assert tuple(steps(keep, each) for each in ("Make", "Publish", "Sign")) == taken
    assert await keep.ask() == ""


# A new authority, published, and a certificate of it.
PHASES = ["PATCH secrets #1", *(f"PATCH {plural} #1" for plural in PLURALS), "PATCH secrets #2"]


async def died_and_resumed(keep: Keep, at: str, fate: str) -> str:
    """What was wrong in the story of one death, "" for nothing."""
    if at != "POST secrets #1":
        await keep.put_secret(former(DUE))
    mortal = await keep.replica(at=at, fate=fate)
    async with keep.load():
        await mortal.ended()
        await (await keep.replica()).ready()
        asked = keep.asked
        settled = await keep.settled()
        await eventually("more reviews", lambda: keep.asked > asked + 3)
    # While all are dead nobody answers.
    problems = keep.distrust
    if settled["tls.crt"] == DUE.certificate:
        problems.append("nothing was rotated")
    if failure := await keep.ask():
        problems.append(failure)
    return "; ".join(problems[:2])


@pytest.mark.parametrize("fate", [BEFORE, AFTER])
async def test_killed_in_any_phase_the_next_replica_goes_on(
    keeps: Callable[[], Keep], fate: str
) -> None:
    labels = ["POST secrets #1", *PHASES]
    stories = [died_and_resumed(keeps(), label, fate) for label in labels]

    wrong = dict(zip(labels, await asyncio.gather(*stories), strict=True))

    assert {label: problem for label, problem in wrong.items() if problem} == {}


SPOILT: dict[str, dict[str, bytes]] = {
    "bytes": {"ca.crt": b"\x00", "tls.crt": b"\xff" * 99, "tls.key": b"key"},
    "another's key": data_of(FRESH) | {"tls.key": DUE.key},
    "expired": data_of(EXPIRED),
}
RUBBISH = SPOILT | {
    "emptied": {},
    "another's Secret, good in itself": data_of(FRESH),
}


async def test_rubbish_is_replaced_under_load_and_fails_no_review(
    keeps: Callable[[], Keep],
) -> None:
    async def story(data: dict[str, bytes]) -> Keep:
        keep = keeps()
        await (await keep.replica()).ready()
        await (await keep.replica()).ready()
        async with keep.load():
            await keep.put_secret(data)
            changed = await keep.settled()
        known = issuing.authorities(changed["ca.crt"])
        assert (issuing.authorities(FRESH.authority)[0] in known) is (
            data in (data_of(FRESH), data_of(FRESH) | {"tls.key": DUE.key})
        )
        return keep

    told = await asyncio.gather(*(story(data) for data in RUBBISH.values()))

    assert {name: k.failures for name, k in zip(RUBBISH, told, strict=True) if k.failures} == {}
    warned = [
        name for name, k in zip(RUBBISH, told, strict=True) if any(r.warnings for r in k.replicas)
    ]
    assert {*SPOILT} <= {*warned}


async def test_rubbish_at_the_start_is_replaced_with_a_warning(keep: Keep) -> None:
    await keep.put_secret(RUBBISH["another's key"])
    replica = await keep.replica()
    await replica.ready()
    await keep.settled()

    assert await keep.ask() == ""
    warning = replica.warnings[0]
    assert warning["found"] == "tls.crt: the private key does not match the certificate"
