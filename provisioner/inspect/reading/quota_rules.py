"""EBS's quotas in Service Quotas, and how much of each is in use."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from provisioner.model.quota import (
    GIB_PER_TIB,
    IOPS_CODES,
    SNAPSHOTS_CODE,
    STORAGE_CODES,
    InUse,
)

SNAPSHOTS = "snapshots"


@dataclass(frozen=True, slots=True)
class Limit:
    """A quota: its name in Service Quotas, and its value in the quota's own unit."""

    name: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """Snapshots that were seen; ``is_all``: whether there are no more."""

    number: int
    is_all: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaUse:
    """One quota, and what counts against it.

    Attributes:
        of: the volume type, or ``SNAPSHOTS``.
        what: "storage", "IOPS" or "number".
        code: of Service Quotas, such as "L-7A658B76".
        name: as Service Quotas lists it; "" if that is not known.
        number: of volumes, or of snapshots.
        unit: of ``used`` and ``limit``: "TiB", "IOPS" or "snapshots".
        limit: None if it is not known.
        is_least: whether there may be more than was counted.
    """

    of: str
    what: str
    code: str
    number: int
    used: float
    unit: str
    name: str = ""
    limit: float | None = None
    is_least: bool = False

    @property
    def percent(self) -> float | None:
        """Of the quota; None if it is not known, or nothing is allowed."""
        return 100 * self.used / self.limit if self.limit else None


def uses(
    in_use: Mapping[str, InUse], limits: Mapping[str, Limit], snapshots: Counted | None = None
) -> list[QuotaUse]:
    """All quotas of what was counted, those nearest to their end first.

    Args:
        in_use: by volume type.
        limits: the quotas by their codes; without those that could not be read.
        snapshots: None if they were not counted.
    """
    found: list[QuotaUse] = []
    for kind, used in in_use.items():
        code, count = STORAGE_CODES[kind], used.volumes
        tib = used.gib / GIB_PER_TIB
        found.append(
            QuotaUse(of=kind, what="storage", code=code, number=count, used=tib, unit="TiB")
        )
        if code := IOPS_CODES.get(kind, ""):
            iops = float(used.iops)
            found.append(
                QuotaUse(of=kind, what="IOPS", code=code, number=count, used=iops, unit="IOPS")
            )
    if snapshots is not None:
        found.append(
            QuotaUse(
                of=SNAPSHOTS,
                what="number",
                code=SNAPSHOTS_CODE,
                number=snapshots.number,
                used=float(snapshots.number),
                unit=SNAPSHOTS,
                is_least=not snapshots.is_all,
            )
        )
    found = [_limited(each, limits.get(each.code)) for each in found]
    return sorted(found, key=lambda each: (-(each.percent or 0.0), each.of, each.what))


def _limited(use: QuotaUse, limit: Limit | None) -> QuotaUse:
    return replace(use, name=limit.name, limit=limit.value) if limit is not None else use
