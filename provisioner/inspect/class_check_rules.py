"""Say what a StorageClass does, and what is wrong with it before any claim names it.

It is *impossible* if no claim of it can ever get a volume, whoever makes it and whatever the
cluster becomes: an unknown parameter, less than a type has, more tags than EC2 takes. The webhook
denies those. All else that may surprise is a *doubt*: it is told, and never denied; also that this
controller makes no volume where aws-ebs-csi-driver 1.64 does, beside which the webhook may work.
The rules are those by which claims are provisioned; none is written here a second time.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from provisioner.classes.storage_class_rules import ReadClass, read
from provisioner.controller.placement.zone_rules import NoZone, candidates
from provisioner.controller.provisioning.rules import Plan, plan
from provisioner.model import parameters, tags
from provisioner.model import zone as zones
from provisioner.model.claim import Claim, ClaimResources, ClaimSpec
from provisioner.model.driver import EBS_DRIVER
from provisioner.model.errors import Reason, RefusedHereError
from provisioner.model.meta import ObjectMeta
from provisioner.model.parameters import FILE_SYSTEM_KEY, SECRET_KEYS, TABLE, Parameters, spelt
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

# Takes every option that any file system takes: what it refuses, a class cannot have at all.
MOST_ABLE = "ext4"
_SHOWN_GIB = (100, 1_000)
_DEFAULT_KEY = "the account's default key"
_HERE = "this controller makes no volume of it, though aws-ebs-csi-driver does"
_BOOLEANS = frozenset(row.name.lower() for row in TABLE if row.parser is parameters.boolean)
# Another name may do where this one does not, so what it shows is no proof.
_SAMPLE = tags.Owner("default", "data", "pvc-00000000-0000-4000-8000-000000000000", "Delete")
_CLUSTER_ID = "of-the-check"

Rows = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Located:
    """A node, as far as it matters; ``zone`` and ``zone_id`` are "" if its labels do not tell."""

    zone: str
    has_driver: bool
    zone_id: str = ""


@dataclass(frozen=True, slots=True)
class Findings:
    """What is wrong with a class, each a sentence without its subject's name.

    Attributes:
        impossible: why no claim can ever get a volume, whoever makes it.
        doubts: what may not be as it was meant; none where it is impossible.
        works: whether some claim can get a volume from this controller.
    """

    impossible: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    works: bool = True


@dataclass(frozen=True, slots=True)
class Check:
    """All that there is to say about a class: its parameters and some sizes, as rows of text."""

    findings: Findings
    effects: Rows = ()
    sizes: Rows = ()


def located(labels: Mapping[str, str], *, has_driver: bool) -> Located:
    """A node by its labels."""
    return Located(zones.zone_of(labels) or "", has_driver, labels.get(zones.ZONE_ID_KEY, ""))


def check(
    storage_class: StorageClass,
    *,
    default_file_system: str,
    nodes: Collection[Located] | None = None,
) -> Check:
    """All that there is to say about a class of ours."""
    found = findings(storage_class, nodes, default_file_system=default_file_system)
    try:
        read_class = read(storage_class)
    except ValueError:
        return Check(found)
    told = effects(read_class, default_file_system=default_file_system)
    return Check(found, tuple(told), tuple(speeds(read_class)))


def findings(
    storage_class: StorageClass,
    nodes: Collection[Located] | None = None,
    *,
    default_file_system: str = MOST_ABLE,
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
        told = () if wrong else (f"{_HERE}: {error}",)
        return Findings(tuple(wrong), told, works=False)
    except ValueError as error:
        return Findings((*wrong, str(error)), works=False)
    wrong += [*_impossible_sizes(read_class), *_impossible_places(read_class)]
    if wrong:
        return Findings(tuple(wrong), works=False)
    refused = [f"{_HERE}: {each}" for each in _places_refused_here(read_class)]
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
    """What a file may say, and no class in a cluster: Kubernetes 1.36 validates these."""
    for field, value, known in (
        ("volumeBindingMode", storage_class.volume_binding_mode, BINDING_MODES),
        ("reclaimPolicy", storage_class.reclaim_policy, RECLAIM_POLICIES),
    ):
        if value is not None and value not in known:
            yield f"{field} {value[:100]!r} is not one of {', '.join(known)}"


def _impossible_sizes(read_class: ReadClass) -> Iterator[str]:
    if (why := refusal(read_class)) is not None:
        yield f"no claim works, whatever its size: {why}"
    if (why := _too_many_tags(read_class, cluster_id="")) is not None:
        yield f"no claim works, whatever its name: {why}"


def _impossible_places(read_class: ReadClass) -> Iterator[str]:
    # The scheduler finds no node. Of what binds at once, the stock driver reads one of two keys.
    if read_class.storage_class.waits_for_consumer and _is_dead(read_class):
        found = candidates(read_class, ())
        if isinstance(found, NoZone):
            yield found.message


def _places_refused_here(read_class: ReadClass) -> Iterator[str]:
    """Topologies for which the stock driver takes a zone of its own choice, with its volumes."""
    if read_class.storage_class.waits_for_consumer:
        return
    found = candidates(read_class, (), None if _is_dead(read_class) else {})
    # Any other reason is one of nodes, which may come, or of ids, which only EC2 can tell.
    if isinstance(found, NoZone) and (_is_dead(read_class) or found.reason is Reason.INVALID_CLASS):
        yield found.message


def _is_dead(read_class: ReadClass) -> bool:
    """Whether no place meets any term of the class, whatever nodes there are."""
    terms = read_class.allowed_topologies
    return bool(terms) and all(_is_dead_term(term) for term in terms)


def _is_dead_term(term: TopologyTerm) -> bool:
    """Whether no place meets one term; zone ids only EC2 can tell."""
    no_zone = zones.zones_of_term(term) == frozenset()
    return no_zone or not all(zones.outpost_of_term(term).values())


def zones_at_once(
    *, waits: bool, allowed: Collection[str] | None, registered: Collection[str]
) -> frozenset[str]:
    """The zones among which the claim's name decides, not its pod; empty if nothing is at stake.

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
    read_class: ReadClass, nodes: Collection[Located] | None
) -> frozenset[str] | None:
    """The zones that a class allows, None for all; an id that no node has stands for itself."""
    names = _zone_names(nodes)
    terms = [_zones_of_term(term, names) for term in read_class.allowed_topologies]
    named = [each for each in terms if each is not None]
    return frozenset().union(*named) if terms and len(named) == len(terms) else None


