"""Decide which pods are evicted for a move, so that those that take their place wait for its end.

Their owners are not scaled: whoever makes the pods makes them anew, and the webhook holds the new
ones back. What was evicted is in the move's status before it is.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from provisioner.controller.moving.phase_rules import Await
from provisioner.controller.moving.pods.consumer_rules import Consumer, GiveUp, ended
from provisioner.controller.moving.pods.gate_rules import MOST_EVICTIONS_MORE, is_gated
from provisioner.model.sentences import listed
from provisioner.model.volume_move import VolumeMove
from provisioner.model.workload import ControlledPod, OwnerReference

_BY_HAND = "end it yourself"
_NOT_RESTARTED: Mapping[str, str] = {
    # Each of its pods is for one node (Kubernetes 1.36 pkg/controller/daemon), in the old zone.
    "DaemonSet": "whose pods are for one node each and cannot follow the volume",
    "Job": "which counts an evicted pod as failed",
    "Node": "which makes it past the API server",
}


@dataclass(frozen=True, slots=True)
class Evict:
    """Record all of these UIDs, then evict the pod.

    ``text``: says so, as a sentence; ``pods_before``: recorded with the first of them.
    """

    pod: ControlledPod
    restarts: tuple[str, ...]
    text: str
    pods_before: int


def refused(consumers: Sequence[Consumer]) -> str | None:
    """Why one of these pods is not restarted, in one sentence; None if all can be."""
    for each in consumers:
        said = _refused(each.name, each.owner, has_ended=each.has_ended)
        if said is not None:
            return said if each.has_ended else f"{said}, with consumers.policy Wait"
    return None


def _refused(pod: str, owner: OwnerReference | None, *, has_ended: bool) -> str | None:
    if has_ended:
        return ended(pod) if owner is None or owner.kind in _NOT_RESTARTED else None
    if owner is None:
        return f"pod {pod} has no owner that would create it again: {_BY_HAND}"
    why = _NOT_RESTARTED.get(owner.kind)
    if why is None:
        return None
    return f"pod {pod} belongs to {owner.kind} {owner.name}, {why}: {_BY_HAND}"


def stops(consumers: Sequence[Consumer]) -> list[str]:
    """Which pods the move evicts, by their owners; sentences."""
    by_owner: dict[str, list[str]] = {}
    for each in consumers:
        why_not = _refused(each.name, each.owner, has_ended=each.has_ended)
        if each.owner is not None and why_not is None:
            who = f"{each.owner.kind} {each.owner.name}"
            by_owner.setdefault(who, []).append(each.name)
    return [_restarted(who, names) for who, names in sorted(by_owner.items())]


def _restarted(who: str, pods: Collection[str]) -> str:
    named = listed(sorted(pods), "and")
    if len(pods) > 1:
        return f"{who}: pods {named} are evicted, and those in their place start after the swap"
    return f"{who}: pod {named} is evicted, and the one in its place starts after the swap"


def next_eviction(move: VolumeMove, pods: Sequence[ControlledPod]) -> Evict | GiveUp | Await | None:
    """The next pod to evict; None if all that use the claim are ending or held back.

    One without a node counts: it could get one in the old zone at any time.
    """
    left = [each for each in pods if not each.deleting and not is_gated(each)]
    waits = None
    for pod in left:
        why = _refused(pod.name, pod.metadata.controller, has_ended=pod.has_ended)
        if why is None:
            return _evicted(move, pod, len(left))
        waits = waits or Await(why if pod.has_ended else f"waiting for pods to end: {why}")
    return waits


def _evicted(move: VolumeMove, pod: ControlledPod, left: int) -> Evict | GiveUp:
    known, owner = move.told.restarts, pod.metadata.controller
    before = move.told.pods_before if known else left
    who = f"{owner.kind} {owner.name}" if owner is not None else ""
    if pod.uid in known:  # recorded, and perhaps not sent
        return Evict(pod, tuple(known), f"pod {pod.name} of {who} is evicted", before)
    planned = move.told.plan.pods if move.told.plan is not None else ()
    if len(known) >= (1 + MOST_EVICTIONS_MORE) * max(1, len(planned), before):
        return GiveUp(
            f"pod {pod.name} of {who} was not held back, although {len(known)} of the claim's pods "
            "were evicted: the webhook does not answer, or is not asked about namespace "
            f"{pod.metadata.namespace} (MutatingWebhookConfiguration ebs-webhook), or the pod "
            "names its node; see to it, or move the claim with consumers.policy ScaleDown or Wait"
        )
    text = f"pod {pod.name} of {who} is evicted; the one in its place starts after the swap"
    return Evict(pod, (*known, pod.uid), text, before)


def not_evicted(pod: ControlledPod, message: str) -> Await:
    """What to do about a pod that the API server does not let be evicted, and says why."""
    return Await(
        f"pod {pod.name} may not be evicted yet ({message}): have its PodDisruptionBudget allow "
        "it, delete the pod yourself, or abort the move"
    )


def is_planned(move: VolumeMove, pod: ControlledPod) -> bool:
    """Whether the plan names a pod."""
    plan = move.told.plan
    return plan is not None and pod.name in plan.pods
