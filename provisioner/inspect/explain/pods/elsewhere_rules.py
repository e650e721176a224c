"""Why a volume stays on another node: who uses it there, and whether that node is alive.

The attach-detach controller asks for a detachment once no pod on the node needs the volume and
kubelet has unmounted it. For a node that is not healthy it does so without kubelet six minutes
after the last pod is gone, but never while a pod of that node exists: one that is being deleted
stays until its kubelet has ended it, or the Node is deleted or tainted out-of-service.
Source: Kubernetes pkg/controller/volume/attachdetach/reconciler, and "Non-graceful node shutdown
handling"; tests/cluster/broken/moving.py shows it with Kubernetes' own controllers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from provisioner.inspect.explain import deletion_rules
from provisioner.inspect.explain.chain_rules import Cause, Chain, Link, Proof, at
from provisioner.inspect.explain.view_rules import ClaimView, View, VolumeView
from provisioner.inspect.reading.kind_rules import APPS, WatchedPod
from provisioner.inspect.shell_words import is_name, shell
from provisioner.model.attachment import Attachment
from provisioner.model.errors import Reason

_OFF = frozenset({"stopped", "terminated"})
_STATE = "Reservations[].Instances[].State.Name"
_RECREATE = '{"spec":{"strategy":{"type":"Recreate","rollingUpdate":null}}}'
_TAINT = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
_BY_FORCE_AFTER = timedelta(minutes=6)
_UNMOUNTED_IN = timedelta(minutes=2)
# Of these, the advice depends on what is on the node; others have better advice of their own.
_NO_KUBELET = {Cause.NODE_GONE, Cause.NODE_NOT_READY, Reason.INSTANCE_STATE}
_SCALED = {(APPS, "StatefulSet"), (APPS, "ReplicaSet")}


@dataclass(frozen=True, slots=True)
class _Advice:
    next: str
    remedy: str = ""
    command: str = ""


@dataclass(frozen=True, slots=True)
class _There:
    """What is known around the other node."""

    view: View
    claim: ClaimView
    volume: VolumeView
    node: str
    pods: tuple[WatchedPod, ...]

    @property
    def is_free(self) -> bool:
        """Whether EC2 shows the volume, and on no instance."""
        ebs = self.volume.ebs
        return ebs is not None and not any(ebs.on(e.instance_id) for e in ebs.attachments)

    @property
    def machine(self) -> tuple[str, str]:
        """The instance of the node, and its state; "" if that is not known."""
        known = self.view.other_nodes.get(self.node)
        if known is None:
            return "", ""
        if known.instance is not None:
            return known.instance.instance_id, known.instance.state
        return (known.node.instance_id if known.node else ""), ""


def out_of_service(node: str) -> str:
    """The command that has a node's pods deleted, and their volumes detached, at once."""
    return shell("kubectl taint node {} {}", node, _TAINT)


def chain(
    view: View, claim: ClaimView, volume: VolumeView, other: Attachment, ill: Sequence[Chain]
) -> Chain:
    """Why a volume that a VolumeAttachment has on another node does not leave it.

    Args:
        view: all that is known.
        claim: whose volume a pod here needs.
        volume: of the claim.
        other: the VolumeAttachment; nobody has asked for its end yet.
        ill: what keeps that node's pods from their volumes.
    """
    name = other.spec.node_name
    pods = tuple(each for each in claim.users if each.node_name == name)
    there = _There(view, claim, volume, name, pods)
    if not ill:
        advice, waits = _of_a_node_that_lives(there)
        return Chain((_link(there, other, advice),), waits=waits)
    first, *more = ill[0].links
    if first.cause in _NO_KUBELET:
        advice = _without_kubelet(there, is_gone=first.cause is Cause.NODE_GONE)
        first = replace(first, next=advice.next, remedy=advice.remedy, command=advice.command)
    return Chain((first, *more, _link(there, other, _Advice(first.next))))


def _link(there: _There, other: Attachment, advice: _Advice) -> Link:
    by = f", where pod {there.pods[0].key} uses it" if there.pods else ""
    sentence = f"The volume of claim {there.claim.key} is still attached to node {there.node}{by}."
    proof = Proof(
        f"volumeattachment {other.name}", f"node {there.node}, attached: {other.attached}"
    )
    ebs = there.volume.ebs
    if there.is_free and ebs is not None:
        sentence = (
            f"For Kubernetes the volume of claim {there.claim.key} is still attached to node "
            f"{there.node}{by}, but EC2 shows it on no instance."
        )
        proof = Proof(f"{proof.where}; EC2 DescribeVolumes", f"{proof.seen}; {ebs.state}")
    deployment = _own_deployment(there)
    if deployment:
        sentence += f" Both pods are of Deployment {deployment}."
    return Link(Cause.OTHER_NODE, sentence, proof, advice.next, advice.remedy, advice.command)


