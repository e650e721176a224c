"""CreateSnapshot, DeleteSnapshot and DescribeSnapshots.

Limits and their codes: EC2's error list (errors-overview), the EBS quotas and the AWS knowledge
centre, read 2026-11-22. CreateSnapshot has no client token: each call takes a snapshot.
"""

from typing import Any, Final

from provisioner.sandbox.strict_ec2 import motos
from provisioner.sandbox.strict_ec2.call import Call
from provisioner.sandbox.strict_ec2.errors import Ec2Error, dry_run, invalid
from provisioner.sandbox.strict_ec2.filters import TAG_FIELDS, Field, text_of
from provisioner.sandbox.strict_ec2.listing import Listing, list_page
from provisioner.sandbox.strict_ec2.records import find_volume, record_of
from provisioner.sandbox.strict_ec2.render import moment, reply
from provisioner.sandbox.strict_ec2.render import snapshot as render_snapshot
from provisioner.sandbox.strict_ec2.snapshot_records import (
    SnapshotRecord,
    find_snapshot,
    find_snapshots,
    public_snapshots,
    remove_snapshot,
    snapshot_record_of,
    unfinished,
)
from provisioner.sandbox.strict_ec2.tags import specified_tags

#: Of ``snapshot_limits``: at most so many pending per volume, so many pending and so many at all in
#: a region, and so many seconds between two of one volume.
LIMITS: Final = {
    "interval_s": 15.0,
    "pending_per_volume": 5.0,
    "pending": 100.0,
    "total": 100_000.0,
}
_ONE_AT_A_TIME: Final = ("st1", "sc1")
_FAILED: Final = "The snapshot could not be completed."


def create_snapshot(call: Call) -> str:
    """Take a snapshot: its point in time is now, it is complete later."""
    now_s = call.world.now_s()
    volume = find_volume(call.backend, call.params.required("VolumeId"), now_s)
    tags = specified_tags(call, "snapshot")
    record = record_of(volume)
    if record.state != "available":
        raise Ec2Error("IncorrectState", f"{volume.id} is not 'available' or 'in-use'.")
    outpost_arn = call.params.get("OutpostArn") or ""
    if outpost_arn not in ("", record.outpost_arn):
        raise invalid(f"Value ({outpost_arn}) for parameter outpostArn is invalid.")
    _check_limits(call, volume, now_s)
    if call.params.boolean("DryRun"):
        raise dry_run()
    record.snapshot_at_s = now_s
    snapshot = _make(call, volume, outpost_arn, now_s)
    call.world.disks.record("snapshot", snapshot.id, source_id=str(volume.id))
    if tags:
        call.backend.tags[snapshot.id].update(tags)
    content = render_snapshot(snapshot, progress="")
    _start(call, snapshot_record_of(snapshot))
    return reply("CreateSnapshot", content)


def _check_limits(call: Call, volume: Any, now_s: float) -> None:
    limits = LIMITS | call.world.settings.snapshot_limits
    last_s = record_of(volume).snapshot_at_s
    if last_s is not None and now_s < last_s + limits["interval_s"]:
        raise Ec2Error(
            "SnapshotCreationPerVolumeRateExceeded",
            "The maximum per volume CreateSnapshot request rate has been exceeded. "
            "Use an increasing or variable sleep interval between requests.",
        )
    pending = unfinished(call.backend)
    most = 1.0 if volume.volume_type in _ONE_AT_A_TIME else limits["pending_per_volume"]
    if sum(each.volume_id == volume.id for each in pending) >= most:
        raise Ec2Error(
            "ConcurrentSnapshotLimitExceeded",
            "Maximum allowed in-progress snapshots for a single volume exceeded.",
        )
    if len(pending) >= limits["pending"]:
        raise Ec2Error(
            "ConcurrentSnapshotLimitExceeded",
            "Maximum allowed in-progress snapshots for this account exceeded.",
        )
    if len(call.backend.snapshots) >= limits["total"]:
        raise Ec2Error(
            "SnapshotLimitExceeded",
            "The maximum number of EBS snapshots of this account has been reached.",
        )


def _make(call: Call, volume: Any, outpost_arn: str, now_s: float) -> Any:
    delays = call.world.settings.delays
    takes_s = _takes_s(call, volume)
    snapshot = motos.Snapshot(
        call.backend,
        motos.ec2_utils.random_snapshot_id(),
        volume,
        call.params.get("Description") or "",
        encrypted=volume.encrypted,
        kms_key_id=volume.kms_key_id if volume.encrypted else None,
    )
    snapshot.strict = SnapshotRecord(
        volume_id=str(volume.id),
        size_gib=int(volume.size),
        state="pending",
        begun_s=now_s,
        completed_from_s=now_s + takes_s,
        visible_at_s=now_s + delays.visible_after_s,
        outpost_arn=outpost_arn,
    )
    snapshot.start_time = call.world.moment()
    call.backend.snapshots[snapshot.id] = snapshot
    unfinished(call.backend).append(snapshot.strict)
    return snapshot


