"""What a StorageClass does, for people: parameter by parameter, and for claims of several sizes.

Nothing is decided here: sizes are asked of ``provision.plan``, with a claim that nobody has.
"""

from collections.abc import Iterator
from dataclasses import replace

from provisioner.decide.provision import Plan, plan
from provisioner.decide.storage_class import ReadClass
from provisioner.model.claim import Claim, ClaimResources, ClaimSpec
from provisioner.model.meta import ObjectMeta
from provisioner.model.parameters import FILE_SYSTEM_KEY, Parameters, spelt
from provisioner.model.volume import CreateRequest
from provisioner.model.volume_type import VOLUME_TYPES

# Takes every option that any file system takes: what it refuses, a class cannot have at all.
MOST_ABLE = "ext4"
_SHOWN_GIB = (100, 1_000)
_DEFAULT_KEY = "the account's default key"


def effects(read_class: ReadClass, *, default_file_system: str) -> Iterator[tuple[str, str]]:
    """What each parameter does, by its name, and what goes without saying of the rest."""
    wanted = read_class.parameters
    low, high = VOLUME_TYPES[wanted.volume_type].size_gib
    yield "type", f"{wanted.volume_type}, which has {low:,} to {high:,} GiB"
    yield from _about_speed(wanted)
    key = f"yes, with {wanted.kms_key_id or _DEFAULT_KEY}"
    yield "encrypted", key if wanted.encrypted else "only where that is the account's default"
    yield from _about_restores(wanted)
    said = wanted.file_system or f"{default_file_system} (the controller's --default-fstype)"
    yield FILE_SYSTEM_KEY, f"{said}, unless the claim is for a raw block device"
    for name, value in wanted.formatting.attributes().items():
        yield spelt([name]), f"{value}, when the file system is made"
    for each in wanted.tag_templates:
        yield "tag", f"{each.key}={each.text}"


def speeds(read_class: ReadClass) -> Iterator[tuple[str, str]]:
    """What claims of some sizes get, from the smallest of the type to its largest."""
    low, high = VOLUME_TYPES[read_class.parameters.volume_type].size_gib
    for size_gib in sorted({low, *_SHOWN_GIB, high}):
        found = planned(read_class, size_gib)
        yield f"{size_gib:,} GiB", found if isinstance(found, str) else _speed_of(found.request)


def _speed_of(request: CreateRequest) -> str:
    """The speed that is asked for, and the IOPS that AWS documents where a class asks for more."""
    limits, told = VOLUME_TYPES[request.volume_type].iops, []
    if request.iops is not None:
        told.append(f"{min(request.iops, limits[1]) if limits else request.iops:,} IOPS")
    if request.throughput_mibps is not None:
        told.append(f"{request.throughput_mibps:,} MiB/s")
    return ", ".join(told) or "as fast as EC2 makes its type and size"


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

    Without the class's tags, which are looked at by themselves, and without a region's ceiling of
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


def _about_speed(wanted: Parameters) -> Iterator[tuple[str, str]]:
    if wanted.iops is not None:
        yield "iops", f"{wanted.iops:,} IOPS for every volume"
    if wanted.iops_per_gib is not None:
        yield "iopsPerGB", f"{wanted.iops_per_gib:,} IOPS for each GiB of a volume"
    if wanted.raises_iops_to_minimum:
        yield "allowAutoIOPSPerGBIncrease", "fewer IOPS than the type's minimum are raised"
    if wanted.iops_follow_growth is not None:
        does = "grow with the volume" if wanted.iops_follow_growth else "stay when it grows"
        yield "allowAutoIOPSIncreaseOnModify", f"in the volume's tags: IOPS {does}"
    if wanted.throughput_mibps is not None:
        yield "throughput", f"{wanted.throughput_mibps:,} MiB/s for every volume"


def _about_restores(wanted: Parameters) -> Iterator[tuple[str, str]]:
    if wanted.initialization_rate_mibps is not None:
        rate = f"{wanted.initialization_rate_mibps:,} MiB/s"
        does = f"{rate} for the data of volumes made of snapshots"
        yield "volumeInitializationRate", does
    if wanted.attaches_when_initialized:
        does = "pods wait until all data of a volume made of a snapshot or volume has arrived"
        yield "blockAttachUntilInitialized", does
