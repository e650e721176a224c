"""Creating a persistent volume: what it gains, and what it is refused for.

What counts is the zone that its EBS volume really is in. ``mutate`` writes that zone into labels
and node affinity and leaves every refusal to ``validate``, which sees the object after all other
webhooks; only what cannot be known now is turned away by both, in strict mode, to be tried again.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jsonpatch

from provisioner.model.ids import is_volume_id
from provisioner.model.volume import normalised_handle
from provisioner.model.zone import ZONE_LABEL
from webhook.model.review import Answer, Json, allow, deny, inside
from webhook.reviews import persistent_volume_zone_rules as zone_rules
from webhook.reviews.persistent_volume_words import Sentences

_RETRY_AFTER_S = 1
_CSI_HANDLE = ("spec", "csi", "volumeHandle")
_IN_TREE_ID = ("spec", "awsElasticBlockStore", "volumeID")
_LABELS = ("metadata", "labels")


@dataclass(frozen=True, slots=True)
class Found:
    """EC2 knows the volume.

    Attributes:
        zone: where it is.
        outpost_arn: the Outpost that it is on, "" for none.

    Raises:
        ValueError: the zone is empty; no rule may ever write that.
    """

    zone: str
    outpost_arn: str = ""

    def __post_init__(self) -> None:
        if not self.zone:
            raise ValueError("the zone of a volume that was found is empty")


@dataclass(frozen=True, slots=True)
class Missing:
    """EC2 has no such volume; it was asked twice."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """EC2 did not say: throttled, unreachable, denied. ``why`` is for the user, without a dot."""

    why: str


Truth = Found | Missing | Doubt


@dataclass(frozen=True, slots=True)
class Source:
    """The EBS volume that a persistent volume names.

    Attributes:
        volume_id: bare; text of another form as it was written.
        zone_hint: of an in-tree ``aws://ZONE/vol-…``, else "". Users write it: it proves nothing.
        well_formed: ``volume_id`` has the form of an EBS volume id. EC2 need not be asked about
            any other: whatever the truth, ``validate`` refuses it.
    """

    volume_id: str
    zone_hint: str

    @property
    def well_formed(self) -> bool:
        """See above."""
        return is_volume_id(self.volume_id)


def source_of(persistent_volume: Json, driver: str) -> Source | None:
    """What it names under our driver or in in-tree form.

    None if that is not EBS or not ours, which means hands off, and for an empty id, which the API
    server refuses by itself.
    """
    foreign = inside(persistent_volume, "spec", "csi") is not None and (
        inside(persistent_volume, "spec", "csi", "driver") != driver
    )
    return None if foreign else _source(persistent_volume)


def mutate(
    persistent_volume: Json,
    truth: Truth,
    writable: Mapping[str, str],
    *,
    strict: bool,
    keys: Sequence[str] = (ZONE_LABEL,),
) -> Answer:
    """Add the labels and the node affinity of the place that its volume is in.

    Nothing is added where the volume is missing or the affinity excludes its zone: ``validate``
    refuses that.

    Args:
        persistent_volume: one for which ``source_of`` found something.
        truth: where the volume is.
        writable: ``zone_rules.writable`` of that zone.
        strict: wrong labels are left to ``validate``; a doubt is a 503 and not a warning.
        keys: ``zone_rules.zone_keys`` of that zone.
    """
    say = _saying(persistent_volume)
    if say is None or isinstance(truth, Missing):
        return allow("NothingToDo")
    if isinstance(truth, Doubt):
        return _in_doubt(say, truth.why, strict=strict)
    terms = zone_rules.terms_in(persistent_volume)
    if zone_rules.excludes(terms, truth.zone) and not zone_rules.says_nothing(terms):
        return allow("ZoneConflict", zone=truth.zone)
    after = copy.deepcopy(_outline(persistent_volume))
    warnings = _relabelled(after, say, truth.zone, writable, strict=strict)
    warnings += _confined(after, say, truth, keys)
    return _patched(persistent_volume, after, warnings, truth.zone)


def relabel(persistent_volume: Json, truth: Truth, writable: Mapping[str, str]) -> Answer:
    """Correct the labels of one that is being changed; nothing else of it, and never a refusal."""
    say = _saying(persistent_volume)
    if say is None or isinstance(truth, Missing):
        return allow("NothingToDo")
    if isinstance(truth, Doubt):
        return _in_doubt(say, truth.why, strict=False)
    after = copy.deepcopy(_outline(persistent_volume))
    warnings = _relabelled(after, say, truth.zone, writable, strict=False)
    return _patched(persistent_volume, after, warnings, truth.zone)


def validate(persistent_volume: Json, truth: Truth, *, strict: bool) -> Answer:
    """Refuse what the zone of the volume contradicts, warn of what only costs a detour.

    Args:
        persistent_volume: one for which ``source_of`` found something, as it will be stored.
        truth: where the volume is.
        strict: wrong labels are refused too; a doubt is a 503 and not a warning.
    """
    source = _source(persistent_volume)
    if source is None:
        return allow("NothingToDo")
    say = _sentences(persistent_volume, source)
    if not source.well_formed:
        return deny("NotAVolumeId", say.no_volume_id())
    if isinstance(truth, Doubt):
        return _in_doubt(say, truth.why, strict=strict)
    if isinstance(truth, Missing):
        return deny("VolumeMissing", say.no_volume())
    return _judged(persistent_volume, say, truth, source.zone_hint, strict=strict)


def labels_of(persistent_volume: Json) -> dict[str, str]:
    """``metadata.labels``, {} when there are none."""
    written = inside(persistent_volume, *_LABELS)
    return written if isinstance(written, dict) else {}


def _field(persistent_volume: Json) -> tuple[str, ...]:
    return _IN_TREE_ID if inside(persistent_volume, "spec", "csi") is None else _CSI_HANDLE


def _source(persistent_volume: Json) -> Source | None:
    handle = inside(persistent_volume, *_field(persistent_volume))
    if not isinstance(handle, str) or not handle:
        return None
    volume_id = normalised_handle(handle)
    place = handle.removeprefix("aws://")
    hint = place.partition("/")[0] if volume_id != handle != place else ""
    return Source(volume_id, hint)


def _sentences(persistent_volume: Json, source: Source) -> Sentences:
    meta = inside(persistent_volume, "metadata")
    name = inside(meta, "name") or f"{inside(meta, 'generateName') or ''}…"
    return Sentences(name, source.volume_id, ".".join(_field(persistent_volume)))


def _in_doubt(say: Sentences, why: str, *, strict: bool) -> Answer:
    if strict:
        refusal = say.in_doubt_refused(why)
        return deny("InDoubt", refusal, code=503, retry_after_s=_RETRY_AFTER_S)
    return allow("InDoubt", warnings=[say.in_doubt(why)])


def _saying(persistent_volume: Json) -> Sentences | None:
    """The sentences about it; None if it names no volume, which ``validate`` refuses."""
    source = _source(persistent_volume)
    if source is None or not source.well_formed:
        return None
    return _sentences(persistent_volume, source)


def _patched(persistent_volume: Json, after: Json, warnings: list[str], zone: str) -> Answer:
    patch = jsonpatch.make_patch(_outline(persistent_volume), after).patch
    return allow("Labelled" if patch else "NothingToDo", warnings=warnings, patch=patch, zone=zone)


def _outline(persistent_volume: Json) -> Json:
    """What a patch may touch, and its parents, as far as they are there."""
    parts = {"metadata": "labels", "spec": "nodeAffinity"}
    return {
        parent: {key: found[key]} if isinstance(found, dict) and key in found else found and {}
        for parent, key in parts.items()
        if parent in persistent_volume
        for found in [persistent_volume[parent]]
    }


def _relabelled(
    after: Json, say: Sentences, zone: str, writable: Mapping[str, str], *, strict: bool
) -> list[str]:
    """Write the labels; the warnings of those that were wrong."""
    written = labels_of(after)
    wrong = {} if strict else zone_rules.corrected(written, zone, writable)
    desired = {**written, **zone_rules.missing(written, writable), **wrong}
    true = {key: value for key, value in desired.items() if value is not None}
    if true != written:
        _put(after, "metadata", "labels", true)
    return [
        say.relabelled(zone, key, written[key], removed=value is None)
        for key, value in wrong.items()
    ]


def _confined(after: Json, say: Sentences, place: Found, keys: Sequence[str]) -> list[str]:
    """Write the node affinity; the warnings of what is stored otherwise than it was sent."""
    terms = zone_rules.terms_in(after)
    if zone_rules.says_nothing(terms):
        _put(
            after,
            "spec",
            "nodeAffinity",
            zone_rules.affinity_of(place.zone, keys, place.outpost_arn),
        )
        return []
    if zone_rules.is_off(place.outpost_arn, terms):
        return []  # nobody knows which nodes the terms mean; ``validate`` warns
    confined, added = zone_rules.confined(terms, place.zone, keys)
    if added:
        _put(after, "spec", "nodeAffinity", {"required": {"nodeSelectorTerms": confined}})
    others = zone_rules.elsewhere(terms, place.zone)
    narrowed = [say.narrowed(place.zone, zone_rules.listed(others))] if others else []
    return narrowed + [say.appended(place.zone, key) for key in sorted(added)]


def _put(document: Json, parent: str, key: str, value: Any) -> None:
    document[parent] = {**(document.get(parent) or {}), key: value}


def _judged(
    persistent_volume: Json, say: Sentences, place: Found, hint: str, *, strict: bool
) -> Answer:
    zone = place.zone
    terms = zone_rules.terms_in(persistent_volume)
    if zone_rules.excludes(terms, zone):
        conflict = say.conflict(zone, zone_rules.verdict(terms, zone))
        return deny("ZoneConflict", conflict, zone=zone)
    written = labels_of(persistent_volume)
    wrong = zone_rules.contradicting(written, zone)
    if strict and wrong:
        said = [(key, written[key]) for key in wrong]
        return deny("LabelConflict", say.label_conflict(zone, said), zone=zone)
    warnings = [say.mislabelled(zone, key, written[key]) for key in wrong]
    if others := zone_rules.elsewhere(terms, zone):
        warnings.append(say.too_wide(zone, zone_rules.listed(others)))
    if zone_rules.is_off(place.outpost_arn, terms):
        warnings.append(say.off_outpost(place.outpost_arn))
    if hint not in {"", zone}:
        warnings.append(say.wrong_hint(zone, hint))
    return allow("Inconsistent" if warnings else "Consistent", warnings=warnings, zone=zone)
