"""Why an object does not exist: what refused it, by the events of whoever tried to create it."""

import re

from provisioner.inspect.explain import reason_rules
from provisioner.inspect.explain.chain_rules import Cause, Chain, Link
from provisioner.inspect.explain.view_rules import Said, View

EVENTS = ("FailedCreate", "FailedBinding")
_QUOTA = re.compile(r"exceeded quota: ([^,\s]+)")
_WEBHOOK = re.compile(r'admission webhook "([^"]+)" denied the request: (.*)', re.DOTALL)
_UNREACHABLE = re.compile(r'failed calling webhook "([^"]+)": (.*)', re.DOTALL)


def chains(view: View, name: str) -> list[Chain]:
    """The newest refusal of an object of this name in the target's namespace."""
    pattern = re.compile(rf"(?<![a-z0-9.-]){re.escape(name)}(?![a-z0-9-])")
    said = [each for each in view.refusals if pattern.search(each.text) or _is_of(each, name)]
    newest = max(said, key=lambda each: each.at.timestamp() if each.at else 0.0, default=None)
    return [Chain((link(view, newest),))] if newest is not None else []


def _is_of(said: Said, name: str) -> bool:
    """Whether the event is of the ReplicaSet, or another owner, whose pods are named after it."""
    owner = said.about.rpartition("/")[2]
    return bool(owner) and name.startswith(f"{owner}-")


def link(view: View, said: Said) -> Link:
    """What refused it."""
    namespace = view.target.namespace
    if found := _QUOTA.search(said.text):
        return Link(
            Cause.RESOURCE_QUOTA,
            f"ResourceQuota {found[1]} of namespace {namespace} is used up.",
            reason_rules.proof_of(said),
            next="you; afterwards it is created by itself",
            remedy="Raise the quota, or delete claims that are not needed.",
            command=f"kubectl -n {namespace} describe resourcequota {found[1]}",
        )
    if found := _WEBHOOK.search(said.text):
        return Link(
            Cause.ADMISSION_DENIED,
            f"Admission webhook {found[1]} refuses it: {found[2]}",
            reason_rules.proof_of(said),
            next="you; its owner then tries again, after up to 16 minutes",
            remedy="Correct what the webhook names, then restart the workload.",
            command=f"kubectl -n {namespace} rollout restart "
            f"{said.about.replace(f'{namespace}/', '').replace(' ', '/').lower()}",
        )
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
    )
