"""What a region's quotas leave room for: creates, copies and modifications.

Codes: EC2's error list (errors-overview, read 2026-11-21).
"""

from typing import Any, Final

from provisioner.sandbox.strict_ec2.call import Call
from provisioner.sandbox.strict_ec2.errors import Ec2Error
from provisioner.sandbox.strict_ec2.modification import RUNNING, Shape
from provisioner.sandbox.strict_ec2.records import record_of

_NO_LIMIT: Final = float("inf")


def check_new_volume(call: Call, spec: dict[str, Any]) -> None:
    """Refuse one more volume of a kind.

    Raises: ``VolumeLimitExceeded``, ``MaxIOPSLimitExceeded``.
    """
    quotas = call.world.settings.quotas
    if not quotas:
        return
    if len(call.backend.volumes) >= quotas.get("volumes", _NO_LIMIT):
        raise _over("VolumeLimitExceeded", f"volume count limit of {quotas['volumes']}")
    _check_kind(call, spec["volume_type"], spec["size"], spec["iops"] or 0)


def check_modified_volume(call: Call, original: Shape, target: Shape) -> None:
    """Refuse a modification that the region has no room for.

    Raises: ``VolumeLimitExceeded``, ``MaxIOPSLimitExceeded``,
    ``VolumeModificationSizeLimitExceeded``.
    """
    quotas = call.world.settings.quotas
    if not quotas:
        return
    same = original.volume_type == target.volume_type
    _check_kind(
        call,
        target.volume_type,
        target.size_gib - (original.size_gib if same else 0),
        (target.iops or 0) - ((original.iops or 0) if same else 0),
    )
    most = quotas.get("modifying_gib", {}).get(target.volume_type, _NO_LIMIT)
    running = (record_of(each).modification for each in call.backend.volumes.values())
    gib = sum(
        each.target.size_gib
        for each in running
        if each is not None
        and each.state in RUNNING
        and each.target.volume_type == target.volume_type
    )
    if gib + target.size_gib > most:
        raise _over(
            "VolumeModificationSizeLimitExceeded",
            f"{target.volume_type} storage modification limit of {most} GiB",
        )


def _check_kind(call: Call, kind: str, gib_more: int, iops_more: int) -> None:
    """Refuse so much more storage, or so many more IOPS, of a type."""
    quotas = call.world.settings.quotas
    same = [volume for volume in call.backend.volumes.values() if volume.volume_type == kind]
    gib = sum(int(volume.size) for volume in same) + gib_more
    iops = sum(int(volume.iops or 0) for volume in same) + iops_more
    if gib_more > 0 and gib > (most := quotas.get("gib", {}).get(kind, _NO_LIMIT)):
        raise _over("VolumeLimitExceeded", f"{kind} storage limit of {most} GiB")
    if iops_more > 0 and iops > (most := quotas.get("iops", {}).get(kind, _NO_LIMIT)):
        raise _over("MaxIOPSLimitExceeded", f"{kind} IOPS limit of {most}")


def _over(code: str, what: str) -> Ec2Error:
    return Ec2Error(
        code,
        f"You have exceeded your maximum {what} in this region. Please contact AWS Support to "
        "request an Elastic Block Store service limit increase.",
    )
