"""Decide whether a new pod could ever be where its volumes are.

It is refused when the objects prove that it could not: volumes in different zones, a node in
another zone, demands on its node that exclude every zone of a volume. What is only likely is a
warning. What is not known, like a claim that does not exist yet or one of another driver, is let
through.
Source: Kubernetes 1.36 scheduler plugins VolumeBinding and VolumeZone, which would leave such a pod
pending for ever; a pod with ``nodeName`` passes neither.
"""

from collections.abc import Iterator
from itertools import islice

from provisioner.model.sentences import listed
from webhook.decide.nodes import keys_disagree
from webhook.decide.placement import Placement, placement_of
from webhook.decide.pod_volumes import PodVolumes, Use, placed, volumes_of, wanted_for
from webhook.decide.readings import NO_OBJECT, Basis, Readings, Wanted
from webhook.model import pod as pods
from webhook.model.review import Answer, Json, allow, deny
from webhook.model.views import ClassView

# A pod may name thousands of volumes; nobody reads as many warnings, and the API server cuts them
# off at 4 KiB in all. Each hint is another zone to hold against all terms of the pod, which may be
# thousands too.
_MOST_WARNINGS = 8
_MOST_LOOKED_AT = 64
_MOST_HINTS = 8


def wanted(pod: Json, namespace: str) -> Wanted:
    """The objects that say where a pod's volumes are; also for a pod that is being bound.

    Claims of ephemeral volumes are among them, once the pod has a name. ``namespace`` is the
    request's: the pod may leave its own out.
    """
    return wanted_for(volumes_of(pods.read(pod), namespace))


def judge(pod: Json, readings: Readings, *, namespace: str) -> Answer:
    """Refuse a pod that could never run where its volumes are, warn if it is not likely to run."""
    read = pods.read(pod)
    volumes = volumes_of(read, namespace)
    if not volumes.uses and not volumes.inline:
        return allow("NothingToDo")
    placement = placement_of(read, placed(volumes, readings, pod_is_there=False), readings)
    found = placement.conflict()
    if found is not None:
        volume, objection = found
        sentence = f"{read.title}: {volume}, but {objection.clause}; {objection.fix}"
        return deny(objection.why, sentence, code=403)
    doubts = islice(_doubts(volumes, placement, readings), _MOST_WARNINGS)
    warnings = [f"{read.title}: {each}" for each in doubts]
    if warnings:
        return allow("ZonesInDoubt", warnings=warnings)
    return allow("ZonesAgree" if placement.placed else "NothingToDo")


def rests_on(pod: Json, readings: Readings, *, namespace: str) -> Basis:
    """The objects that prove the denial of ``judge`` on the same readings; empty without one."""
    read = pods.read(pod)
    found_volumes = placed(volumes_of(read, namespace), readings, pod_is_there=False)
    found = placement_of(read, found_volumes, readings).conflict()
    if found is None:
        return NO_OBJECT
    volume, objection = found
    return volume.basis | objection.basis


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
    if not use.is_made_for_pod:
        name, volume = readings.volume_of(use.claim_key)
        if name:
            is_nowhere = volume is not None and volume.zones == frozenset()
            if is_nowhere and not keys_disagree(placement.demand.kinds):
                yield (
                    f'{use.title} is bound to persistentvolume "{name}", whose nodeAffinity '
                    "contradicts itself, so that no node can use it; create it anew"
                )
            return
        claim = readings.claims.get(use.claim_key)
        class_name = claim.class_name if claim is not None else ""
    storage_class = readings.classes.get(class_name)
    if storage_class is not None and storage_class.zones:
        what = f'{use.title} of class "{class_name}"'
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
