"""Deletes what a run has made in a cluster, and looks until nothing is left.

The namespace goes with all that is in it; the controllers of the cluster then delete the volumes
and snapshots. What they have not deleted is reported, and never deleted behind their back.
"""

import asyncio

from provisioner.conformance.cluster.hand import PAUSE_S, Hand
from provisioner.conformance.cluster.kinds import CLASSES, CONTENTS, NAMESPACES, SNAPSHOT_CLASSES
from provisioner.conformance.ec2 import Ec2
from provisioner.conformance.probe import CannotRunError
from provisioner.conformance.sweep import Left, Patience, things
from provisioner.kube.resources import PERSISTENT_VOLUMES
from provisioner.model.errors import KubeError
from provisioner.model.names import CLUSTER_RUN_TAG
from provisioner.model.persistent_volume import PersistentVolume

_LONGEST_PAUSE_S = 2.0  # each look lists all PersistentVolumes of the cluster


async def volumes_of(hand: Hand) -> list[PersistentVolume]:
    """The PersistentVolumes of the claims of the run's namespace."""
    found = (await hand.client.list(PERSISTENT_VOLUMES)).items
    refs = ((each, each.spec.claim_ref) for each in found)
    return [each for each, ref in refs if ref is not None and ref.namespace == hand.namespace]


async def leave(hand: Hand, ec2: Ec2, patience: Patience) -> Left:
    """Delete everything; what could not be deleted, and why."""
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    clean_since_s: float | None = None
    left, pause_s = Left(), PAUSE_S
    while True:
        try:
            async with asyncio.timeout(max(0.1, begun_s + patience.cluster_s - loop.time())):
                left = await _pass(hand, ec2)
        except (KubeError, CannotRunError, TimeoutError) as failure:
            why = getattr(failure, "message", "") or str(failure) or "no answer in time"
            left = Left({hand.namespace: f"the cluster: {why}"})
        now_s = loop.time()
        if left.why:
            clean_since_s = None
        elif clean_since_s is None:
            clean_since_s = now_s
        # What a killed process has sent may still be carried out.
        if clean_since_s is not None and now_s - clean_since_s >= patience.settles_s:
            return left
        if now_s - begun_s > patience.cluster_s:
            return left
        await asyncio.sleep(pause_s)
        pause_s = min(_LONGEST_PAUSE_S, pause_s * 1.5)


async def _pass(hand: Hand, ec2: Ec2) -> Left:
    """Delete what can be deleted now; what is left then."""
    why: dict[str, str] = {}
    namespace = await hand.delete_wide(NAMESPACES)
    if namespace is not None:
        why[f"namespace {namespace.name}"] = namespace.remains or "it is still being deleted"
    for volume in await volumes_of(hand):
        why[f"persistentvolume {volume.name}"] = f"it is still {volume.phase}"
    served = await hand.client.served()
    has_snapshots = (CONTENTS.api_version, CONTENTS.plural) in served
    if has_snapshots:
        for content in (await hand.client.list(CONTENTS)).items:
            if content.spec.volume_snapshot_ref.namespace == hand.namespace:
                why[f"volumesnapshotcontent {content.name}"] = "it is not deleted yet"
    async for each in things(ec2, hand.run, CLUSTER_RUN_TAG):
        why[each.id] = (
            f"it is still {each.state}: the controller of the cluster has to delete it; delete it "
            "yourself only if that cluster is gone"
        )
    if why:
        return Left(why)
    for kind in (CLASSES, *((SNAPSHOT_CLASSES,) if has_snapshots else ())):
        if await hand.delete_wide(kind) is not None:
            why[f"{kind.plural} {hand.namespace}"] = "it is being deleted"
    return Left(why)
