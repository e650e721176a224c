"""Fast snapshot restore and locks of snapshots.

Fast restore costs 0.75 USD an hour and zone, so probes send only what must be refused; a lock in
compliance mode cannot be taken back, so none is made.
"""

from typing import Any

from provisioner.conformance.lab import Lab
from provisioner.conformance.probe import CannotRunError, Confirmed, Finding, RefusedError, Refuted
from provisioner.conformance.probes.asking import (
    accepted,
    all_held,
    cheap,
    held,
    outcome,
    refused,
    zone_id,
)
from provisioner.conformance.probes.sources import (
    FAST_RESTORE,
    MODEL,
    assumed,
    observed,
    rests,
    row,
)

_FAST = rests(
    "A snapshot class that asks for fast restores would be reported as done, or never.",
    "controller/snapshotting/preparing.py",
    "ec2/snapshots.py",
)
_LOCK = rests(
    "A snapshot class that asks for a lock would be reported as done, or never.",
    "controller/snapshotting/preparing.py",
    "ec2/snapshots.py",
)
_LOCKED = rests(
    "A locked snapshot would be deleted again and again, without a clear event.",
    "ec2/error_codes.py",
    "controller/snapshotting/flow.py",
)
_COST = "Fast snapshot restore costs 0.75 USD an hour and zone, an hour at least."
_BAD = ("InvalidParameterValue", "InvalidParameterCombination")


async def _pairs_fail_alone(lab: Lab) -> Finding:
    gone = lab.missing_id("snapshot")
    try:
        reply = await lab.call(
            "enable_fast_snapshot_restores", SourceSnapshotIds=[gone], AvailabilityZones=[lab.zone]
        )
    except RefusedError as no:
        return Refuted(f"EnableFastSnapshotRestores of a missing snapshot was refused with {no}.")
    failed = [each.get("SnapshotId") for each in reply.get("Unsuccessful", [])]
    codes = [
        state.get("Error", {}).get("Code")
        for each in reply.get("Unsuccessful", [])
        for state in each.get("FastSnapshotRestoreStateErrors", [])
    ]
    is_so = failed == [gone] and codes == ["InvalidSnapshot.NotFound"]
    seen = f"EnableFastSnapshotRestores of a missing snapshot: accepted, with {codes} for the pair."
    return held(is_so and not reply.get("Successful"), seen)


async def _not_enabled(lab: Lab) -> Finding:
    gone = lab.missing_id("snapshot")
    try:
        reply = await lab.call(
            "disable_fast_snapshot_restores", SourceSnapshotIds=[gone], AvailabilityZones=[lab.zone]
        )
    except RefusedError as no:
        return Refuted(f"DisableFastSnapshotRestores was refused with {no}.")
    failed = [each.get("SnapshotId") for each in reply.get("Unsuccessful", [])]
    seen = f"DisableFastSnapshotRestores of what is not enabled: {len(failed)} pairs unsuccessful."
    return held(failed == [gone], seen)


async def _ten_snapshots(lab: Lab) -> Finding:
    ids = [lab.missing_id("snapshot") for _ in range(11)]
    codes = ("InvalidRequest", "InvalidParameterValue")
    operation, zones = "enable_fast_snapshot_restores", [lab.zone]
    return all_held(
        await accepted(lab, operation, SourceSnapshotIds=ids[:10], AvailabilityZones=zones),
        await refused(lab, codes, operation, SourceSnapshotIds=ids, AvailabilityZones=zones),
        await refused(lab, "MissingParameter", operation, AvailabilityZones=zones),
    )


async def _fast_zones(lab: Lab) -> Finding:
    asked: dict[str, Any] = {"SourceSnapshotIds": [lab.missing_id("snapshot")]}
    operation = "enable_fast_snapshot_restores"
    wrong = [f"{lab.region}z"]
    return all_held(
        await refused(lab, ("MissingParameter", *_BAD), operation, **asked),
        await refused(
            lab, (*_BAD, "InvalidZone.NotFound"), operation, **asked, AvailabilityZones=wrong
        ),
        await refused(
            lab,
            _BAD,
            operation,
            **asked,
            AvailabilityZones=[lab.zone],
            AvailabilityZoneIds=[await zone_id(lab)],
        ),
    )


async def _lock(lab: Lab, snapshot_id: str, **changes: Any) -> dict[str, Any]:
    asked = {"SnapshotId": snapshot_id, "LockMode": "governance", "LockDuration": 1, **changes}
    return await lab.call("lock_snapshot", **asked)


async def _locked_stays(lab: Lab) -> Finding:
    """The code is documented nowhere: what counts is that the product recognizes it."""
    snapshot_id = await lab.snapshot(await lab.volume())
    await _lock(lab, snapshot_id)
    answer = await outcome(lab, "delete_snapshot", SnapshotId=snapshot_id)
    if answer is None:
        return Refuted("A snapshot that is locked was deleted.")
    await lab.call("unlock_snapshot", SnapshotId=snapshot_id)
    known = "lock" in answer.code.lower() or "is locked" in answer.message.lower()
    return held(known, f"DeleteSnapshot of a locked snapshot: {answer}")