def _without_kubelet(there: _There, *, is_gone: bool) -> _Advice:
    """Nothing on the node ends pods and unmounts volumes."""
    if not there.pods:
        return _by_force(there)
    pod = there.pods[0].key
    if is_gone:
        return _Advice(
            f"Kubernetes, which deletes pod {pod} within a minute, and detaches the volume by "
            "force six minutes later"
        )
    instance, state = there.machine
    taint = out_of_service(there.node)
    if state in _OFF:
        return _Advice(
            f"you; pod {pod} does not end while its kubelet is silent, and keeps the volume",
            f"Instance {instance} is {state}. Start it again, or taint the node out-of-service: "
            "then its pods are deleted, and their volumes detached at once.",
            taint,
        )
    return _Advice(
        f"you, unless the node comes back; pod {pod} does not end while its kubelet is silent, and "
        "keeps the volume",
        f"Make sure that the machine is off: its state has to be stopped or terminated. Only then "
        f"run {taint} : its pods are deleted, and their volumes detached at once. A machine that "
        "still runs would go on writing.",
        shell("aws ec2 describe-instances --instance-ids {} --query {}", instance, _STATE)
        if instance
        else shell("kubectl ebs explain node {}", there.node),
    )


def _by_force(there: _There) -> _Advice:
    """No pod of the node is left, so the volume is detached without its kubelet."""
    pod = there.view.pod
    made = pod.metadata.creation_timestamp if pod else None
    until = made + _BY_FORCE_AFTER if made else None
    if until is not None and there.view.now > until + _UNMOUNTED_IN:
        return _Advice(
            "kube-controller-manager, which detaches the volume by force six minutes after the "
            "last pod there is gone; that seems to be over",
            "Check that kube-controller-manager runs, and without "
            "--disable-force-detach-on-timeout.",
            shell("kubectl ebs explain node {}", there.node),
        )
    when = f": about {at(until)}, if the pod there was gone when this one was made" if until else ""
    return _Advice(
        "kube-controller-manager, which detaches the volume by force six minutes after the last "
        f"pod there is gone{when}",
        "Nothing: the volume comes by itself.",
    )


def _of_a_node_that_lives(there: _There) -> tuple[_Advice, bool]:
    """What helps, and whether nothing has to be done."""
    if not there.pods:
        made = there.view.pod.metadata.creation_timestamp if there.view.pod else None
        advice = _Advice(
            "kube-controller-manager, which asks for the detachment once the kubelet of node "
            f"{there.node} has unmounted the volume",
            "If it stays: look at the kubelet's log there.",
            shell("kubectl ebs explain node {}", there.node),
        )
        return advice, made is not None and there.view.now - made < _UNMOUNTED_IN
    old = there.pods[0]
    if not old.deleting:
        return _in_use(there, old), False
    advice = _Advice(
        f"the kubelet of node {there.node}, which ends pod {old.key}; then the volume moves",
        "Find out why that pod does not end.",
        shell("kubectl ebs explain pod {}", old.key),
    )
    return advice, not deletion_rules.is_late(there.view, old)


def _own_deployment(there: _There) -> str:
    """The Deployment of both pods, "" if they have none in common."""
    if not there.pods or there.view.pod is None or not is_name(there.view.pod.deployment):
        return ""
    new, old = there.view.pod, there.pods[0]
    return f"{new.metadata.namespace}/{new.deployment}" if new.deployment == old.deployment else ""


def _in_use(there: _There, old: WatchedPod) -> _Advice:
    """A pod that runs uses it; to delete that one helps only if nothing creates it again."""
    namespace, owner, new = old.metadata.namespace, old.owner, there.view.pod
    waits = f"pod {old.key}: the volume moves once it has ended"
    if owner is None:
        return _Advice(
            waits,
            "Delete that pod, or let both run on one node.",
            shell("kubectl -n {} delete pod {}", namespace, old.name),
        )
    if new is not None and _own_deployment(there):
        if new.owner is not None and new.owner.name == owner.name:
            return _Advice(
                "you; one node at a time can use the volume, and its replicas need it on several",
                "Scale the Deployment to one replica, or make it a StatefulSet, whose replicas "
                "have a claim each.",
                shell("kubectl -n {} scale deployment {} --replicas=1", namespace, old.deployment),
            )
        return _Advice(
            "you; the update ends the old pod only when the new one is ready, which needs the "
            "volume. A deleted pod would be created again at once",
            "Set the Deployment's strategy to Recreate, which ends the old pod first, or make it a "
            "StatefulSet.",
            shell("kubectl -n {} patch deployment {} -p {}", namespace, old.deployment, _RECREATE),
        )
    kind, name = ("Deployment", old.deployment) if old.deployment else (owner.kind, owner.name)
    # Who may create pods chooses these words.
    is_scaled = is_name(name) and (bool(old.deployment) or (owner.api_version, kind) in _SCALED)
    by = f"{kind} {name}" if is_name(name) else "owner"
    return _Advice(
        waits,
        f"End that pod by its {by}, which would create it again, or let both pods run on one node.",
        shell("kubectl -n {} scale {} {} --replicas=0", namespace, kind.lower(), name)
        if is_scaled
        else shell("kubectl -n {} describe pod {}", namespace, old.name),
    )
