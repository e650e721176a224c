"""Decide about the snapshots by which clones come to other zones: each for one claim only.

They carry two tags of ours: whose cluster's they are, by which a sweep finds all of them, and for
which claim each was taken, by which one is found again after a crash or a lost reply.
"""

from collections.abc import Collection

from provisioner.model.backoff import Backoff
from provisioner.model.claim import Claim
from provisioner.model.ebs_snapshot import EbsSnapshot, SnapshotRequest, SnapshotState
from provisioner.model.names import (
    CROSS_ZONE_CLAIM,
    CROSS_ZONE_CLUSTER,
    IOPS_FOLLOW_GROWTH,
    IOPS_PER_GIB,
    PERSISTENT_VOLUME_NAME,
    UNCLAIMED,
    VOLUME_NAME,
)

# What is said of a volume only.
_OF_VOLUMES = frozenset(
    {
        VOLUME_NAME,
        UNCLAIMED,
        PERSISTENT_VOLUME_NAME,
        IOPS_PER_GIB,
        IOPS_FOLLOW_GROWTH,
    }
)
# What fails again and again takes a human, or a long time.
BACKOFF = Backoff(15.0, 1800.0)
_USABLE = frozenset({SnapshotState.PENDING, SnapshotState.COMPLETED})


def request(
    claim: Claim, volume_id: str, cluster_id: str, of_volume: Collection[tuple[str, str]]
) -> SnapshotRequest:
    """What CreateSnapshot is told; ``of_volume`` are the tags that the claim's volume will have."""
    kept = {key: value for key, value in of_volume if key not in _OF_VOLUMES}
    written = kept | {CROSS_ZONE_CLUSTER: cluster_id, CROSS_ZONE_CLAIM: claim.uid}
    return SnapshotRequest(
        volume_id,
        f"Temporary: brings a clone of {volume_id} for claim {claim.key} to another zone",
        tuple(sorted(written.items())),
    )


def found_again(claim: Claim, volume_id: str, found: Collection[EbsSnapshot]) -> EbsSnapshot | None:
    """The snapshot of a volume that was taken for a claim, of several the one that is furthest."""
    usable = [
        each
        for each in found
        if each.tags.get(CROSS_ZONE_CLAIM) == claim.uid
        and each.volume_id == volume_id
        and each.state in _USABLE
    ]
    return min(
        usable,
        key=lambda each: (each.state is not SnapshotState.COMPLETED, each.snapshot_id),
        default=None,
    )


def is_left_over(
    snapshot: EbsSnapshot, claim: Claim | None, *, cluster_id: str, in_flight: Collection[str]
) -> bool:
    """Whether nothing will be made any more from a snapshot.

    Args:
        snapshot: one with our tags.
        claim: the one for which it was taken, None if it is gone.
        cluster_id: ours.
        in_flight: the UIDs of the claims for which volumes are being made.
    """
    uid = snapshot.tags.get(CROSS_ZONE_CLAIM, "")
    if snapshot.tags.get(CROSS_ZONE_CLUSTER) != cluster_id or not uid or uid in in_flight:
        return False
    return claim is None or bool(claim.spec.volume_name)