def _zones_of_term(term: TopologyTerm, names: Mapping[str, str]) -> frozenset[str] | None:
    named, ids = zones.zones_of_term(term), zones.zone_ids([term])
    if named is not None and not ids <= names.keys():
        return named  # which of them the ids mean, only EC2 can tell
    return zones.zones_of_term(term, {each: each for each in ids} | dict(names))


def _zone_names(nodes: Collection[Located] | None) -> dict[str, str]:
    """The names of zones by their ids, as nodes tell them."""
    return {node.zone_id: node.zone for node in nodes or () if node.zone_id and node.zone}


def _zones_of(nodes: Iterable[Located]) -> frozenset[str]:
    return frozenset(node.zone for node in nodes if node.zone)


def _about_binding(read_class: ReadClass, nodes: Collection[Located] | None) -> Iterator[str]:
    if read_class.storage_class.waits_for_consumer:
        return
    allowed = allowed_zones(read_class, nodes)
    remedy = f"volumeBindingMode {WAIT_FOR_FIRST_CONSUMER} makes them where they run"
    if allowed is None and nodes is None:
        yield f"it binds at once, so volumes may be made where their pods cannot run; {remedy}"
        return
    registered = _zones_of(node for node in nodes or () if node.has_driver)
    possible = zones_at_once(waits=False, allowed=allowed, registered=registered)
    if possible:
        where = listed(possible)
        yield f"it binds at once, so volumes may be made in {where} whatever pods need; {remedy}"


def _about_empty_zones(read_class: ReadClass, nodes: Collection[Located] | None) -> Iterator[str]:
    inhabited = _zones_of(nodes or ())
    empty = empty_zones(allowed_zones(read_class, nodes), inhabited)
    if not _zone_names(nodes):  # nodes without that label are no proof
        empty -= zones.zone_ids(read_class.allowed_topologies)
    if empty:
        yield (
            f"allowedTopologies name {listed(empty, 'and')}, where no node is; is it misspelt? "
            f"Nodes are in {listed(inhabited, 'and')}"
        )


