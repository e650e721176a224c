"""Which amounts there are, whose they are, and their sums; exact until they are shown."""

import csv
import io
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal

from provisioner.model.ebs_snapshot import EbsSnapshot
from provisioner.model.quantity import parse_bytes
from provisioner.model.sentences import printable
from provisioner.model.volume import GIB, Volume
from provisioner.prices.price_rules import (
    RegionPrices,
    fast_restore_month,
    gp3_saving,
    snapshot_month,
    volume_month,
)

VOLUME, SNAPSHOT, FAST_RESTORE = "volume", "snapshot", "fast restore"
IN_USE, UNATTACHED, RELEASED, UNCLAIMED, ORPHAN = (
    *("in use", "unattached", "released", "unclaimed", "orphan"),
)
WASTE = (UNATTACHED, RELEASED, UNCLAIMED, ORPHAN)
NOBODY = "-"
_ZERO = Decimal(0)
_CENT = Decimal("0.01")
_NAMED = 3
CSV_HEADINGS = (
    *("kind", "id", "namespace", "claim", "class", "type", "gib", "status"),
    *("month_low", "month_high", "gp3_saving", "used_bytes", "note"),
)


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose something is; "" for what is nobody's."""

    namespace: str = ""
    claim: str = ""
    storage_class: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that is billed.

    Attributes:
        kind: ``VOLUME``, ``SNAPSHOT`` or ``FAST_RESTORE``.
        status: of a volume: ``IN_USE`` or one of ``WASTE``; "" of others.
        low: the least that it costs a month; None without a price.
        high: the most.
        saving: what a gp2 volume would save as gp3, a month; None: nothing.
        used_bytes: of its file system; None if it is not known.
        note: why low and high differ, or why there is no amount.
    """

    kind: str
    id: str
    owner: Owner
    volume_type: str
    gib: int
    status: str
    low: Decimal | None
    high: Decimal | None
    saving: Decimal | None = None
    used_bytes: int | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Sum:
    """What some items come to.

    Attributes:
        items: how many.
        unpriced: how many of them have no amount.
    """

    items: int
    volumes: int
    gib: int
    volumes_month: Decimal
    others_low: Decimal
    others_high: Decimal
    unpriced: int

    @property
    def is_known(self) -> bool:
        """Whether any of them has an amount, or there are none."""
        return not self.items or self.unpriced < self.items

    @property
    def low(self) -> Decimal:
        """The least of all."""
        return self.volumes_month + self.others_low

    @property
    def high(self) -> Decimal:
        """The most of all."""
        return self.volumes_month + self.others_high


def volume_item(
    volume: Volume,
    owner: Owner,
    status: str,
    rates: RegionPrices | None,
    used_bytes: int | None = None,
) -> Item:
    """The amount of a volume."""
    month = volume_month(volume, rates)
    note = "" if month is not None else f"no price for {volume.volume_type} of this shape"
    return Item(
        kind=VOLUME,
        id=volume.volume_id,
        owner=owner,
        volume_type=volume.volume_type,
        gib=volume.size_gib,
        status=status,
        low=month,
        high=month,
        saving=gp3_saving(volume, rates),
        used_bytes=used_bytes,
        note=note,
    )


def unread_item(volume_id: str, owner: Owner, status: str, capacity: str) -> Item:
    """A volume that EC2 could not be asked about, as its PersistentVolume has it.

    Args:
        volume_id: the volume.
        owner: whose it is.
        status: ``RELEASED``, ``UNCLAIMED``, or "" where only EC2 knows.
        capacity: of the PersistentVolume, as it is written there.
    """
    try:
        gib = parse_bytes(capacity) // GIB
    except ValueError:
        gib = 0
    note = "EC2 could not be asked"
    return Item(VOLUME, volume_id, owner, "", gib, status, low=None, high=None, note=note)


def snapshot_items(
    snapshots: Iterable[EbsSnapshot],
    owner_of: Callable[[EbsSnapshot], Owner],
    rates: RegionPrices | None,
) -> list[Item]:
    """The amounts of snapshots, as ranges.

    A snapshot stores only blocks that no earlier one of its volume has, and EC2 does not say how
    many. At most it stores all that was written to the volume (``full_bytes``, else its size); at
    least nothing, the oldest one that is known too: there may be others of its volume that no
    object names, such as those of AWS Backup.
    Source: EBS user guide "How Amazon EBS snapshots work"; EC2 API model DescribeSnapshots,
    FullSnapshotSizeInBytes (read 2026-11-23).
    """
    return [_snapshot_item(each, owner_of(each), rates) for each in snapshots]


def _snapshot_item(snapshot: EbsSnapshot, owner: Owner, rates: RegionPrices | None) -> Item:
    written = snapshot.full_bytes
    most = snapshot.size_gib * GIB if written is None else written
    low, high = snapshot_month(0, rates), snapshot_month(most, rates)
    known = "the volume's size" if written is None else "what was written"
    note = f"incremental: at most {known}" if low != high else ""
    return Item(
        kind=SNAPSHOT,
        id=snapshot.snapshot_id,
        owner=owner,
        volume_type="",
        gib=snapshot.size_gib,
        status="",
        low=low,
        high=high,
        note=note if high is not None else "no price for snapshots",
    )


def fast_restore_item(
    snapshot: EbsSnapshot, owner: Owner, zones: int, rates: RegionPrices | None
) -> Item:
    """The amount of fast restore of a snapshot, in so many zones, all of the month."""
    month = fast_restore_month(zones, rates)
    note = f"in {zones} zone{'' if zones == 1 else 's'}"
    return Item(
        kind=FAST_RESTORE,
        id=snapshot.snapshot_id,
        owner=owner,
        volume_type="",
        gib=snapshot.size_gib,
        status="",
        low=month,
        high=month,
        note=note if month is not None else f"{note}; no price for fast restores",
    )


def total(items: Iterable[Item]) -> Sum:
    """What items come to; those without a price count as nothing, and are counted."""
    count = volumes = gib = unpriced = 0
    month = low = high = _ZERO
    for each in items:
        count += 1
        unpriced += each.high is None
        if each.kind == VOLUME:
            volumes, gib = volumes + 1, gib + each.gib
            month += each.high or _ZERO
        else:
            low += each.low or _ZERO
            high += each.high or _ZERO
    return Sum(count, volumes, gib, month, low, high, unpriced)


def group_key(by: str) -> Callable[[Item], str]:
    """What items are put together by: namespace, claim, class, type, status, or label=KEY.

    Raises:
        ValueError: one sentence: it is none of these.
    """
    word, _, label = by.partition("=")
    keys: dict[str, Callable[[Item], str]] = {
        "namespace": lambda item: item.owner.namespace,
        "claim": lambda item: (
            f"{item.owner.namespace}/{item.owner.claim}" if item.owner.claim else ""
        ),
        "class": lambda item: item.owner.storage_class,
        "type": lambda item: item.volume_type or item.kind,
        "status": lambda item: item.status or item.kind,
        "label": lambda item: item.owner.labels.get(label, ""),
    }
    if word not in keys or (word == "label") != bool(label):
        raise ValueError(
            f"--by {by[:80]}: use namespace, claim, class, type, status or label=KEY, such as "
            "label=team"
        )
    return lambda item: keys[word](item) or NOBODY


def groups(items: Iterable[Item], by: str) -> list[tuple[str, Sum]]:
    """The sums by group, the dearest first.

    Raises:
        ValueError: as ``group_key``.
    """
    key = group_key(by)
    members: dict[str, list[Item]] = defaultdict(list)
    for each in items:
        members[key(each)].append(each)
    sums = [(name, total(some)) for name, some in members.items()]
    return sorted(sums, key=lambda pair: (-pair[1].high, pair[0]))


def amount(value: Decimal | None) -> str:
    """An amount in cents, as people read it; "?" without a price."""
    return "?" if value is None else f"{value.quantize(_CENT, ROUND_HALF_UP):,}"


def amount_range(low: Decimal, high: Decimal) -> str:
    """Two amounts, or one if they look the same."""
    first, second = amount(low), amount(high)
    return first if first == second else f"{first}-{second}"


def csv_text(items: Sequence[Item]) -> str:
    """All items, one a line, in the form of RFC 4180; exact amounts."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_HEADINGS)
    for each in items:
        owner = each.owner
        writer.writerow(
            _harmless(cell)
            for cell in (
                *(each.kind, each.id, owner.namespace, owner.claim, owner.storage_class),
                *(each.volume_type, str(each.gib), each.status),
                *(_exact(each.low), _exact(each.high), _exact(each.saving)),
                *("" if each.used_bytes is None else str(each.used_bytes), each.note),
            )
        )
    return text.getvalue()


