"""What a StorageClass does, and what is wrong with it, before any claim uses it.

A class is *impossible* if no claim of it can ever get a volume, from any driver and in any cluster:
an unknown parameter, less than a type's minimum, more tags than EC2 allows. The webhook denies
those. Everything else that may surprise a user is a *doubt*: it is reported and never denied. That
includes classes that only this controller refuses, because the webhook may run beside
aws-ebs-csi-driver 1.64, which accepts them.

The rules are those by which claims are provisioned; none is repeated here.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from provisioner.classes.storage_class_rules import (
    FILE_SYSTEM_KEY,
    SECRET_KEYS,
    TABLE,
    Parameters,
    ReadClass,
    boolean,
    read,
    spelt,
)
from provisioner.controller.placement.zone_rules import NoZone, candidates
from provisioner.controller.provisioning.plan_rules import Plan, plan
from provisioner.model import tags
from provisioner.model import zone as zones
from provisioner.model.claim import Claim, ClaimResources, ClaimSpec
from provisioner.model.driver import EBS_DRIVER
from provisioner.model.errors import Reason, RefusedHereError
from provisioner.model.meta import ObjectMeta
from provisioner.model.sentences import listed
from provisioner.model.storage_class import (
    BINDING_MODES,
    RECLAIM_POLICIES,
    WAIT_FOR_FIRST_CONSUMER,
    StorageClass,
)
from provisioner.model.volume import CreateRequest
from provisioner.model.volume_type import VOLUME_TYPES
from provisioner.model.zone import TopologyTerm

# It accepts every option that any file system accepts, so what it refuses no class can have.
MOST_CAPABLE = "ext4"
_SHOWN_GIB = (100, 1_000)
_DEFAULT_KEY = "the account's default key"
_ONLY_HERE = "this controller refuses it, although aws-ebs-csi-driver accepts it"
_BOOLEANS = frozenset(row.name.lower() for row in TABLE if row.parser is boolean)
# A sample claim: a template that fails for its name may work for another one.
_SAMPLE = tags.Owner("default", "data", "pvc-00000000-0000-4000-8000-000000000000", "Delete")
_CLUSTER_ID = "of-the-check"

Rows = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class NodeZone:
    """Where a node is; ``zone`` and ``zone_id`` are "" if its labels do not say."""

    zone: str
    has_driver: bool
    zone_id: str = ""


@dataclass(frozen=True, slots=True)
class Findings:
    """What is wrong with a class; each sentence leaves out the name of the class.

    Attributes:
        impossible: why no claim can ever get a volume, from any driver.
        doubts: what may not be intended; empty if the class is impossible.
        works: whether some claim can get a volume from this controller.
    """

    impossible: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    works: bool = True


@dataclass(frozen=True, slots=True)
class Check:
    """The findings about a class, and rows of text: its parameters, and what some sizes get."""

    findings: Findings
    effects: Rows = ()
    sizes: Rows = ()


def node_zone(labels: Mapping[str, str], *, has_driver: bool) -> NodeZone:
    """Where a node is, by its labels."""
    return NodeZone(zones.zone_of(labels) or "", has_driver, labels.get(zones.ZONE_ID_KEY, ""))


def check(
    storage_class: StorageClass,
    *,
    default_file_system: str,
    nodes: Collection[NodeZone] | None = None,
) -> Check:
    """The findings about a class of ours, its parameters, and what some sizes get."""
    found = findings(storage_class, nodes, default_file_system=default_file_system)
    try:
        read_class = read(storage_class)
    except ValueError:
        return Check(found)
    rows = effects(read_class, default_file_system=default_file_system)
    return Check(found, tuple(rows), tuple(speeds(read_class)))


def findings(
    storage_class: StorageClass,
    nodes: Collection[NodeZone] | None = None,
    *,
    default_file_system: str = MOST_CAPABLE,
) -> Findings:
    """What is wrong with a class of ours; nothing for a sound one.

    Args:
        storage_class: the class.
        nodes: all of the cluster, None if they are not known.
        default_file_system: the controller's, for classes that name none, if it is known.
    """
    wrong = [*_refused_by_kubernetes(storage_class)]
    try:
        read_class = read(storage_class)
    except RefusedHereError as error:
        refused_here = () if wrong else (f"{_ONLY_HERE}: {error}",)
        return Findings(tuple(wrong), refused_here, works=False)
    except ValueError as error:
        return Findings((*wrong, str(error)), works=False)
    wrong += [*_impossible_sizes(read_class), *_impossible_places(read_class)]
    if wrong:
        return Findings(tuple(wrong), works=False)
    refused = [f"{_ONLY_HERE}: {each}" for each in _places_refused_here(read_class)]
    doubts = (
        *_about_binding(read_class, nodes),
        *_about_empty_zones(read_class, nodes),
        *_about_maxima(read_class),
        *_about_no_effect(read_class),
        *_about_modes(read_class, default_file_system),
        *_about_tags(read_class),
        *_about_the_stock_driver(read_class),
    )
    return Findings(doubts=(*refused, *doubts), works=not refused)


def _refused_by_kubernetes(storage_class: StorageClass) -> Iterator[str]:
    """Values that a file can have, but no class in a cluster: Kubernetes 1.36 validates them."""
    for field, value, known in (
        ("volumeBindingMode", storage_class.volume_binding_mode, BINDING_MODES),
        ("reclaimPolicy", storage_class.reclaim_policy, RECLAIM_POLICIES),
    ):
        if value is not None and value not in known:
            yield f"{field} {value[:100]!r} is not one of {', '.join(known)}"


def _impossible_sizes(read_class: ReadClass) -> Iterator[str]:
    if (why := refusal(read_class)) is not None:
        yield f"no claim of any size can work: {why}"
    if (why := _too_many_tags(read_class, cluster_id="")) is not None:
        yield f"no claim can work: {why}"


def _impossible_places(read_class: ReadClass) -> Iterator[str]:
    # The scheduler finds no node. With Immediate, the stock driver reads only one of two keys.
    if read_class.storage_class.waits_for_consumer and _is_dead(read_class):
        found = candidates(read_class, ())
        if isinstance(found, NoZone):
            yield found.message


def _places_refused_here(read_class: ReadClass) -> Iterator[str]:
    """Topologies for which the stock driver chooses a zone by itself, so it creates volumes."""
    if read_class.storage_class.waits_for_consumer:
        return
    found = candidates(read_class, (), None if _is_dead(read_class) else {})
    # Other reasons are about nodes, which may join later, or about ids, which only EC2 knows.
    if isinstance(found, NoZone) and (_is_dead(read_class) or found.reason is Reason.INVALID_CLASS):
        yield found.message


def _is_dead(read_class: ReadClass) -> bool:
    """Whether no place meets any term of the class, whatever nodes there are."""
    terms = read_class.allowed_topologies
    return bool(terms) and all(_is_dead_term(term) for term in terms)


def _is_dead_term(term: TopologyTerm) -> bool:
    """Whether no place meets one term; zone ids do not count, because only EC2 knows them."""
    no_zone = zones.zones_of_term(term) == frozenset()
    return no_zone or not all(zones.outpost_of_term(term).values())


def zones_at_once(
    *, waits: bool, allowed: Collection[str] | None, registered: Collection[str]
) -> frozenset[str]:
    """The zones among which a claim's name decides, not its pod; empty if there is no choice.

    Args:
        waits: whether the class waits for the first consumer.
        allowed: the zones that the class allows, None for all.
        registered: the zones in which nodes have the driver.
    """
    possible = frozenset(registered if allowed is None else allowed)
    return frozenset() if waits or len(possible) <= 1 else possible


def empty_zones(allowed: Collection[str] | None, inhabited: Collection[str]) -> frozenset[str]:
    """The zones that a class names and no node is in; empty while no zone of any node is known."""
    return frozenset(allowed or ()) - frozenset(inhabited) if inhabited else frozenset()


def allowed_zones(
    read_class: ReadClass, nodes: Collection[NodeZone] | None
) -> frozenset[str] | None:
    """The zones that a class allows, None for all; an id that no node has stands for itself."""
    names = _zone_names(nodes)
    terms = [_zones_of_term(term, names) for term in read_class.allowed_topologies]
    named = [each for each in terms if each is not None]
    return frozenset().union(*named) if terms and len(named) == len(terms) else None


def _zones_of_term(term: TopologyTerm, names: Mapping[str, str]) -> frozenset[str] | None:
    named, ids = zones.zones_of_term(term), zones.zone_ids([term])
    if named is not None and not ids <= names.keys():
        return named  # only EC2 knows which of them the ids mean
    return zones.zones_of_term(term, {each: each for each in ids} | dict(names))


def _zone_names(nodes: Collection[NodeZone] | None) -> dict[str, str]:
    """The names of zones by their ids, from the labels of nodes."""
    return {node.zone_id: node.zone for node in nodes or () if node.zone_id and node.zone}


def _zones_of(nodes: Iterable[NodeZone]) -> frozenset[str]:
    return frozenset(node.zone for node in nodes if node.zone)


def _about_binding(read_class: ReadClass, nodes: Collection[NodeZone] | None) -> Iterator[str]:
    if read_class.storage_class.waits_for_consumer:
        return
    allowed = allowed_zones(read_class, nodes)
    remedy = f"use volumeBindingMode {WAIT_FOR_FIRST_CONSUMER}"
    if allowed is None and nodes is None:
        yield (
            "it binds immediately, so volumes may be created in zones where their pods cannot run; "
            f"{remedy}"
        )
        return
    registered = _zones_of(node for node in nodes or () if node.has_driver)
    possible = zones_at_once(waits=False, allowed=allowed, registered=registered)
    if possible:
        where = listed(possible)
        yield (
            f"it binds immediately, so volumes may be created in {where} regardless of where their "
            f"pods can run; {remedy}"
        )


def _about_empty_zones(read_class: ReadClass, nodes: Collection[NodeZone] | None) -> Iterator[str]:
    inhabited = _zones_of(nodes or ())
    empty = empty_zones(allowed_zones(read_class, nodes), inhabited)
    if not _zone_names(nodes):  # nodes without the label prove nothing
        empty -= zones.zone_ids(read_class.allowed_topologies)
    if empty:
        yield (
            f"allowedTopologies names {listed(empty, 'and')}, where no node is (misspelled?); "
            f"nodes are in {listed(inhabited, 'and')}"
        )


def _about_maxima(read_class: ReadClass) -> Iterator[str]:
    """A doubt and no refusal, because AWS raises its limits from time to time."""
    wanted = read_class.parameters
    limits = VOLUME_TYPES[wanted.volume_type]
    for asked, bounds, unit in (
        (wanted.iops, limits.iops, "IOPS"),
        (wanted.throughput_mibps, limits.throughput_mibps, "MiB/s"),
    ):
        if asked is not None and bounds is not None and asked > bounds[1]:
            yield (
                f"it requests {asked:,} {unit}, but AWS documents at most {bounds[1]:,} for "
                f"{wanted.volume_type}; volumes may get less, or EC2 may refuse them"
            )


def _about_no_effect(read_class: ReadClass) -> Iterator[str]:
    wanted, given = read_class.parameters, read_class.storage_class.parameters or {}
    if wanted.iops_per_gib is None:
        if wanted.iops is None and wanted.raises_iops_to_minimum and not read_class.is_in_tree:
            yield "allowAutoIOPSPerGBIncrease has no effect without iops or iopsPerGB"
        if wanted.iops_follow_growth:
            yield "allowAutoIOPSIncreaseOnModify has no effect without iopsPerGB"
        has_none = VOLUME_TYPES[wanted.volume_type].iops is None
        if read_class.is_in_tree and has_none and "iopspergb" in map(str.lower, given):
            yield (
                f"iopsPerGB has no effect on volumes of type {wanted.volume_type}; the in-tree "
                "plugin ignored it too"
            )
    if read_class.is_in_tree and (lost := wanted.attributes()):
        yield (
            f"{spelt(lost)} cannot take effect: PersistentVolumes in the in-tree plugin's form "
            f"cannot store it; use a class with provisioner {EBS_DRIVER}"
        )
    if secrets := SECRET_KEYS & given.keys():
        yield (
            f"{listed(secrets, 'and')} have no effect: EBS needs no secrets, so none is read or "
            "written to PersistentVolumes"
        )


def _about_modes(read_class: ReadClass, default_file_system: str) -> Iterator[str]:
    if (why := refusal(read_class, block=True)) is not None:
        yield f"claims with volumeMode Block are refused: {why}"
    if (why := refusal(read_class, default_file_system)) is not None:
        yield f"claims with a file system are refused: {why}"


def _about_tags(read_class: ReadClass) -> Iterator[str]:
    """Tags that do not work for some claims, or with some options of the controller."""
    for template in read_class.parameters.tag_templates:
        try:
            tags.rendered([template], _SAMPLE)
        except ValueError as error:
            what = f"{_SAMPLE.claim_namespace}/{_SAMPLE.claim_name}"
            yield f"a tag cannot be rendered for a claim named {what}: {error}"
    if (why := _too_many_tags(read_class, cluster_id=_CLUSTER_ID)) is not None:
        yield f"with --cluster-id, no claim can work: {why}"


def _too_many_tags(read_class: ReadClass, *, cluster_id: str) -> str | None:
    """Why a volume cannot carry so many tags besides those that it always has; None if it can."""
    wanted = read_class.parameters
    try:
        tags.of_new_volume(
            _SAMPLE,
            cluster_id=cluster_id,
            extra={each.key: "" for each in wanted.tag_templates},
            iops_per_gib=wanted.iops_per_gib,
            iops_follow_growth=wanted.iops_follow_growth,
        )
    except ValueError as error:
        return str(error)
    return None


def _about_the_stock_driver(read_class: ReadClass) -> Iterator[str]:
    """What aws-ebs-csi-driver v1.64 reads differently; it may lead before or after us."""
    for name, text in (read_class.storage_class.parameters or {}).items():
        if name.lower() in _BOOLEANS and text != "true" and boolean(text):
            yield f'aws-ebs-csi-driver reads {name} {text!r} as false; write "true"'
    if read_class.parameters.initialization_rate_mibps is not None:
        yield (
            "with volumeInitializationRate, aws-ebs-csi-driver can create volumes from snapshots "
            "only: EC2 refuses its other requests"
        )


def refusal(
    read_class: ReadClass, default_file_system: str = MOST_CAPABLE, *, block: bool = False
) -> str | None:
    """Why no claim works, with a file system or for a raw device; None if one does."""
    _, largest_gib = VOLUME_TYPES[read_class.parameters.volume_type].size_gib
    found = _planned(read_class, largest_gib, default_file_system, block=block)
    return found if isinstance(found, str) else None


def speeds(read_class: ReadClass) -> Iterator[tuple[str, str]]:
    """What claims of some sizes get, from the smallest of the type to its largest."""
    low, high = VOLUME_TYPES[read_class.parameters.volume_type].size_gib
    for size_gib in sorted({low, *_SHOWN_GIB, high}):
        found = _planned(read_class, size_gib)
        yield f"{size_gib:,} GiB", found if isinstance(found, str) else _speed_of(found.request)


def _planned(
    read_class: ReadClass,
    size_gib: int,
    default_file_system: str = MOST_CAPABLE,
    *,
    block: bool = False,
) -> Plan | str:
    """The volume for a claim of a size, or why there is none.

    The class's tags are left out: they are checked by themselves. So is a region's ceiling of IOPS,
    which only EC2 knows.
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


