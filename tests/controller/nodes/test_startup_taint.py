"""The startup taint comes off when the node plugin is registered, however the news come in."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec

from provisioner.controller.nodes.flow import AgentTaint
from provisioner.controller.nodes.startup_taint_rules import taint_key
from provisioner.controller.shared.services import Services
from provisioner.controller.shared.settings import Settings
from provisioner.metrics import Metrics
from provisioner.model.decision import SETTLED
from provisioner.model.errors import KubeError, Outcome, Reason
from provisioner.model.node import CsiNode
from tests.builders import DRIVER
from tests.controller.node_api import NodeApi

WAITING = {"key": taint_key(DRIVER), "effect": "NoExecute", "timeAdded": "2026-11-22T05:00:00Z"}
OTHER = {"key": "other", "effect": "NoSchedule"}


def a_node(*taints: dict[str, Any], uid: str = "uid-1") -> dict[str, Any]:
    return {"metadata": {"name": "node-1", "uid": uid}, "spec": {"taints": list(taints)}}


def registration(uid: str = "uid-1", version: str = "1") -> CsiNode:
    owner = {"kind": "Node", "name": "node-1", "uid": uid}
    driver = {"name": DRIVER, "nodeID": "i-1", "allocatable": {"count": 25}}
    return msgspec.convert(
        {
            "metadata": {
                "name": "node-1",
                "resourceVersion": version,
                "ownerReferences": [owner],
            },
            "spec": {"drivers": [driver]},
        },
        CsiNode,
    )


class World:
    def __init__(self) -> None:
        self.api = NodeApi()
        services = SimpleNamespace(
            settings=Settings(),
            caches=self.api.caches,
            node_writes=self.api.writes,
            metrics=Metrics(),
        )
        self.flow = AgentTaint(cast("Services", services))

    def register(self, uid: str = "uid-1", version: str = "1") -> None:
        self.api.caches.csi_nodes._store.apply(registration(uid, version))

    @property
    def taints(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.api.nodes["node-1"]["spec"]["taints"]
        return found

    async def settled(self) -> None:
        """Let the queue work until it has nothing to do."""
        async with asyncio.timeout(30):
            while self.flow.queue.depth:  # noqa: ASYNC110 -- a queue has no event for this
                await asyncio.sleep(0)


async def test_it_comes_off_whichever_news_comes_last_and_whenever_it_is_put_on():
    world = World()
    world.flow.subscribe()
    running = asyncio.create_task(world.flow.queue.run())

    world.api.put(a_node(OTHER, WAITING))
    await world.settled()
    assert world.taints == [OTHER, WAITING]
    world.register()
    await world.settled()
    assert world.taints == [OTHER]

    world.api.put(a_node(WAITING, OTHER))
    await world.settled()
    assert world.taints == [OTHER]
    running.cancel()


async def test_a_registration_of_the_node_before_counts_for_nothing():
    world = World()
    world.register("uid-1")
    world.api.put(a_node(WAITING, uid="uid-2"))

    assert await world.flow.reconcile("node-1") == SETTLED
    assert world.taints == [WAITING]

    world.register("uid-2", version="2")
    await world.flow.reconcile("node-1")
    assert world.taints == []


async def test_what_others_put_on_meanwhile_stays():
    world = World()
    world.register()
    world.api.put(a_node(WAITING))
    world.api.put(a_node(OTHER, WAITING), is_seen=False)

    await world.flow.reconcile("node-1")

    assert world.taints == [OTHER]


async def test_a_lost_reply_is_made_good():
    world = World()
    world.register()
    world.api.put(a_node(WAITING, OTHER))
    world.api.failures = [(KubeError(Reason.REPLY_LOST, "lost", outcome=Outcome.UNKNOWN), True)]
    world.flow.subscribe()
    running = asyncio.create_task(world.flow.queue.run())
    await asyncio.sleep(0)
    world.flow.queue.add("node-1")
    await world.settled()

    assert world.taints == [OTHER]
    running.cancel()
