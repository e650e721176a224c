"""What is wrong with a PersistentVolume and its EBS volume, and why it does not go away."""

from collections.abc import Iterator, Mapping, Sequence

from provisioner.ec2 import account_rules
from provisioner.inspect.explain import controller_rules, deletion_rules, reason_rules
from provisioner.inspect.explain.chain_rules import Cause, Chain, Link, Proof, at
from provisioner.inspect.explain.controller_rules import Task
from provisioner.inspect.explain.view_rules import View, VolumeView, newest
from provisioner.inspect.shell_words import shell
from provisioner.model.errors import Reason
from provisioner.model.ids import is_volume_id
from provisioner.model.node_affinity import region_of
from provisioner.model.persistent_volume import (
    PROVISIONED_BY,
    PROVISIONER_FINALIZER,
    PlacedVolume,
    finalizer_of_attacher,
)
from provisioner.model.volume import AttachmentState, VolumeState

_PROTECTION = "kubernetes.io/pv-protection"
_HANDLES = (
    "custom-columns=NAME:.metadata.name,VOLUME:.spec.csi.volumeHandle,CLAIM:.spec.claimRef.name"
)
# Of a node: nothing on it ends pods and unmounts volumes.
_LOST = {Cause.NODE_GONE, Cause.NODE_NOT_READY, Reason.INSTANCE_NOT_FOUND, Reason.INSTANCE_STATE}
_RETAIN = '{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}'


Ills = Mapping[str, Sequence[Chain]]
"""What is wrong with nodes, by their names."""


def chains(view: View, about: VolumeView, ills: Ills) -> list[Chain]:
    """What is wrong with a PersistentVolume, or what it waits for."""
    found = about.persistent_volume
    if found is None:
        link = Link(
            Cause.OBJECT_MISSING,
            f"There is no PersistentVolume {about.name}.",
            Proof(f"pv {about.name}", "not found"),
            remedy="Check the name.",
            command="kubectl get pv",
        )
        return [Chain((link,))]
    if found.volume_id(view.driver) is None:
        return [_not_ours(view, found)]
    faults_ = faults(view, about)
    if found.deleting and found.phase == "Bound":
        return [_still_bound(found), *faults_]
    if found.phase in {"Released", "Failed"} or found.deleting:
        return [*(_ending(view, about, found, ills) or faults_)]
    return faults_


def faults(view: View, about: VolumeView) -> list[Chain]:
    """What is wrong with the volume itself, whoever wants to use it."""
    found = about.persistent_volume
    volume_id = found.volume_id(view.driver) if found else None
    if found is None or volume_id is None:
        return []
    if not is_volume_id(volume_id):
        return [Chain((_no_volume_id(found, volume_id),))]
    if not about.asked:
        return []
    if about.ebs is None:
        return [Chain((_gone(about, found, volume_id),))]
    return [Chain((each,)) for each in _of_ebs(about, found)]


def _not_ours(view: View, found: PlacedVolume) -> Chain:
    driver = found.spec.csi.driver if found.spec.csi else "no CSI driver"
    link = Link(
        Cause.CLASS_NOT_OURS,
        f"PersistentVolume {found.name} is not of driver {view.driver}.",
        Proof(f"pv {found.name}, spec.csi.driver", driver),
        next=f"the controller of {driver}",
    )
    return Chain((link,), waits=True)


def _no_volume_id(found: PlacedVolume, volume_id: str) -> Link:
    return Link(
        Reason.INVALID_REQUEST,
        f"PersistentVolume {found.name} names {volume_id[:100]!r}, which is no EBS volume.",
        Proof(f"pv {found.name}, spec.csi.volumeHandle", volume_id[:100]),
        next="you",
        remedy="Create the PersistentVolume again with the id of a volume, such as "
        "vol-0123456789abcdef0.",
    )


def _gone(about: VolumeView, found: PlacedVolume, volume_id: str) -> Link:
    told = account_rules.regions_of_volumes([found]) or _affinity_regions(found)
    if told and about.region not in told:
        return Link(
            Reason.WRONG_CLOUD,
            f"EC2 was asked in {about.region}, but the volume is in {', '.join(sorted(told))}.",
            Proof(f"pv {found.name}", next(iter(told.values()))),
            next="you",
            remedy="Correct --region or AWS_REGION, here and for the controller.",
        )
    return Link(
        Reason.VOLUME_NOT_FOUND,
        f"EC2 has no volume {volume_id} in {about.region}: it was deleted, or it is in another "
        "region or account.",
        Proof(f"EC2 DescribeVolumes in {about.region}", f"nothing for {volume_id}"),
        next="you",
        remedy="Restore a snapshot into a new claim. If the volume is in another account, use "
        "credentials of that account.",
        command=_snapshots_of(volume_id),
    )


def _affinity_regions(found: PlacedVolume) -> dict[str, str]:
    zones = {each for each in found.zones or () if region_of(each)}
    return {region_of(each): f"PersistentVolume {found.name} is in {each}" for each in zones}


