"""A reign: the time in which only our own controllers have led, as far back as that is proven.

What another controller (the stock driver) did is written nowhere: it may have attached a volume
that still carries our mark, and begun a volume for any claim that was there. What was made since
a reign began cannot have been touched by one.

Three clocks tell times here: EC2's of volumes, the API server's of claims, and the leaders' own.
So a reign is said to begin after whatever its first leader has found, by whichever clock.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from provisioner.model.attachment import Attachment
from provisioner.model.claim import Claim
from provisioner.model.persistent_volume import PROVISIONED_BY, PersistentVolume

# So far the clocks of two leaders may be apart.
_CLOCKS = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class Reign:
    """``began_at``: no other controller has led since; in whole seconds, as EC2 tells times."""

    began_at: datetime

    @classmethod
    def after(cls, times: Iterable[datetime], volumes: Iterable[datetime | None]) -> "Reign":
        """The one that begins after all of these times, and after these volumes were made."""
        later = (made_at + timedelta(seconds=1) for made_at in volumes if made_at is not None)
        return cls(max([*times, *later]).replace(microsecond=0))

    def covers(self, created_at: datetime | None) -> bool:
        """Whether a volume was made in it, so that no other controller can have attached it."""
        return created_at is not None and created_at >= self.began_at

    def may_predate(self, created_at: datetime | None) -> bool:
        """Whether a claim may have been there before, so that another controller saw it."""
        return created_at is None or created_at <= self.began_at

    def lasted_s(self, now: datetime) -> float:
        """For how many seconds it has certainly lasted."""
        return max(0.0, (now - self.began_at - _CLOCKS).total_seconds())


def left_nothing(
    volumes: Iterable[PersistentVolume],
    attachments: Iterable[Attachment],
    claims: Iterable[Claim],
    driver: str,
) -> bool:
    """Whether nothing in the cluster shows that any controller of EBS volumes has led before.

    A controller of ours notes the zone on a claim before EC2 hears of it.
    """
    return not (
        any(each.volume_id(driver) and PROVISIONED_BY in each.annotations for each in volumes)
        or any(each.spec.attacher == driver and each.attached for each in attachments)
        or any(each.pinned_zone or each.is_in_doubt for each in claims)
    )
