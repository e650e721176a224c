"""A StorageClass as it is used: its parameters and its topologies, read once for each revision.

One table reads the parameters. Keys ignore case as aws-ebs-csi-driver's do, but for
``csi.storage.k8s.io/fstype`` and the prefix ``tagSpecification``. What contradicts itself is
refused here; what depends on a claim's size and mode is not known here. docs/storage-classes.md
says what each does, here and in the stock driver.
Source: aws-ebs-csi-driver v1.64 docs/parameters.md, docs/tagging.md, pkg/driver/controller.go and
constants.go; external-provisioner 6.3 for the file system (read 2026-11-21).
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from provisioner.classes import in_tree_rules
from provisioner.model import tags
from provisioner.model.driver import IN_TREE_DRIVER
from provisioner.model.errors import RefusedHereError, retold
from provisioner.model.file_systems import FILE_SYSTEMS, WINDOWS_FILE_SYSTEM
from provisioner.model.storage_class import StorageClass
from provisioner.model.tag_template import TagTemplate
from provisioner.model.tags import TAG_PREFIX
from provisioner.model.volume_type import DEFAULT_TYPE, LARGEST_NUMBER, VOLUME_TYPES
from provisioner.model.zone import TopologyTerm

FILE_SYSTEM_KEY = "csi.storage.k8s.io/fstype"
TAG_ROW = f"{TAG_PREFIX}_N"
# What external-provisioner 6.3 knows under its reserved prefix; pkg/controller/controller.go.
SECRET_ROW = "csi.storage.k8s.io/…secret-name"  # noqa: S105 -- what a secret is called
_SECRETS_OF = (
    *("", "provisioner-", "controller-publish-", "node-stage-", "node-publish-"),
    *("controller-expand-", "node-expand-", "controller-modify-"),
)
SECRET_KEYS = frozenset(
    f"csi.storage.k8s.io/{of}secret-{part}" for of in _SECRETS_OF for part in ("name", "namespace")
)
_RESERVED_NAMESPACE = "csi.storage.k8s.io/"
_FORMATTING = "formatting."  # before the fields of ``Formatting``

# Source: EC2 API CreateVolume, KmsKeyId: a key's id or ARN, an alias or its ARN (2026-11-21).
_KEY = re.compile(
    r"(arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:)?alias/[A-Za-z0-9/_-]+"
    r"|arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+"
    r"|(mrk-)?[0-9A-Fa-f-]{32,36}"
)
_TRUE = frozenset({"true", "t", "1", "yes", "y", "on"})
_FALSE = frozenset({"false", "f", "0", "no", "n", "off"})
# Source: EBS user guide "Initialize EBS volumes": 100 to 300 MiB/s (2026-11-21).
_LEAST_RATE_MIBPS = 100


def is_encrypted(parameters: Mapping[str, str]) -> bool:
    """Whether a class asks for encryption, whatever the account's default is.

    Neither yes nor no is not asked for: the check of classes tells it.
    """
    said = next((text for key, text in parameters.items() if key.lower() == "encrypted"), "")
    try:
        return boolean(said) is True
    except ValueError:
        return False


# How values are read: a ValueError has the end of a sentence that begins with the value.


def whole_number(text: str) -> int | None:
    """A number; zero is "not said", as for the stock driver."""
    found = re.fullmatch(r"\+?0*([0-9]+)", text.strip(), re.ASCII)
    if found is None:
        # The stock driver takes less than nothing for nothing.
        negative = re.fullmatch(r"-0*[0-9]{1,9}", text, re.ASCII)
        raise (RefusedHereError if negative else ValueError)("is not a whole number")
    if len(found[1]) > len(str(LARGEST_NUMBER)) or int(found[1]) > LARGEST_NUMBER:
        raise ValueError("is more than EC2 can accept")
    return int(found[1]) or None


def rate(text: str) -> int | None:
    """MiB/s of an initialization."""
    number = whole_number(text)
    if number is not None and number < _LEAST_RATE_MIBPS:
        raise ValueError(f"is too low: EC2's minimum is {_LEAST_RATE_MIBPS} MiB/s")
    return number


def boolean(text: str) -> bool | None:
    """The usual spellings of yes and no; the stock driver takes any other text for no.

    Empty is "not said": templates of charts leave such values behind.
    """
    lowered = text.strip().lower()
    if not lowered:
        return None
    if lowered in _TRUE:
        return True
    if lowered in _FALSE:
        return False
    raise RefusedHereError('is neither "true" nor "false"')


def volume_type(text: str) -> str:
    """An EBS volume type in any case of letters."""
    lowered = text.strip().lower() or DEFAULT_TYPE
    if lowered not in VOLUME_TYPES:
        raise ValueError(f"is not an EBS volume type; the types are {', '.join(VOLUME_TYPES)}")
    return lowered


def key(text: str) -> str | None:
    """A KMS key as EC2 takes it; "" is none."""
    stripped = text.strip()
    if stripped and not _KEY.fullmatch(stripped):
        raise ValueError("is not a KMS key: it is neither an ARN, nor alias/NAME, nor a key id")
    return stripped or None


def file_system(text: str) -> str | None:
    """A file system in any case of letters; "" is none.

    The stock driver makes volumes for any text; raw devices of them work.
    """
    lowered = text.strip().lower()
    if lowered == WINDOWS_FILE_SYSTEM:
        raise RefusedHereError(
            "is for Windows nodes, which are not supported here; use "
            f"{', '.join(FILE_SYSTEMS)}, or aws-ebs-csi-driver for claims of Windows pods"
        )
    if lowered and lowered not in FILE_SYSTEMS:
        known = ", ".join(FILE_SYSTEMS)
        raise RefusedHereError(f"is not a supported file system; supported are {known}")
    return lowered or None


def word(text: str) -> str | None:
    """A number as ``mkfs`` takes it, perhaps with a unit; "" is none."""
    stripped = text.strip()
    if not re.fullmatch(r"[A-Za-z0-9]*", stripped):
        raise ValueError("is neither a number nor a number with a unit")
    return stripped or None


def ignored(_: str) -> None:
    """Read nothing: what it says has no effect, or is read elsewhere."""


@dataclass(frozen=True, slots=True)
class Row:
    """One parameter.

    ``name`` is its documented spelling, ``also`` another name; ``field`` is one of ``Parameters``,
    "" for what is read and not used.
    """

    name: str
    field: str
    parser: Callable[[str], object]
    also: str = ""


TABLE: tuple[Row, ...] = (
    Row("type", "volume_type", volume_type),
    Row("iops", "iops", whole_number),
    Row("iopsPerGB", "iops_per_gib", whole_number),
    Row("allowAutoIOPSPerGBIncrease", "raises_iops_to_minimum", boolean),
    Row("allowAutoIOPSIncreaseOnModify", "iops_follow_growth", boolean),
    Row("throughput", "throughput_mibps", whole_number),
    Row("volumeInitializationRate", "initialization_rate_mibps", rate),
    Row("encrypted", "encrypted", boolean),
    Row("kmsKeyId", "kms_key_id", key),
    Row(FILE_SYSTEM_KEY, "file_system", file_system, also="fstype"),
    Row("blockSize", f"{_FORMATTING}block_size", word),
    Row("inodeSize", f"{_FORMATTING}inode_size", word),
    Row("bytesPerInode", f"{_FORMATTING}bytes_per_inode", word),
    Row("numberOfInodes", f"{_FORMATTING}number_of_inodes", word),
    Row("ext4BigAlloc", f"{_FORMATTING}ext4_big_alloc", boolean),
    Row("ext4ClusterSize", f"{_FORMATTING}ext4_cluster_size", word),
    Row("ext4EncryptionSupport", f"{_FORMATTING}ext4_encryption_support", boolean),
    Row("blockAttachUntilInitialized", "attaches_when_initialized", boolean),
    Row(TAG_ROW, "tag_templates", ignored),
    Row("blockExpress", "", ignored),  # all io2 volumes are Block Express
    # EBS needs no secret: none is read, and none is written to the persistent volume.
    Row(SECRET_ROW, "", ignored, also="csi.storage.k8s.io/…secret-namespace"),
)
NAMES = tuple(name for row in TABLE for name in (row.name, row.also) if name)
_ROWS: dict[str, Row] = {
    name if name == TAG_ROW or name.startswith(_RESERVED_NAMESPACE) else name.lower(): row
    for row in TABLE
    for name in (row.name, row.also)
    if name
}


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

    def attributes(self) -> dict[str, str]:
        """What the node plugin is told, in ``volumeAttributes``; only what is given.

        Source: aws-ebs-csi-driver v1.64 pkg/driver/constants.go: the parameters in lower case.
        """
        given = {
            "blocksize": self.block_size,
            "inodesize": self.inode_size,
            "bytesperinode": self.bytes_per_inode,
            "numberofinodes": self.number_of_inodes,
            "ext4bigalloc": "true" if self.ext4_big_alloc else None,
            "ext4clustersize": self.ext4_cluster_size,
            "ext4encryptionsupport": "true" if self.ext4_encryption_support else None,
        }
        return {name: value for name, value in given.items() if value is not None}


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

    def iops_for(self, size_gib: int) -> int | None:
        """The IOPS to request for a volume of this size; None for EC2's default."""
        return self.iops if self.iops_per_gib is None else self.iops_per_gib * size_gib

    def attributes(self) -> dict[str, str]:
        """``volumeAttributes`` of the class, as aws-ebs-csi-driver writes them."""
        waits = {"blockattachuntilinitialized": "true"} if self.attaches_when_initialized else {}
        return self.formatting.attributes() | waits


