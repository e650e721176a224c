"""Which quotas of Service Quotas volumes count against, and how much of each is in use."""

from collections.abc import Mapping
from dataclasses import dataclass

from provisioner.inspect.doctor.evidence_rules import Quota
from provisioner.model.quota import GIB_PER_TIB, IOPS_CODES, STORAGE_CODES, InUse

TYPES = frozenset(STORAGE_CODES)


@dataclass(frozen=True, slots=True)
class Limit:
    """A quota: its name in Service Quotas, and its value in the quota's own unit."""

    name: str
    value: float


def codes_of(volume_type: str) -> frozenset[str]:
    """The quotas that volumes of a type count against."""
    return frozenset({STORAGE_CODES[volume_type], IOPS_CODES.get(volume_type, "")}) - {""}


def quotas(limits: Mapping[str, Limit], in_use: Mapping[str, InUse]) -> list[Quota]:
    """What is in use of each quota that is known; storage quotas are in TiB."""
    found = []
    for volume_type, used in in_use.items():
        amounts = (
            (STORAGE_CODES[volume_type], used.gib / GIB_PER_TIB, "TiB"),
            (IOPS_CODES.get(volume_type, ""), float(used.iops), "IOPS"),
        )
        for code, amount, unit in amounts:
            limit = limits.get(code)
            if limit is not None:
                found.append(Quota(code, limit.name, limit.value, amount, unit))
    return found
