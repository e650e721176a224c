"""Nodes whose instances are terminated: what is proved, what is written, and what is not."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from provisioner.controller.nodes.dead_node import ROUND_S
from provisioner.model.errors import Ec2Error, Reason
from provisioner.model.names import OUT_OF_SERVICE_FOR
from provisioner.model.taint import OUT_OF_SERVICE
from tests.builders import INSTANCE, OTHER_INSTANCE
from tests.controller.dead_world import UNREACHABLE, DeadWorld, told
from tests.ec2.virtual_time import in_virtual_time

DECLARED = {OUT_OF_SERVICE_FOR: INSTANCE}


def is_declared(world: DeadWorld, name: str = "node-1") -> bool:
    node = world.node(name)
    has_taint = OUT_OF_SERVICE in (node.spec.taints or ())
    assert has_taint == (OUT_OF_SERVICE_FOR in node.annotations)
    return has_taint


def test_a_dead_node_gets_the_taint_once_and_is_told_about():
    async def story(world: DeadWorld) -> None:
        world.ec2.states[INSTANCE] = "terminated"
        world.has_node()
        await asyncio.sleep(600)
        node = world.node()
        assert node.spec.taints == [UNREACHABLE, OUT_OF_SERVICE]
        assert node.annotations == DECLARED
        assert world.sent == [("patch", "node-1")]
        [(warning, reason, message)] = world.told.events
        assert (warning, reason) == (True, "InstanceTerminated")
        assert INSTANCE in message

    told(story)


def test_it_waits_for_the_end_of_the_instance_and_asks_at_a_steady_pace():
    async def story(world: DeadWorld) -> None:
        world.ec2.states[INSTANCE] = "shutting-down"
        world.has_node()
        await asyncio.sleep(600)
        assert not is_declared(world)
        assert 600 / ROUND_S - 1 <= len(world.ec2.asked) <= 600 / ROUND_S + 1
        world.ec2.states[INSTANCE] = "terminated"
        await asyncio.sleep(ROUND_S + 1)
        assert is_declared(world)

    told(story)


def test_ec2_is_not_asked_about_nodes_that_are_ready():
    async def story(world: DeadWorld) -> None:
        for number in range(100):
            world.has_node(f"node-{number}", ready="True")
        await asyncio.sleep(600)
        assert world.ec2.asked == []

    told(story)


def test_all_are_asked_about_together_and_a_few_hundred_at_most():
    async def story(world: DeadWorld) -> None:
        for number in range(700):
            instance = f"i-{number:017x}"
            world.has_node(f"node-{number}", instance=instance, cached=False)
            world.ec2.states[instance] = "running"
        world.sync()
        await asyncio.sleep(1)
        assert len(world.ec2.asked) == 300
        await asyncio.sleep(2 * ROUND_S + 3)
        assert len(world.ec2.asked) == 900
        assert len(set(world.ec2.asked)) == 700

    told(story)


def test_a_node_that_dies_meanwhile_is_found_within_a_round():
    async def story(world: DeadWorld) -> None:
        world.ec2.states[INSTANCE] = "terminated"
        world.has_node(ready="True")
        await asyncio.sleep(100)
        world.becomes("node-1", "Unknown")
        await asyncio.sleep(2)
        assert is_declared(world)

    told(story)


@pytest.mark.parametrize("reason", [Reason.THROTTLED, Reason.UNREACHABLE, Reason.PERMISSION_DENIED])
def test_a_failed_look_proves_nothing(reason: Reason):
    async def story(world: DeadWorld) -> None:
        world.ec2.states[INSTANCE] = "terminated"
        world.ec2.failure = Ec2Error(reason, "no", action="DescribeInstances")
        world.has_node()
        with capture_logs() as logs:
            await asyncio.sleep(100)
        assert world.sent == []
        assert {line["event"] for line in logs} == {"cannot tell which nodes are dead"}
        world.ec2.failure = None
        await asyncio.sleep(ROUND_S + 1)
        assert is_declared(world)

    told(story)


def test_an_instance_that_ec2_does_not_know_proves_nothing_and_is_told_once():
    async def story(world: DeadWorld) -> None:
        world.has_node()
        await asyncio.sleep(250)
        assert world.told.events == []
        await asyncio.sleep(4000)
        assert world.sent == []
        [(warning, reason, message)] = world.told.events
        assert (warning, reason) == (True, "InstanceUnknown")
        assert "delete this Node" in message

    told(story)


def test_a_node_that_is_no_instance_is_left_alone_and_nobody_is_told_to_delete_it():
    async def story(world: DeadWorld) -> None:
        world.has_node(instance="hyperpod-ab12-i-0123456789abcdef0")
        await asyncio.sleep(4000)
        assert (world.sent, world.told.events) == ([], [])

    told(story)


def test_one_instance_that_ec2_refuses_to_describe_keeps_no_other_node_from_its_taint():
    async def story(world: DeadWorld) -> None:
        world.ec2.states[INSTANCE] = "terminated"
        why = Ec2Error(Reason.INVALID_REQUEST, "no such form", action="DescribeInstances")
        world.ec2.refuses = {OTHER_INSTANCE: why}
        world.has_node()
        world.has_node("node-2", instance=OTHER_INSTANCE)
        await asyncio.sleep(2)
        assert is_declared(world)

    told(story)


def test_of_an_unknown_instance_that_an_attachment_alone_names_the_attachment_is_told():
    async def story(world: DeadWorld) -> None:
        world.ec2.states[OTHER_INSTANCE] = "terminated"
        world.has_node(instance=OTHER_INSTANCE)
        world.has_attachment("csi-1", "node-1", OTHER_INSTANCE)
        world.has_attachment("csi-2", "node-1")
        await asyncio.sleep(4000)
        assert world.sent == []
        [(warning, reason, message)] = world.told.events
        assert (warning, reason) == (True, "InstanceUnknown")
        assert f"EC2 does not know instance {INSTANCE} in this account" in message
        assert "kubectl delete volumeattachment csi-2" in message
        assert "csi-1" not in message
        assert "delete this Node" not in message

    told(story)


def test_the_node_is_told_where_it_names_the_unknown_instance_itself():
    async def story(world: DeadWorld) -> None:
        world.has_node()
        world.has_attachment("csi-1", "node-1")
        await asyncio.sleep(400)
        [(_, _, message)] = world.told.events
        assert "delete this Node" in message
        assert "csi-1" not in message

    told(story)


def test_an_instance_of_which_ec2_did_not_know_for_a_moment_is_not_told_about():
    async def story(world: DeadWorld) -> None:
        world.has_node()
        for _ in range(5):
            await asyncio.sleep(200)
            world.ec2.states[INSTANCE] = "running"
            await asyncio.sleep(30)
            del world.ec2.states[INSTANCE]
        assert world.told.events == []

    told(story)


def test_a_stale_cache_decides_nothing():
    async def story(world: DeadWorld) -> None:
        world.ec2.states[INSTANCE] = "terminated"
        world.has_node()
        world.has_node(instance=OTHER_INSTANCE, uid="anew", cached=False)
        await asyncio.sleep(100)
        assert world.sent == []

    told(story)


def test_a_node_that_became_ready_unseen_is_left_alone():
    async def story(world: DeadWorld) -> None:
        world.ec2.states[INSTANCE] = "terminated"
        world.has_node()
        world.has_node(ready="True", cached=False)
        await asyncio.sleep(100)
        assert world.sent == []

    told(story)


def test_a_change_between_look_and_write_is_not_overwritten():
    async def story(world: DeadWorld) -> None:
        world.ec2.states[INSTANCE] = "terminated"
        get = world.get

        async def get_and_change(resource: object, name: str, _: str = "") -> object:
            found = await get(resource, name)
            if resource.plural == "csinodes":  # type: ignore[attr-defined]
                world.has_node(ready="True", cached=False)  # the kubelet is back
            return found

        world.get = get_and_change  # type: ignore[method-assign]
        world.has_node()
        await asyncio.sleep(100)
        assert world.sent == [("patch", "node-1")]
        assert not is_declared(world)
        assert world.told.events == []

    told(story)


def test_it_is_taken_back_at_once_when_the_node_is_ready():
    async def story(world: DeadWorld) -> None:
        world.has_node(taints=(UNREACHABLE, OUT_OF_SERVICE), annotations=DECLARED)
        await asyncio.sleep(100)
        assert is_declared(world)
        world.becomes("node-1", "True")
        await asyncio.sleep(2)
        assert world.node().spec.taints == [UNREACHABLE]
        assert world.node().annotations == {}
        assert world.told.events[0][:2] == (False, "InService")

    told(story)


def test_it_is_taken_back_when_the_name_comes_back_as_another_instance():
    async def story(world: DeadWorld) -> None:
        world.has_node(taints=(OUT_OF_SERVICE,), annotations=DECLARED, instance=OTHER_INSTANCE)
        await asyncio.sleep(2)
        assert not is_declared(world)

    told(story)


def test_it_is_taken_back_too_where_the_option_is_off_again_and_nothing_is_added():
    async def story(world: DeadWorld) -> None:
        world.ec2.states[INSTANCE] = "terminated"
        world.has_node("node-2")
        world.has_node(ready="True", taints=(OUT_OF_SERVICE,), annotations=DECLARED)
        world.has_attachment("csi-1", "gone")
        await asyncio.sleep(100)
        assert not is_declared(world)
        assert not is_declared(world, "node-2")
        assert world.attachments() == {"csi-1"}
        assert world.ec2.asked == []

    told(story, enabled=False)


@pytest.mark.parametrize("ready", ["Unknown", "True"])
def test_whoever_leads_next_finds_what_a_dying_leader_has_written(ready: str):
    async def story(world: DeadWorld) -> None:
        world.ec2.states[INSTANCE] = "terminated"
        is_dead = ready == "Unknown"
        before = {} if is_dead else {"taints": (OUT_OF_SERVICE,), "annotations": DECLARED}
        world.has_node(ready=ready, **before)  # type: ignore[arg-type]
        world.dies_after_a_write = True
        with pytest.raises(SystemExit):
            await world.dead_nodes.round()
        world.dies_after_a_write = False
        world.restart()  # its cache may not have the write yet
        await world.dead_nodes.round()
        world.sync()
        await world.dead_nodes.round()
        assert is_declared(world) == is_dead
        assert world.sent == [("patch", "node-1")]

    in_virtual_time(lambda _: story(DeadWorld()))