def _of_ebs(about: VolumeView, found: PlacedVolume) -> Iterator[Link]:
    volume = about.ebs
    assert volume is not None  # noqa: S101 -- the caller has looked
    described = "EC2 DescribeVolumes"
    if volume.state is VolumeState.ERROR:
        yield Link(
            Cause.VOLUME_FAULTY,
            f"EC2 has lost volume {volume.volume_id}: its state is error.",
            Proof(f"{described}, State", str(volume.state)),
            next="you; EC2 does not repair it",
            remedy="Restore the newest snapshot into a new claim.",
            command=_snapshots_of(volume.volume_id),
        )
    named = found.zones
    if named is not None and volume.zone not in named:
        yield Link(
            Reason.ZONE_MISMATCH,
            f"Volume {volume.volume_id} is in {volume.zone}, but PersistentVolume {found.name} "
            f"sends its pods to {', '.join(sorted(named))}.",
            Proof(
                f"pv {found.name}, spec.nodeAffinity; {described}, AvailabilityZone",
                f"{', '.join(sorted(named))}; {volume.zone}",
            ),
            next="you; nodeAffinity cannot be changed",
            remedy="Set the reclaim policy to Retain. Then delete the pods, the claim and the "
            f"PersistentVolume, and create both again: the PersistentVolume with zone "
            f"{volume.zone}, the claim with its name as volumeName (a bound claim whose "
            "PersistentVolume is deleted is lost).",
            command=keep(found),
        )
    yield from _foreign(about, found)


def _snapshots_of(volume_id: str) -> str:
    return shell("aws ec2 describe-snapshots --filters {}", f"Name=volume-id,Values={volume_id}")


def keep(found: PlacedVolume) -> str:
    """The command after which the volume outlives its claim."""
    return shell("kubectl patch pv {} -p {}", found.name, _RETAIN)


def _foreign(about: VolumeView, found: PlacedVolume) -> Iterator[Link]:
    """Attached where no VolumeAttachment asks for it: nobody will detach it there."""
    volume = about.ebs
    assert volume is not None  # noqa: S101 -- the caller has looked
    if not about.all_attachments or volume.multi_attach:
        return
    wanted = {each.spec.node_name for each in about.attachments}
    unmet = any(not each.attached for each in about.attachments)
    for each in volume.attachments:
        node = about.nodes_of.get(each.instance_id)
        if each.state in {AttachmentState.DETACHED, AttachmentState.DETACHING} or node in wanted:
            continue
        if node is not None and node in about.wanted:
            if unmet and about.wanted[node]:
                yield _shared(about, found, node)
            continue
        where = f"which is node {node}" if node else "which is no node of this cluster"
        yield Link(
            Reason.VOLUME_IN_USE,
            f"Volume {volume.volume_id} is attached to instance {each.instance_id}, {where}; "
            "Kubernetes has not asked for that.",
            Proof(
                f"EC2 DescribeVolumes, Attachments; VolumeAttachments of {found.name}",
                f"{each.instance_id}: {each.state}; none of this instance",
            ),
            next="you; the controller detaches only what a VolumeAttachment names",
            remedy="Make sure that nothing on that instance uses the volume, then detach it there.",
            command=shell(
                "aws ec2 detach-volume --volume-id {} --instance-id {}",
                *(volume.volume_id, each.instance_id),
            ),
        )


def _shared(about: VolumeView, found: PlacedVolume, node: str) -> Link:
    """It is where another PersistentVolume asks for it: in use, and not to be detached."""
    assert about.ebs is not None  # noqa: S101 -- the caller has looked
    return Link(
        Reason.VOLUME_IN_USE,
        f"Volume {about.ebs.volume_id} is in use on node {node}, through another object than "
        f"PersistentVolume {found.name}: two PersistentVolumes name one volume.",
        Proof(f"{about.wanted[node]}; EC2 DescribeVolumes, Attachments", f"node {node}: attached"),
        next=f"you; the volume comes free once the pod on node {node} has ended",
        remedy="Let one PersistentVolume only name the volume. Do not detach it by hand.",
        command=shell("kubectl get pv -o {} | grep {}", _HANDLES, about.ebs.volume_id),
    )


def _ending(view: View, about: VolumeView, found: PlacedVolume, ills: Ills) -> list[Chain]:
    """Why a released PersistentVolume is still there."""
    is_kept = found.reclaim_policy == "Retain"
    if found.phase == "Released" and is_kept and not found.deleting:
        return [_kept(found)]
    held = _held(view, about, found, ills)
    if held:
        return held
    absent = controller_rules.absence(view, Task.PROVISION)
    if absent is not None and found.is_deleted_by(view.driver):
        return [absent.then(_stays(found))]
    said = newest(about.said, "VolumeFailedDelete", warning=True)
    if said is not None:
        return [Chain((reason_rules.link_of(said, Cause.FINALIZER_STUCK), _stays(found)))]
    return [_last_finalizers(view, found) if found.deleting else _not_begun(view, found)]


