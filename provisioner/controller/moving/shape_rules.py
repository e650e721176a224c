"""Decide what the volume of a moved claim is to be, and what of it differs from the one it has."""

from provisioner.classes import storage_class_rules
from provisioner.classes.storage_class_rules import ReadClass
from provisioner.controller.moving.facts_rules import Facts
from provisioner.controller.provisioning import plan_rules
from provisioner.model.decision import Refuse
from provisioner.model.errors import Reason
from provisioner.model.meta import ObjectMeta
from provisioner.model.quantity import parse_bytes
from provisioner.model.storage_class import StorageClass
from provisioner.model.volume import GIB, CreateRequest, Volume
from provisioner.model.volume_move import Shape
from provisioner.model.volume_type import VOLUME_TYPES

# Of these types, CreateVolume takes IOPS; of the others EC2 derives them from the size.
_IOPS_TYPES = frozenset({"gp3", "io1", "io2"})
_THROUGHPUT_TYPES = frozenset({"gp3"})


def no(message: str) -> Refuse:
    """The refusal of a plan; the message is one sentence."""
    return Refuse(Reason.NOT_SUPPORTED, message, settled=True)


def plain_class(name: str, driver: str) -> ReadClass:
    """A class of which only the name counts, because it is gone or says nothing new."""
    meta = ObjectMeta(name=name)
    return storage_class_rules.read(StorageClass(metadata=meta, provisioner=driver))


def shape_of(volume: Volume, class_name: str) -> Shape:
    """What a volume is now."""
    return Shape(
        zone=volume.zone,
        size_gib=volume.size_gib,
        volume_type=volume.volume_type,
        iops=volume.iops,
        throughput_mibps=volume.throughput_mibps,
        encrypted=volume.encrypted,
        kms_key_id=volume.kms_key_id,
        storage_class_name=class_name,
    )


def target_of(facts: Facts, volume: Volume, read_class: ReadClass) -> Shape | Refuse:
    """What the volume is to be, or why it cannot."""
    to, wanted = facts.move.spec.to, read_class.parameters
    size_gib = _size_gib(to.size, volume)
    if isinstance(size_gib, Refuse):
        return size_gib
    volume_type, iops = volume.volume_type, volume.iops
    throughput = volume.throughput_mibps
    key, encrypted = volume.kms_key_id if volume.encrypted else None, volume.encrypted
    if to.storage_class_name:
        volume_type, throughput = wanted.volume_type, wanted.throughput_mibps
        fitted = plan_rules.fitted_iops(wanted, size_gib, facts.iops_ceiling)
        iops = fitted.given if fitted is not None else None
        key, encrypted = wanted.kms_key_id or key, encrypted or bool(wanted.encrypted)
    if to.kms_key_id:
        key = _key(to.kms_key_id)
        encrypted = True
        if key is None:
            what = f"kmsKeyId {to.kms_key_id!r}"
            return no(f"{what} is neither an ARN, nor alias/NAME, nor a key id")
    if to.encrypted is False and (encrypted or volume.encrypted):
        return no(
            f"volume {volume.volume_id} is encrypted or is to be: EBS cannot decrypt a volume; "
            "leave encrypted out"
        )
    return Shape(
        zone=to.zone or volume.zone,
        size_gib=size_gib,
        volume_type=volume_type,
        iops=iops if volume_type in _IOPS_TYPES else None,
        throughput_mibps=throughput if volume_type in _THROUGHPUT_TYPES else None,
        encrypted=encrypted or bool(to.encrypted),
        kms_key_id=key,
        storage_class_name=facts.class_name,
    )


