"""The parameters of a StorageClass: read once, by one table, into a frozen record.

Keys ignore case as aws-ebs-csi-driver's do, but for ``csi.storage.k8s.io/fstype``.
Source: aws-ebs-csi-driver v1.64 docs/parameters.md and pkg/driver/controller.go (read 2026-11-21).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from provisioner.model.tag_template import TagTemplate
from provisioner.model.volume_type import DEFAULT_TYPE, VOLUME_TYPES

FILE_SYSTEM_KEY = "csi.storage.k8s.io/fstype"
FILE_SYSTEMS = ("ext4", "ext3", "xfs", "ntfs")

_KEY_ARN = re.compile(r"arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:(key|alias)/\S+")
_TRUE = frozenset({"true", "t", "1", "yes", "on"})
_FALSE = frozenset({"false", "f", "0", "no", "off"})


@dataclass(frozen=True, slots=True)
class Formatting:
    """How a file system is made; sizes as ``mkfs`` reads them, None for its default."""

    block_size: str | None = None
    inode_size: str | None = None
    bytes_per_inode: str | None = None
    number_of_inodes: str | None = None
    ext4_big_alloc: bool = False
    ext4_cluster_size: str | None = None
    ext4_encryption_support: bool = False


@dataclass(frozen=True, slots=True)
class Parameters:
    """What a class asks of its volumes. IOPS and MiB/s are None when EC2's default is wanted.

    ``encrypted``: None when the class does not say.
    ``raises_iops_to_minimum``: IOPS below the type's minimum are raised to it, not refused.
    ``iops_follow_growth``: IOPS grow with the volume when it is expanded; None: not said.
    ``attaches_when_initialized``: an attachment waits until a restored volume has all its data.
    """

    volume_type: str = DEFAULT_TYPE
    iops: int | None = None
    iops_per_gib: int | None = None
    raises_iops_to_minimum: bool = False
    iops_follow_growth: bool | None = None
    throughput_mibps: int | None = None
    initialization_rate_mibps: int | None = None
    encrypted: bool | None = None
    kms_key_id: str | None = None
    file_system: str | None = None
    formatting: Formatting = Formatting()
    attaches_when_initialized: bool = False
    tag_templates: tuple[TagTemplate, ...] = ()


def _whole_number(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text.strip()):
        raise ValueError("is not a whole number")
    return int(text)


def _boolean(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered in _TRUE:
        return True
    if lowered in _FALSE:
        return False
    raise ValueError('is neither "true" nor "false"')


def _volume_type(text: str) -> str:
    lowered = text.strip().lower() or DEFAULT_TYPE
    if lowered not in VOLUME_TYPES:
        raise ValueError(f"is no EBS volume type; there are {', '.join(VOLUME_TYPES)}")
    return lowered


def _key(text: str) -> str:
    if not _KEY_ARN.fullmatch(text.strip()):
        raise ValueError("is not the full ARN of a KMS key")
    return text.strip()


def _file_system(text: str) -> str:
    lowered = text.strip().lower()
    if lowered not in FILE_SYSTEMS:
        raise ValueError(f"is no file system that can be made; there are {', '.join(FILE_SYSTEMS)}")
    return lowered


# name in lower case -> (field, parser)
_TABLE: dict[str, tuple[str, Callable[[str], object]]] = {
    "type": ("volume_type", _volume_type),
    "iops": ("iops", _whole_number),
    "throughput": ("throughput_mibps", _whole_number),
    "encrypted": ("encrypted", _boolean),
    "kmskeyid": ("kms_key_id", _key),
    FILE_SYSTEM_KEY: ("file_system", _file_system),
}
NAMES = ("type", "iops", "throughput", "encrypted", "kmsKeyId", FILE_SYSTEM_KEY)


def parse(raw: Mapping[str, str]) -> Parameters:
    """Read a class's parameters.

    Raises:
        ValueError: one sentence that names the parameter, its value and what would help.
    """
    fields: dict[str, Any] = {}
    for name, text in raw.items():
        key = name if name.lower().startswith("csi.storage.k8s.io/") else name.lower()
        if key not in _TABLE:
            raise ValueError(f"unknown parameter {name!r}; known are {', '.join(NAMES)}")
        field, parser = _TABLE[key]
        if field in fields:
            raise ValueError(f"parameter {name!r} is given twice in different spellings")
        try:
            fields[field] = parser(text)
        except ValueError as error:
            raise ValueError(f"parameter {name!r}: {text[:100]!r} {error}") from error
    if fields.get("kms_key_id"):
        if fields.get("encrypted") is False:
            raise ValueError("kmsKeyId is given, but encrypted is false")
        fields["encrypted"] = True
    return Parameters(**fields)
