"""What a StorageClass does, for people: parameter by parameter, and for claims of several sizes.

Nothing is decided here: the sizes are asked of ``provision.plan``, with a claim that nobody has.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from provisioner.decide.provision import Plan, plan
from provisioner.decide.storage_class import ReadClass
from provisioner.model.claim import Claim, ClaimResources, ClaimSpec
from provisioner.model.meta import ObjectMeta
from provisioner.model.parameters import FILE_SYSTEM_KEY, Formatting, Parameters
from provisioner.model.volume import CreateRequest
from provisioner.model.volume_type import VOLUME_TYPES

# Takes every option that any file system takes: what it refuses, a class cannot have at all.
MOST_ABLE = "ext4"
_SHOWN_GIB = (100, 1_000)
_DEFAULT_KEY = "the account's default key"


@dataclass(frozen=True, slots=True)
class Effect:
    """What one parameter does; ``name`` as it is documented."""

    name: str
    does: str


@dataclass(frozen=True, slots=True)
class SizeEffect:
    """What a claim of a size gets. IOPS and MiB/s are None where EC2 chooses."""

    size_gib: int
    iops: int | None
    throughput_mibps: int | None


def effects(read_class: ReadClass, *, default_file_system: str) -> tuple[Effect, ...]:
    """What the parameters do, and what goes without saying of the rest."""
    wanted = read_class.parameters
    return (
        Effect("type", f"{wanted.volume_type}, {_sizes_of(wanted.volume_type)}"),
        *_about_speed(wanted),
        Effect("encrypted", _encryption(wanted)),
        *_about_restores(wanted),
        _file_system(wanted, default_file_system),
        *_about_formatting(wanted.formatting),
        *(Effect("tag", f"{each.key}={each.text}") for each in wanted.tag_templates),
    )


def size_effects(read_class: ReadClass) -> tuple[SizeEffect, ...]:
    """What claims get: of the smallest size that works, of the largest, and where it differs."""
    largest = largest_gib(read_class)
    smallest = smallest_gib(read_class)
    if smallest is None:
        return ()
    sizes = sorted({smallest, largest, *(s for s in _SHOWN_GIB if smallest < s < largest)})
    plans = [planned(read_class, size_gib) for size_gib in sizes]
    requests = [each.request for each in plans if isinstance(each, Plan)]
    shown = [SizeEffect(r.size_gib, _documented(r), r.throughput_mibps) for r in requests]
    speeds = [(each.iops, each.throughput_mibps) for each in shown]
    dull = {at for at in range(1, len(shown) - 1) if speeds[at] == speeds[at - 1]}
    return tuple(each for at, each in enumerate(shown) if at not in dull)


def _documented(request: CreateRequest) -> int | None:
    """The IOPS that AWS documents, where a class asks for more."""
    limits = VOLUME_TYPES[request.volume_type].iops
    if request.iops is None or limits is None:
        return request.iops
    return min(request.iops, limits[1])


def smallest_gib(read_class: ReadClass) -> int | None:
    """The smallest claim that works; None when even the largest does not.

    Every limit below which a size is refused is one that a larger size meets.
    """
    low, high = 1, largest_gib(read_class)
    if isinstance(planned(read_class, high), str):
        return None
    while low < high:
        middle = (low + high) // 2
        if isinstance(planned(read_class, middle), str):
            low = middle + 1
        else:
            high = middle
    return low


def refusal(read_class: ReadClass, default_file_system: str = MOST_ABLE) -> str | None:
    """Why no claim of any size with a file system can work; None when one can."""
    found = planned(read_class, largest_gib(read_class), default_file_system=default_file_system)
    return found if isinstance(found, str) else None


def refusal_of_block(read_class: ReadClass) -> str | None:
    """Why no claim with volumeMode Block can work; None when one can."""
    found = planned(read_class, largest_gib(read_class), block=True)
    return found if isinstance(found, str) else None


def largest_gib(read_class: ReadClass) -> int:
    """The largest size that AWS documents for the class's volume type."""
    return VOLUME_TYPES[read_class.parameters.volume_type].size_gib[1]


