"""LockSnapshot, UnlockSnapshot and DescribeLockedSnapshots.

Rules: EC2 API model (botocore 1.44.5). Nobody quotes the codes of refusals that come of a lock:
they are ours.
"""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from provisioner.sandbox.strict_ec2.call import Call
from provisioner.sandbox.strict_ec2.errors import Ec2Error, combination, dry_run, invalid
from provisioner.sandbox.strict_ec2.listing import Listing, list_page
from provisioner.sandbox.strict_ec2.locks import Lock
from provisioner.sandbox.strict_ec2.render import lock as render_lock
from provisioner.sandbox.strict_ec2.render import reply
from provisioner.sandbox.strict_ec2.snapshot_records import (
    find_snapshot,
    find_snapshots,
    snapshot_record_of,
)

_MODES: Final = ("compliance", "governance")
_MAX_DAYS: Final = 36_500
_MAX_COOL_OFF_HOURS: Final = 72
_DAY: Final = timedelta(days=1)


def lock_snapshot(call: Call) -> str:
    """Lock a snapshot, pending ones too, or change its lock as far as that may be changed."""
    snapshot_id = call.params.required("SnapshotId")
    mode = call.params.required("LockMode")
    snapshot = find_snapshot(call.backend, snapshot_id, call.world.now_s())
    record, now = snapshot_record_of(snapshot), call.world.moment()
    lock = _asked(call, mode, now)
    if record.lock is not None:
        _check_change(record.lock, lock, now)
    if call.params.boolean("DryRun"):
        raise dry_run()
    record.lock = lock
    return reply("LockSnapshot", render_lock(snapshot_id, lock, now))


def _asked(call: Call, mode: str, now: datetime) -> Lock:
    if mode not in _MODES:
        raise invalid(f"Value ({mode}) for parameter lockMode is invalid.")
    hours = call.params.integer("CoolOffPeriod")
    if hours is not None and mode != "compliance":
        raise combination("CoolOffPeriod can only be specified in compliance mode.")
    if hours is not None and not 1 <= hours <= _MAX_COOL_OFF_HOURS:
        raise invalid(f"CoolOffPeriod must be between 1 and {_MAX_COOL_OFF_HOURS} hours.")
    days, expires_at = call.params.integer("LockDuration"), _expiration(call)
    if (days is None) == (expires_at is None):
        raise combination("Specify either LockDuration or ExpirationDate, but not both.")
    if days is not None and not 1 <= days <= _MAX_DAYS:
        raise invalid(f"LockDuration must be between 1 and {_MAX_DAYS} days.")
    if expires_at is not None and expires_at < now + _DAY:
        raise invalid("ExpirationDate must be at least one day in the future.")
    end = now + timedelta(days=days or 0) if expires_at is None else expires_at
    return Lock(mode, now, end, days or (end - now).days, hours)


def _expiration(call: Call) -> datetime | None:
    text = call.params.get("ExpirationDate")
    if text is None:
        return None
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        raise invalid(f"Value ({text}) for parameter expirationDate is invalid.") from None
    return read if read.tzinfo is not None else read.replace(tzinfo=UTC)


def _check_change(old: Lock, new: Lock, now: datetime) -> None:
    """Refuse to loosen a lock in compliance mode once it has cooled off."""
    if old.state_at(now) != "compliance":
        return
    if (
        new.mode != "compliance"
        or new.cool_off_hours is not None
        or new.expires_at < old.expires_at
    ):
        raise Ec2Error(
            "OperationNotPermitted",
            "The lock of a snapshot in compliance mode can only be extended.",
        )


def unlock_snapshot(call: Call) -> str:
    """Unlock a snapshot in governance mode, or in the cooling-off period of compliance mode."""
    snapshot_id = call.params.required("SnapshotId")
    snapshot = find_snapshot(call.backend, snapshot_id, call.world.now_s())
    record = snapshot_record_of(snapshot)
    state = "expired" if record.lock is None else record.lock.state_at(call.world.moment())
    if state == "compliance":
        raise Ec2Error("OperationNotPermitted", "A snapshot in compliance mode cannot be unlocked.")
    if call.params.boolean("DryRun"):
        raise dry_run()
    record.lock = None
    return reply("UnlockSnapshot", f"<snapshotId>{snapshot_id}</snapshotId>")


def describe_locked_snapshots(call: Call) -> str:
    """Answer with the locks of the snapshots that have one, expired ones too."""
    now = call.world.moment()

    def state_of(snapshot: Any) -> list[str]:
        lock = snapshot_record_of(snapshot).lock
        return [] if lock is None else [lock.state_at(now)]

    page, more = list_page(call, replace(_LISTING, fields={"lock-state": state_of}))
    items = "".join(
        f"<item>{render_lock(each.id, lock, now)}<ownerId>{each.owner_id}</ownerId></item>"
        for each in page
        if (lock := snapshot_record_of(each).lock) is not None
    )
    return reply("DescribeLockedSnapshots", f"<snapshotSet>{items}</snapshotSet>{more}")


def _locked(snapshots: list[Any]) -> list[Any]:
    return [each for each in snapshots if snapshot_record_of(each).lock is not None]


_LISTING: Final = Listing(
    ids="SnapshotId",
    id_set="snapshotSet",
    fields={},
    by_id=lambda call, ids: _locked(find_snapshots(call.backend, ids, call.world.now_s())),
    find=lambda call, snapshot_id: call.backend.snapshots.get(snapshot_id),
    everything=lambda call: _locked(list(call.backend.snapshots.values())),
    key_of=lambda snapshot: str(snapshot.id),
)
