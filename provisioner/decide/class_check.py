"""Say what is wrong with a StorageClass before any claim names it.

It is *impossible* if no claim of it can ever get a volume, whoever makes it and whatever the
cluster becomes: an unknown parameter, less than a type has, more tags than EC2 takes. The webhook
denies those. All else that may surprise is a *doubt*: it is told, and never denied; also that this
controller makes no volume where aws-ebs-csi-driver 1.64 does, beside which the webhook may work.
The rules are those by which claims are provisioned; none is written here a second time.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from provisioner.decide import class_zones
from provisioner.decide.class_effects import MOST_ABLE, effects, refusal, refusal_of_block, speeds
from provisioner.decide.class_zones import Located
from provisioner.decide.storage_class import ReadClass, read
from provisioner.decide.zones import NoZone, candidates
from provisioner.model import parameters as values
from provisioner.model import tags
from provisioner.model import zone as zones
from provisioner.model.driver import EBS_DRIVER
from provisioner.model.errors import Reason, RefusedHereError
from provisioner.model.parameters import SECRET_KEYS, TABLE, spelt
from provisioner.model.sentences import listed
from provisioner.model.storage_class import (
    BINDING_MODES,
    RECLAIM_POLICIES,
    WAIT_FOR_FIRST_CONSUMER,
    StorageClass,
)
from provisioner.model.volume_type import VOLUME_TYPES
from provisioner.model.zone import TopologyTerm

_HERE = "this controller makes no volume of it, though aws-ebs-csi-driver does"
_BOOLEANS = frozenset(row.name.lower() for row in TABLE if row.parser is values.boolean)
# Another name may do where this one does not, so what it shows is no proof.
_SAMPLE = tags.Owner("default", "data", "pvc-00000000-0000-4000-8000-000000000000", "Delete")
_CLUSTER_ID = "of-the-check"


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
    effects: tuple[tuple[str, str], ...] = ()
    sizes: tuple[tuple[str, str], ...] = ()


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
    return Check(
        found,
        tuple(effects(read_class, default_file_system=default_file_system)),
        tuple(speeds(read_class)),
    )


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
    doubts = _doubts(read_class, nodes, default_file_system=default_file_system)
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
    # Of a file system that takes every option, so none of them plays a part.
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


def _doubts(
    read_class: ReadClass, nodes: Collection[Located] | None, *, default_file_system: str
) -> Iterator[str]:
    """Each doubt about a class of which some claim can get a volume."""
    yield from _about_binding(read_class, nodes)
    yield from _about_empty_zones(read_class, nodes)
    yield from _about_maxima(read_class)
    yield from _about_no_effect(read_class)
    yield from _about_secrets(read_class)
    yield from _about_modes(read_class, default_file_system)
    yield from _about_tags(read_class)
    yield from _about_the_stock_driver(read_class)


def _about_binding(read_class: ReadClass, nodes: Collection[Located] | None) -> Iterator[str]:
    if read_class.storage_class.waits_for_consumer:
        return
    allowed = class_zones.allowed(read_class, nodes)
    remedy = f"volumeBindingMode {WAIT_FOR_FIRST_CONSUMER} makes them where they run"
    if allowed is None and nodes is None:
        yield f"it binds at once, so volumes may be made where their pods cannot run; {remedy}"
        return
    registered = class_zones.zones_of(n for n in nodes or () if n.has_driver)
    possible = class_zones.zones_at_once(waits=False, allowed=allowed, registered=registered)
    if possible:
        where = listed(possible)
        yield f"it binds at once, so volumes may be made in {where} whatever pods need; {remedy}"


def _about_empty_zones(read_class: ReadClass, nodes: Collection[Located] | None) -> Iterator[str]:
    inhabited = class_zones.zones_of(nodes or ())
    empty = class_zones.empty_zones(class_zones.allowed(read_class, nodes), inhabited)
    if not class_zones.zone_names(nodes):  # nodes without that label are no proof
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
    wanted = read_class.parameters
    if wanted.iops_per_gib is None:
        if wanted.iops is None and wanted.raises_iops_to_minimum and not read_class.is_in_tree:
            yield "allowAutoIOPSPerGBIncrease has no effect without iops or iopsPerGB"
        if wanted.iops_follow_growth:
            yield "allowAutoIOPSIncreaseOnModify has no effect without iopsPerGB"
        names = [name.lower() for name in read_class.storage_class.parameters or ()]
        has_none = VOLUME_TYPES[wanted.volume_type].iops is None
        if read_class.is_in_tree and has_none and "iopspergb" in names:
            yield (
                f"iopsPerGB has no effect on volumes of type {wanted.volume_type}; the in-tree "
                "plugin ignored it, too"
            )
    if read_class.is_in_tree and (lost := read_class.parameters.attributes()):
        yield (
            f"{spelt(lost)} cannot take effect: persistent volumes in the in-tree plugin's form "
            f"have no place for that; those of a class with provisioner {EBS_DRIVER} have"
        )


def _about_secrets(read_class: ReadClass) -> Iterator[str]:
    named = SECRET_KEYS & (read_class.storage_class.parameters or {}).keys()
    if named:
        yield (
            f"{listed(named, 'and')} have no effect: EBS needs no secret, so none is read or "
            "written to persistent volumes"
        )


def _about_modes(read_class: ReadClass, default_file_system: str) -> Iterator[str]:
    if (why := refusal_of_block(read_class)) is not None:
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
        key = name.lower()
        if key in _BOOLEANS and text != "true" and values.boolean(text):
            yield f'aws-ebs-csi-driver takes {name} {text!r} for false; write "true"'
    if read_class.parameters.initialization_rate_mibps is not None:
        yield (
            "with volumeInitializationRate, EC2 refuses what aws-ebs-csi-driver asks for volumes "
            "that are not made of a snapshot"
        )
