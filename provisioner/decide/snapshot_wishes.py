"""What a class asks of a snapshot once it is taken, as it is kept on its content.

A class can be deleted or changed between CreateSnapshot and the lock. So what it asked for then is
written to the content together with the word that EC2 is about to be asked, in one request.
"""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta

from provisioner.decide import snapshot_class
from provisioner.decide.snapshot_class import SnapshotParameters
from provisioner.decide.snapshot_progress import is_done
from provisioner.model.errors import StorageError
from provisioner.model.volume_snapshot import VolumeSnapshotClass, VolumeSnapshotContent

# On a content. The value is a JSON object of the class's parameters on fast restores and the lock.
WISHES = "ebs-provisioner.io/snapshot-wishes"
# Source: EC2 API LockSnapshot (read 2026-11-22): from a day to 36,500 days ahead.
_LOCK_AHEAD = (timedelta(days=1), timedelta(days=36_500))
_PREFIXES = ("lock", "fastsnapshot")


def annotations(read_class: VolumeSnapshotClass | None) -> dict[str, str]:
    """What is written to a content whose snapshot is taken by this class."""
    given = (read_class.parameters if read_class else None) or {}
    kept = {name: text for name, text in given.items() if name.lower().startswith(_PREFIXES)}
    return {WISHES: json.dumps(kept, sort_keys=True)} if kept else {}


def read(content: VolumeSnapshotContent) -> SnapshotParameters | None:
    """What was asked for when its snapshot was begun; None if nothing, or nothing is known."""
    try:
        given = json.loads(content.annotations.get(WISHES, "{}"))
        parameters = snapshot_class.parse(given) if isinstance(given, Mapping) else None
    except (ValueError, AttributeError, TypeError):  # somebody else has written it
        return None
    return None if is_done(parameters) else parameters


def unknown(error: StorageError) -> StorageError:
    """The same, with what follows from it."""
    message = (
        f"{error.message}; whether the snapshot should be locked or made fast cannot be told, so "
        "that is not done"
    )
    return StorageError(error.reason, message, retry_after_s=error.retry_after_s)


def untimely_lock(parameters: SnapshotParameters, now: datetime) -> str | None:
    """Why EC2 will refuse the lock at this time, in one sentence; None if it need not."""
    at = parameters.lock.expires_at if parameters.lock else None
    least, most = _LOCK_AHEAD
    if at is None or least <= at - now <= most:
        return None
    return (
        f"lockExpirationDate is {at.isoformat()}, and EC2 locks until a time that is from 1 to "
        f"{most.days} days ahead; lockDuration counts from each snapshot"
    )
