"""Decide the shape that a volume is to have, and the request that brings it there.

Source: EC2 API ModifyVolume, also for what a change of type leaves, and EBS user guide "Modify a
volume" (read 2026-11-21); aws-ebs-csi-driver v1.64 pkg/cloud/cloud.go ``ResizeOrModifyDisk`` for
IOPS that follow the size, and are raised to the type's least on every change.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from provisioner.classes.iops_rules import Fitted, fit
from provisioner.classes.volume_attributes_class_rules import Attributes
from provisioner.model.modification import ModifyRequest, Shape
from provisioner.model.names import IOPS_FOLLOW_GROWTH, IOPS_PER_GIB
from provisioner.model.volume_type import DEFAULT_TYPE, VOLUME_TYPES, modified_fault

_GP2 = "gp2"
# gp2 has up to 250 MiB/s where it has more than gp3's least IOPS: EBS user guide "General purpose
# SSD volumes" (read 2026-11-21).
_GP2_THROUGHPUT_MIBPS = 250


@dataclass(frozen=True, slots=True)
class TargetShape:
    """The shape that a volume is to have; IOPS and throughput are None where EC2 decides.

    ``fitted``: the IOPS that are requested, and what is given of them; None where none are.
    """

    size_gib: int
    volume_type: str
    iops: int | None
    throughput_mibps: int | None
    fitted: Fitted | None = None


def target_shape(
    has: Shape,
    has_tags: Mapping[str, str],
    *,
    size_gib: int | None,
    attributes: Attributes | None,
    current: Attributes | None = None,
    before: Shape | None = None,
    ceiling: int | None = None,
) -> TargetShape:
    """The shape that fulfils a request; a volume never shrinks.

    Args:
        has: what the volume is.
        has_tags: of the volume; they say whether its IOPS follow its size.
        size_gib: the size that is requested, None for whatever it has.
        attributes: what its class asks for, None for nothing.
        current: what the class asks for that the volume has already, None for none.
        before: what the volume was before its latest modification, None if that is not known.
        ceiling: the most IOPS that EC2 gives the type in the region, None if that is not known.
    """
    asks = attributes or Attributes()
    size = max(has.size_gib, size_gib or 0)
    volume_type = asks.volume_type or has.volume_type
    asked = _asked_iops(asks, size)
    fitted = None
    if asked is not None and volume_type in VOLUME_TYPES:
        fitted = fit(volume_type, size, asked, raises_to_minimum=True, ceiling=ceiling)
    elif asked is None and volume_type == has.volume_type and size > has.size_gib:
        later = _following(asks, has_tags, size)
        if current is not None and current.iops is not None:  # tags may be of a class before it
            later = current.iops if _is_lowered(has, before, current) else None
        fitted = _raised(has, size, later, ceiling)
    iops = fitted.given if fitted is not None else asked
    throughput = asks.throughput_mibps
    if iops is None and (kept := _kept_of_gp2(has, volume_type)) is not None:
        iops, throughput = kept, throughput or _GP2_THROUGHPUT_MIBPS
    return TargetShape(size, volume_type, iops, throughput, fitted)


def _kept_of_gp2(has: Shape, volume_type: str) -> int | None:
    """The IOPS of a gp2 volume that becomes gp3, if gp3 has fewer from the start."""
    if has.volume_type != _GP2 or volume_type != DEFAULT_TYPE:
        return None
    # One page says that EC2 keeps what gp2 had only if neither is given; another says 3,000.
    had, least = has.iops or 0, VOLUME_TYPES[DEFAULT_TYPE].iops_default
    return had if had > least else None


def _asked_iops(asks: Attributes, size_gib: int) -> int | None:
    if asks.iops is None and asks.iops_per_gib is not None:
        return asks.iops_per_gib * size_gib
    return asks.iops


def _following(asks: Attributes, has_tags: Mapping[str, str], size_gib: int) -> int | None:
    """The IOPS of a volume of this size, if its tags say that they follow its size."""
    per_gib = has_tags.get(IOPS_PER_GIB, "")
    follows = asks.iops_follow_growth
    if follows is None:
        follows = has_tags.get(IOPS_FOLLOW_GROWTH) == "true"
    return int(per_gib) * size_gib if follows and per_gib.isdecimal() else None


def _is_lowered(has: Shape, before: Shape | None, current: Attributes) -> bool:
    """Whether it has as many IOPS as its size allows, because its class asks for more.

    Or as its size before the latest growth allowed, which EC2 may have refused more IOPS.
    """
    limits = VOLUME_TYPES.get(has.volume_type)
    if limits is None or current.volume_type not in (None, has.volume_type):
        return False
    sizes_gib = {has.size_gib, before.size_gib if before is not None else has.size_gib}
    return has.iops in {limits.iops_per_gib * size_gib for size_gib in sizes_gib}


def _raised(has: Shape, size_gib: int, asked: int | None, ceiling: int | None) -> Fitted | None:
    """More IOPS because of a larger size; None if that gives none, or EC2 would refuse them.

    Tags stay longer than what they were written for: the volume may have another type by now, and
    the IOPS of a later class.
    """
    limits = VOLUME_TYPES.get(has.volume_type)
    if not asked or limits is None or limits.iops is None:
        return None
    fitted = fit(has.volume_type, size_gib, asked, raises_to_minimum=True, ceiling=ceiling)
    given = fitted.given
    is_more = given > max(has.iops or 0, limits.iops[0])
    wrong = modified_fault(has.volume_type, size_gib, given, None, is_other_type=False)
    return fitted if is_more and wrong is None else None


def fault_of(target: TargetShape, has: Shape) -> str | None:
    """Why no volume can have this shape, in one sentence; None if EC2 has to be asked."""
    if target.volume_type not in VOLUME_TYPES:
        return None
    stays = target.volume_type == has.volume_type
    limits = VOLUME_TYPES[target.volume_type]
    iops, throughput = target.iops, target.throughput_mibps
    if stays and limits.iops is not None:
        iops = iops or has.iops
    if stays and limits.throughput_mibps is not None:
        throughput = throughput or has.throughput_mibps
    return modified_fault(
        target.volume_type, target.size_gib, iops, throughput, is_other_type=not stays
    )


def agrees(has: Shape, target: TargetShape) -> bool:
    """Whether a volume of this shape needs no change."""
    return difference("", has, target) is None


def difference(volume_id: str, has: Shape, target: TargetShape) -> ModifyRequest | None:
    """The request to EC2; None if nothing changes, because EC2 counts that call too."""
    changes_type = target.volume_type != has.volume_type

    def changed(asked: int | None, present: int | None) -> int | None:
        return asked if asked is not None and (changes_type or asked != present) else None

    request = ModifyRequest(
        volume_id=volume_id,
        size_gib=target.size_gib if target.size_gib > has.size_gib else None,
        volume_type=target.volume_type if changes_type else None,
        iops=changed(target.iops, has.iops),
        throughput_mibps=changed(target.throughput_mibps, has.throughput_mibps),
    )
    return None if request == ModifyRequest(volume_id, None, None, None, None) else request
