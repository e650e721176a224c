"""What EBS volume types can have: sizes, IOPS and throughput, checked before EC2 is asked.

Least values and ratios refuse. Greatest values do not: AWS raises them, so EC2 is asked; what it
allows in the region is found out by ``provisioner.ec2.ceilings``.

Source: EC2 API model CreateVolume (botocore 1.44.5) and the EBS user guide's volume type pages,
read 2026-11-21. Not verified on AWS: whether every region already has gp3's newer maxima.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one volume type. Sizes in GiB, throughput in MiB/s; None: cannot be chosen."""

    size_gib: tuple[int, int]
    iops: tuple[int, int] | None = None
    iops_per_gib: int = 0
    iops_required: bool = False
    iops_default: int = 0
    throughput_mibps: tuple[int, int] | None = None
    iops_per_mibps: int = 0  # so many IOPS for each MiB/s


VOLUME_TYPES: dict[str, Limits] = {
    "gp3": Limits(
        size_gib=(1, 65_536),
        iops=(3_000, 80_000),
        iops_per_gib=500,
        iops_default=3_000,
        throughput_mibps=(125, 2_000),
        iops_per_mibps=4,
    ),
    "gp2": Limits(size_gib=(1, 16_384)),
    "io1": Limits(size_gib=(4, 16_384), iops=(100, 64_000), iops_per_gib=50, iops_required=True),
    "io2": Limits(
        size_gib=(4, 65_536), iops=(100, 256_000), iops_per_gib=1_000, iops_required=True
    ),
    "st1": Limits(size_gib=(125, 16_384)),
    "sc1": Limits(size_gib=(125, 16_384)),
    "standard": Limits(size_gib=(1, 1_024)),
}
# Those that several instances can have at once; io1 in some regions only, and which ones EC2 knows.
# Source: EBS user guide "Multi-Attach", read 2026-11-21.
MULTI_ATTACH_TYPES = ("io2", "io1")
# EC2 reads sizes, IOPS and throughput as 32 bit numbers with a sign.
LARGEST_NUMBER = 2**31 - 1
DEFAULT_TYPE = "gp3"  # EC2's own default is gp2; aws-ebs-csi-driver sends gp3
# The most GiB and MiB/s before they were raised in 2025, which Regions, zones and Outposts may have
# yet: aws-ebs-csi-driver v1.64 falls back to the IOPS of that time. Not verified on AWS.
_BEFORE = {"gp3": (16_384, 1_000)}
# What a volume gets that is modified to another type with IOPS and names none. Source: EC2 API
# model ModifyVolume (botocore 1.44.5).
IOPS_OF_MODIFIED = 3_000


def is_beyond(
    volume_type: str, size_gib: int, iops: int | None, throughput_mibps: int | None
) -> bool:
    """Whether more is asked for than every Region has, so that only EC2 knows whether there is it.

    ``volume_type`` is a key of ``VOLUME_TYPES``. IOPS count from the documented maximum on: what a
    class asks for is lowered to the Region's before.
    """
    limits = VOLUME_TYPES[volume_type]
    size, throughput = _BEFORE.get(
        volume_type, (limits.size_gib[1], (limits.throughput_mibps or (0, 0))[1])
    )
    asked = (
        (size_gib, size),
        (iops, limits.iops[1] if limits.iops else 0),
        (throughput_mibps, throughput),
    )
    return any(value and most and value > most for value, most in asked)


def fault(
    volume_type: str, size_gib: int, iops: int | None, throughput_mibps: int | None
) -> str | None:
    """Say what a new volume of a type cannot have, in one sentence; None when it can.

    ``volume_type`` is a key of ``VOLUME_TYPES``.
    """
    limits = VOLUME_TYPES[volume_type]
    hint = "; allowAutoIOPSPerGBIncrease raises them"
    wrong = _shape_fault(volume_type, size_gib, iops, throughput_mibps, hint=hint)
    if wrong is None and iops is None and limits.iops_required:
        return f"{_a(volume_type)} volume needs the parameter iops or iopsPerGB"
    return wrong


def modified_fault(
    volume_type: str,
    size_gib: int,
    iops: int | None,
    throughput_mibps: int | None,
    *,
    is_other_type: bool,
) -> str | None:
    """Say what a volume cannot be modified to, in one sentence; None when it can.

    ``volume_type`` is a key of ``VOLUME_TYPES``; without ``iops`` EC2 keeps those of the type that
    the volume has, and chooses those of another one.
    """
    limits = VOLUME_TYPES[volume_type]
    wrong = _shape_fault(volume_type, size_gib, iops, throughput_mibps)
    if wrong is not None or iops is not None or not is_other_type or limits.iops is None:
        return wrong
    wrong = _iops_fault(volume_type, limits, size_gib, IOPS_OF_MODIFIED)
    if wrong is None:
        return None
    return f"{wrong}, which EC2 chooses if none are set; set iops or iopsPerGB"


def _shape_fault(
    volume_type: str,
    size_gib: int,
    iops: int | None,
    throughput_mibps: int | None,
    *,
    hint: str = "",
) -> str | None:
    """``hint``: what helps where there are too few IOPS."""
    limits = VOLUME_TYPES[volume_type]
    return (
        _size_fault(volume_type, limits, size_gib)
        or _iops_fault(volume_type, limits, size_gib, iops, hint=hint)
        or _throughput_fault(volume_type, limits, iops, throughput_mibps)
    )


def _a(volume_type: str) -> str:
    """A type with the article that it is spoken with: an io1, an st1, a gp3."""
    vowel = volume_type.startswith(("io", "sc", "st1"))
    return f"{'an' if vowel else 'a'} {volume_type}"


def _size_fault(volume_type: str, limits: Limits, size_gib: int) -> str | None:
    low, high = limits.size_gib
    if low <= size_gib <= LARGEST_NUMBER:
        return None
    return f"{_a(volume_type)} volume has {low} to {high} GiB, not {size_gib}"


def _iops_fault(
    volume_type: str, limits: Limits, size_gib: int, iops: int | None, *, hint: str = ""
) -> str | None:
    if iops is None:
        return None
    if limits.iops is None:
        return f"iops cannot be set for {_a(volume_type)} volume"
    low, _ = limits.iops
    if iops < low:
        return f"{_a(volume_type)} volume has at least {low} IOPS, not {iops}{hint}"
    # gp3 has its 3,000 IOPS at every size; only what is above them counts by size.
    if iops > limits.iops_per_gib * size_gib and iops > limits.iops_default:
        most = max(limits.iops_per_gib * size_gib, limits.iops_default)
        return (
            f"{_a(volume_type)} volume of {size_gib} GiB has at most {most} IOPS "
            f"({limits.iops_per_gib} for each GiB), not {iops}"
        )
    return None


def _throughput_fault(
    volume_type: str, limits: Limits, iops: int | None, throughput_mibps: int | None
) -> str | None:
    if throughput_mibps is None:
        return None
    if limits.throughput_mibps is None:
        return f"throughput can only be set for a gp3 volume, not for {volume_type}"
    low, _ = limits.throughput_mibps
    if throughput_mibps < low:
        return f"{_a(volume_type)} volume has at least {low} MiB/s, not {throughput_mibps}"
    has = iops or limits.iops_default
    if throughput_mibps * limits.iops_per_mibps > has:
        return (
            f"{throughput_mibps} MiB/s need {throughput_mibps * limits.iops_per_mibps} IOPS "
            f"({limits.iops_per_mibps} for each MiB/s), the volume has {has}"
        )
    return None
