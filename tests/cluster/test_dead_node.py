"""Nodes whose instances end (``--release-dead-nodes``), beside the real controllers of Kubernetes.

The nodes that die are played by nobody (KWOK leaves them alone), so that they are not ready soon.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
import structlog

from provisioner.sandbox import kwok, nodes
from provisioner.sandbox.api import ApiError
from provisioner.sandbox.installation import MANIFESTS
from provisioner.sandbox.kubectl import kubectl
from provisioner.sandbox.strict_ec2.instances import Instance, make_instances
from tests.cluster.background import Background
from tests.cluster.cluster import ATTACHMENTS, CSI_NODES, NODES, Cluster, Json, handle_of, opened
from tests.cluster.place import Place
from tests.cluster.together import Stories, Together

pytestmark = pytest.mark.asyncio(loop_scope="module")
together = Together()

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
FAKE, _ = kwok.FAKE_NODE
NOT_READY_S = 90.0  # the controller manager waits 50 s for a kubelet
# Without us: six minutes, and for the pod for ever. The controller manager itself needs 20 s to
# remove the pods of a node that is out of service;
RELEASED_S = 90.0
# and those of a node that was deleted, a minute, and another one to see that an attachment is gone.
DELETED_S = 170.0
ZONE = "us-east-1a"
HERE = "here"  # value of the label, named as its story, of the nodes that a story's pod can run on

log = structlog.get_logger(__name__)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(background: Background) -> AsyncIterator[Cluster]:
    rights = MANIFESTS / "release-dead-nodes" / "rbac.yaml"
    plane = background.sandbox.plane
    await kubectl(plane, "apply", "--server-side", "-f", str(rights))
    async with opened(background, "--release-dead-nodes") as running:
        yield running
    await kubectl(plane, "delete", "-f", str(rights))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stories(cluster: Cluster, request: pytest.FixtureRequest) -> AsyncIterator[Stories]:
    async with together.started(cluster, request) as running:
        yield running


@contextlib.asynccontextmanager
async def a_doomed_node(place: Place) -> AsyncIterator[Instance]:
    """A node that the story's pods go to, and that nobody plays the kubelet of: it is Ready for as
    long as the controller manager waits for one."""
    endpoint = place.cluster.sandbox.ec2_endpoint
    [instance] = await asyncio.to_thread(make_instances, endpoint, 1, [ZONE])
    document = nodes.node(instance)
    del document["metadata"]["annotations"][FAKE]
    document["metadata"]["labels"][place.name] = HERE
    await nodes.add_as(place.api, instance, document)
    try:
        yield instance
    finally:
        for path in (path_of(instance), f"{CSI_NODES}/{instance.private_dns_name}"):
            with contextlib.suppress(ApiError):
                await place.api.delete(path)


@contextlib.asynccontextmanager
async def a_stateful_pod(place: Place) -> AsyncIterator[Json]:
    """A pod with a volume, on the doomed node, and later on another one; its persistent volume."""
    await place.storage_class(waits=True)
    labels = {"app": place.name}
    template = {
        "metadata": {"labels": labels},
        "spec": {
            "nodeSelector": {place.name: HERE},
            "containers": [{"name": "main", "image": "main"}],
        },
    }
    claim = {
        "metadata": {"name": "data"},
        "spec": {
            "storageClassName": f"{place.name}-class",
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    spec = {
        "serviceName": "none",
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": template,
        "volumeClaimTemplates": [claim],
    }
    body = {"metadata": {"name": "db"}, "spec": spec}
    path = f"/apis/apps/v1/namespaces/{place.name}/statefulsets"
    await place.api.create(path, body)
    yield await place.bound("data-db-0")
    await place.remove(f"{path}/db")
    other = path_of(place.cluster.instance(ZONE))
    await place.api.patch(other, {"metadata": {"labels": {place.name: None}}})


def path_of(instance: Instance) -> str:
    return f"{NODES}/{instance.private_dns_name}"


async def holder(place: Place, pv: Json) -> str:
    """The node to which a volume is attached, "" while it is to none."""
    for each in (await place.api.get(ATTACHMENTS))["items"]:
        if each["spec"]["source"].get("persistentVolumeName") == pv["metadata"]["name"]:
            is_attached = (each.get("status") or {}).get("attached")
            return str(each["spec"]["nodeName"]) if is_attached else ""
    return ""


async def attached_to(place: Place, pv: Json, instance: Instance) -> None:
    """Wait for it, then say as its kubelet would that the volume is mounted; from now on the pod
    can run on another node too."""
    name = instance.private_dns_name

    async def seen() -> bool:
        return await holder(place, pv) == name

    await place.cluster.until(f"the volume is attached to {name}", seen, 60.0)
    in_use = {"status": {"volumesInUse": [f"kubernetes.io/csi/{nodes.DRIVER}^{handle_of(pv)}"]}}
    await place.api.patch(f"{path_of(instance)}/status", in_use)
    other = path_of(place.cluster.instance(ZONE))
    await place.api.patch(other, {"metadata": {"labels": {place.name: HERE}}})


async def dies(place: Place, instance: Instance) -> None:
    """Wait until Kubernetes has missed the kubelet for long enough."""

    async def unknown() -> bool:
        found = await place.api.get(path_of(instance))
        conditions = {each["type"]: each["status"] for each in found["status"]["conditions"]}
        return bool(conditions["Ready"] == "Unknown")

    await place.cluster.until("the node is not ready", unknown, NOT_READY_S)


async def ends(place: Place, instance: Instance) -> None:
    ids = [instance.instance_id]
    await asyncio.to_thread(place.cluster.ec2.terminate_instances, InstanceIds=ids)


async def is_out_of_service(place: Place, instance: Instance) -> bool:
    taints = (await place.api.get(path_of(instance)))["spec"].get("taints") or []
    return any(each["key"] == OUT_OF_SERVICE for each in taints)


async def moves_away(
    place: Place, pv: Json, instance: Instance, within_s: float = RELEASED_S
) -> float:
    """Wait until the volume is attached elsewhere; the seconds that this took."""
    began_s = time.monotonic()

    async def elsewhere() -> bool:
        return await holder(place, pv) not in ("", instance.private_dns_name)

    await place.cluster.until("the volume is attached elsewhere", elsewhere, within_s)
    return time.monotonic() - began_s


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
        assert place.cluster.said("deleted the attachment to a node that is gone")


@together.test
@pytest.mark.parametrize("state", ["running", "stopped"])
async def test_while_the_instance_may_come_back_nothing_is_given_up(place: Place, state: str):
    async with a_doomed_node(place) as instance, a_stateful_pod(place) as pv:
        await attached_to(place, pv, instance)
        ids = [instance.instance_id]
        if state == "stopped":
            await asyncio.to_thread(place.cluster.ec2.stop_instances, InstanceIds=ids)
        await dies(place, instance)
        before = len(await place.cluster.calls(instance.instance_id, "DescribeInstances"))

        async def looked_at_again() -> bool:
            now = await place.cluster.calls(instance.instance_id, "DescribeInstances")
            return len(now) >= before + 2

        await place.cluster.until("EC2 is asked about it twice", looked_at_again, 60.0)
        assert not await is_out_of_service(place, instance)
        assert await holder(place, pv) == instance.private_dns_name

        await ends(place, instance)
        await moves_away(place, pv, instance)


@together.test
async def test_the_taint_goes_when_the_node_is_ready_again(place: Place):
    async with a_doomed_node(place) as instance:
        await ends(place, instance)
        await dies(place, instance)
        await is_declared(place, instance)

        status = nodes.ready_status(instance, dt.datetime.now(dt.UTC))
        await place.api.patch(f"{path_of(instance)}/status", {"status": status}, "strategic")

        await is_taken_back(place, instance)


@together.test
async def test_the_taint_goes_when_the_name_is_another_instances(place: Place):
    async with a_doomed_node(place) as instance, place.cluster.extra_node(ZONE) as other:
        await ends(place, instance)
        await dies(place, instance)
        await is_declared(place, instance)

        path = f"{CSI_NODES}/{instance.private_dns_name}"
        found = await place.api.get(path)
        await place.api.delete(path)
        kept = {key: found["metadata"][key] for key in ("name", "ownerReferences")}
        driver = found["spec"]["drivers"][0] | {"nodeID": other.instance_id}
        await place.api.create(CSI_NODES, {"metadata": kept, "spec": {"drivers": [driver]}})

        await is_taken_back(place, instance)
        events = await place.events(instance.private_dns_name, namespace="default")
        assert other.instance_id in events[-1]["message"]


async def is_declared(place: Place, instance: Instance) -> None:
    async def declared() -> bool:
        return await is_out_of_service(place, instance)

    await place.cluster.until("the node is out of service", declared, 60.0)


async def is_taken_back(place: Place, instance: Instance) -> None:
    async def back() -> bool:
        return not await is_out_of_service(place, instance)

    await place.cluster.until("the node is in service again", back, 60.0)
    node = await place.api.get(path_of(instance))
    assert not any("out-of-service" in each for each in node["metadata"]["annotations"])
