"""Volumes beside what their claims request, and how often they may still be modified.

Kubernetes has what is requested, EC2 what exists; if they differ, both are shown. EC2 is read
after Kubernetes, so a volume that is shown as "not in EC2" is missing, or was deleted since: its
PersistentVolume goes after it.
"""

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from provisioner.ec2.snapshots import Snapshots
from provisioner.inspect.command_line import Readers
from provisioner.inspect.df.usage_rules import duration
from provisioner.inspect.terminal.table_rules import NOTHING, table
from provisioner.kube.resources import CLAIMS, PERSISTENT_VOLUMES
from provisioner.model.budget import MOST, Ledger
from provisioner.model.claim import Claim
from provisioner.model.ebs_snapshot import EbsSnapshot
from provisioner.model.errors import StorageError
from provisioner.model.modification import Modification, ModificationState
from provisioner.model.names import MODIFICATIONS
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.quantity import parse_bytes
from provisioner.model.volume import GIB, Volume

HEADINGS = (
    *("CLAIM", "PV", "VOLUME", "ZONE", "TYPE", "SIZE", "IOPS", "MIB/S", "STATE"),
    *("MODIFICATION", "LEFT", "SNAPSHOTS"),
)
BUDGET_HEADINGS = ("CLAIM", "VOLUME", "LEFT", "ONE MORE AT", "IN", "LAST MODIFICATION")
UNKNOWN = "unknown"
_NOT_READ = "?"


@dataclass(frozen=True, slots=True)
class Allowance:
    """How often a volume may still be modified.

    Attributes:
        left: modifications that EC2 still accepts, counted over 24 hours; None if EC2 was not able
            to tell the latest one.
        until: when there is one more; None if none was used, or that is not known.
    """

    left: int | None
    until: datetime | None


@dataclass(frozen=True, slots=True)
class Row:
    """The data of one row.

    Attributes:
        persistent_volume: the PersistentVolume that names the volume.
        volume_id: the volume that it names.
        claim: the claim that it is bound to; None if there is none, it is gone, or not readable.
        volume: as EC2 shows it; None if EC2 does not know it.
        modification: the latest one; None if EC2 shows none.
        allowance: how often it may still be modified.
        pending: its snapshots that are not completed.
        unread: kinds whose absence proves nothing, since they could not be read: "volume", ….
    """

    persistent_volume: PersistentVolume
    volume_id: str
    claim: Claim | None
    volume: Volume | None
    modification: Modification | None
    allowance: Allowance
    pending: Sequence[EbsSnapshot] = ()
    unread: Collection[str] = ()


async def read_rows(readers: Readers, *, driver: str, namespace: str) -> list[Row]:
    """The volumes of a driver, and in-tree ones, sorted by claim; what cannot be read is a gap.

    Args:
        readers: of the cluster and the cloud. EC2 is read after Kubernetes.
        driver: whose volumes are shown.
        namespace: of the claims; "" for all volumes.

    Raises:
        StorageError: the PersistentVolumes cannot be listed: then there is nothing to show.
    """
    claims, found = await asyncio.gather(
        readers.cluster.every(CLAIMS, namespace=namespace),
        readers.cluster.every(PERSISTENT_VOLUMES),
    )
    _check_listed(readers)
    wanted = _wanted(found, driver, namespace)
    if not wanted:
        return []
    ids = sorted({volume_id for _, volume_id in wanted})
    volumes, latest, pending = await asyncio.gather(
        readers.cloud.volumes(ids), readers.cloud.modifications(ids), _pending_snapshots(readers)
    )
    by_key, now = {claim.key: claim for claim in claims}, datetime.now(UTC)
    unread = _unread(readers)
    rows = [
        Row(
            persistent_volume=each,
            volume_id=volume_id,
            claim=_claim(each, by_key),
            volume=volumes.get(volume_id),
            modification=latest.get(volume_id),
            allowance=_allowance(each, volume_id, latest.get(volume_id), now, unread),
            pending=pending.get(volume_id, ()),
            unread=unread,
        )
        for each, volume_id in wanted
    ]
    return sorted(rows, key=_sort_key)


def _unread(readers: Readers) -> frozenset[str]:
    missed = {
        "volume": readers.cloud.misses("DescribeVolumes"),
        "modification": readers.cloud.misses("DescribeVolumesModifications"),
        "claim": readers.cluster.misses(CLAIMS),
    }
    return frozenset(each for each, is_missed in missed.items() if is_missed)


def _check_listed(readers: Readers) -> None:
    """Raise the reason why the PersistentVolumes cannot be listed, if there is one."""
    if readers.cluster.misses(PERSISTENT_VOLUMES):
        gap = next(each for each in readers.cluster.gaps if PERSISTENT_VOLUMES.plural in each.what)
        raise StorageError(gap.reason, gap.message)


def _wanted(
    every: Sequence[PersistentVolume], driver: str, namespace: str
) -> list[tuple[PersistentVolume, str]]:
    """The PersistentVolumes to show, each with its volume; two may name the same one."""
    found: list[tuple[PersistentVolume, str]] = []
    for each in every:
        ref = each.spec.claim_ref
        volume_id = each.volume_id(driver)
        if volume_id and namespace in {"", ref.namespace if ref else None}:
            found.append((each, volume_id))
    return found


async def _pending_snapshots(readers: Readers) -> dict[str, list[EbsSnapshot]]:
    calls = readers.cloud.calls
    if calls is None:
        return {}
    pending: dict[str, list[EbsSnapshot]] = {}
    for each in await readers.cloud.ask("DescribeSnapshots", Snapshots(calls).pending(), []):
        pending.setdefault(each.volume_id, []).append(each)
    return pending