# What ``mkfs`` of each file system can be told, by the names of volumeAttributes.
# Source: aws-ebs-csi-driver v1.64 pkg/driver/constants.go ``FileSystemConfigs``.
_XFS = frozenset({"blocksize", "inodesize"})
_EXT3 = _XFS | {"bytesperinode", "numberofinodes"}
_TAKES: dict[str, frozenset[str]] = {
    "ext4": _EXT3 | {"ext4bigalloc", "ext4clustersize", "ext4encryptionsupport"},
    "ext3": _EXT3,
    "xfs": _XFS,
}


def attributes_for(attributes: Mapping[str, str], file_system: str) -> dict[str, str]:
    """``volumeAttributes`` without those that only ``mkfs`` of another file system can be told."""
    foreign = frozenset[str]().union(*_TAKES.values()) - _TAKES.get(file_system, frozenset())
    return {name: value for name, value in attributes.items() if name not in foreign}


def formatting_fault(formatting: Formatting, file_system: str | None) -> str | None:
    """Why a file system cannot be made so, in one sentence; None for a raw block device."""
    given = formatting.attributes()
    if not given:
        return None
    if file_system is None:
        return (
            f"{spelt(given)} is for file systems, but the claim is for a raw block device "
            "(volumeMode Block); use a class without it"
        )
    foreign = [name for name in given if name not in _TAKES[file_system]]
    if foreign:
        able = [f for f in FILE_SYSTEMS if set(foreign) <= _TAKES[f]]
        return f"{spelt(foreign)} cannot be used with {file_system}, only with {', '.join(able)}"
    return None


