"""Decide whether a new pod could ever be where its volumes are, and may have them.

It is refused when the objects prove that it could not: volumes in different zones, a node in
another zone, demands on its node that exclude every zone of a volume. What is only likely is a
warning. What is not known, like a claim that does not exist yet or one of another driver, is let
through.

A controller's pod is refused only where the scheduler would let it start: a refusal makes a
ReplicaSet wait up to 1,000 s before it tries again, where a pod that is Pending runs within a
second of the mend (measured on Kubernetes 1.36.3).
Source: Kubernetes 1.36 scheduler plugins VolumeBinding and VolumeZone, which leave such a pod
pending for ever; a pod with ``nodeName`` passes neither, and an inline volume is nothing to them.
"""

from collections.abc import Iterator
from itertools import islice

from provisioner.model.sentences import listed
from webhook.model.cluster_view import ClassView
from webhook.model.pod import Pod
from webhook.model.review import Answer, allow, deny
from webhook.reviews.placement_rules import (
    Objection,
    Placed,
    Placement,
    PodVolumes,
    Use,
    placed,
    placement_of,
    volumes_of,
)
from webhook.reviews.readings import Basis, Readings, Verdict, Wanted

# A pod may name thousands of volumes; nobody reads as many warnings, and the API server cuts them
# off at 4 KiB in all. Each hint is another zone to hold against all terms of the pod.
_MOST_WARNINGS = 8
_MOST_LOOKED_AT = 64
_MOST_HINTS = 8
# Labels and values that a pod asks of its node. Nobody writes as many; each is gone through for
# every zone of a volume, three times before a denial.
MOST_PARTS = 1_000
_BACKOFF = (
    "; its controller tries again after up to 16 minutes, at once after kubectl rollout restart"
)


def wanted(pod: Pod, namespace: str) -> Wanted:
    """The objects that say where a pod's volumes are; also for a pod that is being bound.

    Claims of ephemeral volumes are among them, once the pod has a name. ``namespace`` is the
    request's: the pod may leave its own out.
    """
    return volumes_of(pod, namespace).wanted


def judge(pod: Pod, readings: Readings, *, namespace: str, strict: bool = False) -> Verdict:
    """Refuse a pod that could never run where its volumes are, warn if it is not likely to run.

    ``strict``: one that asks more of its node than is read is refused too.
    """
    volumes = volumes_of(pod, namespace)
    if not volumes.uses and not volumes.inline:
        return Verdict(allow("NothingToDo"))
    taken = _anothers(pod, volumes, readings, namespace)
    if taken is not None:
        return taken
    is_readable = pod.parts <= MOST_PARTS
    found_volumes = placed(volumes, readings, pod_is_there=False)
    placement = placement_of(pod, found_volumes, readings, selections=is_readable)
    found = placement.conflict()
    if found is not None:
        return _conflicting(pod, placement, *found)
    if not is_readable:
        return Verdict(_too_many_parts(pod, strict=strict))
    doubts = islice(_doubts(volumes, placement, readings), _MOST_WARNINGS)
    warnings = [f"{pod.title}: {each}" for each in doubts]
    if warnings:
        return Verdict(allow("ZonesInDoubt", warnings=warnings))
    return Verdict(allow("ZonesAgree" if placement.placed else "NothingToDo"))


def _anothers(pod: Pod, volumes: PodVolumes, readings: Readings, namespace: str) -> Verdict | None:
    """Whose claim it is, is not told: the id may be guessed."""
    held = readings.held_outside(namespace) if volumes.inline else {}
    volume_id = next((each for each in volumes.inline if each in held), None)
    if volume_id is None:
        return None
    sentence = (
        f"{pod.title}: its inline volume {volume_id} backs a claim of another namespace; only pods "
        "of that namespace may use it: use a claim and a volume of your own"
    )
    basis = Basis(volumes=frozenset({held[volume_id]}))
    return Verdict(deny("VolumeOfAnotherNamespace", sentence, code=403), basis)


def _conflicting(pod: Pod, placement: Placement, volume: Placed, objection: Objection) -> Verdict:
    basis = volume.basis | objection.basis
    sentence = f"{pod.title}: {volume}, but {objection.clause}"
    is_held_back = not pod.node_name and all(each.basis.volumes for each in placement.placed)
    if not pod.is_controlled:
        return Verdict(deny(objection.why, f"{sentence}; {objection.fix}", code=403), basis)
    if is_held_back:
        warning = f"{sentence}; it stays Pending until that changes: {objection.fix}"
        return Verdict(allow(f"{objection.why}HeldByScheduler", warnings=[warning]))
    return Verdict(deny(objection.why, f"{sentence}; {objection.fix}{_BACKOFF}", code=403), basis)


def _too_many_parts(pod: Pod, *, strict: bool) -> Answer:
    what = (
        f"{pod.title}: its nodeSelector and required node affinity have more than {MOST_PARTS:,} "
        "labels and values"
    )
    if strict:
        return deny("TooManyParts", f"{what}, which ebs-webhook does not read; name fewer")
    return allow("TooManyParts", warnings=[f"{what}, so they were not held against its volumes"])


def _doubts(volumes: PodVolumes, placement: Placement, readings: Readings) -> Iterator[str]:
    for use in volumes.uses[:_MOST_LOOKED_AT]:
        yield from _doubts_about_claim(use, placement, readings)
    for volume_id, hint in islice(volumes.inline.items(), _MOST_HINTS):
        if hint and volume_id not in readings.zones:
            yield from _doubts_about_hint(volume_id, hint, placement)
    if placement.common and not placement.node_name:
        zones = placement.demand.left_of(placement.common)
        if not readings.has_room_in(zones):
            yield (
                f"{placement.placed[0]}, but no node in {listed(zones)} takes pods now; it stays "
                "Pending until one does"
            )


def _doubts_about_claim(use: Use, placement: Placement, readings: Readings) -> Iterator[str]:
    class_name = use.class_name
    what = f'{use.title} of class "{class_name}"'
    if not use.is_made_for_pod:
        name, volume = readings.volume_of(use.claim_key)
        if name:
            if volume is not None and volume.zones == frozenset():
                yield (
                    f"{use.title} is bound to a persistentvolume whose nodeAffinity contradicts "
                    "itself, so that no node can use it; have it created anew"
                )
            return
        claim = readings.claims.get(use.claim_key)
        class_name = claim.class_name if claim is not None else ""
        what = use.title  # the pod does not name its class, and whoever asks may not read the claim
    storage_class = readings.classes.get(class_name)
    if storage_class is not None and storage_class.zones:
        yield from _doubts_about_class(what, storage_class, placement, readings)


def _doubts_about_class(
    what: str, storage_class: ClassView, placement: Placement, readings: Readings
) -> Iterator[str]:
    zones = storage_class.zones or frozenset()
    objection = placement.objection(zones)
    if objection is not None:
        yield (
            f"{what} only gets a volume in {listed(zones)} (allowedTopologies), but "
            f"{objection.clause}; use a class for that zone, or it stays Pending"
        )
        return
    zones = placement.demand.left_of(zones)
    if not placement.node_name and not readings.has_room_in(zones):
        yield (
            f"{what} only gets a volume in {listed(zones)} here, but no node there takes pods now; "
            "it stays Pending until one does"
        )


def _doubts_about_hint(volume_id: str, hint: str, placement: Placement) -> Iterator[str]:
    objection = placement.objection(frozenset({hint}))
    if objection is not None:
        yield (
            f"its inline volume {volume_id} is in {hint} by its volumeID, but {objection.clause}; "
            "if that is so, it can never be attached there"
        )
