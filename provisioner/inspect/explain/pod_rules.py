"""Why a pod does not start, as far as its volumes go."""

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import timedelta

from provisioner.inspect.explain import (
    attachment_rules,
    claim_rules,
    deletion_rules,
    node_rules,
    reason_rules,
    refusal_rules,
)
from provisioner.inspect.explain.attachment_rules import Here
from provisioner.inspect.explain.chain_rules import Cause, Chain, Link, Proof
from provisioner.inspect.explain.pods import container_rules
from provisioner.inspect.explain.scheduling import held_rules, scheduling_rules
from provisioner.inspect.explain.view_rules import ClaimView, Said, View, VolumeView, newest
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
# Before it had its node and its volumes, and what is told by volume.
_ATTACH_FAILED, _ATTACHED = "FailedAttachVolume", "SuccessfulAttachVolume"
_OVER = ("FailedScheduling", _ATTACH_FAILED, *_MOUNT_FAILED)
_AT_WORK = ("Pulling", "Pulled", "Created", "Started")
# Of kubelet 1.36, pkg/kubelet/volumemanager: "unable to attach or mount volumes: ...".
_SUMS = ("nable to attach or mount volumes", "timed out waiting for the condition")
_VOLUME = re.compile(r'for volume "([^"]+)"')
_TRIED_WITHIN = timedelta(minutes=10)
_STARTS_IN = timedelta(minutes=2)


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
    view = _with_user(view, pod)
    if not pod.node_name:
        return _unscheduled(view, pod)
    node = view.node
    ill = node_rules.ill(view, node) if node else []
    if pod.deleting:
        return _ending(view, pod, ill)
    if pod.status.phase == "Running":
        return _running(view, pod, ill)
    return _starting(view, pod, ill)


def _running(view: View, pod: WatchedPod, ill: list[Chain]) -> list[Chain]:
    """It has started, which is no proof that it still has its volumes."""
    lost = [each for each in ill if each.cause in _OF_THE_MACHINE]
    if not lost and view.node is not None:
        lost = [
            chain for each in view.claims for chain in attachment_rules.lost(view, each, view.node)
        ]
    # A claim that is being deleted harms only the next pod.
    of_claims = [
        replace(chain, waits=chain.waits or (each.claim is not None and each.claim.deleting))
        for each in view.claims
        for chain in claim_rules.chains(view, each)
    ]
    return [*lost, *of_claims, *([] if lost else container_rules.chains(view, pod))]


def _with_user(view: View, pod: WatchedPod) -> View:
    """The same; that the pod itself uses its claims need not be asked."""
    claims = [
        replace(each, users=(pod, *(u for u in each.users if u.key != pod.key)))
        for each in view.claims
    ]
    return replace(view, claims=tuple(claims))


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
        command=shell("kubectl -n {} get pods", target.namespace),
    )
    return [Chain((link,))]


def _unscheduled(view: View, pod: WatchedPod) -> list[Chain]:
    if held_rules.is_held(pod):
        return [held_rules.chain(view, pod)]  # its claim comes and goes meanwhile
    symptom = _not_scheduled(view, pod)
    found: list[Chain] = []
    awaited: list[Chain] = []
    for each in view.claims:
        if each.claim is None:
            found += [chain.then(symptom) for chain in _claim_missing(view, each)]
            continue
        of_claim = claim_rules.chains(view, each)
        if each.claim.deleting:
            found += [_unusable(chain).then(symptom) for chain in of_claim]
            continue
        wrong = [chain for chain in of_claim if not chain.waits]
        is_bound = each.claim.is_bound
        found += [chain.then(symptom) for chain in wrong if not is_bound or _matters(chain)]
        if not is_bound and each.claim.selected_node:
            awaited += [chain.then(symptom) for chain in of_claim if chain.waits]
    if not found and pod.condition("PodScheduled") is None:
        # The scheduler says nothing of a pod that has a node but for its volumes.
        found = awaited
    return found or scheduling_rules.chains(view, pod)