def planned(
    read_class: ReadClass,
    size_gib: int,
    *,
    block: bool = False,
    default_file_system: str = MOST_ABLE,
) -> Plan | str:
    """What is made for a claim of a size, else why nothing is.

    Without the class's tags, for which ``class_tags`` answers, and without a region's ceiling of
    IOPS, which only EC2 can tell: AWS raises what it documents, so that proves nothing.
    """
    claim = Claim(
        metadata=ObjectMeta(name="data", namespace="default", uid="of-the-check"),
        spec=ClaimSpec(
            access_modes=["ReadWriteOnce"],
            resources=ClaimResources(requests={"storage": f"{size_gib}Gi"}),
            volume_mode="Block" if block else "Filesystem",
        ),
    )
    wanted = replace(read_class.parameters, tag_templates=())
    found = plan(
        claim,
        replace(read_class, parameters=wanted),
        zone="",
        cluster_id="",
        extra_tags=(),
        default_file_system=default_file_system,
    )
    return found if isinstance(found, Plan) else found.message


def _sizes_of(volume_type: str) -> str:
    low, high = VOLUME_TYPES[volume_type].size_gib
    return f"which has {low:,} to {high:,} GiB"


def _about_speed(wanted: Parameters) -> Iterator[Effect]:
    if wanted.iops is not None:
        yield Effect("iops", f"{wanted.iops:,} IOPS for every volume")
    if wanted.iops_per_gib is not None:
        yield Effect("iopsPerGB", f"{wanted.iops_per_gib:,} IOPS for each GiB of a volume")
    if wanted.raises_iops_to_minimum:
        yield Effect("allowAutoIOPSPerGBIncrease", "fewer IOPS than the type's minimum are raised")
    if wanted.iops_follow_growth is not None:
        does = "grow with the volume" if wanted.iops_follow_growth else "stay when it grows"
        yield Effect("allowAutoIOPSIncreaseOnModify", f"in the volume's tags: IOPS {does}")
    if wanted.throughput_mibps is not None:
        yield Effect("throughput", f"{wanted.throughput_mibps:,} MiB/s for every volume")


def _encryption(wanted: Parameters) -> str:
    if not wanted.encrypted:
        return "only where that is the account's default"
    return f"yes, with {wanted.kms_key_id or _DEFAULT_KEY}"


def _about_restores(wanted: Parameters) -> Iterator[Effect]:
    if wanted.initialization_rate_mibps is not None:
        rate = f"{wanted.initialization_rate_mibps:,} MiB/s"
        does = f"{rate} for the data of volumes made of snapshots"
        yield Effect("volumeInitializationRate", does)
    if wanted.attaches_when_initialized:
        does = "pods wait until all data of a volume made of a snapshot or volume has arrived"
        yield Effect("blockAttachUntilInitialized", does)


def _file_system(wanted: Parameters, default: str) -> Effect:
    said = wanted.file_system or f"{default} (the controller's --default-fstype)"
    return Effect(FILE_SYSTEM_KEY, f"{said}, unless the claim is for a raw block device")


def _about_formatting(formatting: Formatting) -> Iterator[Effect]:
    sizes = {
        "blockSize": formatting.block_size,
        "inodeSize": formatting.inode_size,
        "bytesPerInode": formatting.bytes_per_inode,
        "numberOfInodes": formatting.number_of_inodes,
        "ext4ClusterSize": formatting.ext4_cluster_size,
    }
    for name, value in sizes.items():
        if value is not None:
            yield Effect(name, f"{value}, when the file system is made")
    if formatting.ext4_big_alloc:
        yield Effect("ext4BigAlloc", "blocks are allocated in clusters")
    if formatting.ext4_encryption_support:
        yield Effect("ext4EncryptionSupport", "the file system can encrypt folders")
