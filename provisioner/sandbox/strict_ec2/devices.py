"""Device names, and how many devices an instance can have.

Source: docs.aws.amazon.com/AWSEC2/latest/UserGuide device_naming and volume_limits, read
2026-11-21; the numbers per instance type are the EbsInfo of moto's DescribeInstanceTypes data.
"""

import re
from typing import Any, Final

from provisioner.sandbox.strict_ec2 import motos
from provisioner.sandbox.strict_ec2.errors import Ec2Error, invalid

_NAME: Final = re.compile(r"/dev/(?:sd([a-z](?:1[0-5]|[1-9])?)|xvd([a-z]|[a-c][a-z]|d[a-x]))")
_DEFAULT_LIMIT: Final = 27


def suffix_of(device: str) -> str:
    """Return what tells devices of an instance apart: sdf and xvdf are the same place.

    Raises: ``InvalidParameterValue`` for what is no EBS device name.
    """
    found = _NAME.fullmatch(device)
    if found is None:
        raise invalid(
            f"Value ({device}) for parameter device is invalid. "
            f"{device} is not a valid EBS device name."
        )
    return found[1] or found[2]


def check_free(instance: Any, device: str) -> None:
    """Refuse a device name that the instance uses already, also while it is detaching.

    Raises: ``InvalidParameterValue``.
    """
    wanted = suffix_of(device)
    for taken in instance.block_device_mapping:
        place = _NAME.fullmatch(taken)
        if taken == device or (place is not None and (place[1] or place[2]) == wanted):
            raise invalid(
                f"Invalid value '{device}' for unixDevice. "
                f"Attachment point {device} is already in use"
            )


def check_room(instance: Any, limits: dict[str, int]) -> None:
    """Refuse one more volume on a full instance; ``limits`` overrides by instance type.

    A shared limit also counts network interfaces, beyond the primary one that it leaves out.

    Raises: ``AttachmentLimitExceeded``.
    """
    limit, shared = _limit_of(instance.instance_type, limits)
    used = len(instance.block_device_mapping)
    if shared:
        used += max(0, len(instance.nics) - 1)
    if used >= limit:
        raise Ec2Error(
            "AttachmentLimitExceeded",
            f"You may attach up to {limit} devices for this instance type. "
            "Please detach a device and try again.",
        )


def _limit_of(instance_type: str, limits: dict[str, int]) -> tuple[int, bool]:
    info = motos.INSTANCE_TYPES.get(instance_type, {}).get("EbsInfo", {})
    limit = limits.get(instance_type, info.get("MaximumEbsAttachments", _DEFAULT_LIMIT))
    return int(limit), info.get("AttachmentLimitType", "shared") == "shared"
