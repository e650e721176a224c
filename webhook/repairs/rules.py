"""What an existing persistent volume lacks, and how long its labels are left alone after a write.

The rule is the one of creation, as far as Kubernetes still allows it: labels can be written at any
time, a node affinity while there is none. A wrong one can be corrected only where the API server
has the feature gate MutablePVNodeAffinity; else it is told about.
Source: Kubernetes KEP-5381, alpha in 1.35.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from provisioner.model.backoff import Backoff
from provisioner.model.zone import ZONE_LABEL
from webhook.model.review import Json, inside
from webhook.reviews import persistent_volume_zone_rules as zone_rules
from webhook.reviews.persistent_volume_rules import Found, labels_of

# After a write labels rest for so long; longer each time that something undoes it.
_REST = Backoff(60.0, 3600.0)
# Something that writes less often than this is not fighting.
_CALM_S = 2 * _REST.most_s
_MOST_KNOWN = 10_000


@dataclass(frozen=True, slots=True)
class Repair:
    """What is to be done about one persistent volume; false when that is nothing.

    Attributes:
        labels: to write, the missing ones and those that were wrong; None takes one away.
        node_affinity: to set as ``spec.nodeAffinity``; None to leave it as it is.
        correction: to set in place of a wrong ``spec.nodeAffinity``, where that is allowed.
        warning: the message of a Warning event, where it is not; "" for none.
        resource_version: of the object that was looked at.
    """

    labels: Mapping[str, str | None] = field(default_factory=dict)
    node_affinity: Json | None = None
    correction: Json | None = None
    warning: str = ""
    resource_version: str = ""

    def __bool__(self) -> bool:
        return bool(self.labels or self.node_affinity or self.warning)

    def merge_patch(self, *, correct: bool = False) -> Json | None:
        """The body of a merge patch, with the correction or without; None for nothing to write.

        It is refused as a conflict when the object has changed or is another of the same name.
        """
        node_affinity = self.node_affinity or (self.correction if correct else None)
        if not self.labels and node_affinity is None:
            return None
        body: Json = {"metadata": {"resourceVersion": self.resource_version}}
        if self.labels:
            body["metadata"]["labels"] = dict(self.labels)
        if node_affinity is not None:
            body["spec"] = {"nodeAffinity": node_affinity}
        return body


def lacking(
    persistent_volume: Json,
    volume_id: str,
    place: Found,
    writable: Mapping[str, str],
    keys: Sequence[str] = (ZONE_LABEL,),
) -> Repair:
    """What it takes until a persistent volume says where its volume is.

    Args:
        persistent_volume: as the API server has it, one for which ``source_of`` found something.
        volume_id: that volume.
        place: where EC2 has it.
        writable: ``zone_rules.writable`` of that zone.
        keys: ``zone_rules.zone_keys`` of that zone.
    """
    if inside(persistent_volume, "metadata", "deletionTimestamp") is not None:
        return Repair()
    written = labels_of(persistent_volume)
    right = zone_rules.affinity_of(place.zone, keys, place.outpost_arn)
    bare = inside(persistent_volume, "spec", "nodeAffinity") is None
    wrong = _wrong(persistent_volume, place)
    return Repair(
        labels={
            **zone_rules.missing(written, writable),
            **zone_rules.corrected(written, place.zone, writable),
        },
        node_affinity=right if bare else None,
        correction=_corrected(persistent_volume, place, keys, right) if wrong else None,
        warning=_warning(volume_id, place.zone, wrong) if wrong else "",
        resource_version=inside(persistent_volume, "metadata", "resourceVersion") or "",
    )


def fought_over(keys: Iterable[str], zone: str) -> str:
    """The message of a Warning event about labels that somebody else undoes."""
    return (
        f"the volume is in {zone}, but something else keeps changing {' and '.join(sorted(keys))}, "
        "which ebs-webhook has corrected before: find it in metadata.managedFields and make it "
        "leave these labels alone; ebs-webhook corrects them less and less often, in the end once "
        "an hour"
    )


def _wrong(persistent_volume: Json, place: Found) -> str:
    """In words, what is wrong with its node affinity; "" for nothing."""
    terms = zone_rules.terms_in(persistent_volume)
    if zone_rules.excludes(terms, place.zone):
        return f"{zone_rules.verdict(terms, place.zone)}, so no pod can mount it"
    if others := zone_rules.elsewhere(terms, place.zone):
        return f"also allows {zone_rules.listed(others)}, where no pod can mount it"
    if zone_rules.is_off(place.outpost_arn, terms):
        outpost = place.outpost_arn.rpartition("/")[2]
        return f"also allows nodes outside Outpost {outpost}, where no pod can mount it"
    return ""


def _corrected(persistent_volume: Json, place: Found, keys: Sequence[str], right: Json) -> Json:
    """What else the terms ask of a node stays, where they allow the zone at all."""
    terms = zone_rules.terms_in(persistent_volume)
    if zone_rules.excludes(terms, place.zone) or zone_rules.is_off(place.outpost_arn, terms):
        return right
    confined, _ = zone_rules.confined(terms, place.zone, keys)
    return {"required": {"nodeSelectorTerms": confined}}


def _warning(volume_id: str, zone: str, wrong: str) -> str:
    return (
        f"volume {volume_id} is in {zone}, but spec.nodeAffinity {wrong}, and this API server does "
        "not allow changing it (feature gate MutablePVNodeAffinity): set "
        "persistentVolumeReclaimPolicy to Retain, delete the claim and this PersistentVolume, and "
        f"create both again with zone {zone} or without nodeAffinity"
    )


@dataclass(frozen=True, slots=True)
class _Written:
    """``undone``: how often in a row something had changed what was written before."""

    at_s: float
    undone: int
    keys: frozenset[str]


class LabelBackoff:
    """When the labels of each persistent volume were written last, by name, and how long they rest.

    GitOps or an older tool may write the same labels: without a pause each would answer the other
    at once, forever. Times are in seconds, of any clock that only goes forward.
    """

    def __init__(self) -> None:
        self._known: dict[str, _Written] = {}

    def rest_s(self, name: str, now_s: float) -> float:
        """How long the next write has to wait, 0 for not at all."""
        last = self._known.get(name)
        return max(0.0, last.at_s + _REST.pause_s(last.undone) - now_s) if last is not None else 0.0

    def wrote(self, name: str, keys: Collection[str], now_s: float) -> bool:
        """Note that labels were written; True if one was written before, so something undid it.

        Each time that is so the next write waits twice as long, up to an hour.
        """
        last = self._known.pop(name, None)
        if last is not None and now_s - last.at_s >= _CALM_S:
            last = None
        again = last is not None and not last.keys.isdisjoint(keys)
        undone = last.undone + 1 if last is not None and again else 0
        known = last.keys if last is not None else frozenset[str]()
        if len(self._known) >= _MOST_KNOWN:
            del self._known[next(iter(self._known))]
        self._known[name] = _Written(now_s, undone, known.union(keys))
        return again

    def forget(self, name: str) -> None:
        """It is gone; another one of its name starts from zero."""
        self._known.pop(name, None)
