"""Why a pod does not start, as far as its volumes go."""

from dataclasses import replace

from provisioner.inspect.explain import (
    attachment_rules,
    claim_rules,
    deletion_rules,
    node_rules,
    reason_rules,
    refusal_rules,
    scheduling_rules,
)
from provisioner.inspect.explain.chain_rules import Cause, Chain, Link, Proof
from provisioner.inspect.explain.view_rules import ClaimView, Said, View, newest
from provisioner.inspect.reading.kind_rules import WatchedPod
from provisioner.inspect.shell_words import shell
from provisioner.model.errors import Reason

# What also harms a pod that runs: kubelet has stopped telling.
_OF_THE_MACHINE = {
    Cause.NODE_GONE,
    Cause.NODE_NOT_READY,
    Reason.INSTANCE_NOT_FOUND,
    Reason.INSTANCE_STATE,
}
# That of Jobs is removed by kube-controller-manager.
_FINALIZERS = ("batch.kubernetes.io/", "orphan", "foregroundDeletion")
_MOUNT_FAILED = ("FailedMount", "FailedMapVolume", "VolumeResizeFailed")


def chains(view: View) -> list[Chain]:
    """What is wrong with the pod that is asked about, or what it waits for."""
    pod = view.pod
    if pod is None:
        return _missing(view)
    strange = node_rules.elsewhere(view.node) if view.node else None
    if strange is not None and not pod.is_over:
        # What EC2 does not know there proves nothing.
        return [strange, *chains(_without_ec2(view))]
    if pod.is_over:
        return []
    if not pod.node_name:
        return _unscheduled(view, pod)
    node = view.node
    ill = node_rules.ill(view, node) if node else []
    if pod.deleting:
        return _ending(view, pod, ill)
    if pod.status.phase == "Running":
        of_claims = [chain for each in view.claims for chain in claim_rules.chains(view, each)]
        return [*(each for each in ill if each.cause in _OF_THE_MACHINE), *of_claims]
    return _starting(view, pod, ill)


def _without_ec2(view: View) -> View:
    """The same, as if EC2 had not been asked."""
    node = replace(view.node, asked=False) if view.node else None
    claims = [
        replace(each, volume=replace(each.volume, ebs=None, asked=False)) if each.volume else each
        for each in view.claims
    ]
    return replace(view, node=node, claims=tuple(claims))


def _missing(view: View) -> list[Chain]:
    target = view.target
    refused = refusal_rules.chains(view, target.name)
    if refused:
        return refused
    link = Link(
        Cause.OBJECT_MISSING,
        f"There is no {target}.",
        Proof(str(target), "not found"),
        remedy="Check the name and the namespace.",
        command=f"kubectl -n {target.namespace} get pods",
    )
    return [Chain((link,))]


def _unscheduled(view: View, pod: WatchedPod) -> list[Chain]:
    symptom = _not_scheduled(view, pod)
    found: list[Chain] = []
    awaited: list[Chain] = []
    for each in view.claims:
        if each.claim is None:
            found += [chain.then(symptom) for chain in _claim_missing(view, each)]
            continue
        of_claim = claim_rules.chains(view, each)
        wrong = [chain for chain in of_claim if not chain.waits]
        is_bound = each.claim.is_bound
        found += [chain.then(symptom) for chain in wrong if not is_bound or _matters(chain)]
        if not is_bound and each.claim.selected_node:
            awaited += [chain.then(symptom) for chain in of_claim if chain.waits]
    if not found and pod.condition("PodScheduled") is None:
        # The scheduler says nothing of a pod that has a node but for its volumes.
        found = awaited
    return found or scheduling_rules.chains(view, pod)


def _matters(chain: Chain) -> bool:
    """Whether what is wrong with a bound claim keeps its pod from a node."""
    return chain.cause in {Cause.VOLUME_MISSING, Cause.CLAIM_LOST}


def _claim_missing(view: View, about: ClaimView) -> list[Chain]:
    if not view.read("persistentvolumeclaims"):
        return []
    name = about.key.partition("/")[2]
    refused = refusal_rules.of_claim(view, name)
    link = Link(
        Cause.CLAIM_MISSING,
        f"The pod names claim {about.key}, which does not exist.",
        Proof(about.name, "not found"),
        next="" if refused else "you, or the StatefulSet's controller, which creates it",
        remedy="" if refused else "Create the claim, or correct its name in the pod.",
        command="" if refused else f"kubectl -n {about.key.partition('/')[0]} get pvc",
    )
    return [refused[0].then(link) if refused else Chain((link,))]


