"""Dead nodes among others: a name that another machine has taken, refused writes, lost replies."""

from __future__ import annotations

import asyncio

from structlog.testing import capture_logs

from provisioner.controller.nodes.dead_node import ROUND_S
from provisioner.model.names import OUT_OF_SERVICE_FOR
from provisioner.model.taint import OUT_OF_SERVICE
from tests.builders import INSTANCE, OTHER_INSTANCE
from tests.controller.dead_world import DeadWorld, told

DECLARED = {OUT_OF_SERVICE_FOR: INSTANCE}


def declared(world: DeadWorld) -> set[str]:
    """The names of the nodes that have our taint."""
    nodes = {name: world.node(name) for kind, name in world.live if kind == "nodes"}
    return {name for name, node in nodes.items() if OUT_OF_SERVICE in (node.spec.taints or ())}


def test_a_living_kubelet_under_the_name_of_a_dead_machine_is_left_alone():
    async def story(world: DeadWorld) -> None:
        world.ec2.states[INSTANCE] = "terminated"
        world.has_node(ready="False")  # its network is not up; all that it names is the old machine
        await asyncio.sleep(3600)
        assert declared(world) == set()
        assert world.ec2.asked == []

    told(story)


def test_the_taint_goes_as_soon_as_a_kubelet_answers_though_it_is_not_ready():
    async def story(world: DeadWorld) -> None:
        world.ec2.states[INSTANCE] = "terminated"
        world.has_node()
        await asyncio.sleep(5)
        assert declared(world) == {"node-1"}
        world.becomes("node-1", "False")
        await asyncio.sleep(2)
        assert declared(world) == set()
        assert world.told.events[-1][1] == "InService"

    told(story)


def test_the_taint_goes_at_once_when_another_machine_registers():
    async def story(world: DeadWorld) -> None:
        world.ec2.states[INSTANCE] = "terminated"
        world.has_node()
        await asyncio.sleep(5)
        assert declared(world) == {"node-1"}
        world.registers("node-1", OTHER_INSTANCE)
        await asyncio.sleep(2)
        assert declared(world) == set()

    told(story)


def test_a_running_instance_that_only_an_attachment_records_is_not_given_up():
    async def story(world: DeadWorld) -> None:
        world.ec2.states.update({INSTANCE: "terminated", OTHER_INSTANCE: "running"})
        world.has_attachment("csi-1", "node-1", OTHER_INSTANCE)
        world.has_node(cached=False)
        world.registers("node-1", None)  # the node plugin is being swapped
        await asyncio.sleep(100)
        assert declared(world) == set()
        world.ec2.states[OTHER_INSTANCE] = "terminated"
        await asyncio.sleep(ROUND_S + 1)
        assert declared(world) == {"node-1"}
        both = set(world.node().annotations[OUT_OF_SERVICE_FOR].split(","))
        assert both == {INSTANCE, OTHER_INSTANCE}

    told(story)


def test_a_node_that_cannot_be_written_keeps_no_other_from_being_released():
    async def story(world: DeadWorld) -> None:
        for number in range(5):
            instance = f"i-{number:017x}"
            world.ec2.states[instance] = "terminated"
            world.has_node(f"node-{number}", instance=instance, cached=False)
        world.ec2.states[INSTANCE] = "terminated"
        world.has_attachment("csi-1", "gone")
        world.has_attachment("csi-2", "gone")
        world.refused = {"node-0", "csi-1"}
        with capture_logs() as logs:
            await asyncio.sleep(100)
        assert declared(world) == {"node-1", "node-2", "node-3", "node-4"}
        assert world.attachments() == {"csi-1"}
        failures = [line for line in logs if line["event"] == "cannot handle a dead node"]
        assert {line["node"] for line in failures} == {"node-0", "gone"}
        assert all("node-0" in line["error"] or "csi-1" in line["error"] for line in failures)
        world.refused = set()
        await asyncio.sleep(ROUND_S + 1)
        assert "node-0" in declared(world)

    told(story)


def test_a_taint_that_cannot_be_taken_away_keeps_no_other_where_it_is():
    async def story(world: DeadWorld) -> None:
        for name in ("node-0", "node-1"):
            world.has_node(
                name, ready="True", taints=(OUT_OF_SERVICE,), annotations=DECLARED, cached=False
            )
        world.ec2.states["i-2"] = "terminated"
        world.has_node("node-2", instance="i-2", cached=False)
        world.refused = {"node-0"}
        world.sync()
        await asyncio.sleep(100)
        assert declared(world) == {"node-0", "node-2"}

    told(story)


def test_a_write_of_which_no_answer_comes_is_told_about_once():
    async def story(world: DeadWorld) -> None:
        world.ec2.states[INSTANCE] = "terminated"
        world.loses_replies = True
        world.has_node()
        await asyncio.sleep(2)
        world.sync()  # the watch tells of the write
        await asyncio.sleep(100)
        assert declared(world) == {"node-1"}
        assert [reason for _, reason, _ in world.told.events] == ["InstanceTerminated"]
        world.becomes("node-1", "True")
        await asyncio.sleep(100)
        assert declared(world) == set()
        reasons = [reason for _, reason, _ in world.told.events]
        assert reasons == ["InstanceTerminated", "InService"]
        assert len(world.sent) == 2

    told(story)


def test_fields_of_others_taints_are_not_sent_back():
    async def story(world: DeadWorld) -> None:
        world.ec2.states[INSTANCE] = "terminated"
        world.has_node()
        await asyncio.sleep(5)
        [body] = world.bodies
        assert {each["path"] for each in body[1:]} == {"/spec/taints/-", "/metadata/annotations"}

    told(story)