async def _unlocked_goes(lab: Lab) -> Finding:
    snapshot_id = await lab.snapshot(await lab.volume())
    reply = await _lock(lab, snapshot_id)
    await lab.call("unlock_snapshot", SnapshotId=snapshot_id)
    answer = await outcome(lab, "delete_snapshot", SnapshotId=snapshot_id)
    seen = f"LockSnapshot answered {reply.get('LockState')}; unlocked, it was deleted: {answer}."
    return held(reply.get("LockState") == "governance" and answer is None, seen)


async def _locks_pending(lab: Lab) -> Finding:
    volume_id = await lab.volume()
    snapshot_id = str((await lab.call("create_snapshot", VolumeId=volume_id))["SnapshotId"])
    try:
        await _lock(lab, snapshot_id)
    except RefusedError as no:
        return Refuted(f"LockSnapshot of a pending snapshot was refused with {no}.")
    found = await lab.call("describe_snapshots", SnapshotIds=[snapshot_id])
    await lab.call("unlock_snapshot", SnapshotId=snapshot_id)
    if found["Snapshots"][0]["State"] != "pending":
        raise CannotRunError("the snapshot was completed at once")
    return Confirmed("A pending snapshot was locked.")


async def _lock_shown(lab: Lab) -> Finding:
    snapshot_id = await lab.snapshot(await lab.volume())
    none = await lab.call("describe_locked_snapshots", SnapshotIds=[snapshot_id])
    await _lock(lab, snapshot_id)
    found = await lab.call("describe_locked_snapshots", SnapshotIds=[snapshot_id])
    await lab.call("unlock_snapshot", SnapshotId=snapshot_id)
    states = [each.get("LockState") for each in found.get("Snapshots", [])]
    before = len(none.get("Snapshots", []))
    return held(
        states == ["governance"] and not before,
        f"DescribeLockedSnapshots: {before} before LockSnapshot, then {states}.",
    )


async def _lock_bounds(lab: Lab) -> Finding:
    snapshot_id = await lab.snapshot(await lab.volume())
    asked = {"SnapshotId": snapshot_id, "LockMode": "governance"}
    return all_held(
        await refused(lab, _BAD, "lock_snapshot", **asked, LockDuration=0),
        await refused(lab, _BAD, "lock_snapshot", **asked, LockDuration=36_501),
        await refused(lab, _BAD, "lock_snapshot", **asked, ExpirationDate="2020-01-01T00:00:00Z"),
    )


async def _lock_end(lab: Lab) -> Finding:
    snapshot_id = await lab.snapshot(await lab.volume())
    asked = {"SnapshotId": snapshot_id, "LockMode": "governance"}
    codes = (*_BAD, "MissingParameter")
    date = "2099-01-01T00:00:00Z"
    return all_held(
        await refused(lab, codes, "lock_snapshot", **asked),
        await refused(lab, codes, "lock_snapshot", **asked, LockDuration=1, ExpirationDate=date),
    )


async def _lock_cool_off(lab: Lab) -> Finding:
    snapshot_id = await lab.snapshot(await lab.volume())
    asked = {"SnapshotId": snapshot_id, "LockMode": "governance", "LockDuration": 1}
    return await refused(lab, _BAD, "lock_snapshot", **asked, CoolOffPeriod=1)


async def _lock_mode(lab: Lab) -> Finding:
    snapshot_id = await lab.snapshot(await lab.volume())
    asked = {"SnapshotId": snapshot_id, "LockMode": "always", "LockDuration": 1}
    return await refused(lab, _BAD, "lock_snapshot", **asked)


