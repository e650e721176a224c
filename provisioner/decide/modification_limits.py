"""When EC2 takes a modification, and what is said to who waits for it.

Source: EBS user guide "Modify a volume", "Limitations" (read 2026-11-21).
"""

from datetime import datetime, timedelta

from provisioner.decide.wanted_shape import Wanted, agrees
from provisioner.model.budget import MOST, Ledger
from provisioner.model.modification import Modification, Shape

# EC2 tells the latest modification for years. One as old as this is no news about what is wanted.
_OLD = timedelta(days=7)
_THEN = "wishes of size and class that come meanwhile are carried out with it, as one"


def not_before(
    ledger: Ledger, latest: Modification | None, now: datetime, limited_until: datetime | None
) -> tuple[datetime, str] | None:
    """Until when EC2 takes no other modification, and why; None when it would take one now.

    ``limited_until``: what it has said itself, which counts more than what we have counted.
    """
    if limited_until is not None and limited_until > now:
        why = "EC2 takes no other modification of the volume for now, as it says itself"
        return limited_until, _waits(limited_until, why)
    more_at = ledger.more_at(latest, now)
    if ledger.left(latest, now) or more_at is None:
        return None
    why = f"EC2 takes {MOST} modifications of a volume in 24 hours, and they are used up"
    return more_at, _waits(more_at, why)


def _waits(until: datetime, why: str) -> str:
    return f"it waits until {until:%Y-%m-%d %H:%M:%S} UTC: {why}; {_THEN}"


def running(latest: Modification) -> str:
    """What is said while a modification runs that is not the one that is wanted."""
    began = f", since {latest.started_at:%Y-%m-%d %H:%M:%S} UTC" if latest.started_at else ""
    return (
        f"a modification of the volume is under way{began}; EC2 takes the next one when that is "
        "completed, which can take hours"
    )


def has_failed_in(latest: Modification, has: Shape, wanted: Wanted, now: datetime) -> bool:
    """Whether a failed modification was for what is wanted now, not for something long forgotten.

    What came later may be wanted besides: its size is enough to know it by.
    """
    if latest.started_at is not None and now - latest.started_at > _OLD:
        return False
    is_its_size = latest.target.size_gib == wanted.size_gib > has.size_gib
    return is_its_size or agrees(latest.target, wanted)
