"""Creating a persistent volume: what it gains, and what it is refused for.

What counts is the zone that its EBS volume really is in. ``mutate`` writes that zone into labels
and node affinity and leaves every refusal to ``validate``, which sees the object after all other
webhooks; only what cannot be known now is turned away by both, in strict mode, to be tried again.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from provisioner.model.ids import is_volume_id
from provisioner.model.node_affinity import zones_named
from provisioner.model.volume import normalised_handle
from provisioner.model.zone import ZONE_LABEL
from webhook.decide import affinity, labels
from webhook.decide.documents import inside, put
from webhook.decide.nodes import unmet
from webhook.decide.sentences import Sentences
from webhook.model.patch import add, remove
from webhook.model.review import Answer, Json, Operation, allow, deny
from webhook.model.views import NodeView

_RETRY_AFTER_S = 1
_CSI_HANDLE = ("spec", "csi", "volumeHandle")
_IN_TREE_ID = ("spec", "awsElasticBlockStore", "volumeID")
_LABELS = ("metadata", "labels")


@dataclass(frozen=True, slots=True)
class Found:
    """EC2 knows the volume, or its provisioner does.

    Raises:
        ValueError: the zone is empty; no rule may ever write that.
    """

    zone: str

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


def truth_of_own_affinity(persistent_volume: Json) -> Found | None:
    """The one zone that its own node affinity names; None if that is not one zone: ask EC2 then.

    Good for the persistent volumes of our provisioner only, which has the zone from EC2 itself.
    """
    zones = list(zones_named(affinity.terms_in(persistent_volume)) or ())
    return Found(zones[0]) if len(zones) == 1 and zones[0] else None


def mutate(
    persistent_volume: Json,
    truth: Truth,
    writable: Mapping[str, str],
    *,
    strict: bool,
    key: str = ZONE_LABEL,
    nodes: Collection[NodeView] = (),
) -> Answer:
    """Add the labels and the node affinity of the zone that its volume is in.

    Nothing is added where the volume is missing or the affinity excludes its zone: ``validate``
    refuses that.

    Args:
        persistent_volume: one for which ``source_of`` found something.
        truth: where the volume is.
        writable: ``labels.writable`` of that zone.
        strict: wrong labels are left to ``validate``; a doubt is a 503 and not a warning.
        key: ``labels.zone_key`` of that zone.
        nodes: ``nodes.running_driver_in`` that zone.
    """
    source = _source(persistent_volume)
    if source is None:
        return allow("NothingToDo")
    if not source.well_formed:
        return allow("NotAVolumeId")
    say = _sentences(persistent_volume, source)
    if isinstance(truth, Doubt):
        return _in_doubt(say, truth.why, strict=strict)
    if isinstance(truth, Missing):
        return allow("VolumeMissing")
    return _completed(persistent_volume, say, truth.zone, writable, key, nodes=nodes, strict=strict)


def validate(
    persistent_volume: Json, truth: Truth, *, strict: bool, nodes: Collection[NodeView] = ()
) -> Answer:
    """Refuse what the zone of the volume contradicts, warn of what only costs a detour.

    Args:
        persistent_volume: one for which ``source_of`` found something, as it will be stored.
        truth: where the volume is.
        strict: wrong labels are refused too; a doubt is a 503 and not a warning.
        nodes: ``nodes.running_driver_in`` the volume's zone. For what they say something may be let
            through or warned about, and nothing is refused.
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
    return _judged(persistent_volume, say, truth.zone, source.zone_hint, nodes=nodes, strict=strict)


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
    hint = "" if volume_id == handle else handle.removeprefix("aws://").partition("/")[0]
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


def _completed(
    persistent_volume: Json,
    say: Sentences,
    zone: str,
    writable: Mapping[str, str],
    zone_key: str,
    *,
    nodes: Collection[NodeView],
    strict: bool,
) -> Answer:
    terms = affinity.terms_in(persistent_volume)
    if affinity.excludes(terms, zone, nodes) and not affinity.says_nothing(terms):
        return allow("ZoneConflict", zone=zone)
    written = labels_of(persistent_volume)
    wrong = {} if strict else labels.corrected(written, zone, writable, nodes)
    confining = affinity.confined(persistent_volume, zone, zone_key, nodes)
    patch = [
        *_labelled(persistent_volume, labels.missing(written, writable)),
        *_relabelled(wrong),
        *confining,
    ]
    warnings = [
        say.relabelled(zone, key, written[key], removed=true is None) for key, true in wrong.items()
    ]
    if others := affinity.elsewhere(terms, zone, nodes):
        warnings.append(say.narrowed(zone, affinity.listed(others)))
    if terms:
        warnings += [say.appended(zone, key) for key in affinity.keys_added(confining)]
    return allow("Labelled" if patch else "NothingToDo", warnings=warnings, patch=patch, zone=zone)


def _labelled(persistent_volume: Json, added: Mapping[str, str]) -> list[Operation]:
    if not added:
        return []
    if inside(persistent_volume, *_LABELS) is None:
        return [put(persistent_volume, dict(added), *_LABELS)]
    return [add(value, *_LABELS, key) for key, value in added.items()]


def _relabelled(wrong: Mapping[str, str | None]) -> list[Operation]:
    return [
        remove(*_LABELS, key) if true is None else add(true, *_LABELS, key)
        for key, true in wrong.items()
    ]


def _judged(
    persistent_volume: Json,
    say: Sentences,
    zone: str,
    hint: str,
    *,
    nodes: Collection[NodeView],
    strict: bool,
) -> Answer:
    terms = affinity.terms_in(persistent_volume)
    if affinity.excludes(terms, zone, nodes):
        conflict = say.conflict(zone, affinity.verdict(terms, zone))
        return deny("ZoneConflict", conflict, zone=zone)
    written = labels_of(persistent_volume)
    wrong = labels.contradicting(written, zone, nodes)
    if strict and (proved := labels.provable(wrong, written)):
        said = [(key, written[key]) for key in proved]
        return deny("LabelConflict", say.label_conflict(zone, said), zone=zone)
    warnings = [say.mislabelled(zone, key, written[key]) for key in wrong]
    if others := affinity.elsewhere(terms, zone, nodes):
        warnings.append(say.too_wide(zone, affinity.listed(others)))
    if why := unmet(terms, nodes):
        warnings.append(say.unmet(zone, why))
    if hint not in {"", zone}:
        warnings.append(say.wrong_hint(zone, hint))
    return allow("Inconsistent" if warnings else "Consistent", warnings=warnings, zone=zone)
