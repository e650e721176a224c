"""Nodes that live and start no pod: KWOK leaves them alone, and a task here says that they are Ready.

KWOK would show each pod Running as soon as it has a node, whatever its volumes do.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime

from provisioner.sandbox import kwok, nodes
from provisioner.sandbox.api import ApiError
from provisioner.sandbox.strict_ec2.instances import Instance, make_instances
from tests.cluster.by_hand import force_removal
from tests.cluster.cluster import ATTACHMENTS, CLASSES, CSI_NODES, NODES, Json
from tests.cluster.copies import in_zones
from tests.cluster.place import Place

ZONE = "us-east-1a"
_FAKE, _ = kwok.FAKE_NODE
_BEAT_S = 10.0  # the controller manager waits 50 s for a kubelet
_KEEP_OFF = {"key": "ebs-provisioner.io/quiet", "value": "yes", "effect": "NoSchedule"}
_MOMENT = "%Y-%m-%dT%H:%M:%SZ"


@contextlib.asynccontextmanager
async def a_node(
    place: Place, zone: str = ZONE, *, attachable: int = nodes.ATTACHABLE
) -> AsyncIterator[Instance]:
    """A node for pods that name it; no other pod is scheduled to it."""
    endpoint = place.cluster.sandbox.ec2_endpoint
    [instance] = await asyncio.to_thread(make_instances, endpoint, 1, [zone])
    document = nodes.node(instance)
    del document["metadata"]["annotations"][_FAKE]
    document["spec"]["taints"] = [_KEEP_OFF]
    await nodes.add_as(place.api, instance, document, attachable)
    beating = asyncio.create_task(_beat(place, instance))
    try:
        yield instance
    finally:
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)
        for path in (path_of(instance), f"{CSI_NODES}/{instance.private_dns_name}"):
            with contextlib.suppress(ApiError):
                await place.api.delete(path)


async def _beat(place: Place, instance: Instance) -> None:
    while True:
        status = {"status": nodes.ready_status(instance, datetime.now(UTC))}
        with contextlib.suppress(ApiError):
            await place.api.patch(f"{path_of(instance)}/status", status, "strategic")
        await asyncio.sleep(_BEAT_S)


def path_of(instance: Instance) -> str:
    return f"{NODES}/{instance.private_dns_name}"


async def start_pod(
    place: Place, instance: Instance, name: str = "data", claims: Sequence[str] = ("data",)
) -> Json:
    """A pod of some claims there, as a kubelet that waits for their volumes leaves it."""
    volumes = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims]
    named = {"metadata": {"name": name}}
    pod = await place.pod(named, nodeName=instance.private_dns_name, volumes=volumes)
    status = {
        "conditions": [
            {"type": "PodScheduled", "status": "True"},
            {"type": "Initialized", "status": "True"},
            *(
                {"type": kind, "status": "False", "reason": "ContainersNotReady"}
                for kind in ("Ready", "ContainersReady")
            ),
        ],
        "containerStatuses": [
            {
                "name": "main",
                "image": "main",
                "imageID": "",
                "ready": False,
                "restartCount": 0,
                "state": {"waiting": {"reason": "ContainerCreating"}},
            }
        ],
        "phase": "Pending",
        "startTime": datetime.now(UTC).strftime(_MOMENT),
    }
    await place.api.patch(f"{place.pods}/{name}/status", {"status": status})
    return pod


async def start_plugin(place: Place, instance: Instance) -> None:
    """A pod of the node plugin there, that does nothing and is Ready by its own word."""
    names = {"app.kubernetes.io/name": "ebs-provisioner", "app.kubernetes.io/component": "node"}
    spec = {
        "nodeName": instance.private_dns_name,
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "main", "image": "main"}],
    }
    body = {"metadata": {"name": "plugin", "labels": names}, "spec": spec}
    await place.api.create(place.pods, body)
    ready = [{"type": kind, "status": "True"} for kind in ("PodScheduled", "Ready")]
    status = {"status": {"phase": "Running", "conditions": ready}}
    await place.api.patch(f"{place.pods}/plugin/status", status)


@contextlib.asynccontextmanager
async def daemon_set(place: Place, **selector: str) -> AsyncIterator[None]:
    """One of the stock node plugin, that tolerates nothing."""
    labels = {"app": "ebs-csi-node"}
    pods = {"nodeSelector": selector, "containers": [{"name": "main", "image": "main"}]}
    template = {"metadata": {"labels": labels}, "spec": pods}
    body = {
        "metadata": {"name": "ebs-csi-node"},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }
    path = f"/apis/apps/v1/namespaces/{place.name}/daemonsets"
    await place.api.create(path, body)
    yield
    await place.api.delete(f"{path}/ebs-csi-node")


async def a_volume(place: Place, name: str = "data", zone: str = ZONE) -> Json:
    """A claim whose volume is made in a zone, at once; its persistent volume."""
    class_name = f"{place.name}-{zone}"
    if await place.cluster.get(f"{CLASSES}/{class_name}") is None:
        await place.storage_class(zone, allowedTopologies=in_zones(zone))
    await place.claim(class_name, name)
    return await place.bound(name)


async def attachment_of(place: Place, pv: str, node: str = "") -> str:
    """Wait until the controller manager asks for a volume, on a node; the VolumeAttachment."""

    async def seen() -> str:
        for each in (await place.api.get(ATTACHMENTS))["items"]:
            spec = each["spec"]
            here = node in {"", spec["nodeName"]}
            if here and spec["source"].get("persistentVolumeName") == pv:
                return str(each["metadata"]["name"])
        return ""

    return await place.cluster.until(f"a VolumeAttachment of {pv}", seen)


@contextlib.asynccontextmanager
async def a_starting_pod(place: Place, pv: Json, zone: str = ZONE) -> AsyncIterator[str]:
    """A pod "data" of the claim "data" on a node of its own; the VolumeAttachment."""
    async with a_node(place, zone) as instance:
        pod = await start_pod(place, instance)
        attachment = await attachment_of(place, pv["metadata"]["name"])
        yield attachment
        await end_pod(place, pod["metadata"]["name"])
        path = f"{ATTACHMENTS}/{attachment}"
        found = await place.cluster.get(path)
        if found is None or found.get("status", {}).get("attached"):
            await place.is_gone(path, 60)
        else:
            # The controller manager would wait for minutes after so many failures.
            await force_removal(place, path)


async def end_pod(place: Place, name: str) -> None:
    """As its kubelet ends it: at once, for nothing ever ran."""
    with contextlib.suppress(ApiError):
        await place.api.delete(f"{place.pods}/{name}", gracePeriodSeconds="0")


async def kubelet_says(place: Place, pod: Json, node: str, reason: str, message: str) -> None:
    """An event as kubelet writes it about a pod."""
    now = datetime.now(UTC).strftime(_MOMENT)
    meta = pod["metadata"]
    body = {
        "metadata": {"generateName": f"{meta['name']}."},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            **{key: meta[key] for key in ("namespace", "name", "uid")},
        },
        "type": "Warning",
        "reason": reason,
        "message": message,
        "source": {"component": "kubelet", "host": node},
        "reportingComponent": "kubelet",
        "reportingInstance": node,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    await place.api.create(f"/api/v1/namespaces/{place.name}/events", body)
