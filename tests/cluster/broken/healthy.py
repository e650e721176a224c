"""Clusters with nothing wrong in them: each makes one object, and gives it to be explained."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from botocore.exceptions import ClientError

from tests.cluster import copies, growing, predecessors, snapshot_hands
from tests.cluster.broken import quiet_nodes
from tests.cluster.broken.claims import kubernetes_says
from tests.cluster.broken.moving import shared_volume
from tests.cluster.broken.quiet_nodes import attachment_of
from tests.cluster.broken.record import Matrix
from tests.cluster.by_hand import by_hand, is_released
from tests.cluster.cluster import PVS
from tests.cluster.place import Place

matrix = Matrix()
healthy = matrix.broken


async def _running(place: Place, *claims: str, shared: Sequence[str] = ()) -> str:
    """A pod of some claims that runs, with each volume attached to its node but those shared."""
    every = (*claims, *shared)
    volumes = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in every]
    pod = await place.pod({"metadata": {"name": "user"}}, volumes=volumes)
    node = await place.node_of(pod)
    for each in claims:
        pv = (await place.bound(each))["metadata"]["name"]
        await place.attached(await attachment_of(place, pv, node))

    async def runs() -> bool:
        found = await place.api.get(f"{place.pods}/user")
        return bool(found["status"].get("phase") == "Running")

    await place.cluster.until("the pod runs", runs)
    return "pod user"


@healthy("A pod runs with its volume")
@asynccontextmanager
async def plain(place: Place) -> AsyncIterator[str]:
    await place.claim(await place.storage_class(waits=True))
    yield await _running(place, "data")


@healthy("A pod runs with two volumes")
@asynccontextmanager
async def two(place: Place) -> AsyncIterator[str]:
    name = await place.storage_class(waits=True)
    for each in ("data", "more"):
        await place.claim(name, each)
    yield await _running(place, "data", "more")


@healthy("A pod runs with its volume and one of another driver")
@asynccontextmanager
async def with_shared(place: Place) -> AsyncIterator[str]:
    await place.claim(await place.storage_class(waits=True))
    pv = await shared_volume(place, "shared")
    yield await _running(place, "data", shared=("shared",))
    await place.remove(f"{place.pods}/user")
    await place.remove(f"{place.claims}/shared")
    await place.remove(f"{PVS}/{pv}")


@healthy("A claim with WaitForFirstConsumer has no pod yet")
@asynccontextmanager
async def waits_for_a_pod(place: Place) -> AsyncIterator[str]:
    await place.waiting_claim()
    await kubernetes_says(place, "WaitForFirstConsumer")
    yield "pvc data"


@healthy("A PersistentVolume is in the form of the removed in-tree plugin")
@asynccontextmanager
async def in_tree(place: Place) -> AsyncIterator[str]:
    pv, _ = await growing.a_volume(place, in_tree=True)
    yield f"pv {pv}"


@healthy("A PersistentVolume was written by hand")
@asynccontextmanager
async def static(place: Place) -> AsyncIterator[str]:
    made = await asyncio.to_thread(by_hand(place.cluster).volume)
    pv = await place.static_pv(made)
    await place.claim(place.name, volumeName=pv)
    await place.bound()
    yield f"pv {pv}"
    await place.remove(f"{place.claims}/data")
    await asyncio.to_thread(place.cluster.ec2.delete_volume, VolumeId=made)


@healthy("A raw block volume is bound")
@asynccontextmanager
async def raw(place: Place) -> AsyncIterator[str]:
    await place.claim(await place.storage_class(), volumeMode="Block")
    await place.bound()
    yield "pvc data"


_MODIFYING = asyncio.Lock()
"""How long a modification takes is set for all of EC2, so two stories must not modify at once."""
_LONG_S = 45.0
"""Until after the looks of both commands."""


@healthy("A volume was expanded")
@asynccontextmanager
async def expanded(place: Place) -> AsyncIterator[str]:
    await growing.a_volume(place, volumeMode="Block")
    async with _MODIFYING:
        await growing.ask(place, "24Gi")
        await growing.has_size(place, "24Gi")
    yield "pvc data"


@healthy("A volume is being expanded")
@asynccontextmanager
async def expanding(place: Place) -> AsyncIterator[str]:
    _, volume_id = await growing.a_volume(place)
    async with _slowly(place, volume_id):
        await growing.ask(place, "24Gi")
    yield "pvc data"


@healthy("A volume is getting its VolumeAttributesClass")
@asynccontextmanager
async def changing(place: Place) -> AsyncIterator[str]:
    _, volume_id = await growing.a_volume(place)
    fast = await growing.attributes_class(place, "fast", **growing.FAST)
    async with _slowly(place, volume_id):
        await growing.ask(place, attributes=fast)
    yield "pvc data"


@asynccontextmanager
async def _slowly(place: Place, volume_id: str) -> AsyncIterator[None]:
    """EC2 takes long over the modification that is asked for here, and has begun it at the end."""

    async def is_modifying() -> bool:
        ids = {"VolumeIds": [volume_id]}
        with contextlib.suppress(ClientError):  # none yet
            found = await asyncio.to_thread(place.cluster.ec2.describe_volumes_modifications, **ids)
            return bool(found["VolumesModifications"])
        return False

    async with _MODIFYING:
        await place.cluster.control(delays={"modify_s": _LONG_S})
        try:
            yield
            await place.cluster.until("EC2 is modifying the volume", is_modifying)
        finally:
            await place.cluster.control(delays={"modify_s": 0.0})


@healthy("A pod is starting, and its volume is attached")
@asynccontextmanager
async def starting(place: Place) -> AsyncIterator[str]:
    pv = await quiet_nodes.a_volume(place)
    async with quiet_nodes.a_starting_pod(place, pv) as attachment:
        await place.attached(attachment)
        yield "pod data"


@healthy("A snapshot is ready to use")
@asynccontextmanager
async def snapshot(place: Place) -> AsyncIterator[str]:
    await snapshot_hands.a_source(place)
    async with copies.a_snapshot(place) as name:
        yield f"snapshot {name}"


@healthy("A volume was made by the stock driver")
@asynccontextmanager
async def of_the_stock_driver(place: Place) -> AsyncIterator[str]:
    made = await asyncio.to_thread(by_hand(place.cluster).volume)
    about, spec = predecessors.stock(made, "us-east-1a")
    class_name = await place.storage_class()
    usual = {
        "capacity": {"storage": "10Gi"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Delete",
        "storageClassName": class_name,
        "claimRef": {"namespace": place.name, "name": "data"},
    }
    metadata = {"name": f"{place.name}-stock", **about}
    await place.api.create(PVS, {"metadata": metadata, "spec": usual | spec})
    await place.claim(class_name, volumeName=f"{place.name}-stock")
    await place.bound()
    yield "pvc data"


@healthy("A Released volume is retained")
@asynccontextmanager
async def retained(place: Place) -> AsyncIterator[str]:
    await place.claim(await place.storage_class(reclaimPolicy="Retain"))
    pv = (await place.bound())["metadata"]["name"]
    await place.remove(f"{place.claims}/data")
    await is_released(place, pv)
    yield f"pv {pv}"
    await place.api.patch(f"{PVS}/{pv}", {"spec": {"persistentVolumeReclaimPolicy": "Delete"}})
    await place.is_gone(f"{PVS}/{pv}", 60)
