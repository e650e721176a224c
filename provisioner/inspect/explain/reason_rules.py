"""A link for what an event or a status says, by its reason; advice is that of the events' table."""

import re
from datetime import datetime

from provisioner.inspect.explain.chain_rules import Cause, Link, Proof, at
from provisioner.inspect.explain.view_rules import Said
from provisioner.inspect.shell_words import is_name, shell
from provisioner.model.errors import NEEDS_HUMAN, NO_ANSWER, RATE_LIMITED, Reason
from provisioner.model.reasons import ADVICE

# Not tried again before an object changes.
_FOR_GOOD = frozenset({Reason.INVALID_CLASS, Reason.INVALID_CLAIM, Reason.NOT_SUPPORTED})
# What kubectl calls what our commands call otherwise.
_KUBECTL = {"snapshot": "volumesnapshot", "content": "volumesnapshotcontent"}
# The longest pause between two tries, in kube/queue.py; those between modifications of a volume
# are longer, in modifying/steps.py.
_WITHIN = "5 minutes"
WITHIN_OF_CHANGES = "30 minutes"
_QUOTA = re.compile(r"\bL-[0-9A-F]{8}\b")
_CLASS = re.compile(r"[Cc]lass '([^']+)'")


def plain(text: str) -> str:
    """A sentence of the documentation without its marks."""
    return text.replace("`", "")


def meaning(reason: Reason) -> str:
    """What a reason means, as a sentence."""
    return plain(ADVICE[reason].meaning)


def remedy(reason: Reason) -> str:
    """What helps."""
    return plain(ADVICE[reason].remedy)


def proof_of(said: Said) -> Proof:
    """Where it stands, and since when."""
    when = f" ({at(said.at)})" if said.at else ""
    return Proof(f"{said.about}, {said.where}{when}", said.text)


def link_of(said: Said, otherwise: Cause, sentence: str = "", within: str = _WITHIN) -> Link:
    """What an event or a status says, as a cause.

    Args:
        said: the event, or the status.
        otherwise: the cause if its reason is not known.
        sentence: for a text without a reason.
        within: the longest pause between two tries.
    """
    reason = said.reason
    if reason is None:
        return Link(
            otherwise,
            sentence or said.text,
            proof_of(said),
            next=f"{said.by or 'the component that reports this'}, which tries again",
            remedy="Correct what the message names.",
            command=_events_of(said),
        )
    return Link(
        reason,
        meaning(reason),
        proof_of(said),
        next=who_acts(reason, within=within),
        remedy=remedy(reason),
        command=command_for(reason, said.text),
    )


def _events_of(said: Said) -> str:
    """The command that shows the events of the object that it is about."""
    kind, _, key = said.about.partition(" ")
    namespace, _, name = key.rpartition("/")
    word = _KUBECTL.get(kind, kind)
    if not is_name(name) or not is_name(word):
        return "kubectl events"
    # kubectl shows events of objects without a namespace in "default", where they are written.
    return shell("kubectl events -n {} --for {}", namespace or "default", f"{word}/{name}")


def who_acts(reason: Reason, until: datetime | None = None, within: str = _WITHIN) -> str:
    """Who acts next, and when; ``within`` is the longest pause between two tries."""
    if until is not None:
        return f"the controller, after {at(until)}"
    if reason in _FOR_GOOD:
        return "nobody; it is tried again only after the object that is named has changed"
    if reason in RATE_LIMITED | NO_ANSWER - NEEDS_HUMAN:
        return "the controller, which tries again by itself"
    return (
        f"you; afterwards the controller continues by itself, as a rule within {within}: the "
        "longer it has failed, the less often it tries"
    )


def command_for(reason: Reason, text: str) -> str:
    """The command that helps, or shows more; "" for none."""
    if reason is Reason.QUOTA_EXCEEDED:
        quota = _QUOTA.search(text)
        if quota is None:
            return "aws service-quotas list-service-quotas --service-code ebs"
        return shell(
            "aws service-quotas get-service-quota --quota-code {} --service-code ebs", quota[0]
        )
    if reason is Reason.INVALID_CLASS and (found := _CLASS.search(text)):
        return shell("ebs-provisioner class check {}", found[1]) if is_name(found[1]) else ""
    if reason is Reason.PERMISSION_DENIED:
        return "kubectl ebs doctor --as-controller"
    return ""
