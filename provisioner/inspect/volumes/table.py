"""``kubectl ebs volumes``: reads the API server and EC2, and changes neither.

Kubernetes has what is requested, EC2 what exists; if they differ, both are shown. EC2 is read
after Kubernetes, so a volume that is shown as "not in EC2" really is missing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from provisioner.ec2.batches import whole
from provisioner.ec2.calls import Ec2Calls
from provisioner.ec2.modifications import Modifications
from provisioner.ec2.snapshots import Snapshots
from provisioner.ec2.volumes import Volumes
from provisioner.inspect.terminal.table_rules import NOTHING, table
from provisioner.kube.client import KubeClient
from provisioner.kube.resources import CLAIMS, PERSISTENT_VOLUMES
from provisioner.metrics import Metrics
from provisioner.model.budget import Ledger
from provisioner.model.claim import Claim
from provisioner.model.ebs_snapshot import EbsSnapshot
from provisioner.model.modification import Modification, ModificationState
from provisioner.model.names import MODIFICATIONS
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.quantity import parse_bytes
from provisioner.model.volume import GIB, Volume
from provisioner.region import find_region

HEADINGS = (
    *("CLAIM", "PV", "VOLUME", "ZONE", "TYPE", "SIZE", "IOPS", "MIB/S", "STATE"),
    *("MODIFICATION", "LEFT", "SNAPSHOTS"),
)


@dataclass(frozen=True, slots=True)
class Question:
    """The arguments of the command.

    Attributes:
        namespace: of the claims whose volumes are shown; "" for all volumes.
        kubeconfig: the cluster; None for the default one.
        driver: the driver whose volumes are shown, besides in-tree ones.
        region: of EC2; None for AWS_REGION, or that of the Nodes or of this instance.
    """

    namespace: str
    kubeconfig: str | None
    driver: str
    region: str | None


@dataclass(frozen=True, slots=True)
class Allowance:
    """How often a volume may still be modified.

    Attributes:
        left: modifications that EC2 still accepts, counted over 24 hours.
        until: when there is one more; None if none was used.
    """

    left: int
    until: datetime | None


@dataclass(frozen=True, slots=True)
class Row:
    """The data of one row.

    Attributes:
        persistent_volume: the PersistentVolume that names the volume.
        volume_id: the volume that it names.
        claim: the claim that it is bound to; None if there is none, or it is gone.
        volume: as EC2 shows it; None if EC2 does not know it.
        modification: the latest one; None if EC2 shows none.
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


async def answer(question: Question) -> list[str]:
    """The table, line by line.

    Raises:
        StorageError: the API server or EC2 cannot be asked; one clear line.
    """
    async with await KubeClient.connect(kubeconfig=question.kubeconfig) as client:
        claims = await client.list(CLAIMS, namespace=question.namespace)
        found = await client.list(PERSISTENT_VOLUMES)
        region = await find_region(client, question.region)
    wanted = _wanted(found.items, question)
    calls = Ec2Calls.connect(region=region, metrics=Metrics())
    try:
        seen = await _read_ec2(calls, wanted, claims.items)
    finally:
        await calls.close()
    return list(lines(seen))


def _wanted(
    every: Sequence[PersistentVolume], question: Question
) -> list[tuple[PersistentVolume, str]]:
    """The PersistentVolumes to show, each with its volume; two may name the same one."""
    found: list[tuple[PersistentVolume, str]] = []
    for each in every:
        ref = each.spec.claim_ref
        volume_id = each.volume_id(question.driver)
        if volume_id and question.namespace in {"", ref.namespace if ref else None}:
            found.append((each, volume_id))
    return found


async def _read_ec2(
    calls: Ec2Calls, wanted: Sequence[tuple[PersistentVolume, str]], claims: Sequence[Claim]
) -> list[Row]:
    """Ask EC2 for all of them. Filters are used, because a bad id would fail a call for all."""
    if not wanted:
        return []
    ids = sorted({volume_id for _, volume_id in wanted})
    volumes = whole(await Volumes(calls).look_for(ids))
    latest = whole(await Modifications(calls).latest(ids))
    pending: dict[str, list[EbsSnapshot]] = {}
    for snapshot in await Snapshots(calls).pending():
        pending.setdefault(snapshot.volume_id, []).append(snapshot)
    by_key = {claim.key: claim for claim in claims}
    now = datetime.now(UTC)
    return [
        Row(
            persistent_volume=each,
            volume_id=volume_id,
            claim=_claim(each, by_key),
            volume=volumes.get(volume_id),
            modification=latest.get(volume_id),
            allowance=_allowance(each, volume_id, latest.get(volume_id), now),
            pending=pending.get(volume_id, ()),
        )
        for each, volume_id in wanted
    ]


def _claim(persistent_volume: PersistentVolume, by_key: Mapping[str, Claim]) -> Claim | None:
    ref = persistent_volume.spec.claim_ref
    claim = by_key.get(f"{ref.namespace}/{ref.name}") if ref else None
    return claim if claim is not None and is_of(persistent_volume, claim) else None


def _allowance(
    persistent_volume: PersistentVolume,
    volume_id: str,
    latest: Modification | None,
    now: datetime,
) -> Allowance:
    ledger = Ledger.read(
        persistent_volume.annotations.get(MODIFICATIONS),
        persistent_volume_uid=persistent_volume.uid,
        volume_id=volume_id,
    )
    ledger = ledger.plausible(now)
    return Allowance(ledger.left(latest, now), ledger.more_at(latest, now))


def lines(seen: Sequence[Row]) -> Iterator[str]:
    """The table, line by line, sorted by claim; columns are as wide as their longest cell."""
    yield from table(HEADINGS, map(_cells, sorted(seen, key=_sort_key)))


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
        str(volume.state) if volume else "not in EC2",
        _modification(seen.modification),
        _allowance_cell(seen.allowance) if volume else NOTHING,
        _pending(seen.pending),
    )


def _claim_cell(seen: Row) -> str:
    ref = seen.persistent_volume.spec.claim_ref
    if ref is None:
        return NOTHING
    name = f"{ref.namespace}/{ref.name}"
    return name if seen.claim is not None else f"{name} (gone)"


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
        return str(allowance.left)
    # As the API server writes times, rounded up to the minute: rounding down would be too early.
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
