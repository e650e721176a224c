"""Decide where a clone is made, and what it cannot be.

EC2 copies a volume within its zone, so the clone's zone is that of its source. A claim that binds
at once is made there if its class allows it. For one that waits for its first consumer, giving the
node back to the scheduler would not tell the scheduler which zone to choose. So the volume is made
next to its source if a node there can take the waiting pods; its node affinity then moves them.

Where the class has the annotation ``CLONE_ACROSS_ZONES``, a clone can come to another zone by a
snapshot.
Source: EBS user guide "Copy an Amazon EBS volume" (read 2026-11-21).
"""

from collections.abc import Mapping, Sequence

from provisioner.classes.storage_class_rules import ReadClass
from provisioner.controller.placement.consumer_rules import Consumers, places, why_no_place
from provisioner.controller.placement.failover_rules import RETRY_S, Moved, Refusals
from provisioner.controller.placement.zone_rules import NoZone, allows
from provisioner.model.decision import Refuse
from provisioner.model.errors import Reason
from provisioner.model.names import CLONE_ACROSS_ZONES
from provisioner.model.volume import Volume, VolumeState
from provisioner.model.zone import Place

_OTHER_WAYS = (
    "restore a snapshot of it instead, or set the annotation "
    f'{CLONE_ACROSS_ZONES}: "true" on the class to clone across zones'
)


def may_use_pinned_zone(
    read_class: ReadClass, pin: Place, source: Place, zone_names: Mapping[str, str] | None = None
) -> bool:
    """Whether a clone may be made in the place that is written to its claim.

    The owner of the claim can write that annotation, and its source may be another volume by now.
    A place that the class does not allow was not chosen for it, unless EC2 shows a volume there.
    """
    is_in_reach = pin == source or read_class.storage_class.clones_across_zones
    return is_in_reach and allows(read_class, pin, zone_names)


def refusal(read_class: ReadClass, volume_id: str, volume: Volume | None) -> Refuse | None:
    """Why EC2 cannot make of a volume what the class asks for.

    ``volume`` is None when EC2 does not know it.
    """
    if volume is None or volume.state in (VolumeState.DELETING, VolumeState.DELETED):
        return Refuse(
            Reason.VOLUME_NOT_FOUND,
            f"volume {volume_id} of the source claim no longer exists in EC2",
        )
    if volume.state is VolumeState.ERROR:
        return Refuse(
            Reason.VOLUME_STATE, f"volume {volume_id} of the source claim is in state error"
        )
    if volume.encrypted and read_class.parameters.encrypted is False:
        return Refuse(
            Reason.INVALID_CLASS,
            f"class {read_class.name!r} has encrypted: false, but a copy of the encrypted volume "
            f"{volume_id} is always encrypted; use a class without that parameter",
            settled=True,
        )
    return None


def at_once(
    read_class: ReadClass,
    source: Place,
    found: Sequence[Place] | NoZone,
    refusals: Refusals,
) -> Place | NoZone:
    """The place of a clone that binds at once; ``found``: all that its class allows."""
    if source in refusals.places:
        return _refused(refusals)
    if not read_class.allowed_topologies:
        return source  # it may lie where no node is any more
    if isinstance(found, NoZone):
        return found
    if source in found:
        return source
    allowed = ", ".join(str(each) for each in found)
    return NoZone(
        Reason.NO_ZONE,
        f"the source is in {source} and a copy is created in the same zone, but class "
        f"{read_class.name!r} allows only {allowed}; {_OTHER_WAYS}",
        retry_after_s=RETRY_S,
    )


def for_node(
    node_name: str,
    where: Place,
    source: Place,
    consumers: Consumers,
    refusals: Refusals,
    *,
    is_settled: bool,
    is_held: bool = False,
) -> Place | Moved | NoZone:
    """The place of a clone whose pod was given a node.

    Args:
        node_name: the node.
        where: its place.
        source: the place of what is cloned.
        consumers: the pods that wait for the claim, with the nodes that could take them.
        refusals: what EC2 has refused the claim.
        is_settled: the pods are on the node already and cannot follow a volume.
        is_held: another volume keeps the pods away from the node, were the clone made there.
    """
    if refusals.exclude(source):
        return _refused(refusals)
    if where == source and (is_settled or not is_held):
        return source
    if where == source:
        what = f"the source is in {source}, and a copy is created in the same zone"
        return _followed(what, source, consumers)
    what = (
        f"the source is in {source}, a copy is created in the same zone, and node {node_name} is "
        f"in {where}"
    )
    if is_settled:
        on_it = "where its pod already is (spec.nodeName)"
        return NoZone(Reason.NO_ZONE, f"{what}, {on_it}; {_OTHER_WAYS}", retry_after_s=RETRY_S)
    return _followed(what, source, consumers)


def _followed(what: str, source: Place, consumers: Consumers) -> Moved | NoZone:
    """The clone is made beside its source if its pods can follow it there."""
    suiting = places(consumers)
    if source in suiting:
        return Moved(
            source,
            f"{what}; creating the volume in {source}, where node {suiting[source]} (or another "
            "one) can run its pod; the pod will follow its volume",
        )
    if not consumers.pods:
        return NoZone(
            Reason.NO_ZONE,
            f"{what}, and no pod that waits for the claim was found; asking the scheduler for "
            "another node",
            choose_again=True,
        )
    why = _why_not(consumers, source)
    return NoZone(
        Reason.NO_ZONE,
        f"{what}, and its pod cannot run there: {why}; {_OTHER_WAYS}",
        retry_after_s=RETRY_S,
    )


def _why_not(consumers: Consumers, source: Place) -> str:
    found = {*consumers.eligible_nodes.places}
    if source not in found:
        return f"no node in {source} has the driver and is allowed by the class"
    return why_no_place(consumers, found - {source})


def _refused(refusals: Refusals) -> NoZone:
    return NoZone(
        next(reversed([*refusals.reasons.values()])),
        f"EC2 refused the copy in {refusals}, and it cannot be created anywhere else; will try "
        "again",
        retry_after_s=RETRY_S,
    )