_LOCK_ONLY = ("CreateVolume", "CreateSnapshot", "LockSnapshot")
_UNLOCK = (*_LOCK_ONLY, "UnlockSnapshot")
_ACTIONS = (*_UNLOCK, "DeleteSnapshot")
RULES = (
    row(
        "fast-restore-pairs-fail-alone",
        "EnableFastSnapshotRestores succeeds as a call, and says in the reply for which pairs of "
        "snapshot and zone it failed (InvalidSnapshot.NotFound).",
        MODEL.at("EnableFastSnapshotRestores Unsuccessful; the code is assumed"),
        _FAST,
        cheap(_pairs_fail_alone, "EnableFastSnapshotRestores"),
    ),
    row(
        "fast-restore-not-enabled",
        "DisableFastSnapshotRestores of what is not enabled succeeds as a call, and is "
        "unsuccessful for the pair.",
        MODEL.at("DisableFastSnapshotRestores Unsuccessful"),
        rests("Nothing: the product does not disable them.", "ec2/snapshots.py"),
        cheap(_not_enabled, "DisableFastSnapshotRestores"),
    ),
    row(
        "fast-restore-ten-snapshots",
        "EnableFastSnapshotRestores names up to 10 snapshots; more are refused with InvalidRequest "
        "or InvalidParameterValue, none with MissingParameter.",
        observed("pingcap/tidb #48505"),
        rests("Nothing: the product names one.", "ec2/snapshots.py"),
        cheap(_ten_snapshots, "EnableFastSnapshotRestores"),
    ),
    row(
        "fast-restore-zones",
        "EnableFastSnapshotRestores without a zone, with one that does not exist, or with names "
        "and ids, is refused (MissingParameter, InvalidParameterValue or "
        "InvalidParameterCombination).",
        assumed("texts quoted in public issues"),
        _FAST,
        cheap(_fast_zones, "EnableFastSnapshotRestores", "DescribeAvailabilityZones"),
    ),
    row(
        "fast-restore-states",
        "Fast restores are enabling, optimizing for 60 minutes per TiB, then enabled.",
        FAST_RESTORE,
        _FAST,
        _COST,
    ),
    row(
        "fast-restore-quota",
        "Five snapshots of a Region have fast restores; one more is unsuccessful, with a code that "
        "nobody quotes (here FastSnapshotRestoreLimitExceeded).",
        FAST_RESTORE.at("quota; an older copy says 50; the code is ours"),
        _FAST,
        _COST,
    ),
    row(
        "lock-stops-deletion",
        "DeleteSnapshot of a locked snapshot is refused, with a code about a lock or 'is locked' "
        "(here SnapshotLocked).",
        MODEL.at("LockSnapshot; the code is documented nowhere"),
        _LOCKED,
        cheap(_locked_stays, *_ACTIONS, volumes=1, snapshots=1, seconds=120),
    ),
    row(
        "lock-of-governance-ends",
        "A lock in governance mode can be taken back, and the snapshot then deleted.",
        MODEL.at("UnlockSnapshot"),
        _LOCKED,
        cheap(_unlocked_goes, *_ACTIONS, volumes=1, snapshots=1, seconds=120),
    ),
    row(
        "lock-of-pending",
        "A pending snapshot can be locked.",
        MODEL.at("LockSnapshot: pending or complete"),
        _LOCK,
        cheap(_locks_pending, *_UNLOCK, volumes=1, snapshots=1),
    ),
    row(
        "lock-shown",
        "DescribeLockedSnapshots shows the snapshots that have a lock.",
        MODEL.at("DescribeLockedSnapshots"),
        _LOCK,
        cheap(
            _lock_shown,
            *_UNLOCK,
            "DescribeLockedSnapshots",
            volumes=1,
            snapshots=1,
            seconds=120,
        ),
    ),
    row(
        "lock-duration",
        "A lock is for 1 to 36,500 days, and its end is not past (InvalidParameterValue or "
        "InvalidParameterCombination).",
        MODEL.at(
            "LockSnapshot LockDuration; that the end is checked is assumed; the code is assumed"
        ),
        rests("A class would be refused too late.", "controller/snapshotting/class_rules.py"),
        cheap(_lock_bounds, *_LOCK_ONLY, volumes=1, snapshots=1, seconds=120),
    ),
    row(
        "lock-ends-once",
        "A lock has a duration or an end, not both and not neither (InvalidParameterCombination).",
        MODEL.at("LockSnapshot: one of the two; the code is assumed"),
        rests("A class would be refused too late.", "controller/snapshotting/class_rules.py"),
        cheap(_lock_end, *_LOCK_ONLY, volumes=1, snapshots=1, seconds=120),
    ),
    row(
        "lock-cooling-off",
        "A cooling-off period is for compliance mode only (InvalidParameterCombination).",
        MODEL.at("LockSnapshot CoolOffPeriod; the code is assumed"),
        rests("A class would be refused too late.", "controller/snapshotting/class_rules.py"),
        cheap(_lock_cool_off, *_LOCK_ONLY, volumes=1, snapshots=1, seconds=120),
    ),
    row(
        "lock-cooling-off-hours",
        "A cooling-off period is 1 to 72 hours (InvalidParameterValue).",
        MODEL.at("LockSnapshot CoolOffPeriod; the code is assumed"),
        rests("A class would be refused too late.", "controller/snapshotting/class_rules.py"),
        "If EC2 accepted it, the snapshot would be locked in compliance mode.",
    ),
    row(
        "lock-modes",
        "A lock is in governance or compliance mode (InvalidParameterValue).",
        MODEL.at("LockSnapshot LockMode; the code is assumed"),
        rests("A class would be refused too late.", "controller/snapshotting/class_rules.py"),
        cheap(_lock_mode, *_LOCK_ONLY, volumes=1, snapshots=1, seconds=120),
    ),
    row(
        "lock-of-compliance",
        "A lock in compliance mode is only extended once it has cooled off "
        "(OperationNotPermitted).",
        MODEL.at("LockSnapshot; the code is assumed"),
        _LOCKED,
        "Nobody could delete the snapshot for a day, and nobody else's money is ours to spend.",
    ),
)
