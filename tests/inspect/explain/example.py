"""The example of docs/explain.md, printed by the rules themselves."""

from __future__ import annotations

from provisioner.inspect.explain import target_rules
from provisioner.inspect.explain.printing import chain_words
from tests.builders import OTHER_INSTANCE
from tests.inspect.explain.views import attachment_of, claim_view, ebs, pod_of, view, volume_of

_WIDTH = 96


def markdown() -> str:
    """A pod whose volume somebody has attached elsewhere."""
    volume = volume_of(ebs=ebs(on=OTHER_INSTANCE), attachments=(attachment_of(),))
    found = view("pod", pod=pod_of(phase="Pending"), claims=(claim_view("Bound", volume=volume),))
    lines = chain_words.lines(target_rules.explain(found), width=_WIDTH)
    return "\n".join(("```text", "$ kubectl ebs explain pod shop/web-0", *lines, "```"))