def _claim(persistent_volume: PersistentVolume, by_key: Mapping[str, Claim]) -> Claim | None:
    ref = persistent_volume.spec.claim_ref
    claim = by_key.get(f"{ref.namespace}/{ref.name}") if ref else None
    return claim if claim is not None and is_of(persistent_volume, claim) else None


def _allowance(
    persistent_volume: PersistentVolume,
    volume_id: str,
    latest: Modification | None,
    now: datetime,
    unread: Collection[str],
) -> Allowance:
    if "modification" in unread:
        return Allowance(None, None)
    ledger = Ledger.read(
        persistent_volume.annotations.get(MODIFICATIONS),
        persistent_volume_uid=persistent_volume.uid,
        volume_id=volume_id,
    )
    ledger = ledger.plausible(now)
    return Allowance(ledger.left(latest, now), ledger.more_at(latest, now))


def lines(seen: Sequence[Row], *, width: int | None = None) -> Iterator[str]:
    """The table, line by line, sorted by claim; columns are as wide as their longest cell."""
    yield from table(HEADINGS, map(_cells, sorted(seen, key=_sort_key)), width=width)


def budget_lines(seen: Sequence[Row], now: datetime, *, width: int | None = None) -> list[str]:
    """How often each volume may still be modified, those with the least left first."""
    rows = sorted(seen, key=lambda each: (each.allowance.left or 0, _sort_key(each)))
    return table(BUDGET_HEADINGS, (_budget_cells(each, now) for each in rows), width=width)


def _budget_cells(seen: Row, now: datetime) -> tuple[str, ...]:
    more = seen.allowance.until
    known = seen.volume is not None
    return (
        _claim_cell(seen),
        seen.volume_id,
        f"{_left(seen.allowance)} of {MOST}" if known else NOTHING,
        _minute(more) if known and more is not None else NOTHING,
        duration((more - now).total_seconds()) if known and more is not None else NOTHING,
        _modification(seen.modification),
    )


def as_json(seen: Sequence[Row]) -> list[dict[str, Any]]:
    """The same data, for programs; null is what is not known."""
    return [
        {
            "persistent_volume": each.persistent_volume.name,
            "volume_id": each.volume_id,
            "claim": _claim_key(each),
            "requested_gib": _requested_gib(each.claim) or None,
            "volume": each.volume,
            "modification": each.modification,
            "modifications_left": each.allowance.left if each.volume is not None else None,
            "one_more_at": each.allowance.until,
            "pending_snapshots": [snapshot.snapshot_id for snapshot in each.pending],
        }
        for each in sorted(seen, key=_sort_key)
    ]


def is_of(persistent_volume: PersistentVolume, claim: Claim) -> bool:
    """Whether a PersistentVolume is bound to this claim, not to an older one of the same name."""
    ref = persistent_volume.spec.claim_ref
    return ref is not None and ref.uid in {claim.uid, ""}


def _sort_key(seen: Row) -> tuple[bool, str, str]:
    claim = _claim_cell(seen)
    return claim == NOTHING, claim, seen.persistent_volume.name


def _cells(seen: Row) -> tuple[str, ...]:
    volume = seen.volume
    return (
        _claim_cell(seen),
        seen.persistent_volume.name,
        seen.volume_id,
        volume.zone if volume else NOTHING,
        volume.volume_type if volume else NOTHING,
        _size(seen),
        _number(volume.iops if volume else None),
        _number(volume.throughput_mibps if volume else None),
        _state(seen),
        _modification(seen.modification),
        _allowance_cell(seen.allowance) if volume else NOTHING,
        _pending(seen.pending),
    )


def _state(seen: Row) -> str:
    if seen.volume is not None:
        return str(seen.volume.state)
    return UNKNOWN if "volume" in seen.unread else "not in EC2"


def _claim_key(seen: Row) -> str | None:
    """The claim; as the PersistentVolume names it where claims could not be read."""
    if seen.claim is not None:
        return seen.claim.key
    ref = seen.persistent_volume.spec.claim_ref
    return f"{ref.namespace}/{ref.name}" if ref is not None and "claim" in seen.unread else None


def _claim_cell(seen: Row) -> str:
    ref = seen.persistent_volume.spec.claim_ref
    if ref is None:
        return NOTHING
    is_gone = seen.claim is None and "claim" not in seen.unread
    return f"{ref.namespace}/{ref.name}{' (gone)' if is_gone else ''}"


def _size(seen: Row) -> str:
    """EC2's size, and the claim's if it is larger."""
    requested_gib = _requested_gib(seen.claim)
    if seen.volume is None:
        return NOTHING
    size_gib = seen.volume.size_gib
    return f"{size_gib}Gi" if requested_gib <= size_gib else f"{size_gib}Gi->{requested_gib}Gi"


def _requested_gib(claim: Claim | None) -> int:
    """The claim's request in whole GiB, as EC2 counts; 0 if there is none that can be read."""
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


def _allowance_cell(allowance: Allowance) -> str:
    if allowance.until is None:
        return _left(allowance)
    return f"{_left(allowance)} until {_minute(allowance.until)}"


def _left(allowance: Allowance) -> str:
    return _NOT_READ if allowance.left is None else str(allowance.left)


def _minute(moment: datetime) -> str:
    """As the API server writes times; rounded up to the minute, or it would be too early."""
    minutes = -(-moment.astimezone(UTC).timestamp() // 60)
    return f"{datetime.fromtimestamp(minutes * 60, UTC):%Y-%m-%dT%H:%MZ}"


def _pending(snapshots: Sequence[EbsSnapshot]) -> str:
    if not snapshots:
        return NOTHING
    slowest = min(each.progress_percent for each in snapshots)
    return f"{len(snapshots)} pending, {slowest}%"


def _number(value: int | None) -> str:
    return NOTHING if value is None else str(value)