def _kept(found: PlacedVolume) -> Chain:
    link = Link(
        Cause.RELEASED,
        f"The claim of PersistentVolume {found.name} is gone, and the volume is kept on purpose.",
        Proof(f"pv {found.name}, spec.persistentVolumeReclaimPolicy", "Retain"),
        next="you; nobody deletes it",
        remedy="Delete the object and the volume if the data are no longer needed; to use them "
        "again, remove spec.claimRef.",
    )
    return Chain((link,), waits=True)


def _held(view: View, about: VolumeView, found: PlacedVolume, ills: Ills) -> list[Chain]:
    if about.namesakes:
        other = min(about.namesakes)
        link = Link(
            Reason.VOLUME_IN_USE,
            f"PersistentVolume {other} names the same volume, so it is kept.",
            Proof(f"pv {other}, spec.csi.volumeHandle", found.volume_id(view.driver) or ""),
            next="you",
            remedy=f"Delete {other}, or set the reclaim policy of {found.name} to Retain.",
        )
        return [Chain((link, _stays(found)))]
    for each in about.attachments:
        node = each.spec.node_name
        if each.deleting:
            continue
        link = Link(
            Reason.VOLUME_IN_USE,
            f"The volume is still attached to node {node}.",
            Proof(f"volumeattachment {each.name}", f"node {node}, attached: {each.attached}"),
            next="kube-controller-manager: it asks for the detach once no pod on the node uses it",
            remedy="Delete the pod that still uses it there.",
            command=shell("kubectl ebs explain node {}", node),
        )
        lost = next((e for e in ills.get(node, ()) if e.cause in _LOST), Chain((link,)))
        after = () if lost.links[0] is link else (link,)
        return [lost.then(*after, _stays(found))]
    return []


def _stays(found: PlacedVolume) -> Link:
    return Link(
        Cause.RELEASED,
        f"So PersistentVolume {found.name} is not deleted.",
        Proof(f"pv {found.name}, status.phase", found.phase or "unknown"),
    )


def _not_begun(view: View, found: PlacedVolume) -> Chain:
    """Its volume should be deleted, and the object after it; nobody says that this fails."""
    stays = _stays(found)
    if not found.is_deleted_by(view.driver):
        other = found.annotations[PROVISIONED_BY]
        by_other = Link(
            Cause.RELEASED,
            f"PersistentVolume {found.name} was provisioned by {other}, and no other controller "
            "deletes it.",
            Proof(f"pv {found.name}, annotation {PROVISIONED_BY}", other),
            next=f"the controller of {other}, if one runs",
            remedy="Start that controller, or delete the object and the volume yourself.",
        )
        return Chain((by_other,))
    since = found.status.last_phase_transition_time if found.status else None
    if since is not None and view.now - since <= deletion_rules.USUAL:
        return Chain((stays,), waits=True)
    late = Link(
        Cause.RELEASED,
        f"The controller has not deleted volume {found.volume_id(view.driver)} yet, and says "
        "nothing in events about it.",
        Proof(
            f"pv {found.name}, status.phase and lastPhaseTransitionTime",
            f"{found.phase}; {at(since) or 'not set'}",
        ),
        next="the controller, which deletes the volume in EC2 and then the object",
        remedy="Look at the controller's log.",
        command=controller_rules.log(view, Task.PROVISION),
    )
    return Chain((late, stays))


def _last_finalizers(view: View, found: PlacedVolume) -> Chain:
    known = {PROVISIONER_FINALIZER, finalizer_of_attacher(view.driver), _PROTECTION}
    other = deletion_rules.foreign("pv", found, known)
    if other is not None:
        return Chain((other, _stays(found)))
    if deletion_rules.is_late(view, found):
        by, remedy = _holder(view, found)
        return Chain((deletion_rules.late("pv", found, by, remedy), _stays(found)))
    return Chain((_stays(found),), waits=True)


def _holder(view: View, found: PlacedVolume) -> tuple[str, str]:
    """Who has to remove the finalizer that is left, and what helps."""
    if PROVISIONER_FINALIZER in found.finalizers:
        return (
            "the controller, which deletes the volume in EC2 and then removes its finalizer",
            "Look at the controller's log: it says nothing in events about this object.",
        )
    if finalizer_of_attacher(view.driver) in found.finalizers:
        return (
            "the controller, which removes its finalizer once nothing is attached",
            "Look at the controller's log, unless another attacher has written the finalizer.",
        )
    return (
        "kube-controller-manager, which protects volumes of claims",
        "Check that kube-controller-manager runs.",
    )


def _still_bound(found: PlacedVolume) -> Chain:
    """Kubernetes keeps what a claim is bound to; the pods of the claim work on."""
    claim = found.spec.claim_ref
    key = f"{claim.namespace}/{claim.name}" if claim else "unknown"
    link = Link(
        Cause.STILL_BOUND,
        f"PersistentVolume {found.name} is being deleted, and claim {key} is still bound to it.",
        Proof(f"pv {found.name}, spec.claimRef and status.phase", f"{key}; {found.phase}"),
        next="you: the volume goes once the claim is deleted; until then its pods can use it",
        remedy="If the data are no longer needed, delete the claim. If they are, set the reclaim "
        "policy to Retain first: a deletion cannot be taken back.",
        command=keep(found),
    )
    return Chain((link,))
