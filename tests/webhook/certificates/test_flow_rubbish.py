"""A Secret with rubbish in it, and one that somebody else writes; in virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.webhook import pairs
from tests.webhook.certificate_replicas import a_replica, authorities, steps, told, warnings
from tests.webhook.certificate_world import NAMESPACE, SECRET, WAITS, World, data_of
from tests.webhook.pairs import NAMES, NOW, self_signed
from webhook.certificates import issuing
from webhook.certificates.issuing import Names

FRESH = pairs.issue(NAMES, NOW)
DUE = pairs.issue(NAMES, NOW - timedelta(days=70))
EXPIRED = pairs.issue(NAMES, NOW - timedelta(days=100))


SELDOM = replace(WAITS, check_s=3600.0)
DAY_S = 24 * 3600.0


def the(authority: bytes) -> str:
    (found,) = issuing.authorities(authority)
    return found.fingerprint


# -- rubbish

RUBBISH: dict[str, tuple[dict[str, bytes], str]] = {
    "bytes": (
        {"ca.crt": b"\x00", "tls.crt": b"\xff" * 99, "tls.key": b"key"},
        "ca.crt: it contains no certificate; tls.crt: the certificate cannot be read",
    ),
    "another's key": (
        data_of(FRESH) | {"tls.key": DUE.key},
        "tls.crt: the private key does not match the certificate",
    ),
    "expired": (data_of(EXPIRED), "the certificate expired at 2026-05-22 12:00 UTC"),
    "not our names": (
        data_of(pairs.issue(Names(dns=("other.svc",)), NOW)),
        f"tls.crt: the certificate is not valid for {', '.join(NAMES.dns + NAMES.ips)}",
    ),
    "an authority's key that is another's": (
        data_of(FRESH) | {"ca.key": DUE.authority_key},
        "ca.key: the private key does not belong to a CA in ca.crt",
    ),
    "emptied": ({}, ""),
}


@pytest.mark.parametrize("rubbish", RUBBISH)
def test_rubbish_at_the_start_is_replaced_at_once(rubbish: str):
    data, why = RUBBISH[rubbish]

    async def story(world: World) -> None:
        world.put_secret(data)
        with capture_logs() as logs:
            replica = await a_replica(world)

        assert replica.ready_s is not None
        assert replica.ready_s < 2
        assert replica.chain == world.secret["tls.crt"]
        assert warnings(logs)[:1] == [why] * bool(why)

    told(story)


@pytest.mark.parametrize("rubbish", RUBBISH)
def test_rubbish_meanwhile_is_replaced_and_what_is_served_goes_on_until_that_is_trusted(
    rubbish: str,
):
    async def story(world: World) -> None:
        replicas = [await a_replica(world, name=name, waits=SELDOM) for name in ("one", "two")]
        before = replicas[0].chain
        world.put_secret(RUBBISH[rubbish][0])
        await asyncio.sleep(WAITS.settle_s / 2)

        assert [replica.chain for replica in replicas] == [before, before]
        assert world.secret["tls.crt"] != before
        assert world.bundles == {world.secret["ca.crt"]}
        await asyncio.sleep(WAITS.settle_s)
        assert {replica.chain for replica in replicas} == {world.secret["tls.crt"]}
        asyncio.get_running_loop()._clock_resolution = 1e-6  # type: ignore[attr-defined]
        await asyncio.sleep(3 * DAY_S)
        assert [len(issuing.authorities(each)) for each in world.bundles] == [1]

    told(story)


def test_a_pair_that_only_openssl_refuses_is_replaced():
    weak = self_signed(NAMES, NOW, rsa_bits=1024, authority=True)

    async def story(world: World) -> None:
        world.put_secret(data_of(weak))
        with capture_logs() as logs:
            replica = await a_replica(world)

        assert replica.chain != weak.certificate
        assert "the TLS certificate cannot be loaded" in warnings(logs)[-1]

    told(story)


def test_whoever_spoils_it_again_and_again_costs_one_certificate_a_minute():
    async def story(world: World) -> None:
        replica = await a_replica(world)
        chain = replica.chain
        with capture_logs() as logs:
            for _ in range(400):
                world.put_secret({"tls.crt": b"rubbish"})
                await asyncio.sleep(3)

        # Twenty minutes, and the authority by which it is served was never crowded out.
        assert replica.chain == chain
        assert 15 <= steps(replica)["Make"] <= 21
        assert len(issuing.authorities(*world.bundles)) <= 10
        assert len(warnings(logs)) < 50

    told(story)


def test_another_secret_in_the_place_of_ours_takes_nobodys_trust_away():
    async def story(world: World) -> None:
        replica = await a_replica(world, waits=SELDOM)
        world.put_secret(data_of(FRESH))
        await asyncio.sleep(WAITS.settle_s + 5)

        assert replica.chain == world.secret["tls.crt"]
        assert authorities(world)[0] == the(FRESH.authority)
        leaf = issuing.read_leaf(replica.chain, world.secret["tls.key"])
        assert issuing.signer(leaf, issuing.authorities(FRESH.authority))
        await asyncio.sleep(3 * DAY_S)
        assert world.bundles == {FRESH.authority}

    told(story)


# -- a Secret that somebody else writes


def test_a_foreign_secret_is_served_and_nothing_is_written():
    async def story(world: World) -> None:
        with capture_logs() as logs:
            replica = await a_replica(world, managed=False, ready=False)
            await asyncio.sleep(60)
            assert not replica.rotation.ready.is_set()
            world.put_secret(data_of(DUE))
            await asyncio.wait_for(replica.rotation.ready.wait(), 20)
        assert warnings(logs) == [f"Secret {NAMESPACE}/{SECRET} does not exist"]
        assert replica.chain == DUE.certificate

        world.put_secret(data_of(FRESH))
        await asyncio.sleep(20)
        assert replica.chain == FRESH.certificate
        assert replica.contexts.loads == 2
        assert world.writes == []
        assert replica.metrics.certificate_expiry._value.get() == pytest.approx(
            (NOW + timedelta(days=90)).timestamp()
        )

    told(story)


def test_a_foreign_secret_that_is_still_empty_is_waited_for():
    async def story(world: World) -> None:
        world.put_secret({})
        with capture_logs() as logs:
            replica = await a_replica(world, managed=False, ready=False)
            await asyncio.sleep(60)
            assert not replica.rotation.ready.is_set()
            world.put_secret(data_of(FRESH))
            await asyncio.wait_for(replica.rotation.ready.wait(), 20)

        assert warnings(logs) == ["the Secret does not contain both tls.crt and tls.key"]
        assert replica.chain == FRESH.certificate

    told(story)


def test_foreign_rubbish_is_told_and_what_was_served_goes_on():
    async def story(world: World) -> None:
        world.put_secret(data_of(FRESH))
        replica = await a_replica(world, managed=False)
        spoilt = data_of(FRESH) | {"tls.key": DUE.key}
        with capture_logs() as logs:
            world.put_secret(spoilt)
            await asyncio.sleep(3600)

        assert replica.chain == FRESH.certificate
        assert replica.rotation.problem() == ""
        (warning,) = warnings(logs)
        assert "KEY_VALUES_MISMATCH" in warning.upper().replace(" ", "_")
        assert world.secret == spoilt

    told(story)


def test_without_its_foreign_secret_it_serves_on_and_stays_ready():
    async def story(world: World) -> None:
        world.put_secret(data_of(FRESH))
        replica = await a_replica(world, managed=False)
        del world.objects["secrets", f"{NAMESPACE}/{SECRET}"]
        await asyncio.sleep(3600)

        assert replica.chain == FRESH.certificate
        assert replica.rotation.problem() == ""

    told(story)


@pytest.mark.parametrize(
    ("issued", "expected"),
    [
        (pairs.issue(Names(dns=("other.svc",)), NOW), "is not valid for all names"),
        (EXPIRED, "is not valid now"),
        (self_signed(NAMES, NOW, rsa_bits=2048), "is not valid for all names"),
    ],
    ids=["other names", "expired", "self-signed, no address in it"],
)
def test_what_is_odd_about_a_foreign_certificate_is_told(issued: Any, expected: str):
    async def story(world: World) -> None:
        world.put_secret(data_of(issued))
        with capture_logs() as logs:
            replica = await a_replica(world, managed=False)

        assert replica.chain == issued.certificate
        assert [warning for warning in warnings(logs) if expected in warning]
        # Who trusts it is not ours to see to, so it is no outage of ours either.
        world.outages.clear()

    told(story)
