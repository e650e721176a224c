"""What a new volume is to be, read from CreateVolume or CopyVolumes."""

from typing import Any, Final

from provisioner.sandbox.strict_ec2 import limits
from provisioner.sandbox.strict_ec2.call import Call
from provisioner.sandbox.strict_ec2.errors import combination, invalid, missing

# EBS user guide "Multi-Attach" (read 2026-11-21).
_IO1_MULTI_ATTACH_REGIONS: Final = ("us-east-1", "us-west-2", "ap-northeast-2")


def spec_of(call: Call, source: tuple[str, int] | None) -> dict[str, Any]:
    """Return type, size, IOPS, throughput and Multi-Attach, as moto's Volume takes them.

    ``source``: the name of a snapshot or volume that the new one is made of, and its size, which is
    the default and the least.

    Raises: Ec2Error for what the type, the source or the region cannot have.
    """
    params = call.params
    volume_type = params.get("VolumeType") or "gp2"
    type_limits = limits.check_type(volume_type)
    size_gib = _size_gib(params.integer("Size"), source)
    iops, throughput = params.integer("Iops"), params.integer("Throughput")
    limits.check_size(volume_type, size_gib)
    ceiling = call.world.settings.iops_ceilings.get(volume_type)
    limits.check_iops(volume_type, size_gib, iops, ceiling)
    limits.check_throughput(volume_type, iops, throughput)
    multi_attach = params.boolean("MultiAttachEnabled")
    if multi_attach and not type_limits.multi_attach:
        raise combination(f"Multi-attach is not supported for {volume_type} volumes.")
    if multi_attach and volume_type == "io1" and call.scope[1] not in _IO1_MULTI_ATTACH_REGIONS:
        raise combination("Multi-attach is not supported for io1 volumes in this region.")
    return {
        "volume_type": volume_type,
        "size": size_gib,
        "iops": iops or limits.default_iops(volume_type, size_gib),
        "throughput": throughput or (limits.GP3_MIN_THROUGHPUT if volume_type == "gp3" else None),
        "multi_attach_enabled": multi_attach,
    }


def _size_gib(size_gib: int | None, source: tuple[str, int] | None) -> int:
    if source is None:
        if size_gib is None:
            raise missing("size/snapshot")
        return size_gib
    name, least_gib = source
    if size_gib is not None and size_gib < least_gib:
        raise invalid(
            f"Volume of {size_gib}GiB is smaller than {name}, expect size >= {least_gib}GiB"
        )
    return least_gib if size_gib is None else size_gib
