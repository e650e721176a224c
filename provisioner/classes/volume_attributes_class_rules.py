"""What a VolumeAttributesClass asks of a volume, read once, by one table.

The stock driver reads these keys letter for letter (``iopspergb`` in small letters only); here they
ignore case, as a StorageClass's do, but for the prefixes of tags.
Source: aws-ebs-csi-driver v1.64 pkg/driver/controller_modify_volume.go and docs/modify-volume.md
(read 2026-11-21).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from provisioner.classes import storage_class_rules
from provisioner.classes.storage_class_rules import SECRET_KEYS, ReadClass
from provisioner.model import tags
from provisioner.model.errors import RefusedHereError, retold
from provisioner.model.tag_template import TagTemplate

DELETION_PREFIX = "tagDeletion"
_METADATA_KEYS = frozenset(
    f"csi.storage.k8s.io/{what}" for what in ("pvc/name", "pvc/namespace", "pv/name")
)


@dataclass(frozen=True, slots=True)
class Attributes:
    """What of a volume is to change; None stays as it is.

    ``iops_per_gib``: IOPS for each GiB that the volume has, or will have.
    ``iops_follow_growth``: they grow with it later, too.
    ``tag_templates``: tags to write; ``deleted_tags``: keys of those to remove.
    """

    volume_type: str | None = None
    iops: int | None = None
    iops_per_gib: int | None = None
    iops_follow_growth: bool | None = None
    throughput_mibps: int | None = None
    tag_templates: tuple[TagTemplate, ...] = ()
    deleted_tags: tuple[str, ...] = ()


def _type(text: str) -> str | None:
    return storage_class_rules.volume_type(text) if text.strip() else None


# Key in small letters -> field, parser. Of type and volumeType, type counts.
_TABLE: Mapping[str, tuple[str, Callable[[str], object]]] = {
    "volumetype": ("volume_type", _type),
    "type": ("volume_type", _type),
    "iops": ("iops", storage_class_rules.whole_number),
    "iopspergb": ("iops_per_gib", storage_class_rules.whole_number),
    "allowautoiopsincreaseonmodify": ("iops_follow_growth", storage_class_rules.boolean),
    "throughput": ("throughput_mibps", storage_class_rules.whole_number),
}
NAMES = (
    *("type", "volumeType", "iops", "iopsPerGB", "allowAutoIOPSIncreaseOnModify", "throughput"),
    *(f"{tags.TAG_PREFIX}_N", f"{DELETION_PREFIX}_N"),
)


def parse(raw: Mapping[str, str]) -> Attributes:
    """Read a class's parameters.

    Raises:
        ValueError: one sentence that names the parameter, its value and what would help.
    """
    given: dict[str, str] = {}
    templates = tags.of_parameters(raw)
    deleted: list[str] = []
    for name in sorted(raw):
        if name.startswith(DELETION_PREFIX):
            deleted.append(_named(name, raw[name], _deleted_tag))
        elif not name.startswith(tags.TAG_PREFIX) and name not in SECRET_KEYS | _METADATA_KEYS:
            _take(given, name, raw[name])
    both = sorted({template.key for template in templates} & set(deleted))
    if both:
        raise ValueError(f"tag {both[0]!r} is both set and deleted; keep one")
    return _checked(_read(given), templates, tuple(deleted))


def of_annotations(annotations: Mapping[str, str], driver: str) -> Attributes | None:
    """What the annotations of volume-modifier-for-k8s on a claim ask for; None without any.

    Source: aws-ebs-csi-driver v1.64 docs/modify-volume.md: ``ebs.csi.aws.com/volumeType`` and so
    on, the way before there were classes.

    Raises:
        ValueError: as ``parse``.
    """
    given = legacy(annotations, driver)
    return _checked(_read(given), (), ()) if given else None


def legacy(annotations: Mapping[str, str], driver: str) -> dict[str, str]:
    """The annotations that ask for a change, by their names without the driver's."""
    return {name: text for name, key in _keys(driver) if (text := annotations.get(key))}


@cache
def _keys(driver: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, f"{driver}/{name}") for name in LEGACY)


LEGACY = ("volumeType", "iops", "throughput")


def _take(given: dict[str, str], name: str, text: str) -> None:
    key = name.lower()
    if key not in _TABLE:
        raise ValueError(f"unknown parameter {name[:100]!r}; known are {', '.join(NAMES)}")
    if any(other.lower() == key for other in given):
        raise RefusedHereError(f"parameter {name!r} is given twice in different spellings")
    given[name] = text


def _read(given: Mapping[str, str]) -> dict[str, Any]:
    spelt = {name.lower(): name for name in given}
    fields: dict[str, Any] = {}
    for key, (field, parser) in _TABLE.items():  # in its order: type after volumeType
        if key not in spelt:
            continue
        value = _named(spelt[key], given[spelt[key]], parser)
        if value is not None:
            fields[field] = value
    return fields


def _named(name: str, text: str, parser: Callable[[str], Any]) -> Any:
    try:
        return parser(text)
    except ValueError as error:
        raise retold(error, f"parameter {name[:100]!r}: {text[:100]!r} {error}") from error


def _deleted_tag(text: str) -> str:
    if "=" in text:
        raise RefusedHereError("must be the key of a tag to delete, which cannot contain =")
    return tags.parse(f"{text}=").key


def _checked(
    fields: Mapping[str, Any], templates: tuple[TagTemplate, ...], deleted: tuple[str, ...]
) -> Attributes:
    read = Attributes(**fields, tag_templates=templates, deleted_tags=deleted)
    if read.iops is not None and read.iops_per_gib is not None:
        raise ValueError("iops and iopsPerGB are both given; keep one")
    return read


def with_attributes(read_class: ReadClass, asks: Attributes) -> ReadClass:
    """The class as a claim means it that is born with a VolumeAttributesClass, which counts more.

    Source: aws-ebs-csi-driver v1.64 pkg/driver/controller.go: mutable parameters at CreateVolume.
    """
    has = read_class.parameters
    says_iops = asks.iops is not None or asks.iops_per_gib is not None
    templates = {template.key: template for template in has.tag_templates}
    templates |= {template.key: template for template in asks.tag_templates}
    follows = asks.iops_follow_growth
    parameters = replace(
        has,
        volume_type=asks.volume_type or has.volume_type,
        iops=asks.iops if says_iops else has.iops,
        iops_per_gib=asks.iops_per_gib if says_iops else has.iops_per_gib,
        iops_follow_growth=has.iops_follow_growth if follows is None else follows,
        throughput_mibps=asks.throughput_mibps or has.throughput_mibps,
        tag_templates=tuple(t for key, t in templates.items() if key not in asks.deleted_tags),
    )
    return replace(read_class, parameters=parameters)