def parse_parameters(raw: Mapping[str, str]) -> Parameters:
    """Read a class's parameters.

    Raises:
        RefusedHereError: one sentence: only this controller refuses it.
        ValueError: one sentence that names the parameter, its value and what would help.
    """
    fields: dict[str, Any] = {}
    rows = {name: _row(name) for name in raw}
    for name, row in rows.items():
        if row.field and row.name != TAG_ROW:
            _read_field(fields, row, name, raw[name])
    return _checked(fields, tags.of_parameters(raw))


def _row(name: str) -> Row:
    if name.startswith(TAG_PREFIX):
        return _ROWS[TAG_ROW]
    if name in SECRET_KEYS:
        return _ROWS[SECRET_ROW]
    reserved = name.lower().startswith(_RESERVED_NAMESPACE)
    key = name if reserved else name.lower()
    if key in _ROWS and key not in (TAG_ROW, SECRET_ROW):
        return _ROWS[key]
    raise ValueError(f"unknown parameter {name[:100]!r}; known are {', '.join(NAMES)}")


def _read_field(fields: dict[str, Any], row: Row, name: str, text: str) -> None:
    if row.field in fields:
        # The stock driver takes one or the other; external-provisioner refuses two file systems.
        refused = ValueError if row.name == FILE_SYSTEM_KEY else RefusedHereError
        raise refused(f"parameter {name!r} is given twice in different spellings")
    fields[row.field] = None
    try:
        fields[row.field] = row.parser(text)
    except ValueError as error:
        raise retold(error, f"parameter {name!r}: {text[:100]!r} {error}") from error


def _checked(fields: dict[str, Any], templates: tuple[TagTemplate, ...]) -> Parameters:
    said = {name: value for name, value in fields.items() if value is not None}
    given = {
        name.removeprefix(_FORMATTING): said.pop(name)
        for name in list(said)
        if name.startswith(_FORMATTING)
    }
    read = Parameters(**said, formatting=Formatting(**given), tag_templates=templates)
    if read.iops is not None and read.iops_per_gib is not None:
        raise ValueError("iops and iopsPerGB are both given; keep one")
    if read.formatting.ext4_cluster_size and not read.formatting.ext4_big_alloc:
        raise ValueError('ext4ClusterSize needs ext4BigAlloc: "true"')
    wrong = formatting_fault(read.formatting, read.file_system) if read.file_system else None
    if wrong is not None:
        raise ValueError(wrong)
    if read.kms_key_id is not None and read.encrypted is False:
        # To the stock driver the key says enough.
        raise RefusedHereError("kmsKeyId is given, but encrypted is false; remove one of them")
    return read if read.kms_key_id is None else replace(read, encrypted=True)


def spelt(attributes: Iterable[str]) -> str:
    """Parameters as users write them, by the names of ``volumeAttributes``."""
    return " and ".join(_ROWS[name].name for name in attributes)


@dataclass(frozen=True, slots=True)
class ReadClass:
    """A class as it is used.

    ``storage_class`` is the object of the API; ``allowed_topologies`` are its own, or those that
    an in-tree class means by ``zone`` and ``zones``.
    """

    storage_class: StorageClass
    parameters: Parameters
    allowed_topologies: tuple[TopologyTerm, ...] = ()
    is_in_tree: bool = False

    @property
    def name(self) -> str:
        """The class's name."""
        return self.storage_class.name


def read(storage_class: StorageClass) -> ReadClass:
    """Read a class.

    Raises:
        ValueError: one sentence that names the parameter, its value and what would help.
    """
    if storage_class.provisioner == IN_TREE_DRIVER:
        return ReadClass(
            storage_class,
            parse_parameters(in_tree_rules.parameters_of(storage_class)),
            in_tree_rules.topologies_of(storage_class),
            is_in_tree=True,
        )
    return ReadClass(
        storage_class,
        parse_parameters(storage_class.parameters or {}),
        tuple(storage_class.allowed_topologies or ()),
    )
