"""What happened to a claim and its volume, put in order by time."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from provisioner.inspect.reading.kind_rules import Event
from provisioner.inspect.reading.time_rules import deleted_at
from provisioner.model.attachment import Attachment
from provisioner.model.budget import Ledger
from provisioner.model.ebs_snapshot import EbsSnapshot
from provisioner.model.meta import KubeObject
from provisioner.model.modification import Modification, Shape
from provisioner.model.names import MODIFICATIONS
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.volume import Volume

HEADINGS = ("TIME", "FROM", "WHAT")


class DatedCondition(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """One of a claim's ``status.conditions``, with its time."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None


class DatedSpec(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """``spec`` of a claim: which PersistentVolume it has."""

    volume_name: str = ""


class DatedStatus(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """``status`` of a claim."""

    phase: str = ""
    conditions: list[DatedCondition] | None = None


class DatedClaim(KubeObject, frozen=True, rename="camel", gc=False, kw_only=True):
    """A claim, cut down to what tells times."""

    spec: DatedSpec = DatedSpec()
    status: DatedStatus | None = None


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened.

    Attributes:
        at: when.
        source: which object, or EC2, tells it.
        what: for people.
    """

    at: datetime
    source: str
    what: str


def in_order(moments: Iterable[Moment]) -> list[Moment]:
    """The oldest first; the same thing told twice at one time once."""
    return sorted(set(moments), key=lambda each: (each.at, each.source, each.what))


def of_claim(claim: DatedClaim) -> Iterator[Moment]:
    """Its creation, its conditions, its deletion."""
    source = "claim"
    yield from _at(claim.metadata.creation_timestamp, source, "created")
    for each in (claim.status.conditions if claim.status else None) or ():
        why = ": ".join(part for part in (each.reason, each.message) if part)
        what = f"condition {each.type} is {each.status}{f' ({why})' if why else ''}"
        yield from _at(each.last_transition_time, source, what)
    yield from _at(deleted_at(claim), source, "deletion requested")


def of_persistent_volume(persistent_volume: PersistentVolume, volume_id: str) -> Iterator[Moment]:
    """Its creation and deletion, and the modifications that the controller has noted on it."""
    source = f"persistentvolume {persistent_volume.name}"
    yield from _at(
        persistent_volume.metadata.creation_timestamp, source, f"created for {volume_id}"
    )
    ledger = Ledger.read(
        persistent_volume.annotations.get(MODIFICATIONS),
        persistent_volume_uid=persistent_volume.uid,
        volume_id=volume_id,
    )
    for each in ledger.starts:
        yield Moment(each.at, source, f"modification sent: {each.asked or 'unknown'}")
    deleted = deleted_at(persistent_volume)
    yield from _at(deleted, source, "deletion requested")


def of_events(events: Iterable[Event]) -> Iterator[Moment]:
    """When each was first seen, and last, if more than once."""
    for each in events:
        times = f" ({each.times} times)" if each.times > 1 else ""
        what = f"{each.type} {each.reason}: {each.message}"
        first = each.first_timestamp or each.event_time or each.metadata.creation_timestamp
        source = f"event of {each.component}" if each.component else "event"
        yield from _at(first, source, what)
        if each.times > 1 and each.last_at != first:
            yield from _at(each.last_at, source, f"again{times}: {each.reason}")


def of_attachments(attachments: Iterable[Attachment]) -> Iterator[Moment]:
    """When nodes were to get the volume, or to lose it. Only attachments that exist now show."""
    for each in attachments:
        source, node = f"volumeattachment {each.name}", each.spec.node_name
        yield from _at(each.metadata.creation_timestamp, source, f"attach to {node} requested")
        deleted = deleted_at(each)
        yield from _at(deleted, source, f"detach from {node} requested")


def of_volume(volume: Volume) -> Iterator[Moment]:
    """Its creation."""
    made = f" from {volume.made_from}" if volume.made_from else ""
    what = f"{volume.volume_id} created in {volume.zone}{made}"
    yield from _at(volume.created_at, "EC2", what)


def of_modification(modification: Modification) -> Iterator[Moment]:
    """The latest one; EC2 shows no earlier ones in this call."""
    before = _shape(modification.original) if modification.original else "?"
    what = f"modification {modification.state}: {before} to {_shape(modification.target)}"
    yield from _at(modification.started_at, "EC2", what)


def of_snapshots(snapshots: Iterable[EbsSnapshot]) -> Iterator[Moment]:
    """When each was taken."""
    for each in snapshots:
        what = f"snapshot {each.snapshot_id} taken, {each.state} {each.progress_percent}%"
        yield from _at(each.started_at, "EC2", what)


def _shape(shape: Shape) -> str:
    parts = (
        *(f"{shape.size_gib} GiB", shape.volume_type),
        f"{shape.iops} IOPS" if shape.iops is not None else "",
        f"{shape.throughput_mibps} MiB/s" if shape.throughput_mibps is not None else "",
    )
    return ", ".join(part for part in parts if part)


def _at(moment: datetime | None, source: str, what: str) -> Iterator[Moment]:
    if moment is not None:
        yield Moment(moment.astimezone(UTC), source, what)


def cells(moment: Moment) -> tuple[str, ...]:
    """One row of the table."""
    return f"{moment.at:%Y-%m-%dT%H:%M:%SZ}", moment.source, moment.what
