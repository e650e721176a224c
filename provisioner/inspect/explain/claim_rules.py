"""Why a claim has no volume, or keeps nobody waiting any longer than it has to."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta

from provisioner.classes import storage_class_rules
from provisioner.controller.provisioning import plan_rules
from provisioner.inspect.explain import (
    controller_rules,
    growth_rules,
    key_rules,
    reason_rules,
    refusal_rules,
    source_rules,
    volume_rules,
)
from provisioner.inspect.explain.chain_rules import Cause, Chain, Link, Proof
from provisioner.inspect.explain.controller_rules import Task
from provisioner.inspect.explain.scheduling import scheduling_rules
from provisioner.inspect.explain.view_rules import ClaimView, Said, View, newest
from provisioner.inspect.reading.kind_rules import WatchedPod
from provisioner.inspect.reading.time_rules import deleted_at
from provisioner.inspect.shell_words import is_name, shell
from provisioner.model.claim import Claim
from provisioner.model.decision import Refuse
from provisioner.model.errors import Reason
from provisioner.model.meta import ObjectReference
from provisioner.model.names import VOLUME_NAME
from provisioner.model.persistent_volume import PlacedVolume
from provisioner.model.storage_class import StorageClass

_PROTECTION = "kubernetes.io/pvc-protection"
# The stock driver's (kubernetes-csi/external-provisioner pkg/controller/topology.go).
_UNREGISTERED = re.compile(r"no topology key found (?:on CSINode|for node) (\S+)")
_FAILED, _GOES_ON = "ProvisioningFailed", "Provisioning"
_BY_HAND = "kubernetes.io/no-provisioner"
_SOON = timedelta(seconds=30)
_RELEASED_IN = timedelta(seconds=60)
_TRIED_WITHIN = timedelta(minutes=10)


def chains(view: View, about: ClaimView) -> list[Chain]:
    """What is wrong with a claim, or what it waits for."""
    claim = about.claim
    if claim is None:
        return _missing(view, about)
    if claim.deleting:
        return list(_deleting(view, about, claim))
    phase = claim.status.phase if claim.status else ""
    if phase == "Lost":
        return [_lost(about, claim)]
    if phase == "Bound":
        bound = volume_rules.faults(view, about.volume) if about.volume else []
        return [*bound, *growth_rules.chains(view, about, claim)]
    return pending(view, about, claim)


def pending(view: View, about: ClaimView, claim: Claim) -> list[Chain]:
    """Why a claim is not bound."""
    if claim.spec.volume_name:
        return [_asks_for_volume(view, about, claim)] if view.read("persistentvolumes") else []
    if not claim.class_name:
        return [_no_class(about, claim)]
    storage_class = about.storage_class
    if storage_class is None:
        return [_class_missing(about, claim)] if view.read("storageclasses") else _told(view, about)
    failed = _failed(about)
    # After a refusal the choice of a node is taken back, so that the scheduler makes another.
    fails = failed is not None and controller_rules.is_recent(view, failed)
    waits = storage_class.waits_for_consumer and not claim.selected_node and not _placed(about)
    if not storage_class.is_of(view.driver):
        # Any driver's claim waits for the scheduler, which knows better why there is no node.
        return (
            _waiting(view, about, claim)
            if waits and not fails
            else [_not_ours(view, about, storage_class)]
        )
    found = [
        chain
        for chain in (
            _impossible(view, about, claim, storage_class),
            source_rules.chain(view, about, claim),
        )
        if chain is not None
    ]
    if found:
        return found
    if waits:
        return _told(view, about) if fails else _waiting(view, about, claim)
    absent = controller_rules.absence(view, Task.PROVISION, failed)
    return [*([absent] if absent else []), *_told(view, about, is_worked_on=absent is None)]


def _waiting(view: View, about: ClaimView, claim: Claim) -> list[Chain]:
    """It waits for a pod; if there is one, why that has no node."""
    waits = _waits_for_pod(about, claim)
    # A pod that is asked about is explained by the rules of pods.
    for pod in about.users if view.pod is None else ():
        found = scheduling_rules.chains(view, pod)
        if found and not all(each.waits for each in found):
            return [each.then(*waits.links) for each in found]
    return [waits]


def _placed(about: ClaimView) -> bool:
    """Whether a pod is on a node already, so that the scheduler will not choose one."""
    return any(each.node_name for each in about.users)


def _missing(view: View, about: ClaimView) -> list[Chain]:
    refused = refusal_rules.of_claim(view, about.key.partition("/")[2])
    if refused:
        return refused
    link = Link(
        Cause.OBJECT_MISSING,
        f"There is no claim {about.key}.",
        Proof(about.name, "not found"),
        next="you, or the controller of the StatefulSet that creates it",
        remedy="Check the name and the namespace, or create the claim.",
        command=shell("kubectl -n {} get pvc", about.namespace),
    )
    return [Chain((link,))]


def _lost(about: ClaimView, claim: Claim) -> Chain:
    name = claim.spec.volume_name
    gone = Link(
        Cause.VOLUME_MISSING,
        f"PersistentVolume {name}, to which the claim was bound, was deleted.",
        Proof(f"{about.name}, status.phase", "Lost"),
        next="you; Kubernetes never binds a lost claim again",
        remedy="Look whether the EBS volume still exists. If it does, create the PersistentVolume "
        "again with its id and a claimRef to this claim. Otherwise restore a snapshot into a new "
        "claim.",
        command=shell(
            "aws ec2 describe-volumes --filters {}", f"Name=tag:{VOLUME_NAME},Values={name}"
        ),
    )
    lost = Link(Cause.CLAIM_LOST, "The claim is Lost.", Proof(about.name, f"volumeName {name}"))
    return Chain((gone, lost))


def _deleting(view: View, about: ClaimView, claim: Claim) -> Iterator[Chain]:
    where = f"{about.name}, metadata.finalizers"
    left = ", ".join(claim.finalizers)
    # A pod without a node does not protect its claims (pvc-protection-controller, 1.36).
    users = [each for each in about.users if each.node_name]
    if _PROTECTION in claim.finalizers and users:
        yield Chain((_in_use(about, users, Proof(where, left)),))
        return
    foreign = [each for each in claim.finalizers if each != _PROTECTION]
    if foreign:
        yield Chain(
            (
                Link(
                    Cause.FINALIZER_STUCK,
                    "The claim is being deleted, and somebody has not released it.",
                    Proof(where, left),
                    next=f"the controller that writes {foreign[0]}",
                    remedy="Find out whether that controller still runs.",
                ),
            )
        )
        return
    yield _not_released(view, about, claim)


def _in_use(about: ClaimView, users: Sequence[WatchedPod], proof: Proof) -> Link:
    """Once the last pod has ended the claim is gone, and its data with it unless they are kept."""
    pods = ", ".join(each.key for each in users)
    volume = about.volume.persistent_volume if about.volume else None
    is_kept = volume is not None and volume.reclaim_policy == "Retain"
    return Link(
        Cause.CLAIM_IN_USE,
        f"The claim is being deleted, but a pod still uses it: {pods}.",
        proof,
        next="Kubernetes, which deletes the claim once the last pod has ended"
        + ("" if is_kept else "; its data are deleted with it"),
        remedy="The data are kept: the reclaim policy is Retain. A deletion cannot be taken back; "
        "when the pods have ended, create the claim again."
        if is_kept
        else "To keep the data, set the reclaim policy to Retain before the pods end: a deletion "
        "cannot be taken back. If they are no longer needed, delete the pods.",
        command=volume_rules.keep(volume) if volume is not None and not is_kept else "",
    )


def _not_released(view: View, about: ClaimView, claim: Claim) -> Chain:
    """No pod is known that uses it, and it is still there."""
    since = deleted_at(claim)
    is_new = since is not None and view.now - since < _RELEASED_IN
    unread = "" if view.read("pods") else "; pods could not be read, so one may still use it"
    return Chain(
        (
            Link(
                Cause.FINALIZER_STUCK,
                f"The claim is being deleted, and is still there{unread}.",
                Proof(f"{about.name}, metadata.finalizers", ", ".join(claim.finalizers) or "none"),
                next="kube-controller-manager, which removes pvc-protection once no pod uses it",
                remedy="" if is_new else "Check that kube-controller-manager runs.",
            ),
        ),
        waits=is_new,
    )


def _asks_for_volume(view: View, about: ClaimView, claim: Claim) -> Chain:
    name = claim.spec.volume_name
    found = about.volume.persistent_volume if about.volume else None
    where = f"{about.name}, spec.volumeName"
    if found is None:
        link = Link(
            Cause.VOLUME_MISSING,
            f"The claim asks for PersistentVolume {name}, which does not exist.",
            Proof(where, name),
            next="nobody; no volume is created for a claim that names one",
            remedy="Create that PersistentVolume, or create the claim again without volumeName.",
        )
        return Chain((link,))
    holder = found.spec.claim_ref
    if holder is not None and not _is_for(holder, claim):
        link = Link(
            Cause.VOLUME_TAKEN,
            f"The claim asks for PersistentVolume {name}, which belongs to claim "
            f"{holder.namespace}/{holder.name}.",
            Proof(f"pv {name}, spec.claimRef", f"{holder.namespace}/{holder.name}, {holder.uid}"),
            next="nobody",
            remedy=_take_over(found, holder, claim),
            command=shell("kubectl -n {} get pvc {}", holder.namespace, holder.name)
            if is_name(holder.namespace) and is_name(holder.name)
            else "",
        )
        return Chain((link,))
    sentence = f"Kubernetes has not bound the claim to PersistentVolume {name} yet."
    said = newest(about.said, warning=True)
    proof = reason_rules.proof_of(said) if said else Proof(where, name)
    waits = Link(
        Cause.CLAIM_NOT_BOUND,
        sentence,
        proof,
        next="kube-controller-manager: class, size, access modes and volumeMode of both must fit",
        remedy="Compare both objects.",
        command=shell("kubectl get pv {} -o yaml", name),
    )
    made = claim.metadata.creation_timestamp
    return Chain((waits,), waits=said is None and made is not None and view.now - made < _SOON)


def _is_for(holder: ObjectReference, claim: Claim) -> bool:
    """Whether a claimRef is of a claim; without a UID it is one that is yet to be bound."""
    same = (holder.namespace, holder.name) == (claim.metadata.namespace, claim.name)
    return same and holder.uid in {"", claim.uid}


def _take_over(found: PlacedVolume, holder: ObjectReference, claim: Claim) -> str:
    """How the claim gets a volume that is bound to another one, if that one is gone."""
    same = (holder.namespace, holder.name) == (claim.metadata.namespace, claim.name)
    which = "an earlier claim of this name" if same else "that claim"
    keep = "" if found.reclaim_policy == "Retain" else "set its reclaim policy to Retain at once, "
    clear = "remove uid and resourceVersion from" if same else "remove"
    return (
        f"If {which} still exists, ask for another volume. If it is gone and its data may be used "
        f"here: {keep}{clear} spec.claimRef of the PersistentVolume, and it is bound to this claim."
    )


def _no_class(about: ClaimView, claim: Claim) -> Chain:
    explicit = claim.spec.storage_class_name is not None
    field = '""' if explicit else "not set, and no class is the default one"
    why = (
        'It has storageClassName "", so it waits for a PersistentVolume that somebody creates.'
        if explicit
        else "It names no StorageClass, and the cluster has no default one."
    )
    link = Link(
        Cause.CLASS_NONE,
        f"Nobody provisions a volume for claim {about.key}. {why}",
        Proof(f"{about.name}, spec.storageClassName", field),
        next="you",
        remedy="Create the claim again with a class, or mark a class as the default one."
        if not explicit
        else "Create a matching PersistentVolume, or create the claim again with a class.",
        command="kubectl get storageclass",
    )
    return Chain((link,))


def _class_missing(about: ClaimView, claim: Claim) -> Chain:
    link = Link(
        Reason.CLASS_NOT_FOUND,
        f"StorageClass {claim.class_name} does not exist.",
        Proof(f"{about.name}, spec.storageClassName", claim.class_name),
        next="you; the claim gets a volume once the class exists",
        remedy=reason_rules.remedy(Reason.CLASS_NOT_FOUND),
        command="kubectl get storageclass",
    )
    return Chain((link,))


def _not_ours(view: View, about: ClaimView, storage_class: StorageClass) -> Chain:
    by_hand = storage_class.provisioner == _BY_HAND
    link = Link(
        Cause.CLASS_NOT_OURS,
        f"Class {storage_class.name} has no provisioner: its PersistentVolumes are made by hand."
        if by_hand
        else f"Class {storage_class.name} is of driver {storage_class.provisioner}, "
        f"not of {view.driver}.",
        Proof(f"storageclass {storage_class.name}, provisioner", storage_class.provisioner),
        next="you, or the program that makes them"
        if by_hand
        else f"the controller of {storage_class.provisioner}, if one runs",
        remedy="Create a PersistentVolume of this class that fits the claim, or create the claim "
        "again with a class of this driver."
        if by_hand
        else "Look at that driver, or create the claim again with a class of this driver.",
        command="kubectl get pv" if by_hand else "kubectl get storageclass",
    )
    return Chain((link, _pending_link(about)))


def _impossible(
    view: View, about: ClaimView, claim: Claim, storage_class: StorageClass
) -> Chain | None:
    """What no try can change, by the rules of the controller itself."""
    try:
        storage_class_rules.read(storage_class)
    except ValueError as error:
        if not controller_rules.is_ours(view, Task.PROVISION):
            return None  # the stock driver takes some that we refuse
        return Chain((_invalid_class(storage_class, str(error)), _pending_link(about)))
    found = plan_rules.examine(
        claim,
        storage_class,
        driver=view.driver,
        persistent_volume=None,
        pod_node=next((each.node_name for each in about.users if each.node_name), ""),
    )
    if not isinstance(found, Refuse) or found.reason is Reason.CLASS_NOT_FOUND:
        return None
    return Chain((_refused(about, found),))


def _invalid_class(storage_class: StorageClass, why: str) -> Link:
    return Link(
        Reason.INVALID_CLASS,
        f"Class {storage_class.name} can never work: {why}.",
        Proof(f"storageclass {storage_class.name}, parameters", why),
        next=reason_rules.who_acts(Reason.INVALID_CLASS),
        remedy="Parameters cannot be changed: delete the class and create it again.",
        command=shell("ebs-provisioner class check {}", storage_class.name),
    )


def _refused(about: ClaimView, refused: Refuse) -> Link:
    cause: Cause | Reason = Cause.POPULATOR_MISSING if refused.normal else refused.reason
    return Link(
        cause,
        f"The claim cannot get a volume from this driver: {refused.message}."
        if not refused.normal
        else f"No populator has filled the claim yet: {refused.message}.",
        Proof(f"{about.name}, spec", refused.message),
        next="the populator, if one is installed" if refused.normal else "you",
        remedy="Install the populator of this kind, or create the claim again without the source."
        if refused.normal
        else reason_rules.remedy(refused.reason),
    )


def _waits_for_pod(about: ClaimView, claim: Claim) -> Chain:
    class_name = claim.class_name
    by = f", which is not scheduled: {about.users[0].key}" if about.users else ""
    by_hand = about.storage_class is not None and about.storage_class.provisioner == _BY_HAND
    does = "takes a volume that is made by hand" if by_hand else "creates a volume"
    link = Link(
        Cause.WAITS_FOR_POD,
        f"The claim waits for a pod{by}: class {class_name} {does} only once the scheduler has "
        "chosen a node."
        if by
        else f"No pod uses the claim yet, and class {class_name} waits for one.",
        Proof(f"storageclass {class_name}, volumeBindingMode", "WaitForFirstConsumer"),
        next="the scheduler"
        if by
        else f"you: {'the claim is bound' if by_hand else 'the volume is created'} for the first "
        "pod",
        command=shell("kubectl ebs explain pod {}", about.users[0].key) if by else "",
    )
    return Chain((link,), waits=True)


def _told(view: View, about: ClaimView, *, is_worked_on: bool = True) -> list[Chain]:
    """By events: what failed last, or what is going on."""
    said = _said(about)
    last, failed = newest(said, _FAILED, _GOES_ON), _failed(about)
    # Each try says that it goes on before it fails again.
    if last is not None and failed is not None and _age(last, failed) < _TRIED_WITHIN:
        return [Chain((_failure(view, about, failed), _pending_link(about)))]
    if not is_worked_on:
        return []
    if last is not None:
        link = Link(
            Cause.PROVISIONING,
            "The volume is being created.",
            reason_rules.proof_of(last),
            next="the controller",
            remedy="If it takes minutes: look at the controller's log. EC2 may throttle it.",
            command=controller_rules.log(view, Task.PROVISION),
        )
        return [Chain((link,), waits=True)]
    claim = about.claim
    made = claim.metadata.creation_timestamp if claim else None
    is_new = made is not None and view.now - made < _SOON
    link = Link(
        Cause.PROVISIONING,
        "No event of a provisioner is about the claim yet.",
        Proof(about.name, "no event of a provisioner"),
        next="the controller",
        remedy="" if is_new else "Look at the controller's log.",
        command="" if is_new else controller_rules.log(view, Task.PROVISION),
    )
    return [Chain((link,), waits=is_new)]


def _said(about: ClaimView) -> tuple[Said, ...]:
    """What was said before the class was created is over."""
    told = tuple(each for each in about.said if each.reason is not Reason.CLASS_NOT_FOUND)
    return told if about.storage_class is not None else about.said


def _failed(about: ClaimView) -> Said | None:
    return newest(_said(about), _FAILED)


def _failure(view: View, about: ClaimView, said: Said) -> Link:
    """What EC2 or the controller refuses."""
    if said.reason is Reason.KEY_UNUSABLE:
        return key_rules.link(said, key_rules.of_claim(view, about))
    if (node := _UNREGISTERED.search(said.text)) is not None:
        return Link(
            Cause.DRIVER_NOT_REGISTERED,
            f"The driver is not registered on node {node[1]}, or has not told the node's zone.",
            reason_rules.proof_of(said),
            next="the node plugin, which registers the driver when it starts",
            remedy="Look at the node plugin's pod on that node.",
            command=shell("kubectl ebs explain node {}", node[1]) if is_name(node[1]) else "",
        )
    link = reason_rules.link_of(said, Cause.NOT_CREATED)
    if said.reason is not Reason.VOLUME_NOT_FOUND or key_rules.is_unencrypted(about):
        return link
    key = key_rules.of_claim(view, about)
    return replace(
        link,
        sentence="EC2 has created the volume and taken it back, most often because the "
        f"controller's role may not use its key: {key.words}.",
        remedy="Allow the controller's role to use the key; docs/reference/iam.md has the rights.",
        command="kubectl ebs doctor --as-controller",
    )


def _age(last: Said, failed: Said) -> timedelta:
    """How much earlier the failure was than what was said last."""
    return last.at - failed.at if last.at and failed.at else timedelta()


def _pending_link(about: ClaimView) -> Link:
    return Link(
        Cause.CLAIM_NOT_BOUND,
        f"So claim {about.key} has no volume.",
        Proof(f"{about.name}, status.phase", "Pending"),
    )
