"""A reign: the time in which only our own controllers have led, as far back as that is proven.

What another controller (the stock driver) did is written nowhere: it may have attached a volume
that still carries our mark, and begun a volume for any claim that was there. What was made since
a reign began cannot have been touched by one.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

# So far the clocks of the nodes and of the API server may be apart.
_CLOCKS = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class Reign:
    """``began_at``: no other controller has led since; in whole seconds, as EC2 tells times."""

    began_at: datetime

    def covers(self, created_at: datetime | None) -> bool:
        """Whether a volume was made in it, so that no other controller can have attached it.

        Without a margin: whoever attaches a volume that was made before has to take the leases
        first, and ours to take them back, which is more than clocks are apart.
        """
        return created_at is not None and created_at >= self.began_at

    def may_predate(self, created_at: datetime | None) -> bool:
        """Whether a claim may have been there before, so that another controller saw it."""
        return created_at is None or created_at <= self.began_at + _CLOCKS

    def lasted_s(self, now: datetime) -> float:
        """For how many seconds it has certainly lasted."""
        return max(0.0, (now - self.began_at - _CLOCKS).total_seconds())
