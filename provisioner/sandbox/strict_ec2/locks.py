"""The lock of a snapshot: its mode, its cooling-off period, its end."""

from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock as LockSnapshot made it; moments are EC2's."""

    mode: str
    created_at: datetime
    expires_at: datetime
    duration_days: int
    cool_off_hours: int | None = None

    @property
    def cool_off_until(self) -> datetime | None:
        """The end of the cooling-off period."""
        if self.cool_off_hours is None:
            return None
        return self.created_at + timedelta(hours=self.cool_off_hours)

    def state_at(self, now: datetime) -> str:
        """Return the lock's state as EC2 words it."""
        if now >= self.expires_at:
            return "expired"
        until = self.cool_off_until
        return "compliance-cooloff" if until is not None and now < until else self.mode
