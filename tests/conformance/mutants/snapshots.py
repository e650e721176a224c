"""Broken rules of ``probes/snapshots.py``."""

from tests.conformance.mutants.mutant import Mutant, off

MUTANTS = (
    Mutant("snapshot-answers-pending", "snapshots._make", 'state="pending"', 'state="completed"'),
    Mutant(
        "snapshot-interval", "snapshots._check_limits", "if last_s is not None and", "if False and"
    ),
    Mutant(
        "snapshot-interval-ends",
        "snapshots._check_limits",
        'last_s + limits["interval_s"]',
        "last_s + 60",
    ),
    Mutant("snapshot-five-pending", "snapshots._check_limits", ">= most:", ">= 2 * most:"),
    Mutant(
        "snapshot-one-pending",
        "snapshots._check_limits",
        "1.0 if volume.volume_type in _ONE_AT_A_TIME else ",
        "",
    ),
    off("snapshot-while-creating", "snapshots.create_snapshot", 'record.state != "available"'),
    off("snapshot-tags", "snapshots.create_snapshot", "tags"),
    Mutant("snapshot-keeps-its-size", "render.snapshot", "{record.size_gib}", "{item.volume.size}"),
    Mutant(
        "snapshot-outlives-its-volume",
        "volumes._remove",
        "remove_volume(volume)",
        "[call.backend.snapshots.pop(k) for k, s in list(call.backend.snapshots.items()) if s.volume is volume]; remove_volume(volume)",
    ),
    Mutant(
        "snapshot-deleted-is-not-found",
        "snapshots.delete_snapshot",
        "remove_snapshot(snapshot)",
        "pass",
    ),
    Mutant(
        "snapshot-deleted-while-pending",
        "snapshots.delete_snapshot",
        "_check_unused(call, snapshot)",
        "if record.state == 'pending':\n        raise Ec2Error('IncorrectState', 'pending')",
    ),
    Mutant(
        "snapshot-missing-named",
        "snapshot_records.find_snapshots",
        "raise snapshots_not_found(absent)",
        "raise snapshots_not_found(snapshot_ids)",
    ),
    Mutant(
        "snapshots-of-others",
        "snapshots._owned",
        "if not owners or str(each.owner_id) in owners",
        "if True",
    ),
    off("restore-not-smaller", "specs._size_gib", "size_gib is not None and size_gib < least_gib"),
    Mutant(
        "restore-default-size",
        "specs._size_gib",
        "return least_gib if size_gib is None",
        "return least_gib - 1 if size_gib is None",
    ),
    off("restore-of-pending", "snapshot_records.check_restorable", 'state != "completed"'),
    Mutant(
        "restore-of-missing",
        "errors.snapshots_not_found",
        '"InvalidSnapshot.NotFound"',
        '"InvalidSnapshot"',
    ),
    Mutant(
        "restore-shows-its-snapshot",
        "volumes.create_volume",
        "None if snapshot is None else snapshot.id",
        "None",
    ),
    Mutant(
        "restore-stays-encrypted",
        "encryption.encryption_of",
        "inherited = source is not None and bool(source.encrypted)",
        "inherited = False",
    ),
    Mutant(
        "restore-rate-bounds",
        "initialization._check_rate",
        "<= rate <= MAX_RATE_MIBPS:",
        "<= rate <= 1000:",
    ),
    Mutant(
        "restore-shows-its-initialization",
        "statuses._status",
        "if initialization is not None:\n        running",
        "if False:\n        running",
    ),
    Mutant(
        "snapshot-of-missing",
        "snapshots.create_snapshot",
        'volume = find_volume(call.backend, call.params.required("VolumeId"), now_s)',
        "volume = call.backend.volumes.get(call.params.required('VolumeId'))\n    if volume is None:\n        raise Ec2Error('InvalidVolumeID.NotFound', 'gone')",
    ),
    Mutant(
        "snapshot-malformed-id",
        "params.check_id",
        "raise Ec2Error(_MALFORMED[prefix],",
        "raise Ec2Error(_MALFORMED['vol-'],",
    ),
    Mutant(
        "snapshot-has-no-token",
        "snapshots.create_snapshot",
        "record.snapshot_at_s = now_s",
        "for each in call.backend.snapshots.values():\n        return reply('CreateSnapshot', render_snapshot(each, progress=''))\n    record.snapshot_at_s = now_s",
    ),
)
