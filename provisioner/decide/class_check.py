"""Say what is wrong with a StorageClass before any claim names it.

A class is *impossible* if no claim of it can ever get a volume, whoever makes it and whatever the
cluster becomes: an unknown parameter, a contradictory pair, topologies that no place meets. The
webhook denies those. All else that may surprise is a *doubt*: it is told, and never refused.
The rules are those by which claims are provisioned; none is written here a second time.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from provisioner.decide import class_effects, class_zones
from provisioner.decide.class_effects import (
    MOST_ABLE,
    Effect,
    SizeEffect,
    refusal,
    refusal_of_block,
)
from provisioner.decide.class_zones import Located, ZoneEffect
from provisioner.decide.storage_class import ReadClass, read
from provisioner.decide.zones import NoZone, candidates
from provisioner.model import parameter_values as values
from provisioner.model import zone as zones
from provisioner.model.driver import EBS_DRIVER
from provisioner.model.errors import Reason
from provisioner.model.parameter_table import FILE_SYSTEM_KEY, TABLE
from provisioner.model.parameters import spelt
from provisioner.model.sentences import listed
from provisioner.model.storage_class import WAIT_FOR_FIRST_CONSUMER, StorageClass
from provisioner.model.tag_template import Names
from provisioner.model.volume_type import VOLUME_TYPES
from provisioner.model.zone import TopologyTerm

_BOOLEANS = frozenset(row.name.lower() for row in TABLE if row.parser is values.boolean)
_SAMPLE = Names("default", "data", "pvc-00000000-0000-4000-8000-000000000000")


class Weight(StrEnum):
    """How much a finding weighs."""

    IMPOSSIBLE = "impossible"  # no claim of the class can ever get a volume
    DOUBT = "doubt"  # it works, but perhaps not as it was meant


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a class: a sentence without its subject's name."""

    weight: Weight
    text: str


@dataclass(frozen=True, slots=True)
class Check:
    """All that there is to say about a class."""

    findings: tuple[Finding, ...]
    effects: tuple[Effect, ...] = ()
    sizes: tuple[SizeEffect, ...] = ()
    zones: tuple[ZoneEffect, ...] = ()


def findings(
    storage_class: StorageClass,
    nodes: Collection[Located] | None = None,
    *,
    default_file_system: str = MOST_ABLE,
) -> tuple[Finding, ...]:
    """What is wrong with a class of ours; nothing for a sound one.

    Args:
        storage_class: the class.
        nodes: all of the cluster, None if they are not known.
        default_file_system: the controller's, for classes that name none, if it is known.
    """
    try:
        read_class = read(storage_class)
    except ValueError as error:
        return (Finding(Weight.IMPOSSIBLE, str(error)),)
    impossible = [*_impossible_sizes(read_class), *_impossible_places(read_class)]
    if impossible:
        return tuple(Finding(Weight.IMPOSSIBLE, text) for text in impossible)
    in_doubt = [
        *_about_binding(read_class, nodes),
        *_about_empty_zones(read_class, nodes),
        *_about_maxima(read_class),
        *_about_no_effect(read_class),
        *_about_modes(read_class, default_file_system),
        *_about_templates(read_class),
        *_about_the_stock_driver(read_class),
    ]
    return tuple(Finding(Weight.DOUBT, text) for text in in_doubt)


def impossibilities(found: Iterable[Finding]) -> tuple[str, ...]:
    """Why no claim can ever get a volume; empty if one can."""
    return tuple(each.text for each in found if each.weight is Weight.IMPOSSIBLE)


def doubts(found: Iterable[Finding]) -> tuple[str, ...]:
    """What may not be as it was meant."""
    return tuple(each.text for each in found if each.weight is Weight.DOUBT)


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
        class_effects.effects(read_class, default_file_system=default_file_system),
        class_effects.size_effects(read_class),
        class_zones.zone_effects(read_class, nodes),
    )


def _impossible_sizes(read_class: ReadClass) -> Iterator[str]:
    # Of a file system that takes every option, so none of them plays a part.
    if (why := refusal(read_class)) is not None:
        yield f"no claim works, whatever its size: {why}"


def _impossible_places(read_class: ReadClass) -> Iterator[str]:
    terms = read_class.allowed_topologies
    if terms and all(_is_dead(term) for term in terms):
        found = candidates(read_class, ())
        if isinstance(found, NoZone):
            yield found.message
    elif not read_class.storage_class.waits_for_consumer:
        found = candidates(read_class, (), {})
        # Any other reason is one of nodes, which may come, or of ids, which only EC2 can tell.
        if isinstance(found, NoZone) and found.reason is Reason.INVALID_CLASS:
            yield found.message


def _is_dead(term: TopologyTerm) -> bool:
    """Whether no place meets one term, whatever nodes there are; zone ids only EC2 can tell."""
    no_zone = zones.zones_of_term(term) == frozenset()
    return no_zone or not all(zones.outpost_of_term(term).values())


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
        if wanted.raises_iops_to_minimum and not read_class.is_in_tree:
            yield "allowAutoIOPSPerGBIncrease has no effect without iopsPerGB"
        if wanted.iops_follow_growth:
            yield "allowAutoIOPSIncreaseOnModify has no effect without iopsPerGB"
        names = [name.lower() for name in read_class.storage_class.parameters or ()]
        if read_class.is_in_tree and "iopspergb" in names:
            yield (
                f"iopsPerGB has no effect on volumes of type {wanted.volume_type}; the in-tree "
                "plugin ignored it, too"
            )
    if read_class.is_in_tree and (lost := read_class.parameters.attributes()):
        yield (
            f"{spelt(lost)} cannot take effect: persistent volumes in the in-tree plugin's form "
            f"have no place for that; those of a class with provisioner {EBS_DRIVER} have"
        )


def _about_modes(read_class: ReadClass, default_file_system: str) -> Iterator[str]:
    if (why := refusal_of_block(read_class)) is not None:
        yield f"claims with volumeMode Block are refused: {why}"
    if (why := refusal(read_class, default_file_system)) is not None:
        yield f"claims with a file system are refused: {why}"


def _about_templates(read_class: ReadClass) -> Iterator[str]:
    for template in read_class.parameters.tag_templates:
        try:
            template.render(_SAMPLE)
        except ValueError as error:
            what = f"{_SAMPLE.claim_namespace}/{_SAMPLE.claim_name}"
            yield f"for a claim named {what}, tag {template.key!r} cannot be made: {error}"


def _about_the_stock_driver(read_class: ReadClass) -> Iterator[str]:
    """What aws-ebs-csi-driver v1.64 would read otherwise: it may lead again, or before us."""
    for name, text in (read_class.storage_class.parameters or {}).items():
        key = name.lower()
        if key in _BOOLEANS and text != "true" and values.boolean(text):
            yield f'aws-ebs-csi-driver takes {name} {text!r} for false; write "true"'
        if key == "fstype" and not read_class.is_in_tree:
            yield f"aws-ebs-csi-driver ignores {name}; write {FILE_SYSTEM_KEY}"
    if read_class.parameters.initialization_rate_mibps is not None:
        yield (
            "with volumeInitializationRate, EC2 refuses what aws-ebs-csi-driver asks for volumes "
            "that are not made of a snapshot"
        )
