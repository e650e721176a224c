"""The table of ``ebs-provisioner volumes``: what is shown of each volume, in which order.

Kubernetes tells what is wanted, EC2 what there is; where they differ, both are shown.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from provisioner.model.claim import Claim
from provisioner.model.ebs_snapshot import EbsSnapshot
from provisioner.model.modification import Modification, ModificationState
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.quantity import parse_bytes
from provisioner.model.sentences import printable
from provisioner.model.volume import GIB, Volume

HEADINGS = (
    *("CLAIM", "PV", "VOLUME", "ZONE", "TYPE", "SIZE", "IOPS", "MIB/S", "STATE"),
    *("MODIFICATION", "LEFT", "SNAPSHOTS"),
)
NOTHING = "-"
_APART = "   "


@dataclass(frozen=True, slots=True)
class Allowance:
    """How often a volume may still be modified.

    Attributes:
        left: modifications that EC2 would still take, counted over 24 hours.
        until: when there is one more; None when none was used up.
    """

    left: int
    until: datetime | None


@dataclass(frozen=True, slots=True)
class Seen:
    """What one row is made of.

    Attributes:
        persistent_volume: whose volume it is.
        volume_id: the volume that it names.
        claim: the claim that it is bound to, None when there is none, or not any more.
        volume: as EC2 shows it; None when EC2 does not know it.
        modification: the latest one; None when EC2 tells of none.
        allowance: how often it may still be modified.
        pending: its snapshots that are not completed.
    """

    persistent_volume: PersistentVolume
    volume_id: str
    claim: Claim | None
    volume: Volume | None
    modification: Modification | None
    allowance: Allowance
    pending: Sequence[EbsSnapshot] = ()


def lines(seen: Sequence[Seen]) -> Iterator[str]:
    """The table, line by line, sorted by claim; columns are as wide as they have to be."""
    cells = (_cells(each) for each in sorted(seen, key=_place))
    rows = [HEADINGS, *(tuple(map(printable, row)) for row in cells)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        wide = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield _APART.join(wide).rstrip()


def is_of(persistent_volume: PersistentVolume, claim: Claim) -> bool:
    """Whether a persistent volume is bound to this claim, and not to an older one of its name."""
    ref = persistent_volume.spec.claim_ref
    return ref is not None and ref.uid in {claim.uid, ""}


def _place(seen: Seen) -> tuple[bool, str, str]:
    claim = _claim(seen)
    return claim == NOTHING, claim, seen.persistent_volume.name


def _cells(seen: Seen) -> tuple[str, ...]:
    volume = seen.volume
    return (
        _claim(seen),
        seen.persistent_volume.name,
        seen.volume_id,
        volume.zone if volume else NOTHING,
        volume.volume_type if volume else NOTHING,
        _size(seen),
        _number(volume.iops if volume else None),
        _number(volume.throughput_mibps if volume else None),
        str(volume.state) if volume else "not in EC2",
        _modification(seen.modification),
        _allowance(seen.allowance) if volume else NOTHING,
        _pending(seen.pending),
    )


def _claim(seen: Seen) -> str:
    ref = seen.persistent_volume.spec.claim_ref
    if ref is None:
        return NOTHING
    name = f"{ref.namespace}/{ref.name}"
    return name if seen.claim is not None else f"{name} (gone)"


def _size(seen: Seen) -> str:
    """EC2's size, and what the claim wants beyond it."""
    asked_gib = _asked_gib(seen.claim)
    if seen.volume is None:
        return NOTHING
    size_gib = seen.volume.size_gib
    return f"{size_gib}Gi" if asked_gib <= size_gib else f"{size_gib}Gi->{asked_gib}Gi"


def _asked_gib(claim: Claim | None) -> int:
    """In whole GiB, as EC2 counts; 0 when nothing that can be read is asked for."""
    if claim is None:
        return 0
    try:
        return -(-parse_bytes(claim.requested_storage) // GIB)
    except ValueError:
        return 0


def _modification(modification: Modification | None) -> str:
    match modification:
        case None:
            return NOTHING
        case Modification(state=ModificationState.COMPLETED):
            return str(modification.state)
        case Modification(state=ModificationState.FAILED, message=message) if message:
            return f"{modification.state}: {message}"
        case Modification(state=ModificationState.FAILED):
            return str(modification.state)
        case _:
            return f"{modification.state} {modification.progress_percent}%"


def _allowance(allowance: Allowance) -> str:
    if allowance.until is None:
        return str(allowance.left)
    # The way the API server writes times, to the minute; rounding down would promise too much.
    until = allowance.until.astimezone(UTC)
    minutes = -(-until.timestamp() // 60)
    return f"{allowance.left} until {datetime.fromtimestamp(minutes * 60, UTC):%Y-%m-%dT%H:%MZ}"


def _pending(snapshots: Sequence[EbsSnapshot]) -> str:
    if not snapshots:
        return NOTHING
    slowest = min(each.progress_percent for each in snapshots)
    return f"{len(snapshots)} pending, {slowest}%"


def _number(value: int | None) -> str:
    return NOTHING if value is None else str(value)
