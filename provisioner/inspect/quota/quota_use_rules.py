"""What the volumes of each type come to, beside the quota that limits them."""

from collections.abc import Mapping
from dataclasses import dataclass

from provisioner.model.quota import GIB_PER_TIB, IOPS_CODES, STORAGE_CODES, InUse

HEADINGS = ("TYPE", "QUOTA", "CODE", "VOLUMES", "USED", "LIMIT", "USED%")
NO_LIMIT = "?"


@dataclass(frozen=True, slots=True)
class Limited:
    """One quota.

    Attributes:
        volume_type: whose volumes count.
        what: "storage" or "IOPS".
        code: of Service Quotas.
        unit: of ``used`` and ``limit``: "TiB" or "IOPS".
        limit: None if it is not known.
    """

    volume_type: str
    what: str
    code: str
    volumes: int
    used: float
    unit: str
    limit: float | None

    @property
    def percent(self) -> float | None:
        """Of the quota; None if it is not known, or nothing is allowed."""
        return 100 * self.used / self.limit if self.limit else None


def limited(in_use: Mapping[str, InUse], limits: Mapping[str, float]) -> list[Limited]:
    """All quotas of the types that were counted, those nearest to their end first.

    Args:
        in_use: by volume type.
        limits: the quotas' values by their codes; without those that could not be read.
    """
    found = []
    for volume_type, used in in_use.items():
        code = STORAGE_CODES[volume_type]
        tib = used.gib / GIB_PER_TIB
        found.append(
            Limited(volume_type, "storage", code, used.volumes, tib, "TiB", limits.get(code))
        )
        if code := IOPS_CODES.get(volume_type, ""):
            iops = float(used.iops)
            found.append(
                Limited(volume_type, "IOPS", code, used.volumes, iops, "IOPS", limits.get(code))
            )
    return sorted(found, key=lambda each: (-(each.percent or 0.0), each.volume_type, each.what))


def cells(of: Limited) -> tuple[str, ...]:
    """One row of the table."""
    digits = 2 if of.unit == "TiB" else 0
    return (
        of.volume_type,
        of.what,
        of.code,
        str(of.volumes),
        f"{of.used:,.{digits}f} {of.unit}",
        NO_LIMIT if of.limit is None else f"{of.limit:,.0f} {of.unit}",
        NO_LIMIT if of.percent is None else f"{of.percent:.0f}%",
    )
