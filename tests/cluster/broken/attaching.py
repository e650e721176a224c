"""Pods that have a node and do not start, because their volume does not come there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from provisioner.sandbox.strict_ec2.instances import Instance
from tests.cluster.broken import quiet_nodes
from tests.cluster.broken.claims import kubernetes_says
from tests.cluster.broken.quiet_nodes import a_volume
from tests.cluster.broken.record import Matrix, Section
from tests.cluster.by_hand import by_hand
from tests.cluster.cluster import ATTACHMENTS, CSI_NODES, NODES, PVS, handle_of
from tests.cluster.place import Place

matrix = Matrix(Section.POD_CREATING)
broken = matrix.broken

HOLD = "example.com/hold"
NO_DRIVER = (
    'MountVolume.MountDevice failed for volume "{pv}" : kubernetes.io/csi: attacher.MountDevice '
    "failed to create newCsiDriverClient: driver name ebs.csi.aws.com not found in the list of "
    "registered CSI drivers"
)
"""Kubernetes 1.36 pkg/volume/csi: csi_attacher.go and csi_client.go, read 2026-11-23."""
REFUSED = (
    'MountVolume.MountDevice failed for volume "{pv}" : rpc error: code = {code} desc = {text}'
)


@broken(
    "EC2 attaches no more volumes to the instance",
    "AttachmentLimitExceeded",
)
@asynccontextmanager
async def instance_is_full(place: Place) -> AsyncIterator[str]:
    pv = await a_volume(place)
    await place.cluster.fault(
        "AttachVolume",
        n=1_000_000,
        match={"VolumeId": handle_of(pv)},
        code="AttachmentLimitExceeded",
        message="You may attach up to 28 devices for this instance type.",
        http_status=400,
    )
    async with quiet_nodes.a_starting_pod(place, pv) as attachment:
        await place.attach_error(attachment, "AttachmentLimitExceeded")
        yield "pod data"


@broken(
    "The volume is attached to an instance outside the cluster",
    "VolumeInUse",
    check="attached-elsewhere",
)
@asynccontextmanager
async def attached_by_hand(place: Place) -> AsyncIterator[str]:
    pv = await a_volume(place)
    lab = by_hand(place.cluster)
    stranger = await asyncio.to_thread(lab.instance, "us-east-1a")
    await asyncio.to_thread(lab.attach, handle_of(pv), stranger)
    async with quiet_nodes.a_starting_pod(place, pv) as attachment:
        await place.attach_error(attachment, stranger)
        yield "pod data"
    await asyncio.to_thread(lab.detach, handle_of(pv))


@broken("The volume was deleted in EC2 by hand", "VolumeNotFound", check="volumes-exist")
@asynccontextmanager
async def volume_is_gone(place: Place) -> AsyncIterator[str]:
    pv = await a_volume(place)
    await asyncio.to_thread(place.cluster.ec2.delete_volume, VolumeId=handle_of(pv))
    async with quiet_nodes.a_starting_pod(place, pv) as attachment:
        await place.attach_error(attachment, "does not exist")
        yield "pod data"


@broken(
    "The PersistentVolume names another zone than its volume's",
    "ZoneMismatch",
    check="volume-zones",
)
@asynccontextmanager
async def wrong_affinity(place: Place) -> AsyncIterator[str]:
    made = await asyncio.to_thread(by_hand(place.cluster).volume, AvailabilityZone="us-east-1b")
    term = {
        "matchExpressions": [
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["us-east-1a"]}
        ]
    }
    pv = await place.static_pv(made, nodeAffinity={"required": {"nodeSelectorTerms": [term]}})
    await place.claim(place.name, volumeName=pv)
    await place.bound()
    async with quiet_nodes.a_starting_pod(place, await place.api.get(f"{PVS}/{pv}")) as attachment:
        await place.attach_error(attachment, "ZoneMismatch")
        yield "pod data"
    await place.remove(f"{place.claims}/data")
    await asyncio.to_thread(place.cluster.ec2.delete_volume, VolumeId=made)


@broken(
    "An old VolumeAttachment keeps a finalizer that nobody removes",
    "AttachmentStuck",
    words=(
        f"finalizer {HOLD} keeps it",
        "is available",
        f"the owner of {HOLD}",
        "patch volumeattachment",
        "makes a new one",
    ),
)
@asynccontextmanager
async def attachment_of_nobody(place: Place) -> AsyncIterator[str]:
    """The volume has left the node in EC2, and its VolumeAttachment is in the way of the next."""
    pv = await a_volume(place)
    async with quiet_nodes.a_node(place) as instance:
        node = instance.private_dns_name
        name = await place.attachment(pv["metadata"]["name"], node)
        path = f"{ATTACHMENTS}/{name}"
        await place.attached(name)
        found = await place.api.get(path)
        held = [*found["metadata"].get("finalizers", ()), HOLD]
        await place.api.patch(path, {"metadata": {"finalizers": held}})
        await place.api.delete(path)

        async def is_held() -> bool:
            return bool((await place.api.get(path))["metadata"]["finalizers"] == [HOLD])

        await place.cluster.until("only that finalizer is left", is_held)
        pod = await quiet_nodes.start_pod(place, instance)
        await kubernetes_says(place, "FailedAttachVolume", "being deleted")
        yield "pod data"
        await place.api.patch(path, {"metadata": {"finalizers": None}})
        await quiet_nodes.end_pod(place, pod["metadata"]["name"])


@broken("A pod on another node still uses the volume", "VolumeOnOtherNode")
@asynccontextmanager
async def used_elsewhere(place: Place) -> AsyncIterator[str]:
    pv = await a_volume(place)
    old = await place.pod({"metadata": {"name": "data"}})
    node = await place.node_of(old)
    await place.attached(await quiet_nodes.attachment_of(place, pv["metadata"]["name"], node))
    async with quiet_nodes.a_node(place) as instance:
        new = await quiet_nodes.start_pod(place, instance, "new")
        await kubernetes_says(place, "FailedAttachVolume", "already used by pod", name="new")
        yield "pod new"
        await quiet_nodes.end_pod(place, new["metadata"]["name"])


@broken("The instance of the pod's node is stopped", "InstanceInWrongState", check="instances")
@asynccontextmanager
async def instance_stopped(place: Place) -> AsyncIterator[str]:
    """EC2 attaches volumes to a stopped instance, and no kubelet is there to mount them."""
    pv = await a_volume(place)
    async with quiet_nodes.a_starting_pod(place, pv) as attachment:
        await place.attached(attachment)
        path = f"{ATTACHMENTS}/{attachment}"
        node = (await place.api.get(path))["spec"]["nodeName"]
        found = await place.api.get(f"{NODES}/{node}")
        ids = [found["spec"]["providerID"].rpartition("/")[2]]
        await asyncio.to_thread(place.cluster.ec2.stop_instances, InstanceIds=ids)
        yield "pod data"


@broken(
    "The instance is terminated and its Node is left",
    "InstanceNotFound",
    check="instances",
    section=Section.NODE_GONE,
)
@asynccontextmanager
async def instance_terminated(place: Place) -> AsyncIterator[str]:
    pv = await a_volume(place)
    async with quiet_nodes.a_node(place) as instance:
        ids = [instance.instance_id]
        await asyncio.to_thread(place.cluster.ec2.terminate_instances, InstanceIds=ids)
        pod = await quiet_nodes.start_pod(place, instance)
        attachment = await quiet_nodes.attachment_of(place, pv["metadata"]["name"])
        await place.attach_error(attachment, "Instance")
        yield f"node {instance.private_dns_name}"
        await quiet_nodes.end_pod(place, pod["metadata"]["name"])


# -- nodes


@broken(
    "The DaemonSet of the node plugin does not select the node",
    "NodePluginAbsent",
    section=Section.NODE,
    words=("does not select node",),
)
@asynccontextmanager
async def not_selected(place: Place) -> AsyncIterator[str]:
    """Kubelet's event is written as kubelet writes it."""
    async with _without_driver(place) as pod, quiet_nodes.daemon_set(place, storage="ebs"):
        yield pod