def _unusable(ending: Chain) -> Chain:
    """No new pod gets a claim that is being deleted, however soon that ends."""
    first, *more = ending.links
    remedy = (
        f"{first.remedy} No new pod can use a claim that is being deleted: once it is gone, create "
        "it again (a StatefulSet's controller does that), or name another claim in the pod."
    )
    return Chain((replace(first, remedy=remedy.strip()), *more))


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
        command="" if refused else shell("kubectl -n {} get pvc", about.namespace),
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
        command=_describe(pod),
    )
    return [Chain((late, ends))]


def _starting(view: View, pod: WatchedPod, ill: list[Chain]) -> list[Chain]:
    """It has a node, and does not run yet."""
    waits = _waits(pod)
    found: list[Chain] = []
    absent: set[str] = set()
    elsewhere = {name: node_rules.ill(view, each) for name, each in view.other_nodes.items()}
    for each in view.claims:
        claim = each.claim
        if claim is None:
            found += _claim_missing(view, each)
        elif not claim.is_bound or claim.deleting:
            found += claim_rules.chains(view, each)
        elif view.node is not None:
            of_volume = attachment_rules.chains(view, each, Here(view.node, ill, elsewhere))
            found += of_volume
            absent |= {each.volume.name} if of_volume and each.volume else set()
    found += _mounting(view, ill, absent, is_alone=not found)
    if found:
        return [each.then(waits) for each in found]
    return container_rules.chains(view, pod) or _unsaid(view, pod)


def _mounting(
    view: View, ill: list[Chain], absent: Collection[str], *, is_alone: bool
) -> list[Chain]:
    """What kubelet and the node plugin say of the volumes that are attached.

    Args:
        view: all that is known.
        ill: what is wrong with the node.
        absent: persistent volumes that are not attached, about which more is known.
        is_alone: whether nothing else was found.
    """
    blocking = [each for each in ill if attachment_rules.blocks(each)] if view.claims else []
    found = [] if not is_alone else blocking
    for volume, said in _mount_failures(view).items():
        # Without a driver or a kubelet, what they say has no cause of its own.
        is_other = said.reason is None and bool(blocking)
        if volume in absent or is_other or not (volume or is_alone):
            continue
        which = f"volume {volume}" if volume else "a volume of the pod"
        sentence = f"Kubelet cannot mount {which}."
        found = [*found, Chain((reason_rules.link_of(said, Cause.NOT_MOUNTED, sentence),))]
    return found


def _mount_failures(view: View) -> Mapping[str, Said]:
    """The newest failure of each volume, by the name in its text, "" for none."""
    failed = [
        each
        for each in view.pod_said
        if each.event in _MOUNT_FAILED and each.warning and not _is_sum(each)
    ]
    last = newest(tuple(failed))
    found: dict[str, Said] = {}
    for each in failed:
        if last and last.at and each.at and last.at - each.at > _TRIED_WITHIN:
            continue  # kubelet tries each volume every two minutes
        name = _named(each)
        found[name] = newest(tuple(filter(None, (found.get(name), each)))) or each
    return found


def _is_sum(said: Said) -> bool:
    """Kubelet's sum of everything, which says nothing of the cause."""
    return said.reason is None and any(text in said.text for text in _SUMS)


def _waits(pod: WatchedPod) -> Link:
    return Link(
        Cause.POD_WAITS,
        f"So pod {pod.key} does not start on node {pod.node_name}.",
        Proof(f"pod {pod.key}, status.phase", pod.status.phase or "Pending"),
    )


def _unsaid(view: View, pod: WatchedPod) -> list[Chain]:
    """Our volumes are attached, no mount fails by name, and it does not run."""
    waits = _waits(pod)
    began = pod.status.start_time or pod.metadata.creation_timestamp
    is_new = began is None or view.now - began < _STARTS_IN
    owned = newest(view.pod_said, "VolumePermissionChangeInProgress")
    if owned is not None and _is_recent(view, owned):
        return [Chain((_ownership(pod, owned), waits), waits=True)]
    told = _not_attached(view, pod) or _other_reason(view, pod) or _sum_of_all(view, pod)
    if told is not None:
        return [Chain((told, waits), waits=is_new)]
    newest_said = newest(view.pod_said, *_AT_WORK)
    starts = newest_said is not None and _is_recent(view, newest_said)
    said = "no event says why" if view.read("events") else "its events could not be read"
    proof = reason_rules.proof_of(newest_said) if newest_said else waits.proof
    quiet = Link(
        Cause.POD_WAITS,
        f"Kubelet is starting pod {pod.key} on node {pod.node_name}."
        if is_new or starts
        else f"Pod {pod.key} does not start on node {pod.node_name}, and {said}.",
        proof,
        next="kubelet, which mounts the volumes and starts the containers",
        remedy="" if is_new or starts else "Look at the pod, and at the kubelet's log.",
        command="" if is_new or starts else _describe(pod),
    )
    return [Chain((quiet,), waits=is_new or starts)]


