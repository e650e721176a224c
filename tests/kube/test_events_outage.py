"""Events while the API server cannot take them: kept for long, bounded, and in nobody's way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from provisioner.kube import events
from provisioner.kube.client import KubeClient
from provisioner.kube.events import EventRecorder, Regarding
from provisioner.metrics import Metrics
from provisioner.model.errors import KubeError, Reason
from tests.ec2.virtual_time import Clock, in_virtual_time

AWAY = KubeError(Reason.UNREACHABLE, "the API server is away")
FORBIDDEN = KubeError(Reason.FORBIDDEN, "cannot create events: forbidden")
ENDS = KubeError(Reason.FORBIDDEN, "no new content in namespace web because it is being terminated")


class Server:
    """Takes events, or says what ``failures`` has for the object's name ("" for all).

    Attributes:
        written: names of objects, and when; ``tried_at``: all requests.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.failures: dict[str, KubeError] = {}
        self.written: list[tuple[str, float]] = []
        self.tried_at: list[float] = []

    async def create(self, _: Any, body: dict[str, Any], __: str) -> None:
        await asyncio.sleep(0.01)
        self.tried_at.append(self._clock())
        name = body["involvedObject"]["name"]
        failure = self.failures.get(name) or self.failures.get("")
        if failure is not None:
            raise failure
        self.written.append((name, self._clock()))


class World:
    """A recorder at work."""

    def __init__(self, clock: Clock) -> None:
        self.server, self.metrics = Server(clock), Metrics()
        client = cast("KubeClient", self.server)
        self.recorder = EventRecorder(client, "test", self.metrics, clock=clock)

    def tell(self, name: str = "data") -> None:
        about = Regarding("PersistentVolumeClaim", "v1", name, "web", f"uid-{name}")
        self.recorder.record(about, warning=True, reason="ProvisioningFailed", message="no")

    @property
    def dropped(self) -> float | None:
        return self.metrics.registry.get_sample_value("ebs_provisioner_events_dropped_total")


def told(story: Callable[[World], Coroutine[Any, Any, None]]) -> Server:
    async def whole(clock: Clock) -> Server:
        world = World(clock)
        running = asyncio.create_task(world.recorder.run())
        try:
            await story(world)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        return world.server

    return in_virtual_time(whole)


@pytest.mark.parametrize("away_s", [5, 60, 3000])
def test_an_event_is_written_soon_after_the_api_server_is_back(away_s: float) -> None:
    async def story(world: World) -> None:
        world.server.failures[""] = AWAY
        world.tell()
        await asyncio.sleep(away_s)
        world.server.failures.clear()
        await asyncio.sleep(31)
        assert world.dropped == 0

    server = told(story)

    assert [name for name, _ in server.written] == ["data"]
    assert len(server.tried_at) < 6 + away_s / 29


def test_an_event_that_nobody_takes_for_an_hour_is_dropped() -> None:
    async def story(world: World) -> None:
        world.server.failures[""] = AWAY
        world.tell()
        await asyncio.sleep(3700)
        assert world.dropped == 1
        assert await world.recorder.flush(1)

    assert told(story).written == []


def test_a_new_api_server_that_forbids_everything_at_first_is_asked_again() -> None:
    async def story(world: World) -> None:
        world.server.failures[""] = FORBIDDEN
        world.tell()
        await asyncio.sleep(10)
        world.server.failures.clear()
        await asyncio.sleep(10)

    assert len(told(story).written) == 1


@pytest.mark.parametrize(("failure", "tries"), [(FORBIDDEN, 7), (ENDS, 1)])
def test_what_stays_forbidden_is_dropped(failure: KubeError, tries: int) -> None:
    async def story(world: World) -> None:
        world.server.failures[""] = failure
        world.tell()
        await asyncio.sleep(200)
        assert world.dropped == 1

    assert len(told(story).tried_at) == tries


def test_events_that_always_fail_keep_no_others_waiting() -> None:
    async def story(world: World) -> None:
        for number in range(100):
            world.server.failures[f"bad-{number}"] = KubeError(Reason.REPLY_LOST, "a webhook fails")
            world.tell(f"bad-{number}")
        await asyncio.sleep(100)
        world.tell("good")
        await asyncio.sleep(1)

    [(name, at_s)] = told(story).written

    assert name == "good"
    assert at_s < 101


def test_no_more_than_the_most_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "QUEUE_MAX", 10)

    async def story(world: World) -> None:
        world.server.failures[""] = AWAY
        for number in range(10):
            world.tell(f"data-{number}")
            await asyncio.sleep(0.5)  # it has failed once: it is in no writer's queue
        world.tell("one-too-many")
        assert world.dropped == 1

    told(story)


def test_at_the_end_of_the_process_what_failed_before_is_tried_at_once() -> None:
    async def story(world: World) -> None:
        world.server.failures[""] = AWAY
        world.tell()
        await asyncio.sleep(20)
        world.server.failures.clear()
        assert await world.recorder.flush(1)

    assert len(told(story).written) == 1


def test_the_end_of_the_process_does_not_wait_for_ever() -> None:
    async def story(world: World) -> None:
        world.server.failures[""] = AWAY
        world.tell()
        await asyncio.sleep(1.5)
        assert not await world.recorder.flush(3)

    assert told(story).written == []