def _about_maxima(read_class: ReadClass) -> Iterator[str]:
    """AWS raises its limits, so ours are told of, and EC2 is asked."""
    wanted = read_class.parameters
    limits = VOLUME_TYPES[wanted.volume_type]
    for asked, bounds, unit in (
        (wanted.iops, limits.iops, "IOPS"),
        (wanted.throughput_mibps, limits.throughput_mibps, "MiB/s"),
    ):
        if asked is not None and bounds is not None and asked > bounds[1]:
            yield (
                f"it asks for {asked:,} {unit}, and AWS documents at most {bounds[1]:,} for "
                f"{wanted.volume_type}; volumes may get less, or be refused by EC2"
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
                "plugin ignored it, too"
            )
    if read_class.is_in_tree and (lost := wanted.attributes()):
        yield (
            f"{spelt(lost)} cannot take effect: persistent volumes in the in-tree plugin's form "
            f"have no place for that; those of a class with provisioner {EBS_DRIVER} have"
        )
    if secrets := SECRET_KEYS & given.keys():
        yield (
            f"{listed(secrets, 'and')} have no effect: EBS needs no secret, so none is read or "
            "written to persistent volumes"
        )


def _about_modes(read_class: ReadClass, default_file_system: str) -> Iterator[str]:
    if (why := refusal(read_class, block=True)) is not None:
        yield f"claims with volumeMode Block are refused: {why}"
    if (why := refusal(read_class, default_file_system)) is not None:
        yield f"claims with a file system are refused: {why}"


def _about_tags(read_class: ReadClass) -> Iterator[str]:
    """Tags that some claims, or some controllers, cannot have."""
    for template in read_class.parameters.tag_templates:
        try:
            tags.rendered([template], _SAMPLE)
        except ValueError as error:
            what = f"{_SAMPLE.claim_namespace}/{_SAMPLE.claim_name}"
            yield f"for a claim named {what}, a tag cannot be made: {error}"
    if (why := _too_many_tags(read_class, cluster_id=_CLUSTER_ID)) is not None:
        yield f"with --cluster-id no claim works: {why}"


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
    """What aws-ebs-csi-driver v1.64 would read otherwise: it may lead again, or before us."""
    for name, text in (read_class.storage_class.parameters or {}).items():
        if name.lower() in _BOOLEANS and text != "true" and parameters.boolean(text):
            yield f'aws-ebs-csi-driver takes {name} {text!r} for false; write "true"'
    if read_class.parameters.initialization_rate_mibps is not None:
        yield (
            "with volumeInitializationRate, EC2 refuses what aws-ebs-csi-driver asks for volumes "
            "that are not made of a snapshot"
        )


def refusal(
    read_class: ReadClass, default_file_system: str = MOST_ABLE, *, block: bool = False
) -> str | None:
    """Why no claim of any size works, with a file system or for a raw device; None if one does."""
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
    default_file_system: str = MOST_ABLE,
    *,
    block: bool = False,
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


def _speed_of(request: CreateRequest) -> str:
    """The speed that is asked for, and the IOPS that AWS documents where a class asks for more."""
    limits, told = VOLUME_TYPES[request.volume_type].iops, []
    if request.iops is not None:
        told.append(f"{min(request.iops, limits[1]) if limits else request.iops:,} IOPS")
    if request.throughput_mibps is not None:
        told.append(f"{request.throughput_mibps:,} MiB/s")
    return ", ".join(told) or "as fast as EC2 makes its type and size"


def effects(read_class: ReadClass, *, default_file_system: str) -> Iterator[tuple[str, str]]:
    """What each parameter does, by its name, and what goes without saying of the rest."""
    wanted = read_class.parameters
    low, high = VOLUME_TYPES[wanted.volume_type].size_gib
    yield "type", f"{wanted.volume_type}, which has {low:,} to {high:,} GiB"
    yield from _about_speed(wanted)
    key = f"yes, with {wanted.kms_key_id or _DEFAULT_KEY}"
    yield "encrypted", key if wanted.encrypted else "only where that is the account's default"
    if wanted.initialization_rate_mibps is not None:
        rate = f"{wanted.initialization_rate_mibps:,} MiB/s"
        yield "volumeInitializationRate", f"{rate} for the data of volumes made of snapshots"
    if wanted.attaches_when_initialized:
        does = "pods wait until all data of a volume made of a snapshot or volume has arrived"
        yield "blockAttachUntilInitialized", does
    said = wanted.file_system or f"{default_file_system} (the controller's --default-fstype)"
    yield FILE_SYSTEM_KEY, f"{said}, unless the claim is for a raw block device"
    for name, value in wanted.formatting.attributes().items():
        yield spelt([name]), f"{value}, when the file system is made"
    for each in wanted.tag_templates:
        yield "tag", f"{each.key}={each.text}"


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
