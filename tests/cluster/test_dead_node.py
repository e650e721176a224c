"""Nodes whose instances end (``--release-dead-nodes``), beside the real controllers of Kubernetes."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
import structlog

from provisioner.model.attachment import NODE_ID
from provisioner.sandbox import nodes
from provisioner.sandbox.installation import MANIFESTS
from provisioner.sandbox.kubectl import kubectl
from tests.cluster.background import Background
from tests.cluster.cluster import Cluster, opened
from tests.cluster.dead_nodes import (
    DELETED_S,
    ZONE,
    a_doomed_node,
    a_stateful_pod,
    attached_to,
    attachment_of,
    dies,
    ends,
    holder,
    is_declared,
    is_out_of_service,
    is_taken_back,
    looked_at_twice,
    moves_away,
    path_of,
    registers_as,
)
from tests.cluster.place import Place
from tests.cluster.together import Together

pytestmark = pytest.mark.asyncio(loop_scope="module")
together = Together()

log = structlog.get_logger(__name__)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(background: Background) -> AsyncIterator[Cluster]:
    rights = MANIFESTS / "release-dead-nodes" / "rbac.yaml"
    plane = background.sandbox.plane
    await kubectl(plane, "apply", "--server-side", "-f", str(rights))
    async with opened(background, "--release-dead-nodes") as running:
        yield running
    await kubectl(plane, "delete", "-f", str(rights))


@together.test
async def test_pod_and_volume_of_a_dead_node_are_elsewhere_long_before_six_minutes(place: Place):
    async with a_doomed_node(place) as instance, a_stateful_pod(place) as pv:
        await attached_to(place, pv, instance)
        await ends(place, instance)
        await dies(place, instance)

        took_s = await moves_away(place, pv, instance)

        log.info("elsewhere after its node was not ready", seconds=round(took_s, 1))
        assert await is_out_of_service(place, instance)
        [told] = await place.events(instance.private_dns_name, namespace="default")
        assert told["reason"] == "InstanceTerminated"
        assert instance.instance_id in told["message"]


@together.test
async def test_pod_and_volume_of_a_node_that_is_deleted_are_elsewhere_too(place: Place):
    async with a_doomed_node(place) as instance, a_stateful_pod(place) as pv:
        await attached_to(place, pv, instance)
        await ends(place, instance)
        await place.api.delete(path_of(instance))

        took_s = await moves_away(place, pv, instance, DELETED_S)

        log.info("elsewhere after its node was deleted", seconds=round(took_s, 1))
        assert place.cluster.said("deleted a VolumeAttachment to a node that is gone")


@together.test
@pytest.mark.parametrize("state", ["running", "stopped"])
async def test_while_the_instance_may_come_back_nothing_is_given_up(place: Place, state: str):
    async with a_doomed_node(place) as instance, a_stateful_pod(place) as pv:
        await attached_to(place, pv, instance)
        ids = [instance.instance_id]
        if state == "stopped":
            await asyncio.to_thread(place.cluster.ec2.stop_instances, InstanceIds=ids)
        await dies(place, instance)
        await looked_at_twice(place, instance)
        assert not await is_out_of_service(place, instance)
        assert await holder(place, pv) == instance.private_dns_name

        await ends(place, instance)
        await moves_away(place, pv, instance)


@together.test
@pytest.mark.parametrize("ready", ["True", "False"])  # False: its network is not up yet, say
async def test_the_taint_goes_when_a_kubelet_answers_again(place: Place, ready: str):
    async with a_doomed_node(place) as instance:
        await ends(place, instance)
        await dies(place, instance)
        await is_declared(place, instance)

        status = nodes.ready_status(instance, dt.datetime.now(dt.UTC))
        status["conditions"][0]["status"] = ready
        await place.api.patch(f"{path_of(instance)}/status", {"status": status}, "strategic")

        await is_taken_back(place, instance)


@together.test
async def test_a_volume_goes_on_to_the_machine_that_has_come_under_the_name(place: Place):
    async with (
        a_doomed_node(place) as instance,
        place.cluster.extra_node(ZONE) as other,
        a_stateful_pod(place) as pv,
    ):
        await attached_to(place, pv, instance)
        await ends(place, instance)
        await registers_as(place, instance, other)

        async def attached_anew() -> bool:
            found = await attachment_of(place, pv)
            recorded = found["metadata"].get("annotations", {}).get(NODE_ID)
            is_attached = (found.get("status") or {}).get("attached")
            return recorded == other.instance_id and bool(is_attached)

        await place.cluster.until("the volume follows", attached_anew, DELETED_S)

        # The Node names the machine before still, by its providerID; but this one may live.
        await dies(place, instance)
        await looked_at_twice(place, other)
        assert not await is_out_of_service(place, instance)
        await ends(place, other)
        await moves_away(place, pv, instance)


@together.test
async def test_the_taint_goes_when_the_name_is_another_instances(place: Place):
    async with a_doomed_node(place) as instance, place.cluster.extra_node(ZONE) as other:
        await ends(place, instance)
        await dies(place, instance)
        await is_declared(place, instance)

        await registers_as(place, instance, other)

        await is_taken_back(place, instance)

        async def told() -> bool:
            events = await place.events(instance.private_dns_name, namespace="default")
            return other.instance_id in events[-1]["message"]

        await place.cluster.until("the last event names the other instance", told)
