"""Two causes at once: both are named."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.cluster.broken import quiet_nodes, refused
from tests.cluster.broken.attaching import without_limit, zone_label
from tests.cluster.broken.claims import kubernetes_says, unscheduled
from tests.cluster.broken.record import Matrix, Section
from tests.cluster.by_hand import by_hand, force_removal
from tests.cluster.cluster import ATTACHMENTS, handle_of
from tests.cluster.place import Place

matrix = Matrix(Section.CLAIM_PENDING)
broken = matrix.broken

BOTH = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in ("data", "more")]


@broken(
    "One claim of a pod has no class, the other an impossible one", "ClassNotFound", "InvalidClass"
)
@asynccontextmanager
async def two_at_once(place: Place) -> AsyncIterator[str]:
    await place.claim(f"{place.name}-nowhere")
    await place.claim(await place.storage_class(parameters={"type": "gp3", "iops": "many"}), "more")
    await kubernetes_says(place, "ProvisioningFailed", "not found")
    await place.told("InvalidClass", name="more")
    pod = await place.pod({"metadata": {"name": "both"}}, volumes=BOTH)
    yield await unscheduled(place, pod, "unbound immediate")


@broken(
    "The role may not create one volume of a pod, and the zone has no room for the other",
    "PermissionDenied",
    "ZoneOutOfCapacity",
)
@asynccontextmanager
async def two_refusals(place: Place) -> AsyncIterator[str]:
    await refused.refused(place, **refused.NOT_AUTHORIZED)
    await refused.in_one_zone(place, {"type": "sc1"}, "more")
    await place.told("PermissionDenied")
    await place.told("ZoneOutOfCapacity", name="more")
    pod = await place.pod({"metadata": {"name": "both"}}, volumes=BOTH)
    yield await unscheduled(place, pod, "unbound immediate")


@broken(
    "One volume of a pod was deleted by hand, the other is attached outside the cluster",
    "VolumeNotFound",
    "VolumeInUse",
    section=Section.POD_CREATING,
)
@asynccontextmanager
async def lost_and_taken(place: Place) -> AsyncIterator[str]:
    lost, taken = [await quiet_nodes.a_volume(place, name) for name in ("data", "more")]
    lab = by_hand(place.cluster)
    stranger = await asyncio.to_thread(lab.instance, "us-east-1a")
    await asyncio.to_thread(place.cluster.ec2.delete_volume, VolumeId=handle_of(lost))
    await asyncio.to_thread(lab.attach, handle_of(taken), stranger)
    async with quiet_nodes.a_node(place) as instance:
        pod = await quiet_nodes.start_pod(place, instance, claims=("data", "more"))
        waiting = {}
        for pv, words in ((lost, "does not exist"), (taken, stranger)):
            waiting[words] = await quiet_nodes.attachment_of(place, pv["metadata"]["name"])
            await place.attach_error(waiting[words], words)
        yield "pod data"
        await quiet_nodes.end_pod(place, pod["metadata"]["name"])
        for each in waiting.values():
            await force_removal(place, f"{ATTACHMENTS}/{each}")
    await asyncio.to_thread(lab.detach, handle_of(taken))


@broken(
    "The node's zone label is wrong, and its limit of volumes was never reported",
    "ZoneLabelWrong",
    "VolumeLimitUnknown",
    section=Section.NODE,
)
@asynccontextmanager
async def wrong_twice(place: Place) -> AsyncIterator[str]:
    async with quiet_nodes.a_node(place) as instance:
        await without_limit(place, instance)
        await zone_label(place, instance, "us-east-1b")
        yield f"node {instance.private_dns_name}"