def _exact(value: Decimal | None) -> str:
    return "" if value is None else f"{value:f}"


def _harmless(cell: str) -> str:
    """A cell of one line that no spreadsheet takes for a formula (OWASP "CSV Injection")."""
    text = printable(cell)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def remarks(items: Sequence[Item], currency: str) -> list[str]:
    """What could cost less, and what the sums leave open; a sentence each."""
    found = []
    saving = [each for each in items if each.saving]
    if saving:
        sum_ = sum((each.saving or _ZERO for each in saving), _ZERO)
        found.append(
            f"{_volumes(len(saving))} of type gp2 would cost {amount(sum_)} {currency} a month "
            "less as gp3 with at least the same IOPS, and 250 MiB/s (125 up to 170 GiB, where gp2 "
            "has 128 at most)"
        )
    for status in WASTE:
        some = [each for each in items if each.status == status]
        if some:
            of_them = total(some)
            month = amount(of_them.volumes_month if of_them.is_known else None)
            found.append(
                f"{_volumes(len(some))} {_WASTE_WORDS[status]}: {of_them.gib} GiB, "
                f"{month} {currency} a month"
            )
    known = [each for each in items if each.used_bytes is not None and each.high is not None]
    if known:
        found.append(_of_free_space(known, currency))
    return found + _open_questions(items)