def _speed_of(request: CreateRequest) -> str:
    """The speed that is requested; IOPS are capped at the maximum that AWS documents."""
    limits, parts = VOLUME_TYPES[request.volume_type].iops, []
    if request.iops is not None:
        parts.append(f"{min(request.iops, limits[1]) if limits else request.iops:,} IOPS")
    if request.throughput_mibps is not None:
        parts.append(f"{request.throughput_mibps:,} MiB/s")
    return ", ".join(parts) or "EC2's default speed for its type and size"


def effects(read_class: ReadClass, *, default_file_system: str) -> Iterator[tuple[str, str]]:
    """What each parameter does, by its name, with the defaults that matter."""
    wanted = read_class.parameters
    low, high = VOLUME_TYPES[wanted.volume_type].size_gib
    yield "type", f"{wanted.volume_type}, from {low:,} to {high:,} GiB"
    yield from _about_speed(wanted)
    key = f"yes, with {wanted.kms_key_id or _DEFAULT_KEY}"
    yield "encrypted", key if wanted.encrypted else "only if that is the account's default"
    if wanted.initialization_rate_mibps is not None:
        rate = f"{wanted.initialization_rate_mibps:,} MiB/s"
        yield "volumeInitializationRate", f"{rate}, for volumes created from snapshots"
    if wanted.attaches_when_initialized:
        does = "pods wait until all data is loaded, if created from a snapshot or another volume"
        yield "blockAttachUntilInitialized", does
    name = wanted.file_system or f"{default_file_system} (the controller's --default-fstype)"
    yield FILE_SYSTEM_KEY, f"{name}, unless the claim is for a raw block device"
    for name, value in wanted.formatting.attributes().items():
        yield spelt([name]), f"{value}, when the file system is created"
    for each in wanted.tag_templates:
        yield "tag", f"{each.key}={each.text}"


def _about_speed(wanted: Parameters) -> Iterator[tuple[str, str]]:
    if wanted.iops is not None:
        yield "iops", f"{wanted.iops:,} IOPS for every volume"
    if wanted.iops_per_gib is not None:
        yield "iopsPerGB", f"{wanted.iops_per_gib:,} IOPS for each GiB of a volume"
    if wanted.raises_iops_to_minimum:
        yield "allowAutoIOPSPerGBIncrease", "IOPS below the type's minimum are raised to it"
    if wanted.iops_follow_growth is not None:
        does = "grow with the volume" if wanted.iops_follow_growth else "stay as they are"
        yield "allowAutoIOPSIncreaseOnModify", f"stored in the volume's tags: IOPS {does}"
    if wanted.throughput_mibps is not None:
        yield "throughput", f"{wanted.throughput_mibps:,} MiB/s for every volume"
