"""What a volume may be, by type; the numbers that EC2 holds CreateVolume to.

Source: botocore 1.44.5's EC2 model (CreateVolume) and aws-ebs-csi-driver v1.64.0; the texts of the
IOPS and throughput refusals are quoted there, those about sizes are our wording.
"""

from dataclasses import dataclass
from typing import Final

from provisioner.sandbox.strict_ec2.errors import Ec2Error, combination, invalid


@dataclass(frozen=True, slots=True)
class TypeLimits:
    """Bounds of one volume type; sizes in GiB, throughput in MiB/s."""

    min_gib: int
    max_gib: int
    min_iops: int = 0
    max_iops: int = 0
    max_iops_per_gib: int = 0
    iops_required: bool = False
    multi_attach: bool = False


TYPES: Final = {
    "gp2": TypeLimits(1, 16384),
    "gp3": TypeLimits(1, 65536, 3000, 80000, 500),
    "io1": TypeLimits(4, 16384, 100, 64000, 50, iops_required=True, multi_attach=True),
    "io2": TypeLimits(4, 65536, 100, 256000, 1000, iops_required=True, multi_attach=True),
    "st1": TypeLimits(125, 16384),
    "sc1": TypeLimits(125, 16384),
    "standard": TypeLimits(1, 1024),
}
GP3_MIN_THROUGHPUT: Final = 125
GP3_MAX_THROUGHPUT: Final = 2000
GP3_MAX_THROUGHPUT_PER_IOPS: Final = 0.25
_IO2_TOO_MUCH: Final = (
    "io2 volumes configured with greater than 64 TiB or 256K IOPS or 1000:1 IOPS:GB ratio "
    "are not supported."
)


def check_type(volume_type: str) -> TypeLimits:
    """Return the limits of a type.

    Raises: ``UnknownVolumeType``.
    """
    limits = TYPES.get(volume_type)
    if limits is None:
        raise Ec2Error("UnknownVolumeType", f"The volume type '{volume_type}' is not supported.")
    return limits


def check_size(volume_type: str, size_gib: int) -> None:
    """Refuse a size that the type cannot have.

    Raises: ``InvalidParameterValue``.
    """
    limits = TYPES[volume_type]
    what = f"Volume of {size_gib}GiB is too"
    if size_gib < limits.min_gib:
        raise invalid(
            f"{what} small for volume type {volume_type}; minimum is {limits.min_gib}GiB."
        )
    if size_gib > limits.max_gib:
        raise invalid(
            f"{what} large for volume type {volume_type}; maximum is {limits.max_gib}GiB."
        )


def check_iops(
    volume_type: str, size_gib: int, iops: int | None, ceiling: int | None = None
) -> None:
    """Refuse IOPS that the type or the size cannot have.

    ``ceiling``: of a region whose maximum is another one.

    Raises: ``InvalidParameterCombination``, ``InvalidParameterValue``.
    """
    limits = TYPES[volume_type]
    if iops is None:
        if limits.iops_required:
            raise combination(f"The parameter iops must be specified for {volume_type} volumes.")
        return
    if limits.max_iops == 0:
        raise combination(f"The parameter iops is not supported for {volume_type} volumes.")
    most = limits.max_iops if ceiling is None else ceiling
    if iops > most:
        # io2's text depends on the zone (aws-ebs-csi-driver #2781).
        if volume_type == "io2" and ceiling is None:
            raise combination(_IO2_TOO_MUCH)
        raise invalid(f"Volume iops of {iops} is too high; maximum is {most}")
    if iops < limits.min_iops:
        raise invalid(f"Volume iops of {iops} is too low; minimum is {limits.min_iops}")
    # gp3 has its first 3,000 IOPS at any size.
    if iops > max(limits.min_iops, limits.max_iops_per_gib * size_gib):
        if volume_type == "io2":
            raise combination(_IO2_TOO_MUCH)
        raise invalid(
            f"Iops to volume size ratio of {iops / size_gib:.6f} is too high; "
            f"maximum is {limits.max_iops_per_gib}"
        )


def check_throughput(volume_type: str, iops: int | None, throughput: int | None) -> None:
    """Refuse a throughput that the type or its IOPS cannot have.

    Raises: ``InvalidParameterCombination``, ``InvalidParameterValue``.
    """
    if throughput is None:
        return
    if volume_type != "gp3":
        raise combination("throughput can only be specified for volumeType gp3.")
    what = f"Volume throughput of {throughput} is too"
    if throughput > GP3_MAX_THROUGHPUT:
        raise invalid(f"{what} high; maximum is {GP3_MAX_THROUGHPUT}")
    if throughput < GP3_MIN_THROUGHPUT:
        raise invalid(f"{what} low; minimum is {GP3_MIN_THROUGHPUT}")
    ratio = throughput / (iops or TYPES["gp3"].min_iops)
    if ratio > GP3_MAX_THROUGHPUT_PER_IOPS:
        raise invalid(
            f"Throughput (MiBps) to iops ratio of {ratio:.6f} is too high; "
            f"maximum is {GP3_MAX_THROUGHPUT_PER_IOPS:.6f} MiBps per iops"
        )


def default_iops(volume_type: str, size_gib: int) -> int | None:
    """Return the IOPS that EC2 reports when none were asked for; None for types without."""
    match volume_type:
        case "gp3":
            return 3000
        case "gp2":
            return min(max(100, 3 * size_gib), 16000)
        case _:
            return None
