"""Attachments to nodes that are gone: whose are deleted, and when."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from provisioner import clock
from provisioner.controller.nodes import dead_node_rules as rules
from provisioner.controller.nodes.dead_node import ROUND_S
from provisioner.model.taint import OUT_OF_SERVICE
from tests.builders import INSTANCE, OTHER_INSTANCE
from tests.controller.dead_world import DeadWorld, told


def test_the_attachments_of_a_node_that_is_gone_are_deleted_with_its_last_pod():
    async def story(world: DeadWorld) -> None:
        world.ec2.states[INSTANCE] = "terminated"
        world.has_pods("gone", "data-0")
        world.has_attachment("csi-1", "gone")
        world.has_attachment("csi-2", "gone")
        await asyncio.sleep(100)
        assert world.sent == []
        world.has_pods("gone")
        await asyncio.sleep(ROUND_S + 1)
        assert world.attachments() == set()
        assert set(world.lists) == {"spec.nodeName=gone"}

    told(story)


@pytest.mark.parametrize("state", ["running", "shutting-down", "stopped", ""])
def test_they_stay_while_the_instance_is_not_terminated(state: str):
    async def story(world: DeadWorld) -> None:
        world.ec2.states.update({INSTANCE: state} if state else {})
        world.has_attachment("csi-1", "gone")
        await asyncio.sleep(600)
        assert world.sent == []

    told(story)


def test_while_nodes_come_and_get_ready_all_the_time_attachments_are_looked_at_once_a_round(
    monkeypatch: pytest.MonkeyPatch,
):
    """Of 60,000 that takes a tenth of a second."""
    looked_at_s: list[float] = []
    real = rules.abandoned

    def noted(*args: Any) -> Any:
        looked_at_s.append(clock.now_s())
        return real(*args)

    monkeypatch.setattr(rules, "abandoned", noted)

    async def story(world: DeadWorld) -> None:
        world.has_node(ready="True")
        world.has_attachment("csi-1", "node-1")
        for number in range(100):
            world.has_node(f"other-{number}", ready="True")
            await asyncio.sleep(0.6)
        assert len(looked_at_s) <= 1 + 60 / ROUND_S
        world.ec2.states[INSTANCE] = "terminated"
        world.goes("node-1")
        await asyncio.sleep(ROUND_S + 1)
        assert world.attachments() == set()

    told(story)


def test_they_stay_when_the_node_is_there_after_all():
    async def story(world: DeadWorld) -> None:
        world.ec2.states[INSTANCE] = "terminated"
        world.has_attachment("csi-1", "node-1")
        world.has_node(ready="True", cached=False)
        await asyncio.sleep(100)
        assert world.sent == []

    told(story)


def test_an_attachment_that_has_changed_meanwhile_is_looked_at_again():
    async def story(world: DeadWorld) -> None:
        world.ec2.states[INSTANCE] = "terminated"
        world.has_attachment("csi-1", "gone")
        world.changes("csi-1")
        await asyncio.sleep(2)
        assert world.attachments() == {"csi-1"}
        world.sync()
        await asyncio.sleep(ROUND_S + 1)
        assert world.attachments() == set()

    told(story)


def test_a_node_that_is_deleted_while_it_is_out_of_service_leaves_no_attachment():
    async def story(world: DeadWorld) -> None:
        world.ec2.states[INSTANCE] = "terminated"
        world.has_node()
        world.has_attachment("csi-1", "node-1")
        await asyncio.sleep(20)
        assert OUT_OF_SERVICE in (world.node().spec.taints or ())
        world.goes("node-1")
        await asyncio.sleep(ROUND_S + 1)
        assert world.attachments() == set()

    told(story)


def test_what_was_attached_to_the_machine_before_is_made_anew_for_the_one_that_came():
    async def story(world: DeadWorld) -> None:
        world.ec2.states[OTHER_INSTANCE] = "running"
        world.ec2.states[INSTANCE] = "shutting-down"
        world.has_node(ready="True")
        world.has_attachment("csi-1", "node-1")
        world.has_attachment("csi-2", "node-1", OTHER_INSTANCE)
        world.has_pods("node-1", "data-0")  # it waits there for the device
        world.registers("node-1", OTHER_INSTANCE)
        await asyncio.sleep(100)
        assert world.sent == []
        assert OTHER_INSTANCE not in world.ec2.asked
        world.ec2.states[INSTANCE] = "terminated"
        await asyncio.sleep(ROUND_S + 1)
        assert world.attachments() == {"csi-2"}

    told(story)


def test_it_stays_when_the_node_is_that_very_machine_after_all():
    async def story(world: DeadWorld) -> None:
        world.ec2.states[INSTANCE] = "terminated"
        world.has_node(ready="True")
        world.has_attachment("csi-1", "node-1")
        world.registers("node-1", OTHER_INSTANCE)
        world.registers("node-1", INSTANCE, cached=False)
        await asyncio.sleep(100)
        assert world.sent == []
        assert world.ec2.asked

    told(story)
