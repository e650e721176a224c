"""What instance types take that no table knows: asked for once, noted on each node."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from structlog.testing import capture_logs

from provisioner.controller.nodes.flow import AttachmentLimits
from provisioner.controller.nodes.instance_type_limit_rules import unknown_type
from provisioner.controller.shared.services import Services
from provisioner.controller.shared.settings import Settings
from provisioner.metrics import Metrics
from provisioner.model.decision import SETTLED, Later
from provisioner.model.errors import Ec2Error, Reason
from provisioner.model.instance_type_limit import DescribedType
from provisioner.model.names import ATTACHMENT_LIMIT
from provisioner.model.node import TYPE_LABEL, CsiNode, Node
from tests.builders import DRIVER, a_csi_node
from tests.controller.node_api import NodeApi
from tests.ec2.virtual_time import Clock, in_virtual_time

NEW = "z9new.large"
REFUSED = Ec2Error(Reason.PERMISSION_DENIED, "not you", action="DescribeInstanceTypes")
FAILURES = "ebs_provisioner_flow_failures_total"


class Types:
    """EC2's families. ``asked``: in order."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.failure: Exception | None = None

    async def family(self, name: str) -> tuple[DescribedType, ...]:
        self.asked.append(name)
        if self.failure is not None:
            raise self.failure
        if name != "z9new":
            return ()
        return (
            DescribedType(NEW, 32, is_shared=False, is_xen=False, is_metal=False),
            # EC2 tells this of metal sizes; their family says otherwise.
            DescribedType("z9new.metal", 79, is_shared=True, is_xen=False, is_metal=True),
        )


class World:
    def __init__(self) -> None:
        self.api, self.types, self.metrics = NodeApi(), Types(), Metrics()
        services = SimpleNamespace(
            settings=Settings(),
            caches=self.api.caches,
            node_writes=self.api.writes,
            instance_types=self.types,
            metrics=self.metrics,
        )
        self.flow = AttachmentLimits(cast("Services", services))

    def note(self, name: str = "node-1") -> str:
        annotations = self.api.nodes[name]["metadata"].get("annotations") or {}
        return str(annotations.get(ATTACHMENT_LIMIT, ""))


def a_node(
    name: str = "node-1",
    instance_type: str = NEW,
    provider_id: str = "aws:///us-east-1a/i-1",
    annotations: dict[str, str] | None = None,
) -> dict[str, Any]:
    metadata = {"name": name, "labels": {TYPE_LABEL: instance_type}, "annotations": annotations}
    return {"metadata": metadata, "spec": {"providerID": provider_id}}


@pytest.mark.parametrize(
    ("node", "csi_node", "asked"),
    [
        (a_node(), None, NEW),
        (a_node(provider_id=""), a_csi_node(), NEW),
        (a_node(instance_type=f"ml.{NEW}"), None, NEW),
        (a_node(provider_id=""), None, ""),
        (a_node(provider_id=""), a_csi_node(driver="other.csi"), ""),
        (a_node(provider_id="gce://p/z/n"), None, ""),
        (a_node(instance_type="m5.large"), None, ""),
        (a_node(instance_type=""), None, ""),
        (a_node(instance_type="*.large"), None, ""),
    ],
)
def test_asked_is_for_types_of_our_nodes_that_the_table_lacks(
    node: dict[str, Any], csi_node: CsiNode | None, asked: str
):
    assert unknown_type(msgspec.convert(node, Node), csi_node, DRIVER) == asked


@pytest.mark.parametrize(
    ("instance_type", "note"),
    [(NEW, f"{NEW} 32 dedicated"), ("z9new.metal", "z9new.metal 79 dedicated")],
)
async def test_the_limit_is_noted_and_noted_once(instance_type: str, note: str):
    world = World()
    world.api.put(a_node(instance_type=instance_type, annotations={"a": "b"}))

    assert await world.flow.reconcile("node-1") == SETTLED
    assert await world.flow.reconcile("node-1") == SETTLED

    assert world.note() == note
    assert world.api.nodes["node-1"]["metadata"]["annotations"]["a"] == "b"
    assert len(world.api.sent) == 1


@pytest.mark.parametrize("older", [f"{NEW} 27 shared", "z9new.metal 79 dedicated", "many"])
async def test_an_older_note_is_put_right(older: str):
    world = World()
    world.api.put(a_node(annotations={ATTACHMENT_LIMIT: older}))

    await world.flow.reconcile("node-1")

    assert world.note() == f"{NEW} 32 dedicated"


async def test_an_instance_that_became_of_another_type_meanwhile_is_not_noted():
    world = World()
    world.api.put(a_node())
    world.api.put(a_node(instance_type="m5.large"), is_seen=False)

    await world.flow.reconcile("node-1")

    assert world.note() == ""


async def test_the_news_that_matter_have_a_node_looked_at():
    world = World()
    world.flow.subscribe()
    world.api.put(a_node("known", "m5.large"))
    world.api.put(a_node("new", provider_id=""))
    assert world.flow.queue.depth == 0

    world.api.caches.csi_nodes._store.apply(a_csi_node("new"))
    assert world.flow.queue.depth == 1
    world.api.put(a_node("named", provider_id=""))
    world.api.put(a_node("named"))
    assert world.flow.queue.depth == 2


async def test_a_type_that_ec2_does_not_tell_either_is_asked_for_again_in_an_hour():
    world = World()
    world.api.put(a_node(instance_type="z8.large"))
    world.api.put(a_node("node-2", instance_type="z9new.other"))

    assert await world.flow.reconcile("node-1") == Later(3600)
    assert await world.flow.reconcile("node-2") == Later(3600)
    assert world.api.sent == []


def test_without_the_right_it_is_said_once_an_hour_and_asked_once_in_ten_minutes():
    async def story(clock: Clock) -> None:
        world = World()
        world.types.failure = REFUSED
        names = [f"node-{number}" for number in range(20)]
        for name in names:
            world.api.put(a_node(name))
        world.flow.subscribe()
        with capture_logs() as lines:
            running = asyncio.create_task(world.flow.queue.run())
            await asyncio.sleep(3 * 3600 - 1)
            asked_by = len(world.types.asked)
            world.types.failure = None
            await asyncio.sleep(600)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

        warnings = [line for line in lines if line["log_level"] == "warning"]
        assert [line["error"] for line in warnings] == ["not you"] * 3
        assert asked_by <= 3 * 6 * len(names)
        labels = {"flow": "attachment limit", "reason": "PermissionDenied"}
        assert world.metrics.registry.get_sample_value(FAILURES, labels) == 3 * 6
        assert {world.note(name) for name in names} == {f"{NEW} 32 dedicated"}

    in_virtual_time(story)


async def test_an_ec2_that_is_away_is_asked_again_by_the_queue():
    world = World()
    world.api.put(a_node())
    world.types.failure = Ec2Error(Reason.UNREACHABLE, "away", action="DescribeInstanceTypes")

    with pytest.raises(Ec2Error, match="away"):
        await world.flow.reconcile("node-1")
