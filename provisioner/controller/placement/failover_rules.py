"""Decide where a volume is made after EC2 has refused it: a zone without room, or without the type.

A claim that binds at once gets the next place that its class allows. For a claim that waits for
its first consumer, giving the node back to the scheduler does not exclude the zone: it may choose
the same node forever. So after ``REFUSALS_UNTIL_MOVED`` refusals the volume is made in another
place where a node can take the waiting pods; its node affinity then moves them. If there is no such
place, the claim waits.

The same is done if another volume of the pod keeps it away from the chosen node: that volume may
have been moved after the scheduler had chosen the node for both.

A refusal that another claim got for the same place and volume type counts as one refusal, so that
100 pods do not each try twice. Without a refusal of its own, a claim only tries such places last.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from provisioner.controller.placement.consumer_rules import Consumers, places, why_no_place
from provisioner.controller.placement.zone_rules import NoZone, in_turn
from provisioner.model.errors import Reason
from provisioner.model.zone import Place

REFUSALS_UNTIL_MOVED = 2
# How long it is believed what EC2 has told of a place and a volume type.
REMEMBERED_S = {
    Reason.ZONE_OUT_OF_CAPACITY: 300.0,
    Reason.ZONE_NOT_ANSWERING: 300.0,
    Reason.TYPE_NOT_IN_ZONE: 3600.0,
    Reason.ZONE_NOT_FOUND: 3600.0,
}
RETRY_S = 60.0
_SOON_S = 2.0


@dataclass(frozen=True, slots=True)
class Refusals:
    """What EC2 has refused one claim since it was last given a place to wait for.

    Attributes:
        count: how many refusals there were, one more if others had been refused before.
        reasons: the latest for each place.
    """

    count: int = 0
    reasons: Mapping[Place, Reason] = field(default_factory=dict)

    @property
    def places(self) -> frozenset[Place]:
        """Where it was refused."""
        return frozenset(self.reasons)

    def and_in(self, place: Place, reason: Reason, *, others_too: bool) -> "Refusals":
        """One refusal more; ``others_too``: not only claims of its own pods met it there lately."""
        first = place not in self.places
        return Refusals(
            self.count + (2 if first and others_too else 1),
            {**self.reasons, place: reason},
        )

    def exclude(self, place: Place) -> bool:
        """Whether another place must be chosen, even if the scheduler chooses this one again."""
        return self.count >= REFUSALS_UNTIL_MOVED and place in self.places

    def __str__(self) -> str:
        return _told(self.reasons, self.reasons)


NO_REFUSALS = Refusals()


@dataclass(frozen=True, slots=True)
class Moved:
    """The volume is made in another place than it would have been; ``why`` is for the user."""

    where: Place
    why: str


def instead_of_node(
    consumers: Consumers, refusals: Refusals, avoid: Mapping[Place, Reason]
) -> Moved | NoZone:
    """The place for a claim whose chosen node is where EC2 has refused it.

    ``avoid``: where others were refused a volume of this type lately, and why; taken only if
    there is nothing else.
    """
    if not consumers.pods:
        return NoZone(
            _reason(refusals),
            f"EC2 refused the volume in {refusals}, and no pod that waits for the claim was found; "
            "asking the scheduler for another node",
            choose_again=True,
        )
    suiting = places(consumers)
    if not suiting.keys() - refusals.places:
        return NoZone(
            _reason(refusals),
            f"EC2 refused the volume in {refusals}, and its pod cannot run anywhere else: "
            f"{why_no_place(consumers, refusals.places)}; will try again",
            # A volume that is being made in the way may be refused, too: that is known soon.
            retry_after_s=_SOON_S if consumers.in_creation else RETRY_S,
        )
    return _moved(consumers, suiting, refusals, avoid)


def beside_siblings(
    node_name: str,
    consumers: Consumers,
    refusals: Refusals,
    avoid: Mapping[Place, Reason],
) -> Moved | NoZone:
    """The place for a claim whose pod other volumes keep away from the chosen node."""
    why = f"another volume of the pod cannot be used on node {node_name}, which the scheduler chose"
    suiting = places(consumers)
    if suiting.keys() - refusals.places:
        return _moved(consumers, suiting, refusals, avoid, why=why)
    nowhere = f"{why}: {why_no_place(consumers, refusals.places)}"
    if consumers.in_creation:
        message = f"{nowhere}; will check again"
        return NoZone(_reason(refusals), message, retry_after_s=_SOON_S)
    return NoZone(
        _reason(refusals), f"{nowhere}; asking the scheduler for another node", choose_again=True
    )


def _moved(
    consumers: Consumers,
    suiting: Mapping[Place, str],
    refusals: Refusals,
    avoid: Mapping[Place, Reason],
    *,
    why: str = "",
) -> Moved:
    pod = min(consumers.pods, key=lambda each: each.key)
    turned = in_turn(sorted(suiting.keys() - refusals.places), pod.name)
    place = _first(turned, avoid)
    whys = "; ".join(each for each in (why, _why(turned, place, refusals, avoid)) if each)
    return Moved(
        place,
        f"{whys}; creating the volume in {place}, where node {suiting[place]} (or another one) can "
        f"run pod {pod.key}; the pod will follow its volume",
    )


def for_any_node(
    candidates: Sequence[Place],
    claim_name: str,
    refusals: Refusals,
    avoid: Mapping[Place, Reason],
) -> Place | Moved | NoZone:
    """The place for a claim that binds at once: the candidates in turn, by the claim's name."""
    refused = refusals.places
    left = [place for place in candidates if place not in refused]
    if not left:
        return NoZone(
            _reason(refusals),
            f"EC2 refused the volume in {refusals}, and no other zone is possible; will try again",
            retry_after_s=RETRY_S,
        )
    turned = in_turn(candidates, claim_name)
    place = _first([each for each in turned if each not in refused], avoid)
    if place == turned[0]:
        return place
    why = _why(turned, place, refusals, avoid)
    return Moved(place, f"{why}; creating the volume in {place}")


def on_that_node(node_name: str, refusals: Refusals) -> NoZone:
    """A pod is on the node already and cannot follow a volume."""
    return NoZone(
        _reason(refusals),
        f"EC2 refused the volume in {refusals}, and its pod is already on node {node_name!r}; will "
        "try again; to try other zones, let the scheduler place the pod (without spec.nodeName)",
        retry_after_s=RETRY_S,
    )


def _first(candidates: Sequence[Place], avoid: Collection[Place]) -> Place:
    return next((each for each in candidates if each not in avoid), candidates[0])


def _why(
    turned: Sequence[Place],
    place: Place,
    refusals: Refusals,
    avoid: Mapping[Place, Reason],
) -> str:
    """Why the places before this one were passed by."""
    refused = refusals.places
    passed = [each for each in turned[: turned.index(place)] if each not in refused]
    others = f"EC2 recently refused such volumes in {_told(passed, avoid)}" if passed else ""
    own = f"EC2 refused the volume in {refusals}" if refusals.places else ""
    return "; ".join(each for each in (own, others) if each)


def _told(places_: Collection[Place], reasons: Mapping[Place, Reason]) -> str:
    return ", ".join(f"{each} ({reasons[each]})" for each in sorted(places_))


def _reason(refusals: Refusals) -> Reason:
    return next(reversed([*refusals.reasons.values()]), Reason.NO_ZONE)
