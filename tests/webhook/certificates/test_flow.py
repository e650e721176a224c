"""What a rotation does, in virtual time: minutes of waiting pass at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from provisioner.model.errors import KubeError, Reason
from tests.webhook import pairs
from tests.webhook.certificate_replicas import a_replica, authorities, steps, told, warnings
from tests.webhook.certificate_world import (
    MUTATING,
    NAME,
    NAMESPACE,
    SECRET,
    VALIDATING,
    WAITS,
    Edge,
    World,
    data_of,
    former,
)
from tests.webhook.pairs import NAMES, NOW
from webhook.certificates import issuing

FRESH = pairs.issue(NAMES, NOW)
DUE = pairs.issue(NAMES, NOW - timedelta(days=70))
AGED = pairs.reissue(pairs.issue(NAMES, NOW - timedelta(days=2500)), NOW)
HOUR_S = 3600.0


class Refusing(Edge):
    """What ``refused`` names ("get secrets", …) may not be done."""

    refused: frozenset[str] = frozenset()

    async def get(self, resource: Any, name: str, namespace: str = "") -> Any:
        if f"get {resource.plural}" in self.refused:
            raise KubeError(Reason.FORBIDDEN, f"you may not read {resource.plural}")
        return await super().get(resource, name, namespace)

    async def create(self, resource: Any, body: Any, namespace: str = "") -> Any:
        if f"create {resource.plural}" in self.refused:
            raise KubeError(Reason.FORBIDDEN, f"you may not make {resource.plural}")
        return await super().create(resource, body, namespace)


# -- the beginning


@pytest.mark.parametrize("made", [False, True], ids=["no Secret", "the manifests' empty one"])
def test_the_first_replica_makes_serves_and_publishes(*, made: bool):
    async def story(world: World) -> None:
        if made:
            world.put_secret({})
        with capture_logs() as logs:
            replica = await a_replica(world)

        assert world.bundles == {world.secret["ca.crt"]}
        assert replica.chain == world.secret["tls.crt"]
        assert replica.ready_s is not None
        assert replica.ready_s < 2
        assert steps(replica) == {"Make": 1, "Publish": 1, "Sign": 1}
        expiry = replica.metrics.certificate_expiry._value.get()
        assert expiry == pytest.approx((NOW + timedelta(days=90)).timestamp(), abs=60)
        assert warnings(logs) == []

    told(story)


def test_the_next_replica_writes_nothing():
    async def story(world: World) -> None:
        first = await a_replica(world)
        before = list(world.writes)
        second = await a_replica(world)
        await asyncio.sleep(2 * HOUR_S)

        assert world.writes == before
        assert second.chain == first.chain

    told(story)


def test_what_is_good_is_taken_as_it_is():
    async def story(world: World) -> None:
        world.put_secret(data_of(FRESH))
        replica = await a_replica(world)

        assert replica.chain == FRESH.certificate
        assert world.bundles == {FRESH.authority}
        assert steps(replica) == {"Publish": 1}

    told(story)


def test_without_configurations_nobody_has_to_trust_it_yet():
    async def story(world: World) -> None:
        del world.objects[MUTATING, NAME], world.objects[VALIDATING, NAME]
        with capture_logs() as logs:
            replica = await a_replica(world)
        world.register()
        await asyncio.sleep(1)

        assert world.bundles == {world.secret["ca.crt"]}
        assert replica.chain == world.secret["tls.crt"]
        assert warnings(logs).count("the webhook configuration does not exist") == 2

    told(story)


# -- a rotation


def test_a_certificate_is_renewed_by_one_write_and_served_by_all_at_once():
    async def story(world: World) -> None:
        world.put_secret(data_of(DUE))
        world.trust(DUE.authority)
        replicas = [await a_replica(world, name=name) for name in ("one", "two")]
        await asyncio.sleep(1)

        assert [replica.chain for replica in replicas] == [world.secret["tls.crt"]] * 2
        assert world.secret["tls.crt"] != DUE.certificate
        assert world.bundles == {DUE.authority}
        assert world.writes == ["MERGE secrets #1"]

    told(story)


@pytest.mark.parametrize("secret", [former(FRESH), data_of(AGED)], ids=["former release", "due"])
def test_a_new_authority_is_trusted_beside_the_old_one_before_it_is_served(
    secret: dict[str, bytes],
):
    at_s: dict[str, float] = {}

    async def story(world: World) -> None:
        asyncio.get_running_loop()._clock_resolution = 1e-6  # type: ignore[attr-defined]
        world.put_secret(secret)
        world.trust(secret["ca.crt"])
        replica = await a_replica(world, waits=replace(WAITS, check_s=HOUR_S))

        async def until(what: str, holds: Callable[[], bool]) -> None:
            while not holds():
                await world.changed.wait()
            at_s[what] = world.clock()

        old = replica.chain
        await until("made", lambda: "ca.key" in world.secret and len(authorities(world)) == 2)
        await until("published", lambda: world.bundles == {world.secret["ca.crt"]})
        assert replica.chain == old
        await until("signed", lambda: world.secret["tls.crt"] != secret["tls.crt"])
        await asyncio.sleep(1)
        assert replica.chain == world.secret["tls.crt"] != old
        await until("forgotten", lambda: world.bundles != {world.secret["ca.crt"]})
        await asyncio.sleep(HOUR_S)

        (bundle,) = world.bundles
        assert [each.fingerprint for each in issuing.authorities(bundle)] == (
            authorities(world)[:1]
        )
        assert steps(replica) == {"Make": 1, "Publish": 2, "Sign": 1}

    told(story)

    assert list(at_s) == ["made", "published", "signed", "forgotten"]
    assert at_s["signed"] - at_s["published"] == pytest.approx(WAITS.settle_s, abs=1)
    assert at_s["forgotten"] - at_s["signed"] == pytest.approx(2 * 24 * HOUR_S, rel=0.05)


def test_nobody_has_to_touch_it_for_ten_years():
    async def story(world: World) -> None:
        # In doubles, a nanosecond is lost beside a year.
        asyncio.get_running_loop()._clock_resolution = 1e-6  # type: ignore[attr-defined]
        rarely = replace(WAITS, check_s=7 * 24 * HOUR_S)
        replica = await a_replica(world, waits=rarely)
        await asyncio.sleep(10 * 365 * 24 * HOUR_S)

        taken = steps(replica)
        assert (taken["Make"], taken["Publish"]) == (2, 3)
        assert 60 <= taken["Sign"] <= 62
        assert len(world.bundles) == 1
        leaf = issuing.read_leaf(replica.chain, world.secret["tls.key"])
        assert leaf.not_after - world.now > timedelta(days=29)

    told(story)


def test_who_has_not_heard_of_the_api_server_for_minutes_is_not_ready(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("tests.webhook.certificate_replicas.Edge", Refusing)

    async def story(world: World) -> None:
        replica = await a_replica(world)
        await asyncio.sleep(HOUR_S)
        assert replica.rotation.problem() == ""

        monkeypatch.setattr(Refusing, "refused", frozenset({"get secrets", f"get {MUTATING}"}))
        await asyncio.sleep(200)
        assert replica.rotation.problem() == ""
        await asyncio.sleep(200)
        assert "Secret web/tls could not be read for" in replica.rotation.problem()

        monkeypatch.setattr(Refusing, "refused", frozenset())
        await asyncio.sleep(60)
        assert replica.rotation.problem() == ""

    told(story)


def test_an_api_server_that_answers_is_heard_though_it_refuses(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tests.webhook.certificate_replicas.Edge", Refusing)

    async def story(world: World) -> None:
        replica = await a_replica(world)
        monkeypatch.setattr(Refusing, "refused", frozenset({f"get {MUTATING}"}))
        await asyncio.sleep(HOUR_S)
        assert replica.rotation.problem() == ""

    told(story)


# -- what others do to the configurations


def test_a_bundle_that_somebody_took_away_is_back_at_once():
    async def story(world: World) -> None:
        replica = await a_replica(world)
        await asyncio.sleep(HOUR_S / 2)
        world.register()
        await asyncio.sleep(1)

        assert world.bundles == {world.secret["ca.crt"]}
        assert steps(replica)["Publish"] == 2

    told(story)


def test_a_new_authority_that_was_taken_away_has_to_settle_again():
    async def story(world: World) -> None:
        world.put_secret(former(FRESH))
        world.trust(FRESH.authority)
        replica = await a_replica(world)
        await asyncio.sleep(WAITS.settle_s - 10)
        world.register()
        await asyncio.sleep(20)
        assert replica.chain == FRESH.certificate

        await asyncio.sleep(WAITS.settle_s)
        assert replica.chain != FRESH.certificate

    told(story)


# -- an API server that says no


def test_a_deleted_secret_that_it_may_not_make_is_asked_for_once(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("tests.webhook.certificate_replicas.Edge", Refusing)
    monkeypatch.setattr(Refusing, "refused", frozenset({"create secrets"}))

    async def story(world: World) -> None:
        world.put_secret(data_of(FRESH))
        replica = await a_replica(world)
        with capture_logs() as logs:
            del world.objects["secrets", f"{NAMESPACE}/{SECRET}"]
            await asyncio.sleep(2 * HOUR_S)

        assert replica.chain == FRESH.certificate
        (said,) = warnings(logs)
        assert "Secret web/tls does not exist" in said
        assert "apply manifests/webhook/state.yaml again" in said
        world.put_secret({})
        await asyncio.sleep(HOUR_S)
        assert world.bundles == {world.secret["ca.crt"]}

    told(story)


def test_without_a_right_to_the_configurations_it_serves_what_is_there(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("tests.webhook.certificate_replicas.Edge", Refusing)
    monkeypatch.setattr(Refusing, "refused", frozenset({f"get {MUTATING}"}))

    async def story(world: World) -> None:
        world.put_secret(data_of(FRESH))
        with capture_logs() as logs:
            replica = await a_replica(world, ready=False)
            await asyncio.sleep(HOUR_S)

        assert replica.chain == FRESH.certificate
        assert not replica.rotation.ready.is_set()
        assert world.writes == []
        assert warnings(logs) == [f"you may not read {MUTATING}"]
        monkeypatch.setattr(Refusing, "refused", frozenset())
        await asyncio.wait_for(replica.rotation.ready.wait(), 30)

    told(story)


def test_a_reply_that_is_lost_is_found_in_what_is_read_next():
    def fates(label: str) -> str:
        return "loses the reply" if label.endswith("#1") else ""

    async def story(world: World) -> None:
        replica = await a_replica(world, fates=fates)

        assert len(world.writes) == 4
        assert replica.chain == world.secret["tls.crt"]

    told(story)
