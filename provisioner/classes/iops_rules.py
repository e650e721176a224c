"""Decide how many IOPS a volume gets, when its class asks for more or fewer than EC2 allows.

As aws-ebs-csi-driver does: raised to the type's minimum if the class allows that, then lowered to
the region's ceiling, then to what the size allows. The stock driver lowers silently; here the
claim's user is told what was asked, what was given and which limit is the reason.
Source: aws-ebs-csi-driver v1.64 pkg/cloud/cloud.go ``capIOPS`` (read 2026-11-21).
"""

from dataclasses import dataclass

from provisioner.model.volume_type import VOLUME_TYPES

# No region has been seen with less: up to here EC2 need not be asked for the ceiling.
# Source: aws-ebs-csi-driver v1.64 (what it assumes when EC2 cannot be asked); io2 had 64,000 before
# Block Express (EBS user guide, read 2026-11-21).
EVERYWHERE = {"gp3": 16_000, "io1": 64_000, "io2": 64_000}


@dataclass(frozen=True, slots=True)
class Fitted:
    """IOPS as asked and as given. ``limit``: why fewer are given, "" when they are not fewer."""

    asked: int
    given: int
    limit: str = ""


def fit(
    volume_type: str,
    size_gib: int,
    asked: int,
    *,
    raises_to_minimum: bool,
    ceiling: int | None = None,
) -> Fitted:
    """The IOPS to ask EC2 for.

    What still fits no volume (too few and not to be raised, or too many for a size whose share is
    below the type's minimum) is given as it was asked: the type's own rules refuse it.

    Args:
        volume_type: a key of ``VOLUME_TYPES``.
        size_gib: the volume's size.
        asked: of the class, at the size.
        raises_to_minimum: the class allows more than it asks for.
        ceiling: what EC2 allows in the region; None: not known, or as many as one likes.
    """
    limits = VOLUME_TYPES[volume_type]
    if limits.iops is None:
        return Fitted(asked, asked)
    minimum, by_size = limits.iops[0], limits.iops_per_gib * size_gib
    given, limit = asked, ""
    if given < minimum and raises_to_minimum:
        given = minimum
    if ceiling is not None and given > ceiling:
        given = ceiling
        limit = f"EC2 allows volumes of type {volume_type} at most {ceiling} IOPS in this region"
    if minimum <= by_size < given:
        given = by_size
        limit = f"volumes of type {volume_type} have at most {limits.iops_per_gib} IOPS per GiB"
    return Fitted(asked, given, limit)


def depends_on_region(volume_type: str, iops: int | None) -> bool:
    """Whether so many IOPS may be above the ceiling of some region."""
    return iops is not None and iops > EVERYWHERE.get(volume_type, iops)


def raised_message(fitted: Fitted, volume_type: str) -> str | None:
    """What the claim's user is told of more IOPS than the class asks for; None without any.

    The stock driver raises them on every change, without a word.
    """
    if fitted.given <= fitted.asked:
        return None
    return (
        f"the class requests {fitted.asked} IOPS, but the volume gets {fitted.given}, the "
        f"minimum for type {volume_type}"
    )


def lowered_message(
    fitted: Fitted, volume_type: str, size_gib: int, *, has: int | None = None
) -> str | None:
    """What the claim's user is told; None when nothing was taken away.

    Args:
        fitted: what was planned.
        volume_type: of the volume.
        size_gib: of the volume.
        has: the IOPS that EC2 says the volume has, None if it does not. Another process may have
            made it before this one, with a ceiling that this one does not know.
    """
    given = fitted.given if has is None else has
    if given >= fitted.asked:
        return None
    limit = (
        fitted.limit
        if given == fitted.given
        else "an earlier process created it, and requested no more"
    )
    return (
        f"the class requests {fitted.asked} IOPS for the {volume_type} volume of {size_gib} GiB, "
        f"but it gets {given}: {limit}"
    )
