"""The quotas that a CreateVolume can run into, by their names in Service Quotas.

Source: the Service Quotas catalogue of service ``ebs`` as public listings of it show it (read
2026-11-21); the text of a refusal as quoted in public reports: "You have exceeded your maximum gp3
storage limit of 50 TiB in this region."
"""

from dataclasses import dataclass

GIB_PER_TIB = 1024
_IOPS_CODE = "MaxIOPSLimitExceeded"

_FAMILY = {
    "gp2": "General Purpose SSD",
    "gp3": "General Purpose SSD",
    "io1": "Provisioned IOPS SSD",
    "io2": "Provisioned IOPS SSD",
    "st1": "Throughput Optimized HDD",
    "sc1": "Cold HDD",
    "standard": "Magnetic",
}
STORAGE_CODES = {
    "gp2": "L-D18FCD1D",
    "gp3": "L-7A658B76",
    "io1": "L-FD252861",
    "io2": "L-09BD8365",
    "st1": "L-82ACEF56",
    "sc1": "L-17AF77E8",
    "standard": "L-9CF3C2EB",
}
IOPS_CODES = {"io1": "L-B3A130E6", "io2": "L-8D977E7E"}
# "Snapshots per Region", 100,000 by default: EBS user guide "Quotas for Amazon EBS", and public
# listings of the catalogue for its code (read 2026-11-23).
SNAPSHOTS_CODE = "L-309BACF6"


@dataclass(frozen=True, slots=True)
class InUse:
    """What the volumes of one type in one region come to."""

    volumes: int
    gib: int
    iops: int


def name_of(code: str, text: str, volume_type: str) -> str | None:
    """The quota that a refusal is about, as Service Quotas lists it; None when it is none of these.

    Args:
        code: EC2's error code.
        text: EC2's text; ``VolumeLimitExceeded`` is about storage only if it says so.
        volume_type: of the requested volume.
    """
    kind = f"{_FAMILY.get(volume_type)} ({volume_type}) volumes"
    if code == _IOPS_CODE and volume_type in IOPS_CODES:
        return f"IOPS for {kind} ({IOPS_CODES[volume_type]})"
    if code == "VolumeLimitExceeded" and "storage" in text and volume_type in STORAGE_CODES:
        return f"Storage for {kind}, in TiB ({STORAGE_CODES[volume_type]})"
    return None


def sentence(code: str, text: str, volume_type: str, in_use: InUse | None) -> str:
    """What to add to EC2's refusal: the quota's name and what is in use; "" when neither is known.

    Args:
        code: EC2's error code.
        text: EC2's text.
        volume_type: of the requested volume.
        in_use: by all volumes of that type in the region; None: not counted yet.
    """
    name = name_of(code, text, volume_type)
    parts = [f"the quota is {name!r}"] if name else []
    if in_use is not None:
        of_type = f"{in_use.volumes} {volume_type} volumes of this account and region"
        iops = f" and {in_use.iops} IOPS" if code == _IOPS_CODE else ""
        parts.append(f"{of_type} use {_tib(in_use.gib)}{iops}")
    return ", ".join(parts)


def _tib(gib: int) -> str:
    return f"{gib / GIB_PER_TIB:.2f} TiB" if gib >= GIB_PER_TIB else f"{gib} GiB"