def unlike(before: Shape, target: Shape) -> str | None:
    """How a volume is not as a class and a move ask, as a sentence; None if it is.

    Where they ask for nothing, EC2's defaults are asked for.
    """
    limits = VOLUME_TYPES[target.volume_type]
    iops = target.iops or limits.iops_default or None
    least = limits.throughput_mibps[0] if limits.throughput_mibps else None
    throughput = target.throughput_mibps or least
    wrong = None
    if before.zone != target.zone:
        wrong = f"is in zone {before.zone} instead of {target.zone}"
    elif before.volume_type != target.volume_type:
        wrong = f"is of type {before.volume_type} instead of {target.volume_type}"
    elif before.size_gib != target.size_gib:
        wrong = f"has {before.size_gib} GiB instead of {target.size_gib} GiB"
    elif iops is not None and before.iops not in (None, iops):
        wrong = f"has {before.iops} IOPS instead of {iops}"
    elif throughput is not None and before.throughput_mibps not in (None, throughput):
        wrong = f"has {before.throughput_mibps} MiB/s instead of {throughput} MiB/s"
    elif target.encrypted and not before.encrypted:
        wrong = "is not encrypted"
    elif not is_same_key(target.kms_key_id, before.kms_key_id):
        wrong = f"is encrypted with {before.kms_key_id} instead of {target.kms_key_id}"
    elif before.fs_type != target.fs_type:
        wrong = f"has the file system {before.fs_type} instead of {target.fs_type}"
    return f"it {wrong}" if wrong else None


def _key(text: str) -> str | None:
    try:
        return storage_class_rules.key(text)
    except ValueError:
        return None


def _size_gib(size: str, volume: Volume) -> int | Refuse:
    if not size:
        return volume.size_gib
    try:
        size_gib = -(-parse_bytes(size) // GIB)
    except ValueError as error:
        return no(f"size: {error}")
    return size_gib or no(f"size {size} is nothing: give a size such as 30Gi")


def differs(facts: Facts, before: Shape, target: Shape) -> bool:
    """Whether there is any point; a class may ask for IOPS by other words than EC2 tells them."""
    same = (
        target.zone == before.zone
        and target.size_gib == before.size_gib
        and target.encrypted == before.encrypted
        and is_same_key(target.kms_key_id, before.kms_key_id)
        and target.storage_class_name == before.storage_class_name
        and target.fs_type == before.fs_type
    )
    return not same or bool(facts.move.spec.to.storage_class_name and _is_other(before, target))


def _is_other(before: Shape, target: Shape) -> bool:
    wanted = (target.iops, before.iops), (target.throughput_mibps, before.throughput_mibps)
    return target.volume_type != before.volume_type or any(
        asked is not None and asked != has for asked, has in wanted
    )


def is_same_key(asked: str | None, has: str | None) -> bool:
    """Whether a key that was asked for may be the one that a volume has; EC2 tells its ARN.

    An alias may mean any key.
    """
    if not asked or asked == has:
        return True
    return bool(has) and (has or "").endswith(f":key/{asked}")


def not_as_planned(request: CreateRequest, made: Volume) -> str | None:
    """Why the new volume is not what was planned, as a sentence; None if it is."""
    wrong = None
    if made.zone != request.zone:
        wrong = f"is in {made.zone} instead of {request.zone}"
    elif made.size_gib < request.size_gib:
        wrong = f"has {made.size_gib} GiB instead of {request.size_gib} GiB"
    elif made.snapshot_id != (request.snapshot_id or ""):
        made_of = made.snapshot_id or "no snapshot"
        wrong = f"was made from {made_of} instead of {request.snapshot_id}"
    elif request.encrypted and not made.encrypted:
        wrong = "is not encrypted"
    elif _is_other_key(request.kms_key_id, made.kms_key_id):
        wrong = f"is encrypted with {made.kms_key_id} instead of {request.kms_key_id}"
    elif made.volume_type != request.volume_type:
        wrong = f"is of type {made.volume_type} instead of {request.volume_type}"
    return f"the new volume {made.volume_id} {wrong}" if wrong else None


def _is_other_key(asked: str | None, has: str | None) -> bool:
    """Whether EC2 tells another key than was asked for; what an alias means is not known here."""
    if not asked or not has or "alias/" in asked:
        return False
    return has.rpartition("/")[2] != asked.rpartition("/")[2]
