"""Decide about volumes of this cluster that no object names.

A claim deleted while its volume was being made, and the process then killed, leaves a volume that
nothing knows. Only a volume that still has the tag ``unclaimed`` may be deleted: the tag is removed
before the first attach, so a tagged volume cannot hold data written through us. A volume without it
(its persistent volume was deleted on purpose, etcd was restored, the cluster was rebuilt under its
old id, the stock driver created it) is reported and never touched. So is a volume that is older
than our leadership epoch: another controller may have attached it, whatever its tags. So is each
while some object that may name it cannot be read.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from provisioner.controller.provisioning.persistent_volume_rules import (
    reference_to_claim,
    zone_affinity,
)
from provisioner.model import tags
from provisioner.model.claim import claim_uid_of
from provisioner.model.leadership import Epoch
from provisioner.model.names import CLAIM_NAME, CLAIM_NAMESPACE, UNCLAIMED, VOLUME_NAME
from provisioner.model.persistent_volume import PROVISIONED_BY
from provisioner.model.volume import Volume, VolumeState


@dataclass(frozen=True, slots=True)
class Leave:
    """It is in use, too young, or on its way."""


@dataclass(frozen=True, slots=True)
class Untag:
    """An object names it: remove the tag."""


@dataclass(frozen=True, slots=True)
class Report:
    """Nothing names it, and it must not be touched."""


@dataclass(frozen=True, slots=True)
class Remove:
    """Nothing names it, and it cannot hold data: delete it."""


@dataclass(frozen=True, slots=True)
class Keep:
    """Its class said Retain: put it under a persistent volume for a human to see."""


Decision = Leave | Untag | Report | Remove | Keep


@dataclass(frozen=True, slots=True)
class World:
    """What live, complete lists contain, what is in progress in this process, and who has led.

    ``epoch``: since when only ours have led; None: that is not known.
    ``unreadable``: names of persistent volumes, and ``namespace/name`` of claims and VolumeMoves,
    that are there but cannot be read. Such a persistent volume may name any id, and such a move may
    have any UID, so nothing is proven meanwhile.
    ``lacks_moves``: there may be VolumeMoves, and they cannot be listed. The tags of what they have
    made do not tell it from what a claim that is gone has left.
    """

    named_volume_ids: Collection[str]  # by any persistent volume, in any form
    persistent_volume_names: Collection[str]
    claim_uids: Collection[str]  # of claims, and of VolumeMoves
    in_flight_names: Collection[str]  # persistent volume names of attempts
    in_flight_ids: Collection[str]
    epoch: Epoch | None
    unreadable: Collection[str] = ()
    lacks_moves: bool = False


def decide(
    volume: Volume, world: World, *, cluster_id: str, now: datetime, min_age: timedelta
) -> Decision:
    """Say what becomes of one volume that carries a tag of this cluster."""
    if any(volume.tags.get(k) != v for k, v in tags.of_cluster(cluster_id).items()):
        return Leave()
    policy = volume.tags.get(UNCLAIMED)
    name = volume.tags.get(VOLUME_NAME, "")
    claim_key = f"{volume.tags.get(CLAIM_NAMESPACE)}/{volume.tags.get(CLAIM_NAME)}"
    if volume.volume_id in world.named_volume_ids:
        return Untag() if policy is not None else Leave()
    if (
        volume.state not in (VolumeState.AVAILABLE, VolumeState.ERROR)
        or volume.attachments
        or volume.volume_id in world.in_flight_ids
        or name in world.in_flight_names
        or name in world.persistent_volume_names
        or claim_uid_of(name) in world.claim_uids
        or name in world.unreadable
        or claim_key in world.unreadable
        or volume.created_at is None
        or now - volume.created_at < min_age
    ):
        return Leave()
    is_ours = world.epoch is not None and world.epoch.covers(volume.created_at)
    is_proof = is_ours and not (world.unreadable or world.lacks_moves)
    if policy is None or claim_uid_of(name) is None or not is_proof:
        return Report()
    match policy:
        case "Delete":
            return Remove()
        case "Retain" if _can_be_kept(volume):
            return Keep()
        case _:
            return Report()


def _can_be_kept(volume: Volume) -> bool:
    """Whether it works, and its tags still tell the claim (somebody may have edited them)."""
    names = (volume.tags.get(CLAIM_NAMESPACE), volume.tags.get(CLAIM_NAME))
    return volume.state is VolumeState.AVAILABLE and all(names)


def retained(volume: Volume, *, driver: str) -> dict[str, Any]:
    """A persistent volume that keeps an orphan; the binder will show it as Released.

    Its claim is gone, so only what the volume's tags tell is written. No finalizer: with the
    policy Retain there is nothing to hold it for.
    """
    name = volume.tags[VOLUME_NAME]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": name,
            "annotations": {PROVISIONED_BY: driver},
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": f"{volume.size_gib}Gi"},
            "claimRef": reference_to_claim(
                volume.tags[CLAIM_NAMESPACE],
                volume.tags[CLAIM_NAME],
                claim_uid_of(name) or "",
            ),
            "persistentVolumeReclaimPolicy": "Retain",
            "csi": {"driver": driver, "volumeHandle": volume.volume_id},
            "nodeAffinity": zone_affinity(volume),
        },
    }