@broken(
    "The node plugin runs, and the kubelet has not registered its driver",
    "DriverNotRegistered",
    section=Section.NODE,
)
@asynccontextmanager
async def not_registered(place: Place) -> AsyncIterator[str]:
    """A kubelet with another --root-dir. Kubelet's event is written as kubelet writes it."""
    async with _without_driver(place, with_plugin=True) as pod:
        yield pod


@asynccontextmanager
async def _without_driver(place: Place, *, with_plugin: bool = False) -> AsyncIterator[str]:
    pv = await a_volume(place)
    async with quiet_nodes.a_node(place) as instance:
        await _unregister(place, instance)
        if with_plugin:
            await quiet_nodes.start_plugin(place, instance)
        pod = await quiet_nodes.start_pod(place, instance)
        text = NO_DRIVER.format(pv=pv["metadata"]["name"])
        node = instance.private_dns_name
        await quiet_nodes.kubelet_says(place, pod, node, "FailedMount", text)
        yield "pod data"
        await quiet_nodes.end_pod(place, pod["metadata"]["name"])


async def _unregister(place: Place, instance: Instance) -> None:
    path = f"{CSI_NODES}/{instance.private_dns_name}"
    await place.api.patch(path, {"spec": {"drivers": []}})


@broken(
    "The node keeps its startup taint, because its limit was never reported",
    "VolumeLimitUnknown",
    section=Section.NODE,
)
@asynccontextmanager
async def taint_left(place: Place) -> AsyncIterator[str]:
    async with quiet_nodes.a_node(place) as instance:
        await without_limit(place, instance)
        yield f"node {instance.private_dns_name}"