def _not_scheduled(view: View, pod: WatchedPod) -> Link:
    condition = pod.condition("PodScheduled")
    chosen = [each.claim.selected_node for each in view.claims if each.claim is not None]
    node = next(filter(None, chosen), "")
    unsaid = f"none: node {node} is chosen, and waits for the volumes" if node else "none yet"
    return Link(
        Cause.NOT_SCHEDULED,
        f"So pod {pod.key} is not scheduled.",
        Proof(
            f"pod {pod.key}, condition PodScheduled",
            condition.message if condition else unsaid,
        ),
    )


def _ending(view: View, pod: WatchedPod, ill: list[Chain]) -> list[Chain]:
    ends = Link(
        Cause.POD_WAITS,
        f"Pod {pod.key} is ending, and its volumes are released only then.",
        Proof(f"pod {pod.key}, metadata.deletionTimestamp", str(pod.metadata.deletion_timestamp)),
        next="kubelet, which ends the containers and unmounts the volumes",
    )
    if ill:
        return [each.then(ends) for each in ill]
    other = deletion_rules.foreign("pod", pod, _FINALIZERS)
    if other is not None:
        return [Chain((other, ends))]
    if not deletion_rules.is_late(view, pod):
        return [Chain((ends,), waits=True)]
    late = deletion_rules.late(
        "pod",
        pod,
        by=f"the kubelet of node {pod.node_name}",
        remedy="Look at the pod's events and at the kubelet's log. Delete the pod by force only "
        "if it certainly no longer runs there: it would lose its volumes while it writes.",
        command=shell("kubectl", "-n", pod.metadata.namespace, "describe", "pod", pod.name),
    )
    return [Chain((late, ends))]


def _starting(view: View, pod: WatchedPod, ill: list[Chain]) -> list[Chain]:
    """It has a node, and does not run yet."""
    waits = _waits(pod)
    found: list[Chain] = []
    for each in view.claims:
        claim = each.claim
        if claim is None:
            found += _claim_missing(view, each)
        elif not claim.is_bound or claim.deleting:
            found += claim_rules.chains(view, each)
        elif view.node is not None:
            found += attachment_rules.chains(view, each, view.node, ill)
    if not found and view.claims:
        found = _mounting(view, ill)
    if found:
        return [each.then(waits) for each in found]
    return _containers(pod)


def _mounting(view: View, ill: list[Chain]) -> list[Chain]:
    """Everything is attached: what kubelet and the node plugin say."""
    said = newest(view.pod_said, *_MOUNT_FAILED, warning=True)
    if said is None or _is_of_attaching(said):
        return ill
    link = reason_rules.link_of(
        said, Cause.NOT_MOUNTED, "Kubelet cannot mount a volume of the pod."
    )
    return [*ill, Chain((link,))] if said.reason is None or not ill else ill


def _is_of_attaching(said: Said) -> bool:
    """Kubelet's sum of everything, which says nothing of the cause."""
    return said.reason is None and "timed out waiting for the condition" in said.text


def _waits(pod: WatchedPod) -> Link:
    return Link(
        Cause.POD_WAITS,
        f"So pod {pod.key} does not start on node {pod.node_name}.",
        Proof(f"pod {pod.key}, status.phase", pod.status.phase or "Pending"),
    )


def _containers(pod: WatchedPod) -> list[Chain]:
    """Its volumes are there; a container does not start for another reason."""
    waiting = pod.waiting
    if waiting is None:
        return []
    link = Link(
        Cause.CONTAINER_FAILS,
        f"The volumes of pod {pod.key} are mounted; a container does not start: {waiting.reason}.",
        Proof(f"pod {pod.key}, status.containerStatuses", waiting.message or waiting.reason),
        next="kubelet, which tries again",
        remedy="This is not about volumes: look at the pod.",
        command=f"kubectl -n {pod.metadata.namespace} describe pod {pod.name}",
    )
    return [Chain((link,))]
