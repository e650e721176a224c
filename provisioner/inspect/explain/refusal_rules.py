"""Why an object does not exist: what refused it, by the events of whoever tried to create it."""

import re
from collections.abc import Iterable

from provisioner.inspect.explain import reason_rules
from provisioner.inspect.explain.chain_rules import Cause, Chain, Link
from provisioner.inspect.explain.view_rules import Said, View
from provisioner.inspect.shell_words import is_name, shell

_CREATED = "SuccessfulCreate"
EVENTS = ("FailedCreate", "FailedBinding", _CREATED)
_QUOTA = re.compile(r"exceeded quota: ([^,\s]+)(?:, requested: ([^=\s]+)=)?")
_WEBHOOK = re.compile(r'admission webhook "([^"]+)" denied the request: (.*)', re.DOTALL)
_UNREACHABLE = re.compile(r'failed calling webhook "([^"]+)": (.*)', re.DOTALL)
# What stands behind the owner's name: SafeEncodeString of apimachinery writes these characters,
# five of them for a pod, up to ten for the ReplicaSet of a Deployment (Kubernetes 1.36).
_SAFE = "[bcdfghjklmnpqrstvwxz2456789]"
_RANDOM = re.compile(rf"(?:[0-9]+-)?{_SAFE}{{5}}")
_OF_DEPLOYMENT = re.compile(rf"(.+)-{_SAFE}{{6,10}}")
_NUMBERED = "StatefulSet"
_RESTARTED = frozenset({"Deployment", "StatefulSet", "DaemonSet"})
_OF_CLAIMS = ("persistentvolumeclaims", "storage")


def chains(view: View, name: str) -> list[Chain]:
    """The newest refusal of a pod of this name in the target's namespace."""
    return _newest(view, name, ('pods "', "pod: ", "Pod "), is_pod=True)


def of_claim(view: View, name: str) -> list[Chain]:
    """The newest refusal of a claim of this name in the target's namespace."""
    words = ('persistentvolumeclaims "', "Claim ", "PVC ", f"PVC {view.target.namespace}/")
    return _newest(view, name, words, is_pod=False)


def _newest(view: View, name: str, words: Iterable[str], *, is_pod: bool) -> list[Chain]:
    before = "|".join(re.escape(each) for each in words)
    names = re.compile(rf"(?:{before}){re.escape(name)}(?![a-z0-9.-])")
    about = [
        each for each in view.refusals if names.search(each.text) or (is_pod and _is_of(each, name))
    ]
    # A ReplicaSet gives a new name to each pod: any pod of its that came ends the refusals.
    came = [each for each in about if each.event == _CREATED]
    refused = [
        each
        for each in about
        if each.event != _CREATED
        and not any(one.about == each.about and _time(one) > _time(each) for one in came)
    ]
    newest = max(refused, key=_time, default=None)
    return [Chain((link(view, newest),))] if newest is not None else []


def _time(said: Said) -> float:
    return said.at.timestamp() if said.at else 0.0


def _is_of(said: Said, name: str) -> bool:
    """Whether the event is of the ReplicaSet, or another owner, whose pods are named like this."""
    kind, _, key = said.about.partition(" ")
    owner = key.rpartition("/")[2]
    if not owner or kind == _NUMBERED or not name.startswith(f"{owner}-"):
        return False
    return _RANDOM.fullmatch(name.removeprefix(f"{owner}-")) is not None


def link(view: View, said: Said) -> Link:
    """What refused it."""
    namespace = view.target.namespace
    if found := _QUOTA.search(said.text):
        return _over_quota(namespace, said, found[1], found[2] or "")
    if found := _WEBHOOK.search(said.text):
        return _denied(namespace, said, found[1], found[2])
    if found := _UNREACHABLE.search(said.text):
        return Link(
            Cause.WEBHOOK_UNREACHABLE,
            f"The API server cannot ask webhook {found[1]}, and refuses what it would judge.",
            reason_rules.proof_of(said),
            next="you",
            remedy="Look at the webhook's Service, its pods and its caBundle.",
            command="kubectl ebs doctor",
        )
    return Link(
        Cause.ADMISSION_DENIED,
        "It could not be created.",
        reason_rules.proof_of(said),
        next="its owner: it tries again",
        remedy="Correct what the message names.",
        command=shell("kubectl -n {} get events", namespace),
    )


def _over_quota(namespace: str, said: Said, name: str, resource: str) -> Link:
    command = "kubectl -n {} describe resourcequota"
    return Link(
        Cause.RESOURCE_QUOTA,
        f"ResourceQuota {name} of namespace {namespace} is used up.",
        reason_rules.proof_of(said),
        next="you; afterwards it is created by itself",
        remedy=_room(resource),
        command=shell(f"{command} {{}}", namespace, name)
        if is_name(name)
        else shell(command, namespace),
    )


def _denied(namespace: str, said: Said, webhook: str, text: str) -> Link:
    remedy, command = _again(namespace, said)
    return Link(
        Cause.ADMISSION_DENIED,
        f"Admission webhook {webhook} refuses it: {text}",
        reason_rules.proof_of(said),
        next="you; its owner then tries again, after up to 16 minutes",
        remedy=f"Correct what the webhook names{remedy}.",
        command=command,
    )


def _room(resource: str) -> str:
    """What gives a quota room again."""
    of_claims = any(word in resource for word in _OF_CLAIMS) and "ephemeral" not in resource
    if not resource or of_claims:
        return "Raise the quota, or delete claims that are not needed."
    if resource in {"pods", "count/pods"}:
        return "Raise the quota, or delete pods that are not needed."
    return f"Raise the quota, or request less of {resource} in this pod or in others."


def _again(namespace: str, said: Said) -> tuple[str, str]:
    """What makes the owner try at once, and the command; kubectl restarts no ReplicaSet."""
    kind, _, key = said.about.partition(" ")
    name = key.rpartition("/")[2]
    if kind == "ReplicaSet" and (found := _OF_DEPLOYMENT.fullmatch(name)):
        kind, name = "Deployment", found[1]
    if not is_name(name):
        return "", ""
    if kind in _RESTARTED:
        word = f"{kind.lower()}/{name}"
        return (
            ", then restart the workload",
            shell("kubectl -n {} rollout restart {}", namespace, word),
        )
    if kind == "ReplicaSet":
        show = shell("kubectl -n {} describe replicaset {}", namespace, name)
        return "; to try at once, change the number of replicas", show
    return "", ""