async def without_limit(place: Place, instance: Instance) -> None:
    """Have a node plugin that reports no limit of volumes, and the taint that waits for one."""
    path = f"{CSI_NODES}/{instance.private_dns_name}"
    driver = (await place.api.get(path))["spec"]["drivers"][0]
    # A driver's entry cannot be changed, so it is registered again without its limit.
    await _unregister(place, instance)
    del driver["allocatable"]
    await place.api.patch(path, {"spec": {"drivers": [driver]}})
    await quiet_nodes.start_plugin(place, instance)
    node = quiet_nodes.path_of(instance)
    taint = {"key": "ebs.csi.aws.com/agent-not-ready", "effect": "NoExecute"}
    old = (await place.api.get(node))["spec"].get("taints") or []
    await place.api.patch(node, {"spec": {"taints": [*old, taint]}})


@broken("The node has no zone label", "ZoneLabelMissing", check="zone-labels", section=Section.NODE)
@asynccontextmanager
async def no_zone(place: Place) -> AsyncIterator[str]:
    async with quiet_nodes.a_node(place) as instance:
        await zone_label(place, instance, None)
        yield f"node {instance.private_dns_name}"


@broken(
    "The node's zone label differs from its instance's zone",
    "ZoneLabelWrong",
    check="zone-labels",
    section=Section.NODE,
)
@asynccontextmanager
async def wrong_zone(place: Place) -> AsyncIterator[str]:
    async with quiet_nodes.a_node(place) as instance:
        await zone_label(place, instance, "us-east-1b")
        yield f"node {instance.private_dns_name}"


async def zone_label(place: Place, instance: Instance, zone: str | None) -> None:
    """Set or remove the labels that say in which zone a node is."""
    keys = ("topology.kubernetes.io/zone", "topology.ebs.csi.aws.com/zone")
    labels = {"metadata": {"labels": dict.fromkeys(keys, zone)}}
    await place.api.patch(f"{NODES}/{instance.private_dns_name}", labels)


@broken(
    "The volume holds data and has no file system", "VolumeNotBlank", section=Section.NOT_FORMATTED
)
@asynccontextmanager
async def not_blank(place: Place) -> AsyncIterator[str]:
    """Kubelet's event is written as kubelet writes it; real nodes: test_real_node_refusals.py."""
    text = "VolumeNotBlank: volume {volume} (/dev/nvme1n1) is not formatted as ext4"
    async with _refused_by_the_node(place, text) as pod:
        yield pod


@broken(
    "The volume has another file system than is requested",
    "FileSystemMismatch",
    section=Section.NOT_FORMATTED,
)
@asynccontextmanager
async def mismatch(place: Place) -> AsyncIterator[str]:
    """The same."""
    text = "FileSystemMismatch: volume {volume} (/dev/nvme1n1) has ext4, and xfs is requested"
    async with _refused_by_the_node(place, text) as pod:
        yield pod


@asynccontextmanager
async def _refused_by_the_node(place: Place, text: str) -> AsyncIterator[str]:
    pv = await a_volume(place)
    async with quiet_nodes.a_node(place) as instance:
        pod = await quiet_nodes.start_pod(place, instance)
        name, node = pv["metadata"]["name"], instance.private_dns_name
        await place.attached(await quiet_nodes.attachment_of(place, name))
        said = text.format(volume=handle_of(pv))
        message = REFUSED.format(pv=name, code="FailedPrecondition", text=said)
        await quiet_nodes.kubelet_says(place, pod, node, "FailedMount", message)
        yield "pod data"
        await quiet_nodes.end_pod(place, pod["metadata"]["name"])