def _of_free_space(known: Sequence[Item], currency: str) -> str:
    """What over-provisioned volumes cost too much, and which of them to look at first."""
    empty = sum((_empty_month(each) for each in known), _ZERO)
    most = [f"{_named(each)} {amount(_empty_month(each))}" for each in _emptiest(known)]
    return (
        f"{_volumes(len(known))} with known use: {amount(empty)} {currency} a month is for free "
        f"space (no EBS volume can shrink); most of it: {', '.join(most)}"
    )


def _emptiest(known: Sequence[Item]) -> list[Item]:
    by_amount = sorted(known, key=lambda each: (-_empty_month(each), _named(each)))
    return by_amount[:_NAMED]


def _named(item: Item) -> str:
    owner = item.owner
    return f"{owner.namespace}/{owner.claim}" if owner.claim else item.id


_WASTE_WORDS = {
    UNATTACHED: "of bound claims attached to no node",
    RELEASED: "of Released PersistentVolumes",
    UNCLAIMED: "of PersistentVolumes without a claim",
    ORPHAN: "that no PersistentVolume names (kubectl ebs orphans)",
}


def _open_questions(items: Sequence[Item]) -> list[str]:
    found = []
    if any(each.kind == SNAPSHOT for each in items):
        found.append(
            "snapshots are a range: each stores only blocks that earlier ones of its volume do not "
            "have, and EC2 does not say how many"
        )
    unpriced = total(items).unpriced
    if unpriced:
        what = "item has" if unpriced == 1 else "items have"
        found.append(f"{unpriced} {what} no price and count{'s' * (unpriced == 1)} as nothing")
    if any(each.volume_type == "standard" for each in items):
        found.append("volumes of type standard are also charged for each I/O, not counted here")
    return found


def _empty_month(item: Item) -> Decimal:
    size = item.gib * GIB
    used = min(item.used_bytes or 0, size)
    return (item.high or _ZERO) * (size - used) / size if size else _ZERO


def _volumes(number: int) -> str:
    return f"{number} volume{'' if number == 1 else 's'}"
