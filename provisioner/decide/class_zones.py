"""Where a StorageClass lets volumes be made, zone by zone, as far as it can be told without EC2."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from provisioner.decide.storage_class import ReadClass
from provisioner.model import zone as zones
from provisioner.model.zone import Place, TopologyTerm


@dataclass(frozen=True, slots=True)
class Located:
    """A node, as far as it matters.

    Attributes:
        place: where it is, None if its labels do not tell.
        has_driver: whether the driver is registered on it.
        zone_id: the id of its zone, "" if its labels do not tell.
    """

    place: Place | None
    has_driver: bool
    zone_id: str = ""


def located(labels: Mapping[str, str], *, has_driver: bool) -> Located:
    """A node by its labels."""
    return Located(zones.place_of(labels), has_driver, labels.get(zones.ZONE_ID_KEY, ""))


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


def allowed(read_class: ReadClass, nodes: Collection[Located] | None) -> frozenset[str] | None:
    """The zones that a class allows, None for all; an id that no node has stands for itself."""
    names = zone_names(nodes)
    terms = [_zones_of_term(term, names) for term in read_class.allowed_topologies]
    named = [each for each in terms if each is not None]
    return frozenset().union(*named) if terms and len(named) == len(terms) else None


def _zones_of_term(term: TopologyTerm, names: Mapping[str, str]) -> frozenset[str] | None:
    named, ids = zones.zones_of_term(term), zones.zone_ids([term])
    if named is not None and not ids <= names.keys():
        return named  # which of them the ids mean, only EC2 can tell
    return zones.zones_of_term(term, {each: each for each in ids} | dict(names))


def zone_names(nodes: Collection[Located] | None) -> dict[str, str]:
    """The names of zones by their ids, as nodes tell them."""
    return {n.zone_id: n.place.zone for n in nodes or () if n.zone_id and n.place is not None}


def zones_of(nodes: Iterable[Located]) -> frozenset[str]:
    """The zones of nodes."""
    return frozenset(node.place.zone for node in nodes if node.place is not None)
