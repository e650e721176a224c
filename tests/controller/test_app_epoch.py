"""What a controller concludes from the leases before it works: whose tags and claims it may trust."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest

from provisioner.controller.app import Controller
from provisioner.controller.shared.settings import Settings
from provisioner.controller.shared.unclaimed import UnclaimedTags
from provisioner.ec2.volumes import Volumes
from provisioner.kube.lease import Lease, LeaseSpec
from provisioner.model.errors import Ec2Error, Reason
from provisioner.model.meta import ObjectMeta
from provisioner.model.names import LED_SINCE, UNCLAIMED
from provisioner.model.volume import Volume
from tests.builders import a_claim, a_volume, an_ec2_error
from tests.controller.services import CurrentCaches
from tests.controller.test_app import NAMES, LeaseApi, Process
from tests.ec2.virtual_time import Clock, in_virtual_time

NOW = datetime.now(UTC)
DAY = timedelta(days=1)
OLDER = a_claim("older", uid="older", created_at=NOW - 3 * DAY)
YOUNGER = a_claim("younger", uid="younger", created_at=NOW - DAY)


def led_by_ours(since: datetime) -> LeaseApi:
    api = LeaseApi()
    for name in NAMES:
        proof = {LED_SINCE: f"{since:%Y-%m-%dT%H:%M:%SZ}  lately"}
        metadata = ObjectMeta(name=name, resource_version="0", annotations=proof)
        spec = LeaseSpec(holder_identity="", renew_time="lately")
        api.leases[name] = Lease(metadata=metadata, spec=spec)
    return api


def a_life(
    api: LeaseApi,
    monkeypatch: pytest.MonkeyPatch,
    *,
    elects: bool,
    found: Sequence[Volume] = (),
    may_look: bool = True,
) -> tuple[datetime | None, set[str]]:
    """When the epoch began for a controller that leads for a minute, and which claims it doubts."""

    async def find(*_: object, **__: object) -> list[Volume]:
        if not may_look:
            raise an_ec2_error(Reason.UNREACHABLE)
        return list(found)

    async def story(clock: Clock) -> Controller:
        process = Process(clock, monkeypatch, api)
        controller = process.controller
        controller.settings = Settings(leader_elect=elects)
        controller.unclaimed = controller.orphans._unclaimed = UnclaimedTags(
            cast("Volumes", Finds(find)), CurrentCaches(), cluster_id="prod"
        )
        for claim in (OLDER, YOUNGER):
            controller.caches.claims._store.apply(claim)
        stop = asyncio.Event()
        running = asyncio.create_task(controller.run(stop))
        await controller.leading.wait()
        await asyncio.sleep(60)
        stop.set()
        await running
        return controller

    controller = in_virtual_time(story)
    takeover, epoch = controller.provisioner.takeover, controller.unclaimed.leadership.epoch
    doubted = {claim.uid for claim in (OLDER, YOUNGER) if takeover.is_in_doubt(claim)}
    return epoch.began_at if epoch else None, doubted


@dataclass
class Finds:
    """Volumes that can be listed."""

    find: Callable[..., Awaitable[list[Volume]]]

    async def untag(self, *_: object) -> dict[str, Ec2Error]:
        return {}


with_and_without_election = pytest.mark.parametrize("elects", [True, False])


@with_and_without_election
def test_under_a_proven_epoch_only_claims_that_are_older_are_doubted(monkeypatch, elects):
    began_at = (NOW - 2 * DAY).replace(microsecond=0)

    assert a_life(led_by_ours(began_at), monkeypatch, elects=elects) == (began_at, {"older"})


@with_and_without_election
def test_without_a_proof_nothing_from_before_is_trusted_by_this_leader_or_the_next(
    monkeypatch, elects
):
    api = LeaseApi()

    first = a_life(api, monkeypatch, elects=elects)
    second = a_life(api, monkeypatch, elects=elects)

    assert first == second
    began_at, doubted = first
    assert began_at is not None
    assert began_at >= NOW.replace(microsecond=0)
    assert doubted == {"older", "younger"}


@with_and_without_election
def test_a_volume_that_was_there_is_older_for_all_though_the_clock_of_ec2_is_ahead(
    monkeypatch, elects
):
    api = LeaseApi()
    ahead = a_volume(created_at=NOW + DAY, tags={UNCLAIMED: "Delete"})

    first, _ = a_life(api, monkeypatch, elects=elects, found=[ahead])
    second, _ = a_life(api, monkeypatch, elects=elects)

    assert first == second
    assert first is not None
    assert first > NOW + DAY


@with_and_without_election
def test_before_ec2_has_listed_what_there_is_nothing_is_proven_to_the_next(monkeypatch, elects):
    api = LeaseApi()

    blind, _ = a_life(api, monkeypatch, elects=elects, may_look=False)
    second, doubted = a_life(api, monkeypatch, elects=elects)

    assert blind is None
    assert second is not None
    assert doubted == {"older", "younger"}


@with_and_without_election
def test_a_minute_of_the_epoch_that_has_passed_need_not_be_waited_for_again(monkeypatch, elects):
    async def story(clock: Clock) -> float:
        process = Process(clock, monkeypatch, led_by_ours(NOW - 2 * DAY))
        process.controller.settings = Settings(leader_elect=elects)
        process.controller.caches.claims._store.apply(OLDER)
        stop = asyncio.Event()
        running = asyncio.create_task(process.controller.run(stop))
        await process.controller.leading.wait()
        ended_s = process.controller.provisioner.takeover._ended_at_s
        stop.set()
        await running
        return asyncio.get_running_loop().time() - ended_s

    assert in_virtual_time(story) > 60
