"""Node and CSINode objects that match the instances of the strict EC2.

A node is born as a kubelet and the EBS node plugin would leave it: labelled, ready, registered with
the driver, and with the mark that makes the attach/detach controller responsible for it.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Sequence
from typing import Any

from provisioner.model.driver import IN_TREE_DRIVER
from provisioner.sandbox import kwok
from provisioner.sandbox.api import Api
from provisioner.sandbox.strict_ec2.instances import Instance

DRIVER = "ebs.csi.aws.com"

TOPOLOGY_KEYS = (
    "kubernetes.io/os",
    "topology.ebs.csi.aws.com/zone",
    "topology.kubernetes.io/zone",
)
"""What the stock node plugin registers (reference/ebs-csi-driver.md)."""

NOT_READY = "node.kubernetes.io/not-ready"

ATTACHABLE = 25
"""Volumes that a node takes; the stock plugin reports 25 to 27 for most Nitro instances."""


def node(instance: Instance) -> dict[str, Any]:
    """Return the Node object of an instance."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": instance.private_dns_name,
            "labels": {
                "kubernetes.io/hostname": instance.private_dns_name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "node.kubernetes.io/instance-type": instance.instance_type,
                "topology.kubernetes.io/region": instance.region,
                "topology.kubernetes.io/zone": instance.zone,
                "topology.ebs.csi.aws.com/zone": instance.zone,
            },
            "annotations": {
                **dict([kwok.FAKE_NODE]),
                # Without it no VolumeAttachment is ever made for this node.
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
                "csi.volume.kubernetes.io/nodeid": f'{{"{DRIVER}":"{instance.instance_id}"}}',
            },
        },
        "spec": {"providerID": f"aws:///{instance.zone}/{instance.instance_id}"},
    }


def csi_node(instance: Instance, node_uid: str, attachable: int = ATTACHABLE) -> dict[str, Any]:
    """Return the CSINode object of an instance's node, owned by it as the kubelet has it."""
    name = instance.private_dns_name
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {
            "name": name,
            # Without it the scheduler and the attach/detach controller take no in-tree volume for
            # one of ours; a kubelet lists here all the plugins that have moved to a CSI driver.
            "annotations": {"storage.alpha.kubernetes.io/migrated-plugins": IN_TREE_DRIVER},
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node_uid}
            ],
        },
        "spec": {
            "drivers": [
                {
                    "name": DRIVER,
                    "nodeID": instance.instance_id,
                    "topologyKeys": list(TOPOLOGY_KEYS),
                    "allocatable": {"count": attachable},
                }
            ]
        },
    }


def ready_status(instance: Instance, now: dt.datetime) -> dict[str, Any]:
    """Return the status of a healthy kubelet that has room for a thousand pods."""
    at = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    room = {"cpu": "256", "memory": "1Ti", "pods": "2000", "ephemeral-storage": "1Ti"}
    good = [
        ("Ready", "True", "KubeletReady"),
        ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID"),
    ]
    return {
        "conditions": [
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "lastHeartbeatTime": at,
                "lastTransitionTime": at,
            }
            for kind, status, reason in good
        ],
        "addresses": [{"type": "Hostname", "address": instance.private_dns_name}],
        "capacity": room,
        "allocatable": room,
        "nodeInfo": {"operatingSystem": "linux", "architecture": "amd64"},
    }


async def add(api: Api, instances: Sequence[Instance], attachable: int = ATTACHABLE) -> None:
    """Create the nodes of ``instances``, ready for pods when this returns."""
    async with asyncio.TaskGroup() as group:
        for instance in instances:
            group.create_task(_add(api, instance, attachable))


async def _add(api: Api, instance: Instance, attachable: int) -> None:
    await add_as(api, instance, node(instance), attachable)


async def add_as(
    api: Api, instance: Instance, document: dict[str, Any], attachable: int = ATTACHABLE
) -> None:
    """Create one node from what ``node`` has made, or what somebody has made of that."""
    made = await api.create("/api/v1/nodes", document)
    path = f"/api/v1/nodes/{instance.private_dns_name}"
    status = {"status": ready_status(instance, dt.datetime.now(dt.UTC))}
    await api.patch(f"{path}/status", status, "strategic")
    await api.create(
        "/apis/storage.k8s.io/v1/csinodes", csi_node(instance, made["metadata"]["uid"], attachable)
    )
    # Admission gives every new node this taint; a minute of waiting for the node lifecycle
    # controller to take it away again would be a minute of every start.
    without = {"spec": {"taints": [{"$patch": "delete", "key": NOT_READY, "effect": "NoSchedule"}]}}
    await api.patch(path, without, "strategic")


async def remove(api: Api, name: str) -> None:
    """Delete a node and, as its garbage, its CSINode: an instance that vanished."""
    await api.delete(f"/api/v1/nodes/{name}")
