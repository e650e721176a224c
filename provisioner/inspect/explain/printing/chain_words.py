"""How an explanation is printed: the first cause first, each link with its proof."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from provisioner.inspect.explain import reason_rules
from provisioner.inspect.explain.chain_rules import Cause, Chain, Explanation, Link
from provisioner.inspect.explain.printing.cause_words import MEANING, REMEDY
from provisioner.inspect.explain.printing.event_words import EVENTS
from provisioner.inspect.terminal.table_rules import wrapped
from provisioner.model.errors import Reason
from provisioner.model.sentences import printable

_INDENT = "   "
_MOST_SEEN = 600
# What "waits" would not say of an object that only reached a limit, or an end.
_STATES: dict[Cause | Reason, str] = {Cause.NODE_LIMIT: "is full"}
# Of VolumeAttachments: kube-controller-manager's names have 64 hexadecimal digits.
_LONG_NAME = re.compile(r"VolumeAttachment (csi-[0-9a-f]{64})", re.IGNORECASE)


def lines(explanation: Explanation, *, width: int) -> Iterator[str]:
    """The text of an explanation."""
    for number, chain in enumerate(explanation.chains, start=1):
        if number > 1:
            yield ""
        yield from wrapped(_heading(explanation, chain, number), width=width)
        yield from _chain(chain, width)
    if not explanation.chains:
        facts = "; ".join(f"{name}: {value}" for name, value in explanation.facts)
        text = _nothing(explanation)
        yield from wrapped(f"{text} ({facts})" if facts else text, width=width)


def _nothing(explanation: Explanation) -> str:
    """That nothing is wrong, if all was read that would show it."""
    if not explanation.unread:
        return f"nothing is wrong with {explanation.object}"
    unread = ", ".join(explanation.unread)
    return f"nothing found that is wrong with {explanation.object}; not read: {unread}"


def _heading(explanation: Explanation, chain: Chain, number: int) -> str:
    many = len(explanation.chains)
    which = f", {number} of {many}" if many > 1 else ""
    state = "waits" if chain.waits else "does not work"
    return f"{explanation.object} {_STATES.get(chain.cause, state)}: {chain.cause}{which}"


def _chain(chain: Chain, width: int) -> Iterator[str]:
    short = _Short()
    for number, link in enumerate(chain.links, start=1):
        yield ""
        first, *rest = wrapped(short.text(link.sentence), width=width, indent=_INDENT)
        yield f"{number}. {first.removeprefix(_INDENT)}"
        yield from rest
        seen = link.proof.seen
        shown = seen if len(seen) <= _MOST_SEEN else f"{seen[:_MOST_SEEN]}…"
        yield from wrapped(
            short.text(f"[{link.proof.where}: {shown}]"), width=width, indent=_INDENT
        )
    yield ""
    yield from _advice(chain.links, width)


class _Short:
    """Writes the long name of a VolumeAttachment only when it is not the one named last."""

    def __init__(self) -> None:
        self._last = ""

    def text(self, text: str) -> str:
        """The text, with the name once."""
        return _LONG_NAME.sub(self._one, text)

    def _one(self, found: re.Match[str]) -> str:
        if found[1] == self._last:
            return "that VolumeAttachment"
        self._last = found[1]
        return found[0]


def _advice(links: Iterable[Link], width: int) -> Iterator[str]:
    """Who acts next on the first cause, and what helps."""
    first = next(iter(links))
    for name, text in (("next", first.next), ("what helps", first.remedy)):
        if text:
            yield from wrapped(f"{name}: {text}", width=width)
    if first.command:
        yield f"{_INDENT}{printable(first.command)}"


def as_json(explanation: Explanation) -> dict[str, Any]:
    """The same for programs; ``cause`` is stable."""
    return {
        "object": explanation.object,
        "wrong": explanation.is_wrong,
        "facts": dict(explanation.facts),
        "chains": [
            {"waits": chain.waits, "links": [_link(each) for each in chain.links]}
            for chain in explanation.chains
        ],
    }


def _link(link: Link) -> dict[str, Any]:
    return {
        "cause": str(link.cause),
        "sentence": link.sentence,
        "proof": {"where": link.proof.where, "seen": link.proof.seen},
        "next": link.next,
        "remedy": link.remedy,
        "command": link.command,
    }


def advice_lines(cause: Cause | Reason | str, *, width: int) -> Iterator[str]:
    """What ``explain reason`` says."""
    yield str(cause)
    meaning, remedy = _advice_on(cause)
    yield from wrapped(meaning, width=width, indent=_INDENT)
    if remedy:
        yield from wrapped(f"what helps: {remedy}", width=width, indent=_INDENT)


def advice_json(cause: Cause | Reason | str) -> dict[str, str]:
    """The same for programs."""
    meaning, remedy = _advice_on(cause)
    return {"reason": str(cause), "meaning": meaning, "remedy": remedy}


def _advice_on(cause: Cause | Reason | str) -> tuple[str, str]:
    if isinstance(cause, Cause):
        return MEANING[cause], REMEDY[cause]
    if not isinstance(cause, Reason):
        return EVENTS[cause]
    return reason_rules.meaning(cause), reason_rules.remedy(cause)
