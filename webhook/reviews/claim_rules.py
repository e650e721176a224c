"""Say what may go wrong with the zone of a new claim; a claim is never refused.

The class is looked at, and the claim that a clone is made from. A restore needs no look: EBS
snapshots belong to a Region, not to a zone (those kept in a Local Zone or on an Outpost cannot be
told from here). Whether a zone exists at all only EC2 knows; here it has nodes or none.
Source: EC2 API CopyVolumes: the copy lies in the zone of its source.
"""

from collections.abc import Iterator

import msgspec

from provisioner.inspect.classes import check_rules as class_check_rules
from provisioner.model.claim import Claim
from provisioner.model.names import CLONE_ACROSS_ZONES
from provisioner.model.sentences import listed
from webhook.model.cluster_view import ClassView, ClusterView, References, Zones
from webhook.model.review import Answer, Json, allow


def references(claim: Json, namespace: str) -> References:
    """The class of a claim, and the claim that it is a clone of."""
    read = _read(claim)
    source = _source_key(read, namespace)
    return References(
        claims=(source,) if source else (),
        classes=(read.class_name,) if read.class_name else (),
    )


def judge(claim: Json, cluster: ClusterView, *, namespace: str) -> Answer:
    """Warn of a class that may put the claim's volume where its pods, or its source, are not."""
    read = _read(claim)
    storage_class = cluster.classes.get(read.class_name)
    if read.spec.volume_name or storage_class is None:
        return allow("NothingToDo")  # a volume is there already, or another driver makes it
    source = _source_key(read, namespace)
    is_placed = _is_beside_source(source, storage_class, cluster)
    doubts = [
        *(() if is_placed else _about_binding(read.class_name, storage_class, cluster)),
        *_about_topologies(read.class_name, storage_class, cluster),
        *_about_source(source, read.class_name, storage_class, cluster),
    ]
    warnings = [f'claim "{read.name}": {each}' for each in doubts]
    return allow("ZonesInDoubt" if warnings else "ZonesAgree", warnings=warnings)


def _read(claim: Json) -> Claim:
    try:
        return msgspec.convert(claim, Claim)
    except msgspec.ValidationError:
        return Claim()


def _source_key(claim: Claim, namespace: str) -> str:
    """The claim that is cloned; none of another namespace, of which nothing may be told here."""
    source = claim.source
    if source is None or not source.is_claim or not source.name:
        return ""
    return f"{namespace}/{source.name}" if source.namespace in (None, "", namespace) else ""


def _is_beside_source(source: str, storage_class: ClassView, cluster: ClusterView) -> bool:
    """Whether a clone's zone is certain: its source's, where the class allows that."""
    _, volume = cluster.volume_of(source)
    if volume is None or not volume.zones:
        return False
    return storage_class.zones is None or volume.zones <= storage_class.zones


def _about_binding(name: str, storage_class: ClassView, cluster: ClusterView) -> Iterator[str]:
    registered = frozenset(
        node.zone for node in cluster.node_views if node.has_driver and node.zone
    )
    possible = class_check_rules.zones_at_once(
        waits=storage_class.waits, allowed=storage_class.zones, registered=registered
    )
    if possible:
        yield (
            f'class "{name}" binds immediately, so its volume may be created in {listed(possible)} '
            "whatever its pods need; with volumeBindingMode WaitForFirstConsumer it is created "
            "where they run"
        )


def _about_topologies(name: str, storage_class: ClassView, cluster: ClusterView) -> Iterator[str]:
    if storage_class.zones is None:
        return
    if not storage_class.zones:
        yield f'allowedTopologies of class "{name}" allow no zone, so no volume can be created'
        return
    inhabited = _inhabited(cluster)
    empty = class_check_rules.empty_zones(storage_class.zones, inhabited)
    if empty:
        yield (
            f'allowedTopologies of class "{name}" name {listed(empty, "and")}, where there is no '
            f"node; is it misspelled? Nodes are in {listed(inhabited, 'and')}"
        )


def _about_source(
    source: str, name: str, storage_class: ClassView, cluster: ClusterView
) -> Iterator[str]:
    _, volume = cluster.volume_of(source)
    allowed = storage_class.zones
    if volume is None or not volume.zones or not allowed or storage_class.goes_across:
        return
    if volume.zones.isdisjoint(allowed):
        yield (
            f'it is a clone of claim "{source.partition("/")[2]}", whose volume is '
            f'in {listed(volume.zones)}, but class "{name}" only allows {listed(allowed)}; '
            "a clone is created in its source's zone: restore a snapshot instead, or let the class "
            f'clone across zones with the annotation {CLONE_ACROSS_ZONES}: "true"'
        )


def _inhabited(cluster: ClusterView) -> Zones:
    return frozenset(node.zone for node in cluster.node_views if node.zone)
