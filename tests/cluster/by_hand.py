"""What people do to volumes and objects behind the controller's back."""

from __future__ import annotations

from http import HTTPStatus

from provisioner.sandbox.api import ApiError
from tests.cluster.cluster import CSI_NODES, NODES, PVS, Cluster
from tests.cluster.place import Place
from tests.sandbox.lab import Lab

FORCED = {"metadata": {"finalizers": None}}


def by_hand(cluster: Cluster) -> Lab:
    """Somebody with the AWS console."""
    return Lab(cluster.ec2, lambda **_: None)


async def holders(cluster: Cluster, volume_id: str) -> list[str]:
    """The instances that EC2 shows a volume on."""
    volume = await cluster.volume(volume_id)
    return [each["InstanceId"] for each in volume["Attachments"]] if volume else []


async def is_free(cluster: Cluster, volume_id: str) -> None:
    async def free() -> bool:
        return await holders(cluster, volume_id) == []

    await cluster.until(f"{volume_id} is attached nowhere", free)


async def force_removal(place: Place, path: str) -> None:
    """What a user does who has lost patience; the controller may be done in between."""
    try:
        await place.api.delete(path)
        await place.api.patch(path, FORCED)
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
    await place.is_gone(path)


async def is_released(place: Place, pv: str) -> None:
    async def released() -> bool:
        found = await place.api.get(f"{PVS}/{pv}")
        return bool(found["status"]["phase"] == "Released")

    await place.cluster.until("the volume is Released", released)


async def take_name(cluster: Cluster, name: str, instance_id: str) -> None:
    """Have another instance register under a node's name, as addresses are reused."""
    path = f"{CSI_NODES}/{name}"
    driver = (await cluster.api.get(path))["spec"]["drivers"][0]
    node = await cluster.api.get(f"{NODES}/{name}")
    await cluster.api.delete(path)
    await cluster.api.delete(f"{NODES}/{name}")
    kept = {key: node["metadata"][key] for key in ("name", "labels", "annotations")}
    made = await cluster.api.create(NODES, {"metadata": kept, "spec": {"unschedulable": True}})
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": made["metadata"]["uid"]}
    await cluster.api.create(
        CSI_NODES,
        {
            "metadata": {"name": name, "ownerReferences": [owner]},
            "spec": {"drivers": [driver | {"nodeID": instance_id}]},
        },
    )