def _takes_s(call: Call, volume: Any) -> float:
    """How long it takes: only what has changed since the last one is copied.

    Source: EBS user guide "How Amazon EBS snapshots work", read 2026-11-24.
    """
    delays = call.world.settings.delays
    known = [snapshot_record_of(each) for each in call.backend.snapshots.values()]
    saves = any(e.volume_id == volume.id and e.state == "completed" for e in known)
    return max(0.0, delays.snapshot_s - (delays.snapshot_saves_s if saves else 0.0))


def _start(call: Call, record: SnapshotRecord) -> None:
    """Let a pending snapshot become complete, or fail."""
    settings = call.world.settings
    fails = settings.failing_snapshots > 0
    settings.failing_snapshots -= fails

    def finish() -> None:
        record.state = "error" if fails else "completed"
        record.message = _FAILED if fails else ""

    call.world.after(record.completed_from_s - record.begun_s, finish)


def delete_snapshot(call: Call) -> str:
    """Delete a snapshot, pending ones too; not one that is locked or in use."""
    snapshot_id = call.params.required("SnapshotId")
    snapshot = find_snapshot(call.backend, snapshot_id, call.world.now_s())
    record = snapshot_record_of(snapshot)
    if record.lock is not None and record.lock.state_at(call.world.moment()) != "expired":
        raise Ec2Error(
            "SnapshotLocked", f"The snapshot '{snapshot_id}' is locked and cannot be deleted."
        )
    _check_unused(call, snapshot)
    if call.params.boolean("DryRun"):
        raise dry_run()
    remove_snapshot(snapshot)
    call.world.disks.record("deleted", snapshot_id)
    return reply("DeleteSnapshot", "<return>true</return>")


def _check_unused(call: Call, snapshot: Any) -> None:
    settings = call.world.settings
    user = snapshot.from_ami if snapshot.from_ami in call.backend.amis else None
    if user is None and snapshot.id in settings.snapshots_in_use:
        user = "ami-00000000000000000"
    if user is not None:
        raise Ec2Error(
            "InvalidSnapshot.InUse", f"The snapshot {snapshot.id} is currently in use by {user}"
        )


def describe_snapshots(call: Call) -> str:
    """Answer with the snapshots that are named, belong to the owners and match every filter."""
    page, more = list_page(call, _LISTING)
    now_s = call.world.now_s()
    items = "".join(
        f"<item>{render_snapshot(each, snapshot_record_of(each).progress(now_s))}</item>"
        for each in page
    )
    return reply("DescribeSnapshots", f"<snapshotSet>{items}</snapshotSet>{more}")


def _everything(call: Call) -> list[Any]:
    now_s = call.world.now_s()
    every = (*call.backend.snapshots.values(), *public_snapshots(call.backend))
    return _owned(call, [s for s in every if snapshot_record_of(s).visible_at_s <= now_s])


def _owned(call: Call, snapshots: list[Any]) -> list[Any]:
    """Return the snapshots of the owners that are named; of everybody when none is."""
    owners = {
        str(call.backend.account_id) if each == "self" else each
        for each in call.params.values("Owner")
    }
    return [each for each in snapshots if not owners or str(each.owner_id) in owners]


_FIELDS: Final[dict[str, Field]] = {
    **TAG_FIELDS,
    "description": lambda s: [s.description or ""],
    "encrypted": lambda s: [text_of(bool(s.encrypted))],
    "owner-id": lambda s: [text_of(s.owner_id)],
    "snapshot-id": lambda s: [s.id],
    "start-time": lambda s: [moment(s.start_time)],
    "status": lambda s: [snapshot_record_of(s).state],
    "storage-tier": lambda s: [s.storage_tier],
    "volume-id": lambda s: [snapshot_record_of(s).volume_id],
    "volume-size": lambda s: [text_of(snapshot_record_of(s).size_gib)],
}
_LISTING: Final = Listing(
    ids="SnapshotId",
    id_set="snapshotSet",
    fields=_FIELDS,
    by_id=lambda call, ids: _owned(call, find_snapshots(call.backend, ids, call.world.now_s())),
    find=lambda call, snapshot_id: call.backend.snapshots.get(snapshot_id),
    everything=_everything,
    key_of=lambda snapshot: str(snapshot.id),
)
