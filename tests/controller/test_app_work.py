"""The whole controller at work in virtual time: how it begins after another, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from provisioner.controller.app import Controller
from provisioner.controller.shared.settings import Settings
from provisioner.kube.client import KubeClient
from provisioner.kube.lease import Leases, LeaseSettings
from provisioner.metrics import Metrics
from provisioner.model.consistency import CONSISTENCY_S
from tests.builders import INSTANCE, VOLUME
from tests.controller.attach_world import AttachWorld
from tests.controller.cloud import CALL_S, Placed
from tests.controller.test_app import NAMES, LeaseApi
from tests.ec2.virtual_time import Clock, in_virtual_time

AT_ONCE = 64
COUNT = 800


class ControllerWorld(AttachWorld):
    """A controller that leads at once, with caches that see every write at once."""

    def __init__(self, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(clock)
        self.leases, self.stop = LeaseApi(), asyncio.Event()
        lease_client, metrics = cast("KubeClient", self.leases), Metrics()
        client = cast("KubeClient", self)
        self.controller = Controller(Settings(), client, lease_client, self.cloud, metrics)
        self.controller.leases = Leases(
            lease_client,
            LeaseSettings(namespace="kube-system", names=NAMES, identity="me"),
            on_lost=asyncio.Event().set,
            metrics=metrics,
            clock=clock,
        )
        self.caches, self.attacher = self.controller.caches, self.controller.attacher
        self.watcher, self.ec2 = (
            self.controller.services.watcher,
            self.controller.services.instances,
        )
        monkeypatch.setattr(self.watcher, "_clock", clock)
        monkeypatch.setattr(self.watcher, "_looked_at", clock())
        monkeypatch.setattr(self.ec2._instances, "_clock", clock)
        monkeypatch.setattr(self.ec2.devices, "_clock", clock)
        monkeypatch.setattr(self.caches, "run", asyncio.Event().wait)
        for at_once in ("synced", "refresh"):
            monkeypatch.setattr(self.caches, at_once, lambda: asyncio.sleep(0))

    async def leads(self) -> None:
        await self.controller.leading.wait()


def told(
    story: Callable[[ControllerWorld], Coroutine[Any, Any, None]], monkeypatch: pytest.MonkeyPatch
) -> ControllerWorld:
    """Run the controller; it is asked to stop when the story is over."""

    async def whole(clock: Clock) -> ControllerWorld:
        world = ControllerWorld(clock, monkeypatch)
        running = asyncio.create_task(world.controller.run(world.stop))
        await story(world)
        world.stop.set()
        await running
        world.cloud.limiter.close()
        return world

    return in_virtual_time(whole)


def test_after_sigterm_what_waits_for_its_turn_is_left_and_what_ec2_has_is_finished(
    monkeypatch: pytest.MonkeyPatch,
):
    stopped_at = [0.0]

    async def story(world: ControllerWorld) -> None:
        for number in range(1, COUNT + 1):
            node = number // 20
            world.wish(number, node=node, instance=f"i-{node:017x}")
        await world.leads()
        await asyncio.sleep(5)
        stopped_at[0] = world.clock()
        assert world.attacher.queue.depth > COUNT / 2

    with capture_logs() as lines:
        world = told(story, monkeypatch)
        ended_at = world.clock()

    assert ended_at - stopped_at[0] < 2.0
    late = [at for action, at in world.cloud.sent if at > stopped_at[0]]
    assert 0 < len(late) <= AT_ONCE
    assert all(at <= stopped_at[0] + CALL_S + 0.1 for at in late)
    assert world.told == []  # an attachError would make the volume controller give up
    assert [line for line in lines if "flow" in line and line["log_level"] != "debug"] == []
    assert world.leases.holders == ["", ""]


@pytest.mark.parametrize("deleted", ["before", "while it waits for its turn"])
def test_the_attach_of_the_process_before_us_is_undone_though_its_attachment_is_deleted(
    deleted: str, monkeypatch: pytest.MonkeyPatch
):
    async def story(world: ControllerWorld) -> None:
        name = world.wish()
        if deleted == "before":
            world.delete(name)
        world.cloud.waits_s["AttachVolume"] = 1000
        await world.leads()
        await asyncio.sleep(5)
        if deleted != "before":
            world.delete(name)
        await asyncio.sleep(CONSISTENCY_S / 2)
        assert name not in world.gone_at
        late = Placed("/dev/xvdaa", world.clock())
        world.cloud._placed[VOLUME] = {INSTANCE: late}  # its call takes effect only now
        await asyncio.sleep(200)
        assert name in world.gone_at
        assert world.cloud._on(VOLUME) == {}

    told(story, monkeypatch)
