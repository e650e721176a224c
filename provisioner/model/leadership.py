"""The leadership epoch: since when, as far as can be proven, only our controllers have led.

Another controller (the stock driver) leaves no record of what it did: it may have attached a volume
that still has our tag ``unclaimed``, and started a volume for any claim that existed. It cannot
have touched anything that was created since the epoch began.

Three clocks are compared here: EC2's for volumes, the API server's for claims, and those of the
leaders. So an epoch begins after everything that its first leader has found, by any of them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from provisioner.model.attachment import Attachment
from provisioner.model.claim import Claim
from provisioner.model.persistent_volume import PROVISIONED_BY, PersistentVolume, sanitised

# The clocks of two leaders may differ by this much.
_CLOCKS = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class Epoch:
    """``began_at``: no other controller has led since; in whole seconds, as EC2 gives times."""

    began_at: datetime

    @classmethod
    def after(cls, times: Iterable[datetime], volumes: Iterable[datetime | None]) -> "Epoch":
        """The epoch that begins after these times, and after these volumes were created."""
        later = (made_at + timedelta(seconds=1) for made_at in volumes if made_at is not None)
        return cls(max([*times, *later]).replace(microsecond=0))

    def covers(self, created_at: datetime | None) -> bool:
        """Whether a volume was created in it, so that no other controller can have attached it."""
        return created_at is not None and created_at >= self.began_at

    def may_predate(self, created_at: datetime | None) -> bool:
        """Whether a claim may be older, so that another controller may have seen it."""
        return created_at is None or created_at <= self.began_at

    def lasted_s(self, now: datetime) -> float:
        """How many seconds it has lasted at least."""
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


def lease_names(driver: str) -> tuple[str, ...]:
    """The leases of the stock driver's four sidecars, in the order in which they are taken."""
    name = sanitised(driver)
    return (
        name,
        f"external-attacher-leader-{name}",
        f"external-resizer-{name}",
        f"external-snapshotter-leader-{name}",
    )