def _ownership(pod: WatchedPod, said: Said) -> Link:
    """Kubelet walks through all files; source: its 1.36 pkg/volume/volume_linux.go."""
    return Link(
        Cause.OWNERSHIP,
        "Kubelet changes the owner of every file of a volume to the pod's fsGroup, which takes "
        "long with many files.",
        reason_rules.proof_of(said),
        next="kubelet; the pod starts once that is done",
        remedy="Nothing, this time. Set fsGroupChangePolicy: OnRootMismatch in the pod's "
        "securityContext, and kubelet does it only once for a volume.",
        command=_describe(pod),
    )


def _not_attached(view: View, pod: WatchedPod) -> Link | None:
    """A volume of another driver, or one that the pod names itself, by the words of its event."""
    attached = {each.name for each in _volumes(view) if _is_attached(view, pod, each)}
    done = [each for each in view.pod_said if each.event == _ATTACHED]
    failed = [
        each
        for each in view.pod_said
        if each.event == _ATTACH_FAILED
        and _is_recent(view, each)
        and _named(each) not in attached
        and not any(_is_over(each, by) for by in done)
    ]
    last = newest(tuple(failed), warning=True)
    if last is None:
        return None
    which = f"Volume {_named(last)}" if _named(last) else "A volume of the pod"
    sentence = f"{which} is not attached to node {pod.node_name}."
    return reason_rules.link_of(last, Cause.NOT_ATTACHED, sentence)


def _is_over(failed: Said, done: Said) -> bool:
    """Whether a volume was attached after it could not be; what has no time came last."""
    if _named(failed) != _named(done):
        return False
    return done.at is None or (failed.at is not None and done.at >= failed.at)


def _volumes(view: View) -> list[VolumeView]:
    return [each.volume for each in view.claims if each.volume is not None]


def _is_attached(view: View, pod: WatchedPod, volume: VolumeView) -> bool:
    """Also one of ours, whose attachment is known better than by events."""
    found = volume.persistent_volume
    is_ours = found is not None and found.volume_id(view.driver) is not None
    there = (each for each in volume.attachments if each.spec.node_name == pod.node_name)
    return is_ours or any(each.attached for each in there)


def _named(said: Said) -> str:
    """The volume that an event names, "" for none."""
    found = _VOLUME.search(said.text)
    return found[1] if found else ""


def _other_reason(view: View, pod: WatchedPod) -> Link | None:
    """The newest failure, which is of no volume."""
    last = newest(tuple(each for each in view.pod_said if each.event not in _OVER), warning=True)
    if last is not None and _is_recent(view, last):
        return Link(
            Cause.CONTAINER_FAILS,
            f"Nothing is wrong with the volumes of pod {pod.key}, as far as can be seen; it does "
            "not start for another reason.",
            reason_rules.proof_of(last),
            next="kubelet, which tries again",
            remedy="Look at the pod's events.",
            command=_describe(pod),
        )
    return None


def _sum_of_all(view: View, pod: WatchedPod) -> Link | None:
    """Kubelet waits for volumes, and no finer word is left."""
    summed = newest(view.pod_said, *_MOUNT_FAILED, warning=True)
    if summed is not None:
        return Link(
            Cause.NOT_MOUNTED,
            "Kubelet waits for a volume of the pod, and does not say why.",
            reason_rules.proof_of(summed),
            next="kubelet, which tries again",
            remedy="Look at the logs of the node plugin and the kubelet on that node.",
            command=_describe(pod),
        )
    return None


def _is_recent(view: View, said: Said) -> bool:
    return said.at is None or view.now - said.at < _TRIED_WITHIN


def _describe(pod: WatchedPod) -> str:
    return shell("kubectl -n {} describe pod {}", pod.metadata.namespace, pod.name)
