"""What a claim's user is told, and when, by a provisioner at work in virtual time."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, cast
from unittest.mock import AsyncMock, MagicMock

import pytest
from msgspec.structs import replace

from provisioner.controller.claims.events import ClaimEvents
from provisioner.kube.client import KubeClient
from provisioner.kube.events import EventRecorder
from provisioner.metrics import Metrics
from provisioner.model.claim import Claim, DataSource
from provisioner.model.errors import KubeError, Reason
from provisioner.model.leadership import Epoch
from provisioner.model.names import UNCLAIMED, VOLUME_NAME
from provisioner.model.persistent_volume import PersistentVolume
from tests.builders import UID, a_claim, a_persistent_volume, a_volume, an_ec2_error
from tests.controller.provisioning.test_flow import CLAIM, World, annotated
from tests.ec2.virtual_time import Clock, in_virtual_time

TAKES_ITS_TIME = 'External provisioner is provisioning volume for claim "shop/data"'


def a_world(**given: Any) -> World:
    """A claim whose API server takes what is written to it."""
    world, versions = World(CLAIM, **given), itertools.count(8)

    async def patch(_: Any, __: str, body: Any, **___: Any) -> Claim:
        return annotated(CLAIM, str(next(versions)), **body["metadata"]["annotations"])

    async def create(*_: Any) -> PersistentVolume:
        return a_persistent_volume()

    for write in (patch, create):
        setattr(world.kube, write.__name__, write)
    return world


@asynccontextmanager
async def at_work(world: World) -> AsyncIterator[None]:
    """The claim is looked at as often as the queue has it."""
    world.provisioner.subscribe()
    work = asyncio.create_task(world.provisioner.queue.run())
    world.provisioner.queue.add(UID)
    try:
        yield
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        await world.provisioner.takeover._lookups.close()
        world.provisioner._forget(UID)


class EventServer:
    """Takes events unless it is away."""

    def __init__(self) -> None:
        self.away = True
        self.messages: list[str] = []

    async def create(self, _: Any, body: dict[str, Any], __: str) -> None:
        if self.away:
            raise KubeError(Reason.UNREACHABLE, "the API server is away")
        self.messages.append(body["message"])


SNAPSHOT = DataSource(kind="VolumeSnapshot", name="s", api_group="snapshot.storage.k8s.io")


@pytest.mark.parametrize("away_s", [1, 5, 600])
@pytest.mark.parametrize(
    "claim",
    [
        pytest.param(a_claim(node="node-1", source=SNAPSHOT), id="restored"),
        pytest.param(a_claim(node="node-1", modes=["ReadWriteMany"]), id="shared"),
    ],
)
def test_the_one_event_of_a_claim_that_is_refused_for_good_outlives_an_outage(
    claim: Claim, away_s: float
):
    async def story(_: Clock) -> list[str]:
        world, server = World(claim), EventServer()
        recorder = EventRecorder(cast("KubeClient", server), "test", Metrics())
        world.provisioner._events = ClaimEvents(recorder)
        writing = asyncio.create_task(recorder.run())
        async with at_work(world):
            await asyncio.sleep(away_s)
            server.away = False
            await asyncio.sleep(60)
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        assert world.ec2.requests == []
        return server.messages

    assert len(in_virtual_time(story)) == 1


def test_a_claim_that_waits_after_another_controller_is_told_after_five_seconds_once():
    async def story(_: Clock) -> list[str]:
        world = a_world()
        world.provisioner.takeover.begin([CLAIM], from_stranger=True)
        async with at_work(world):
            await asyncio.sleep(4)
            assert world.events.told == []
            await asyncio.sleep(50)
        return world.events.told

    assert in_virtual_time(story) == [TAKES_ITS_TIME]


def test_a_claim_is_told_that_it_waits_while_ec2_is_away_at_the_start():
    async def story(_: Clock) -> list[str]:
        world = a_world(cluster_id="prod")  # nobody could list marked volumes yet
        world.provisioner.takeover.begin([CLAIM], from_stranger=False)
        async with at_work(world):
            await asyncio.sleep(600)
        return world.events.told

    assert in_virtual_time(story) == [TAKES_ITS_TIME]


def test_a_claim_whose_volume_an_object_may_name_that_cannot_be_read_is_told_which_and_what_helps(
    monkeypatch: pytest.MonkeyPatch,
):
    marked = {VOLUME_NAME: CLAIM.persistent_volume_name, UNCLAIMED: "Delete"}
    made_at = datetime(2026, 11, 21, tzinfo=UTC)
    made = a_volume(tags=marked, created_at=made_at)

    async def story(_: Clock) -> list[str]:
        world = a_world(cluster_id="prod")
        monkeypatch.setattr(world.ec2, "find", AsyncMock(return_value=[made]), raising=False)
        monkeypatch.setattr(world.caches, "catch_up", AsyncMock())
        world.caches.persistent_volumes._store.cannot_read("pv-odd", "5")
        world.unclaimed.leadership.epoch = Epoch(made_at)
        world.provisioner.takeover.begin([CLAIM], from_stranger=False)
        learning = asyncio.create_task(world.unclaimed.run())
        async with at_work(world):
            await asyncio.sleep(600)
            assert world.ec2.requests == []
        learning.cancel()
        await asyncio.gather(learning, return_exceptions=True)
        return world.events.told

    [told] = in_virtual_time(story)

    assert told.startswith("UnreadableAnswer: PersistentVolume pv-odd cannot be read")
    assert told.endswith("until the object is corrected or deleted")


def test_a_claim_whose_volume_was_found_at_once_is_told_of_success_only():
    async def story(_: Clock) -> list[str]:
        world = a_world()
        world.provisioner.takeover.begin([CLAIM], from_stranger=True)
        world.ec2.shown = [a_volume(tags={VOLUME_NAME: CLAIM.persistent_volume_name})]
        async with at_work(world):
            await asyncio.sleep(2)
            bound = replace(CLAIM, spec=replace(CLAIM.spec, volume_name="pvc-1"))
            world.caches.claims._store.apply(annotated(bound, "99"))
            await asyncio.sleep(60)
        return world.events.told

    [told] = in_virtual_time(story)

    assert told.startswith("Successfully provisioned volume")


def test_a_claim_that_was_told_what_is_wrong_is_not_told_to_wait():
    async def story(_: Clock) -> list[str]:
        world = a_world()
        world.ec2.failure = an_ec2_error(Reason.PERMISSION_DENIED)
        world.provisioner.takeover.begin([CLAIM], from_stranger=True)
        async with at_work(world):
            await asyncio.sleep(60)
        return world.events.told

    assert in_virtual_time(story) == ["PermissionDenied: EC2 says PermissionDenied"]


def test_a_claim_that_is_left_to_the_next_leader_is_not_told_so():
    async def story(_: Clock) -> list[str]:
        world = a_world()
        world.ec2.answers = [an_ec2_error(Reason.NOT_LEADING)]
        async with at_work(world):
            await asyncio.sleep(0.1)
        assert len(world.ec2.requests) == 1
        return world.events.told

    assert in_virtual_time(story) == []


async def test_success_and_what_only_takes_its_time_are_no_warnings():
    recorder = MagicMock()
    ClaimEvents(recorder).succeeded(CLAIM, "the volume is there")
    ClaimEvents(recorder).note(CLAIM, "it is this claim's turn soon")
    ClaimEvents(recorder).failed(CLAIM, an_ec2_error(Reason.COPY_RATE))
    ClaimEvents(recorder).failed(CLAIM, an_ec2_error(Reason.INVALID_REQUEST))

    warned = [call.kwargs["warning"] for call in recorder.record.call_args_list]
    assert warned == [False, False, False, True]
