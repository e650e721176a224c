"""Volumes that do not move to the node of the next pod, and some that nobody has to move."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.cluster.broken import quiet_nodes
from tests.cluster.broken.claims import kubernetes_says
from tests.cluster.broken.record import Matrix, Section
from tests.cluster.by_hand import force_removal
from tests.cluster.cluster import ATTACHMENTS, PVS, Json, handle_of
from tests.cluster.place import Place

matrix = Matrix(Section.POD_CREATING)
broken = matrix.broken

TIMED_OUT = 'MountVolume.SetUp failed for volume "{pv}" : mount failed: Connection timed out'


async def shared_volume(place: Place, claim: str) -> str:
    """A claim bound to a volume of NFS, which nobody attaches; its PersistentVolume."""
    name = f"{place.name}-nfs"
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteMany"],
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": name,
        "nfs": {"server": "192.0.2.1", "path": "/"},
    }
    await place.api.create(PVS, {"metadata": {"name": name}, "spec": spec})
    await place.claim(name, claim, volumeName=name, accessModes=["ReadWriteMany"])
    await place.bound(claim)
    return name


@broken("The file server of a volume of another driver does not answer", "VolumeNotMounted")
@asynccontextmanager
async def other_driver(place: Place) -> AsyncIterator[str]:
    """Kubelet's event is written as kubelet writes it."""
    pv = await shared_volume(place, "data")
    async with quiet_nodes.a_node(place) as instance:
        pod = await quiet_nodes.start_pod(place, instance)
        node, text = instance.private_dns_name, TIMED_OUT.format(pv=pv)
        await quiet_nodes.kubelet_says(place, pod, node, "FailedMount", text)
        yield "pod data"
        await quiet_nodes.end_pod(place, "data")
    await place.remove(f"{place.claims}/data")
    await place.remove(f"{PVS}/{pv}")


@broken(
    "The Node of the volume was deleted, and EC2 shows the volume free",
    "NodeGone",
    section=Section.NODE_GONE,
)
@asynccontextmanager
async def node_deleted(place: Place) -> AsyncIterator[str]:
    """Its kubelet had the volume mounted, so Kubernetes waits for six minutes."""
    pv = await quiet_nodes.a_volume(place)
    async with quiet_nodes.a_node(place) as here, quiet_nodes.a_node(place) as lost:
        mounted = [f"kubernetes.io/csi/ebs.csi.aws.com^{handle_of(pv)}"]
        path = quiet_nodes.path_of(lost)
        await place.api.patch(f"{path}/status", {"status": {"volumesInUse": mounted}})
        await quiet_nodes.start_pod(place, lost)
        node = lost.private_dns_name
        attachment = await quiet_nodes.attachment_of(place, pv["metadata"]["name"], node)
        await place.attached(attachment)
        ids = [lost.instance_id]
        await asyncio.to_thread(place.cluster.ec2.terminate_instances, InstanceIds=ids)
        await place.remove(path)
        await quiet_nodes.end_pod(place, "data")
        await quiet_nodes.start_pod(place, here, "new")
        await kubernetes_says(place, "FailedAttachVolume", "attached", name="new")
        yield "pod new"
        await quiet_nodes.end_pod(place, "new")
        await force_removal(place, f"{ATTACHMENTS}/{attachment}")


@broken("A rolling update waits for the volume of the pod that it replaces", "VolumeOnOtherNode")
@asynccontextmanager
async def rolling_update(place: Place) -> AsyncIterator[str]:
    pv = await quiet_nodes.a_volume(place)
    deployments = f"/apis/apps/v1/namespaces/{place.name}/deployments"
    async with quiet_nodes.a_node(place) as old, quiet_nodes.a_node(place) as new:
        await place.api.create(deployments, _deployment(old.private_dns_name))
        await _pod_on(place, old.private_dns_name)
        node = old.private_dns_name
        await place.attached(await quiet_nodes.attachment_of(place, pv["metadata"]["name"], node))
        moved = {"spec": {"template": {"spec": {"nodeName": new.private_dns_name}}}}
        await place.api.patch(f"{deployments}/data", moved)
        name = await _pod_on(place, new.private_dns_name)
        await kubernetes_says(place, "FailedAttachVolume", "already used by pod", name=name)
        yield f"pod {name}"
        await place.api.delete(f"{deployments}/data")

        async def ended() -> bool:
            pods = (await place.api.get(place.pods))["items"]
            for each in pods:
                await quiet_nodes.end_pod(place, each["metadata"]["name"])
            return not pods

        await place.cluster.until("all pods have ended", ended)


def _deployment(node: str) -> Json:
    labels = {"app": "data"}
    spec: dict[str, Any] = {
        "nodeName": node,
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "main", "image": "main"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
    }
    template = {"metadata": {"labels": labels}, "spec": spec}
    body = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"name": "data"}, "spec": body}


async def _pod_on(place: Place, node: str) -> str:
    """Wait for a pod there; its name."""

    async def seen() -> str:
        found = (await place.api.get(place.pods))["items"]
        names = [e["metadata"]["name"] for e in found if e["spec"].get("nodeName") == node]
        return str(names[0]) if names else ""

    return await place.cluster.until(f"a pod on {node}", seen)
