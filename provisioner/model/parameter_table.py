"""The table of a StorageClass's parameters: what each is called, how it is read, what it means.

README's table is made of it, too. What the stock driver does is said beside, so that who changes
over, or back, sees every difference.
Source: aws-ebs-csi-driver v1.64 docs/parameters.md, docs/tagging.md, pkg/driver/controller.go
and constants.go; external-provisioner 6.3 for the file system (read 2026-11-21).
"""

from collections.abc import Callable
from dataclasses import dataclass

from provisioner.model import parameter_values as values
from provisioner.model.volume_type import DEFAULT_TYPE, VOLUME_TYPES

FILE_SYSTEM_KEY = "csi.storage.k8s.io/fstype"
TAG_PREFIX = "tagSpecification"  # with exactly these capitals
TAG_ROW = f"{TAG_PREFIX}_N"
# What external-provisioner 6.3 knows under its reserved prefix; pkg/controller/controller.go.
SECRET_ROW = "csi.storage.k8s.io/…secret-name"  # noqa: S105 -- what a secret is called
_SECRETS_OF = (
    "",
    "provisioner-",
    "controller-publish-",
    "node-stage-",
    "node-publish-",
    "controller-expand-",
    "node-expand-",
    "controller-modify-",
)
SECRET_KEYS = frozenset(
    f"csi.storage.k8s.io/{of}secret-{part}" for of in _SECRETS_OF for part in ("name", "namespace")
)
FORMATTING = "formatting."  # before the fields of ``Formatting``


@dataclass(frozen=True, slots=True)
class Row:
    """One parameter.

    ``name`` is its documented spelling, ``also`` another name; ``field`` is one of ``Parameters``,
    "" for what is read and not used. The rest is Markdown: ``here`` what it does, ``stock`` what
    aws-ebs-csi-driver does where that differs.
    """

    name: str
    field: str
    parser: Callable[[str], object]
    values: str
    default: str
    here: str
    stock: str = "the same"
    also: str = ""


_SILENT = 'only `"true"` is true: `"True"`, `"yes"`, `"1"` are silently false'
_AT_EC2 = "EC2 refuses what is wrong, and the claim is tried for ever"
_ON_NODE = "the same; some contradictions show on the node only"
_NOT_GIVEN = "not given"
_BOOLEAN = "`true`, `false`"

