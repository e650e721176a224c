"""Nodes that die, for tests: nobody plays their kubelets (KWOK leaves them), so none is heard."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

from provisioner.sandbox import kwok, nodes
from provisioner.sandbox.api import ApiError
from provisioner.sandbox.strict_ec2.instances import Instance, make_instances
from tests.cluster.cluster import ATTACHMENTS, CSI_NODES, NODES, Json, handle_of
from tests.cluster.place import Place

ZONE = "us-east-1a"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
FAKE, _ = kwok.FAKE_NODE
HERE = "here"  # value of the label, named as its story, of the nodes that a story's pod can run on
NOT_READY_S = 90.0  # the controller manager waits 50 s for a kubelet
# Without us: six minutes, and for the pod for ever. The controller manager itself needs 20 s to
# remove the pods of a node that is out of service;
RELEASED_S = 90.0
# and those of a node that was deleted, a minute, and another one to see that an attachment is gone.
DELETED_S = 170.0


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


async def attachment_of(place: Place, pv: Json) -> Json:
    """The VolumeAttachment of a volume, one without anything while there is none."""
    for each in (await place.api.get(ATTACHMENTS))["items"]:
        if each["spec"]["source"].get("persistentVolumeName") == pv["metadata"]["name"]:
            return dict(each)
    return {"metadata": {}}


async def holder(place: Place, pv: Json) -> str:
    """The node to which a volume is attached, "" while it is to none."""
    found = await attachment_of(place, pv)
    is_attached = (found.get("status") or {}).get("attached")
    return str(found["spec"]["nodeName"]) if is_attached else ""


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


async def registers_as(place: Place, instance: Instance, other: Instance) -> None:
    """The node plugin of another machine registers under the name of an instance."""
    path = f"{CSI_NODES}/{instance.private_dns_name}"
    found = await place.api.get(path)
    await place.api.delete(path)
    kept = {key: found["metadata"][key] for key in ("name", "ownerReferences")}
    driver = found["spec"]["drivers"][0] | {"nodeID": other.instance_id}
    await place.api.create(CSI_NODES, {"metadata": kept, "spec": {"drivers": [driver]}})


async def looked_at_twice(place: Place, instance: Instance) -> None:
    before = len(await place.cluster.calls(instance.instance_id, "DescribeInstances"))

    async def looked_at_again() -> bool:
        now = await place.cluster.calls(instance.instance_id, "DescribeInstances")
        return len(now) >= before + 2

    await place.cluster.until("EC2 is asked about it twice", looked_at_again, 60.0)


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
