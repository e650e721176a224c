"""What a cloud controller does for the Node of a real kubelet, and what is seen of both."""

from __future__ import annotations

import datetime as dt
from http import HTTPStatus
from typing import Any

from provisioner.sandbox import nodes
from provisioner.sandbox.api import Api, ApiError
from provisioner.sandbox.strict_ec2.instances import Instance

UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"
"""The taint that a kubelet gives its Node until a cloud controller has filled that in."""


async def is_ready(api: Api, name: str, since: dt.datetime) -> bool:
    """Whether a node is ready, and its kubelet has renewed its lease since it was started."""
    lease = await api.get(f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}")
    if dt.datetime.fromisoformat(lease["spec"]["renewTime"]) < since:
        return False
    status = (await api.get(f"/api/v1/nodes/{name}"))["status"]
    return any(
        each["type"] == "Ready" and each["status"] == "True"
        for each in status.get("conditions", ())
    )


async def has_driver(api: Api, name: str, instance_id: str) -> bool:
    """Whether the node plugin is registered."""
    spec = (await api.get(f"/apis/storage.k8s.io/v1/csinodes/{name}"))["spec"]
    return any(
        each["name"] == nodes.DRIVER and each["nodeID"] == instance_id
        for each in spec.get("drivers") or ()
    )


async def initialize(api: Api, instance: Instance) -> None:
    """Fill in what only the cloud knows: labels, instance, address; take the taint away."""
    path = f"/api/v1/nodes/{instance.private_dns_name}"
    address = [
        {"type": "InternalIP", "address": instance.private_ip_address},
        {"type": "Hostname", "address": instance.private_dns_name},
    ]
    await api.patch(f"{path}/status", {"status": {"addresses": address}})
    while not await _filled(api, path, instance):
        pass


async def _filled(api: Api, path: str, instance: Instance) -> bool:
    """Fill in a Node and take its taints away; false if somebody else wrote to it meanwhile."""
    seen = await api.get(path)
    # As for the fake nodes, no pod waits until the node lifecycle controller looks.
    taints = [
        each
        for each in seen["spec"].get("taints", ())
        if each["key"] not in (UNINITIALIZED, nodes.NOT_READY)
    ]
    filled: dict[str, Any] = {
        "metadata": {
            "resourceVersion": seen["metadata"]["resourceVersion"],
            "labels": {
                "node.kubernetes.io/instance-type": instance.instance_type,
                "topology.kubernetes.io/region": instance.region,
                "topology.kubernetes.io/zone": instance.zone,
            },
        },
        "spec": {
            "providerID": f"aws:///{instance.zone}/{instance.instance_id}",
            "taints": taints,
        },
    }
    try:
        await api.patch(path, filled)
    except ApiError as error:
        if error.status != HTTPStatus.CONFLICT:
            raise
        return False
    return True