TABLE: tuple[Row, ...] = (
    Row(
        "type",
        "volume_type",
        values.volume_type,
        ", ".join(f"`{name}`" for name in VOLUME_TYPES),
        f"`{DEFAULT_TYPE}`",
        "In any case of letters. Its least size, IOPS and throughput are checked at once; above "
        "its documented most, EC2 is asked.",
        f"passed on as it is: {_AT_EC2}",
    ),
    Row(
        "iops",
        "iops",
        values.whole_number,
        "for gp3, io1, io2",
        "EC2's; io1 and io2 need this or `iopsPerGB`",
        "Lowered to what the region and the size allow, with a Warning event.",
        "lowered without a word",
    ),
    Row(
        "iopsPerGB",
        "iops_per_gib",
        values.whole_number,
        "for gp3, io1, io2; not with `iops`",
        _NOT_GIVEN,
        "IOPS are so many times the GiB; lowered as `iops`.",
        "lowered without a word",
    ),
    Row(
        "allowAutoIOPSPerGBIncrease",
        "raises_iops_to_minimum",
        values.boolean,
        _BOOLEAN,
        "`false`",
        "Too few IOPS are raised to the type's least, else refused.",
        _SILENT,
    ),
    Row(
        "allowAutoIOPSIncreaseOnModify",
        "iops_follow_growth",
        values.boolean,
        _BOOLEAN,
        _NOT_GIVEN,
        "Written to the volume's tags, as `iopsPerGB` is, for when it grows.",
        _SILENT,
    ),
    Row(
        "throughput",
        "throughput_mibps",
        values.whole_number,
        "MiB/s, for gp3",
        "EC2's (125)",
        "Needs 4 IOPS for each MiB/s, checked at once.",
        f"not checked: {_AT_EC2}",
    ),
    Row(
        "volumeInitializationRate",
        "initialization_rate_mibps",
        values.rate,
        "MiB/s, 100 and more",
        _NOT_GIVEN,
        "For volumes made of a snapshot; without effect on others.",
        "EC2 refuses a volume that is not made of a snapshot",
    ),
    Row(
        "encrypted",
        "encrypted",
        values.boolean,
        _BOOLEAN,
        "the account's default",
        "With `false`, EC2 still encrypts where that is the account's default.",
        _SILENT,
    ),
    Row(
        "kmsKeyId",
        "kms_key_id",
        values.key,
        "a key's or alias's ARN, `alias/…`, a key's id",
        "the account's key",
        'Implies `encrypted`; refused with `encrypted: "false"`, for nobody could tell which is '
        "meant.",
        'wins over `encrypted: "false"`',
    ),
    Row(
        FILE_SYSTEM_KEY,
        "file_system",
        values.file_system,
        ", ".join(f"`{name}`" for name in values.FILE_SYSTEMS),
        "`--default-fstype`",
        "The long name with exactly these small letters, the short one in any; without effect on "
        "a claim for a raw device.",
        "any text is taken; the node then fails",
        also="fstype",
    ),
    Row(
        "blockSize",
        f"{FORMATTING}block_size",
        values.word,
        "as `mkfs` takes it; ext3, ext4, xfs",
        "`mkfs`'s",
        "As all options of file systems: refused for another file system and for a raw device.",
        _ON_NODE,
    ),
    Row(
        "inodeSize",
        f"{FORMATTING}inode_size",
        values.word,
        "as `mkfs` takes it; ext3, ext4, xfs",
        "`mkfs`'s",
        "As `blockSize`.",
        _ON_NODE,
    ),
    Row(
        "bytesPerInode",
        f"{FORMATTING}bytes_per_inode",
        values.word,
        "as `mkfs` takes it; ext3, ext4",
        "`mkfs`'s",
        "As `blockSize`.",
        _ON_NODE,
    ),
    Row(
        "numberOfInodes",
        f"{FORMATTING}number_of_inodes",
        values.word,
        "as `mkfs` takes it; ext3, ext4",
        "`mkfs`'s",
        "As `blockSize`.",
        _ON_NODE,
    ),
    Row(
        "ext4BigAlloc",
        f"{FORMATTING}ext4_big_alloc",
        values.boolean,
        f"{_BOOLEAN}; ext4",
        "`false`",
        "As `blockSize`.",
        _SILENT,
    ),
    Row(
        "ext4ClusterSize",
        f"{FORMATTING}ext4_cluster_size",
        values.word,
        "as `mkfs` takes it; ext4",
        "`mkfs`'s",
        "Needs `ext4BigAlloc`.",
        _ON_NODE,
    ),
    Row(
        "ext4EncryptionSupport",
        f"{FORMATTING}ext4_encryption_support",
        values.boolean,
        f"{_BOOLEAN}; ext4",
        "`false`",
        "As `blockSize`.",
        _SILENT,
    ),
    Row(
        "blockAttachUntilInitialized",
        "attaches_when_initialized",
        values.boolean,
        _BOOLEAN,
        "`false`",
        "A volume made of a snapshot or of another volume is attached, but its pod starts only "
        "once all data has arrived; an event on the claim says so.",
        _SILENT,
    ),
    Row(
        TAG_ROW,
        "tag_templates",
        values.ignored,
        "`key=value`, the value a [template](#tags)",
        _NOT_GIVEN,
        "What follows the prefix is free, the prefix's capitals are not. Key, value and number are "
        "checked against EC2's rules.",
        "EC2 refuses what breaks its rules; of a key given twice either value is taken",
    ),
    Row(
        "blockExpress",
        "",
        values.ignored,
        "anything",
        _NOT_GIVEN,
        "Without effect: all io2 volumes are Block Express.",
    ),
    Row(
        SECRET_ROW,
        "",
        values.ignored,
        "one of `" + "`, `".join(each.rstrip("-") for each in _SECRETS_OF if each) + "`, or none, "
        "before `secret-…`",
        _NOT_GIVEN,
        "Without effect, for EBS needs no secret: none is read, and none is written to the "
        "persistent volume.",
        "reads that of `provisioner` and writes the others to the persistent volume, so that they "
        "have to exist; uses none",
        also="csi.storage.k8s.io/…secret-namespace",
    ),
)


def markdown() -> str:
    """README's table, ours against the stock driver."""
    lines = [
        "| parameter | values | default | here | aws-ebs-csi-driver |",
        "|---|---|---|---|---|",
    ]
    for row in TABLE:
        names = f"`{row.name}`, `{row.also}`" if row.also else f"`{row.name}`"
        stock = row.stock[:1].upper() + row.stock[1:] + "."
        lines.append(f"| {names} | {row.values} | {row.default} | {row.here} | {stock} |")
    return "\n".join(lines)
