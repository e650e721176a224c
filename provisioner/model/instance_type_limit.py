"""How many EBS volumes an instance type takes: EC2's own numbers, as a table and as an annotation.

The table is ``attachment_limits.txt`` beside this file, written by ``python -m
provisioner.inspect.limit_table``. It is read line by line, and only the line that is asked for is
kept: on a node one type is asked for, once.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

TABLE = Path(__file__).with_name("attachment_limits.txt")

_SHARED = "shared"
_DEDICATED = "dedicated"


@dataclass(frozen=True, slots=True)
class AttachmentLimit:
    """What an instance type takes.

    Attributes:
        count: attachments, the root volume among them. Of a shared limit the primary network
            interface and the type's own NVMe disks are taken off already; all other interfaces
            are not (EC2 tells 27 for an m5.large, which its user guide describes as 28 less one
            interface).
        is_shared: whether each further network interface takes one of them.

    Sources: EC2 DescribeInstanceTypes ``EbsInfo.MaximumEbsAttachments`` and
    ``AttachmentLimitType``; EC2 user guide "Amazon EBS volume limits for Amazon EC2 instances";
    aws-ebs-csi-driver v1.64 ``getVolumesLimit``, which takes off the root volume and all
    interfaces but one.
    """

    count: int
    is_shared: bool

    def __str__(self) -> str:
        return f"{self.count} {_SHARED if self.is_shared else _DEDICATED}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what ``str`` has written.

        Raises:
            ValueError: it is anything else.
        """
        count, _, kind = text.partition(" ")
        if count.isdecimal() and int(count) > 0 and kind in {_SHARED, _DEDICATED}:
            return cls(int(count), kind == _SHARED)
        raise ValueError(
            f'{text!r} is not an attachment limit such as "28 shared" or "32 dedicated"'
        )


@dataclass(frozen=True, slots=True)
class NotedLimit:
    """What the annotation on a Node says: a limit, and of which type, as an instance's may change.

    Attributes:
        instance_type: for example "m5.large".
        limit: what it takes.
    """

    instance_type: str
    limit: AttachmentLimit

    def __str__(self) -> str:
        return f"{self.instance_type} {self.limit}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what ``str`` has written.

        Raises:
            ValueError: it is anything else.
        """
        instance_type, _, limit = text.partition(" ")
        try:
            return cls(instance_type, AttachmentLimit.parse(limit))
        except ValueError:
            raise ValueError(
                f'{text!r} is not an attachment limit of an instance type ("m5.large 27 shared")'
            ) from None


@dataclass(frozen=True, slots=True)
class DescribedType:
    """One instance type as DescribeInstanceTypes tells it.

    Attributes:
        instance_type: for example "m5.large".
        max_attachments: ``EbsInfo.MaximumEbsAttachments``.
        is_shared: whether ``EbsInfo.AttachmentLimitType`` says "shared".
        is_xen: whether ``Hypervisor`` says "xen".
        is_metal: ``BareMetal``.
    """

    instance_type: str
    max_attachments: int
    is_shared: bool
    is_xen: bool
    is_metal: bool

    @property
    def family(self) -> str:
        """For example "m5"."""
        return self.instance_type.partition(".")[0]

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> Self:
        """One of ``InstanceTypes`` as boto3 has it.

        Raises:
            KeyError: EC2 does not tell its limit.
        """
        ebs = answer["EbsInfo"]
        return cls(
            instance_type=answer["InstanceType"],
            max_attachments=ebs["MaximumEbsAttachments"],
            is_shared=ebs["AttachmentLimitType"] == _SHARED,
            is_xen=answer.get("Hypervisor") == "xen",
            is_metal=answer["BareMetal"],
        )


# Of a type that nobody knows: what most types with a shared limit take. Some take fewer, 23 to 26.
UNKNOWN = AttachmentLimit(27, is_shared=True)


@lru_cache(maxsize=256)
def known_limit(instance_type: str) -> AttachmentLimit | None:
    """The table's limit of an instance type; None for one that is not in it."""
    family, _, size = instance_type.partition(".")
    with TABLE.open() as lines:
        for line in lines:
            if line.startswith(f"{family} "):
                limit, _, sizes = line.removeprefix(f"{family} ").partition(": ")
                if size in sizes.split():
                    return AttachmentLimit.parse(limit)
    return None
