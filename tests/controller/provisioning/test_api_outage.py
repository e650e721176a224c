"""An API server that goes away for a minute, or ten, with work in flight; in virtual time.

``tests/cluster/test_outages.py`` has a real one go away, for less time: there the reconnecting is
tested, here that each flow waits calmly for as long as it takes, and does nothing twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from provisioner.kube.resources import PERSISTENT_VOLUMES
from provisioner.model.errors import KubeError, Reason
from provisioner.model.volume import VolumeState
from tests.builders import a_persistent_volume, a_volume
from tests.controller.attach_world import AttachWorld
from tests.controller.claims.test_events import a_world, at_work
from tests.controller.deleting.test_looks import following
from tests.ec2.virtual_time import Clock, in_virtual_time
from tests.kube.behind import Behind

T = TypeVar("T")
SOON_S = 31.0
"""A queue waits 30 s at most while somebody is away."""

minutes = pytest.mark.parametrize("away_s", [60.0, 600.0])


class Outage:
    """Counts the requests of which nothing comes while the server is away."""

    def __init__(self) -> None:
        self.is_away = False
        self.in_vain = 0

    def check(self) -> None:
        if self.is_away:
            self.in_vain += 1
            raise KubeError(Reason.UNREACHABLE, "the API server is away")

    async def lasts(self, away_s: float) -> None:
        self.is_away = True
        await asyncio.sleep(away_s)
        self.is_away = False
        assert 0 < self.in_vain < 10 + away_s / 5  # no tight loop

    def over(
        self, write: Callable[..., Coroutine[Any, Any, T]]
    ) -> Callable[..., Coroutine[Any, Any, T]]:
        """A request that may fail."""

        async def tried(*args: Any, **given: Any) -> T:
            self.check()
            return await write(*args, **given)

        return tried


def in_outage_world(
    story: Callable[[AttachWorld, Outage], Coroutine[Any, Any, None]],
    monkeypatch: pytest.MonkeyPatch,
) -> list[str]:
    async def whole(clock: Clock) -> list[str]:
        world, outage = AttachWorld(clock), Outage()
        monkeypatch.setattr(world, "patch", outage.over(world.patch))
        async with world.running():
            await story(world, outage)
        return world.cloud.actions()

    return in_virtual_time(whole)


@minutes
def test_an_attach_that_ec2_has_is_recorded_soon_afterwards(
    away_s: float, monkeypatch: pytest.MonkeyPatch
):
    async def story(world: AttachWorld, outage: Outage) -> None:
        name = world.wish()
        await asyncio.sleep(1)
        await outage.lasts(away_s)
        await asyncio.sleep(SOON_S)
        assert name in world.attached_at

    assert in_outage_world(story, monkeypatch) == ["AttachVolume"]


@minutes
def test_a_detach_that_ec2_has_is_let_go_soon_afterwards(
    away_s: float, monkeypatch: pytest.MonkeyPatch
):
    async def story(world: AttachWorld, outage: Outage) -> None:
        name = world.wish()
        await asyncio.sleep(10)
        world.delete(name)
        await asyncio.sleep(1)
        await outage.lasts(away_s)
        await asyncio.sleep(SOON_S)
        assert name in world.gone_at

    assert in_outage_world(story, monkeypatch) == ["AttachVolume", "DetachVolume"]


@minutes
def test_a_volume_that_was_made_is_saved_soon_afterwards(
    away_s: float, monkeypatch: pytest.MonkeyPatch
):
    async def story(_: Clock) -> list[str]:
        world, outage = a_world(), Outage()
        monkeypatch.setattr(world.kube, "create", outage.over(world.kube.create))
        world.ec2.answers = [a_volume(state=VolumeState.AVAILABLE)]
        async with at_work(world):
            await outage.lasts(away_s)
            await asyncio.sleep(SOON_S)
        assert len(world.ec2.requests) == 1
        return world.events.told

    assert in_virtual_time(story)[-1].startswith("Successfully provisioned volume")


@minutes
def test_nothing_is_deleted_until_the_api_server_can_be_asked_again(
    away_s: float, monkeypatch: pytest.MonkeyPatch
):
    async def story(clock: Clock) -> list[float]:
        api, outage = Behind(), Outage()
        released = api.put(PERSISTENT_VOLUMES, a_persistent_volume(phase="Released"))
        async with following(clock, api) as world:
            for request in ("list", "delete"):
                monkeypatch.setattr(api, request, outage.over(getattr(api, request)))
            queue = world.deleter.queue
            work = asyncio.create_task(queue.run())
            queue.add(released.name)
            await outage.lasts(away_s)
            assert world.deleted == 0
            await asyncio.sleep(SOON_S)
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            assert api.objects == {}
            return world.calls.sent_at["DeleteVolume"]

    assert len(in_virtual_time(story)) == 1
