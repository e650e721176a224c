"""Broken rules of ``probes/preparing.py``."""

from tests.conformance.mutants.mutant import Mutant, off

MUTANTS = (
    Mutant(
        "fast-restore-pairs-fail-alone",
        "fast_restores.enable_fast_snapshot_restores",
        "refused.append(fast_restore_refusal(snapshot_id, zone.name, error))",
        "raise",
    ),
    Mutant(
        "fast-restore-not-enabled",
        "fast_restores.disable_fast_snapshot_restores",
        "if restore is None:",
        "if restore is None:\n            raise invalid('not enabled')\n        if False:",
    ),
    off("fast-restore-ten-snapshots", "fast_restores._asked", "len(snapshot_ids) > _MAX_SNAPSHOTS"),
    off("fast-restore-zones", "fast_restores._asked", "strangers"),
    Mutant(
        "lock-stops-deletion",
        "snapshots.delete_snapshot",
        "if record.lock is not None and",
        "if False and",
    ),
    Mutant(
        "lock-of-governance-ends", "snapshot_locks.unlock_snapshot", "record.lock = None", "pass"
    ),
    Mutant(
        "lock-of-pending",
        "snapshot_locks.lock_snapshot",
        "if record.lock is not None:",
        "if record.state == 'pending':\n        raise Ec2Error('IncorrectState', 'pending')\n    if record.lock is not None:",
    ),
    Mutant(
        "lock-shown",
        "snapshot_locks._locked",
        "if snapshot_record_of(each).lock is not None",
        "if False",
    ),
    Mutant(
        "lock-duration", "snapshot_locks._asked", "if days is not None and not", "if False and not"
    ),
    Mutant(
        "lock-ends-once",
        "snapshot_locks._asked",
        "if (days is None) == (expires_at is None):",
        "if days is None and expires_at is None:",
    ),
    off("lock-cooling-off", "snapshot_locks._asked", 'hours is not None and mode != "compliance"'),
    off("lock-modes", "snapshot_locks._asked", "mode not in _MODES"),
)
