"""Nodes are initialized once their instance is certain and nobody else does it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from structlog.testing import capture_logs

from provisioner.controller.nodes import initialize
from provisioner.controller.nodes.initialize import AGAIN_S
from provisioner.controller.nodes.initialize_rules import LABELS, TAINT
from provisioner.kube.informer import Informer
from provisioner.model.decision import SETTLED, Later
from provisioner.model.errors import Ec2Error, KubeError, Outcome, Reason
from provisioner.model.volume import Instance
from tests.builders import a_csi_node
from tests.controller.initialize_world import (
    ADDRESS,
    FACTS,
    ID,
    NAME,
    OTHER_ID,
    World,
    a_node,
    an_instance,
    is_initialized,
)


async def test_all_that_is_missing_is_written_at_once_and_only_once():
    world = World()
    world.api.put(a_node())

    assert await world.flow.reconcile(NAME) == SETTLED
    assert await world.flow.reconcile(NAME) == SETTLED

    assert is_initialized(world)
    assert len(world.api.sent) == 1  # the zone is never there without, or after, the rest
    assert world.cloud.asked == [NAME, ADDRESS]
    assert [reason for reason, _ in world.told] == ["Initialized"]


async def test_to_initialize_one_node_the_others_are_not_gone_through(
    monkeypatch: pytest.MonkeyPatch,
):
    world = World()
    world.api.put(a_node())
    world.api.put(a_node("other", "uid-2", providerID=f"aws:///us-east-1a/{OTHER_ID}"))
    caches = world.api.caches
    caches.csi_nodes._store.apply(a_csi_node("other", instance=OTHER_ID))

    def all_of_them(_: object) -> None:
        raise AssertionError("went through a whole cache")

    monkeypatch.setattr(Informer, "values", all_of_them)
    await world.flow.reconcile(NAME)

    assert is_initialized(world)


async def test_what_somebody_has_begun_is_finished():
    world = World()
    begun = a_node(providerID=f"aws:///us-east-1a/{ID}")
    begun["metadata"]["labels"] |= FACTS
    world.api.put(begun)

    await world.flow.reconcile(NAME)

    assert is_initialized(world)
    assert world.cloud.asked == [ID]


async def test_a_crash_after_the_write_leaves_nothing_to_do():
    world = World()
    world.api.put(a_node())
    world.api.failures = [(KubeError(Reason.REPLY_LOST, "lost", outcome=Outcome.UNKNOWN), True)]
    with pytest.raises(KubeError, match="lost"):
        await world.flow.reconcile(NAME)
    assert is_initialized(world)

    assert await world.flow.reconcile(NAME) == SETTLED  # with a cache that has not seen it

    assert is_initialized(world)


async def test_a_young_node_is_left_for_a_minute():
    world = World()
    node = a_node()
    node["metadata"]["creationTimestamp"] = datetime.now(UTC).isoformat()
    world.api.put(node)

    after = await world.flow.reconcile(NAME)

    assert isinstance(after, Later)
    assert 55 < after.seconds <= 60
    assert (world.cloud.asked, world.api.sent) == ([], [])


@pytest.mark.parametrize("name", initialize.LEASES)
async def test_nodes_are_left_to_a_cloud_controller_that_holds_its_lease(
    monkeypatch: pytest.MonkeyPatch, name: str
):
    now_s = [1000.0]
    monkeypatch.setattr(initialize, "boot_clock", lambda: now_s[0])
    world = World()
    world.api.put(a_node())
    world.hold(name, renewed="1")

    waits = []
    with capture_logs() as logs:
        for renewed in ("1", "2", "2"):
            world.hold(name, renewed=renewed)
            waits.append(await world.flow.reconcile(NAME))
            now_s[0] += 14
    assert waits == [Later(15.0)] * 3
    assert ["holds its lease" in line["event"] for line in logs] == [True]  # said once
    assert (world.cloud.asked, world.api.sent, world.told) == ([], [], [])

    now_s[0] += 2  # now it has not been renewed for its duration
    await world.flow.reconcile(NAME)
    assert is_initialized(world)


async def test_a_lease_that_was_given_up_is_held_by_nobody():
    world = World()
    world.api.put(a_node())
    world.hold(holder="")

    await world.flow.reconcile(NAME)

    assert is_initialized(world)


async def test_a_cloud_controller_that_comes_while_ec2_is_asked_has_the_node_left_to_it():
    world = World()
    world.api.put(a_node())
    found = world.cloud.addressed

    async def meanwhile(address: str) -> list[Instance]:
        world.hold()
        return await found(address)

    world.cloud.addressed = meanwhile  # type: ignore[method-assign]
    assert await world.flow.reconcile(NAME) == Later(15.0)

    assert world.api.sent == []


async def test_a_lease_that_cannot_be_read_may_be_held(monkeypatch: pytest.MonkeyPatch):
    world = World()
    world.api.put(a_node())

    async def refused(*_: Any) -> Any:
        raise KubeError(Reason.FORBIDDEN, "no right", status=403)

    monkeypatch.setattr(world.api, "get", refused)
    with pytest.raises(KubeError, match="no right"):
        await world.flow.reconcile(NAME)

    assert world.api.sent == []


@pytest.mark.parametrize(
    ("running", "says"),
    [
        ([], "no running instance"),
        ([an_instance(), an_instance(OTHER_ID, private_dns_name="")], f"{ID}, {OTHER_ID}"),
    ],
)
async def test_none_or_two_are_told_and_looked_for_again(running: list[Instance], says: str):
    world = World()
    world.api.put(a_node())
    world.cloud.running = running

    assert await world.flow.reconcile(NAME) == Later(AGAIN_S)
    assert world.api.sent == []
    [(reason, message)] = world.told
    assert (reason, says in message) == ("NotInitialized", True)

    world.cloud.running = [an_instance()]
    await world.flow.reconcile(NAME)
    assert is_initialized(world)


async def test_an_instance_that_ec2_does_not_know_is_told():
    world = World()
    world.api.put(a_node(providerID=f"aws:///us-east-1a/{OTHER_ID}"))

    assert await world.flow.reconcile(NAME) == Later(AGAIN_S)
    assert OTHER_ID in world.told[0][1]
    assert world.api.sent == []


async def test_an_ec2_that_cannot_be_asked_decides_nothing():
    world = World()
    world.api.put(a_node())
    world.cloud.failure = Ec2Error(Reason.UNREACHABLE, "away", action="DescribeInstances")

    with pytest.raises(Ec2Error, match="away"):
        await world.flow.reconcile(NAME)

    assert (world.api.sent, world.told) == ([], [])


async def test_a_contradiction_that_comes_meanwhile_is_seen_in_what_is_live():
    world = World()
    world.api.put(a_node())
    node = a_node()
    node["metadata"]["labels"] = {LABELS[0]: "us-east-1b"}
    world.api.put(node, is_seen=False)

    assert await world.flow.reconcile(NAME) == Later(AGAIN_S)

    assert world.api.nodes[NAME]["metadata"]["labels"] == {LABELS[0]: "us-east-1b"}
    assert "us-east-1b" in world.told[0][1]


async def test_a_node_made_anew_meanwhile_is_not_given_the_instance_of_the_old_one():
    world = World()
    world.api.put(a_node())
    world.api.put(a_node(uid="uid-2"), is_seen=False)

    await world.flow.reconcile(NAME)

    assert TAINT in str(world.spec())
    assert "providerID" not in world.spec()


async def test_only_if_it_is_asked_for():
    world = World(on=False)
    world.api.put(a_node())

    world.flow.subscribe()

    assert world.flow.queue.depth == 0
    asking = World()
    asking.api.put(a_node())
    whole = a_node("whole", providerID="aws:///us-east-1a/i-1", taints=[])
    whole["metadata"]["labels"] |= FACTS
    asking.api.put(whole)
    asking.flow.subscribe()
    assert asking.flow.queue.depth == 1
    assert await asking.flow.reconcile("whole") == SETTLED
