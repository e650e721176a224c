"""Say what is wrong with a StorageClass before any claim names it.

A class is *impossible* if no claim of it can ever get a volume, whoever makes it and whatever the
cluster becomes: an unknown parameter, less than a type has, more tags than EC2 takes. The webhook
denies those. *Refused here* is what aws-ebs-csi-driver 1.64 makes volumes of, as its chart installs
it, and this controller does not: the webhook, which may work beside that driver, only warns. All
else that may surprise is a *doubt*: it is told, and never refused.
The rules are those by which claims are provisioned; none is written here a second time.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from provisioner.decide import class_doubts, class_effects, class_tags, class_zones
from provisioner.decide.class_effects import MOST_ABLE, Effect, SizeEffect, refusal
from provisioner.decide.class_zones import Located, ZoneEffect
from provisioner.decide.storage_class import ReadClass, read
from provisioner.decide.zones import NoZone, candidates
from provisioner.model import zone as zones
from provisioner.model.errors import Reason
from provisioner.model.refusal import RefusedHereError
from provisioner.model.storage_class import BINDING_MODES, RECLAIM_POLICIES, StorageClass
from provisioner.model.zone import TopologyTerm


class Weight(StrEnum):
    """How much a finding weighs."""

    IMPOSSIBLE = "impossible"  # no claim of the class can ever get a volume
    REFUSED_HERE = "refused here"  # this controller makes none, aws-ebs-csi-driver does
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
    wrong = tuple(_refused_by_kubernetes(storage_class))
    try:
        read_class = read(storage_class)
    except RefusedHereError as error:
        return _weighed(Weight.IMPOSSIBLE, wrong) or _weighed(Weight.REFUSED_HERE, [str(error)])
    except ValueError as error:
        return _weighed(Weight.IMPOSSIBLE, [*wrong, str(error)])
    impossible = [*wrong, *_impossible_sizes(read_class), *_impossible_places(read_class)]
    if impossible:
        return _weighed(Weight.IMPOSSIBLE, impossible)
    told = class_doubts.doubts(read_class, nodes, default_file_system=default_file_system)
    refused = _weighed(Weight.REFUSED_HERE, _places_refused_here(read_class))
    return refused + _weighed(Weight.DOUBT, told)


def _weighed(weight: Weight, texts: Iterable[str]) -> tuple[Finding, ...]:
    return tuple(Finding(weight, text) for text in texts)


def impossibilities(found: Iterable[Finding]) -> tuple[str, ...]:
    """Why no claim can ever get a volume; empty if one can."""
    return tuple(each.text for each in found if each.weight is Weight.IMPOSSIBLE)


def refusals(found: Iterable[Finding]) -> tuple[str, ...]:
    """Why this controller makes no volume, though aws-ebs-csi-driver does."""
    return tuple(each.text for each in found if each.weight is Weight.REFUSED_HERE)


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
    if (why := class_tags.too_many(read_class, cluster_id="")) is not None:
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
