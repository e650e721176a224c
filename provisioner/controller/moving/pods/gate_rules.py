"""Decide which pods wait for a move, which may go on, and whether new ones are held back at all.

The webhook gives new pods of a claim that is moved a scheduling gate; the controller removes it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from provisioner.model.names import HELD_FOR_MOVE
from provisioner.model.pod import Pod
from provisioner.model.volume_move import GATE, VolumeMove

Json = dict[str, Any]
PATH = "/mutate/pods"
"""Where the webhook is asked about new pods."""
MOST_EVICTIONS_MORE = 3
"""Of each pod that there was: whoever comes back ungated after that would do so for ever."""
_NAME = "kubernetes.io/metadata.name"  # the label that every namespace has
_ANY = "*"
_NOT_HELD = (
    "MutatingWebhookConfiguration ebs-webhook does not have new pods of namespace {} held back"
)
_WHAT_HELPS = (
    "install manifests/webhook-volume-moves, or set consumers.withoutHold (--without-hold)"
)


def is_gated(pod: Pod) -> bool:
    """Whether a pod waits for a move."""
    return GATE in pod.spec.gates


def named_move(pod: Pod) -> tuple[str, str]:
    """Namespace and name of the move that a gated pod waits for; "" if it names none of its own."""
    namespace, _, name = pod.annotations.get(HELD_FOR_MOVE, "").partition("/")
    return (namespace, name) if namespace == pod.metadata.namespace else ("", "")


def is_held(pod: Pod, moves: Sequence[VolumeMove]) -> bool:
    """Whether one of these moves holds a claim of the pod."""
    return any(each.holds_pods and each.claim_key in pod.claim_keys for each in moves)


def ungated(pod: Pod) -> Json:
    """The strategic merge patch that lets exactly this pod go on; gates of others stay."""
    return {
        "metadata": {"uid": pod.uid, "annotations": {HELD_FOR_MOVE: None}},
        "spec": {"schedulingGates": [{"name": GATE, "$patch": "delete"}]},
    }


def holds_pods_of(webhooks: Sequence[Mapping[str, Any]], namespace: str) -> bool:
    """Whether one of these webhooks is ours for new pods, and is asked about this namespace."""
    return any(_is_ours(each) and _is_asked(each, namespace) for each in webhooks)


def not_held(move: VolumeMove, *, has_hold: bool, changes_zone: bool) -> str | None:
    """Why a move does not begin without a webhook that holds new pods back; None if it does.

    The volume is held all the same. So a pod only waits on its node, if that is in the right zone.
    """
    if has_hold or move.spec.consumers.without_hold:
        return None
    if move.restarts:
        then = "a restarted pod would use the old volume again"
    elif changes_zone:
        then = (
            "one that is created during the move could get a node in the old zone, and never start "
            "there"
        )
    else:
        return None
    return f"{_NOT_HELD.format(move.metadata.namespace)}, so {then}: {_WHAT_HELPS}"


def notes(move: VolumeMove, *, has_hold: bool, changes_zone: bool) -> list[str]:
    """What a missing webhook means for a move, as sentences."""
    if has_hold:
        return []
    if move.restarts:
        then = (
            "if pods come back before the volume is free, they are evicted up to "
            f"{MOST_EVICTIONS_MORE} times more, and then the move is aborted"
        )
    elif changes_zone:
        then = (
            "one that is created during the move may be put on a node in the old zone, and has to "
            "be deleted then"
        )
    else:
        then = "one that is created during the move waits on its node until the move has ended"
    return [f"{_NOT_HELD.format(move.metadata.namespace)}: {then}"]


def _is_ours(webhook: Mapping[str, Any]) -> bool:
    asked = webhook.get("clientConfig") or {}
    service = asked.get("service") or {}
    # Without a bundle no API server trusts the Service yet; at a url, a known authority may.
    is_trusted = bool(asked.get("caBundle")) or not service
    where = str(service.get("path") or asked.get("url") or "")
    return where.endswith(PATH) and is_trusted and any(map(_of_pods, webhook.get("rules") or ()))


def _of_pods(rule: Mapping[str, Any]) -> bool:
    wanted = {"resources": "pods", "operations": "CREATE", "apiGroups": ""}
    return all({value, _ANY} & set(rule.get(key) or ()) for key, value in wanted.items())


def _is_asked(webhook: Mapping[str, Any], namespace: str) -> bool:
    """By the name of the namespace; what else its labels say is not looked at."""
    selector = webhook.get("namespaceSelector") or {}
    named = [each for each in selector.get("matchExpressions") or () if each.get("key") == _NAME]
    wanted = (selector.get("matchLabels") or {}).get(_NAME, namespace)
    return wanted == namespace and all(_allows(each, namespace) for each in named)


def _allows(expression: Mapping[str, Any], namespace: str) -> bool:
    is_named = namespace in (expression.get("values") or ())
    match expression.get("operator"):
        case "In":
            return is_named
        case "NotIn":
            return not is_named
        case operator:
            return operator == "Exists"
