"""Decide which extra tags a volume lacks that was made before ``--extra-tags`` had them.

A volume is touched only if its tags say that it was created for the very persistent
volume that names it, and for no other cluster; only what is absent is added. A tag that is there
has a value that somebody chose, and a tag of ownership on a volume that was never ours would hand
it to whatever deletes a cluster's volumes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from provisioner.model import tags
from provisioner.model.decision import SETTLED, Settled
from provisioner.model.names import (
    CLAIM_NAME,
    CLAIM_NAMESPACE,
    CLUSTER_NAME,
    CLUSTER_PREFIX,
    DRIVER_PREFIX,
    LEGACY_CLUSTER,
    MADE_BY_DRIVER,
    OUR_PREFIX,
    SNAPSHOT_NAME,
    VOLUME_NAME,
)
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.tag_template import TagTemplate
from provisioner.model.volume import Volume, VolumeState

_PRESENT = frozenset({VolumeState.CREATING, VolumeState.AVAILABLE, VolumeState.IN_USE})
_OWNERSHIP = frozenset({VOLUME_NAME, SNAPSHOT_NAME, LEGACY_CLUSTER})
_OWNERSHIP_PREFIXES = ("kubernetes.io", DRIVER_PREFIX, OUR_PREFIX, "aws:")


@dataclass(frozen=True, slots=True)
class Add:
    """Write these tags, sorted by key; none of them is there."""

    tags: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Skip:
    """It lacks some that cannot be written."""

    message: str


def decide(
    volume: Volume,
    persistent_volume: PersistentVolume,
    templates: Sequence[TagTemplate],
    *,
    cluster_id: str,
) -> Settled | Add | Skip:
    """Say what a volume lacks; ``SETTLED`` if it is not ours, or lacks nothing.

    Args:
        volume: as EC2 describes it.
        persistent_volume: names it.
        templates: the extra tags.
        cluster_id: ours, "" for none.
    """
    if volume.state not in _PRESENT or not _is_ours(volume, persistent_volume, cluster_id):
        return SETTLED
    owner = _owner(volume.tags, persistent_volume)
    lacking = [
        template
        for template in templates
        if template.key not in volume.tags
        and not _is_ownership(template.key)
        # With an empty name it would stay wrong forever.
        and (template.is_constant or owner.claim_name)
    ]
    if not lacking:
        return SETTLED
    try:
        missing = tags.rendered(lacking, owner)
    except ValueError as error:
        return Skip(f"volume {volume.volume_id}: {error}")
    has = sum(not key.startswith("aws:") for key in volume.tags)  # AWS's own do not count
    if has + len(missing) > tags.MOST:
        return Skip(
            f"volume {volume.volume_id} has {has} tags and would get {len(missing)} more, but EC2 "
            f"allows {tags.MOST}; remove some, or use fewer --extra-tags"
        )
    return Add(tuple(sorted(missing.items())))


def _is_ours(volume: Volume, persistent_volume: PersistentVolume, cluster_id: str) -> bool:
    has = volume.tags
    if has.get(VOLUME_NAME) != persistent_volume.name or has.get(MADE_BY_DRIVER) != "true":
        return False
    if has.get(CLUSTER_NAME, cluster_id) != cluster_id:
        return False
    owners = {key.removeprefix(CLUSTER_PREFIX) for key in has if key.startswith(CLUSTER_PREFIX)}
    return owners <= {cluster_id}


def _is_ownership(key: str) -> bool:
    return key in _OWNERSHIP or key.startswith(_OWNERSHIP_PREFIXES)


def _owner(has: Mapping[str, str], persistent_volume: PersistentVolume) -> tags.Owner:
    """For whom it was created; where its tags do not tell, whose it is."""
    claim = persistent_volume.spec.claim_ref
    return tags.Owner(
        claim_namespace=has.get(CLAIM_NAMESPACE) or (claim.namespace if claim else ""),
        claim_name=has.get(CLAIM_NAME) or (claim.name if claim else ""),
        persistent_volume_name=persistent_volume.name,
        reclaim_policy=persistent_volume.reclaim_policy,
    )
