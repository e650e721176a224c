"""The report: a table for people, JSON for scripts, JUnit for CI."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from provisioner.inspect.doctor.check_rules import Check, Verdict
from provisioner.inspect.terminal.call_words import counted
from provisioner.inspect.terminal.table_rules import wrapped
from provisioner.model.sentences import printable

_ORDER = list(Verdict)
_COLOURS = {Verdict.FAILED: "red", Verdict.WARNING: "yellow", Verdict.OK: "green"}
_WIDEST = max(map(len, Verdict))


def colour_of(verdict: Verdict) -> str | None:
    """In which a verdict is shown on a terminal."""
    return _COLOURS.get(verdict)


def ordered(checks: Sequence[Check]) -> list[Check]:
    """The worst first; those of one verdict in the order in which they were made."""
    return sorted(checks, key=lambda each: _ORDER.index(each.verdict))


def split(checks: Sequence[Check]) -> tuple[list[Check], list[str]]:
    """Those that are shown, in order, and one line for all that an API server away kept back."""
    every = ordered(checks)
    failed = any(each.verdict is Verdict.FAILED for each in every)
    cut_off = [each for each in every if each.is_cut_off] if failed else []
    if not cut_off:
        return every, []
    needs, were = ("check needs", "was") if len(cut_off) == 1 else ("checks need", "were")
    line = f"{len(cut_off)} {needs} the API server and {were} not run (-o json lists all ids)"
    return [each for each in every if each not in cut_off], [f"{Verdict.UNKNOWN}  {line}"]


def block(check: Check, *, width: int, verdict: str) -> Iterator[str]:
    """The lines of one check: proof and remedy below its title where something is wrong.

    A command has one line, however long, so that it can be pasted.

    Args:
        check: the check.
        width: of the text.
        verdict: as it is to be shown, in colour or not.
    """
    pad = " " * (_WIDEST - len(check.verdict))
    yield f"{verdict}{pad}  {check.id}: {printable(check.title)}"
    indent = " " * (_WIDEST + 2)
    if check.verdict is not Verdict.OK:
        yield from wrapped(check.proof, width=width, indent=indent)
    if check.remedy:
        first, *rest = wrapped(check.remedy, width=width - 3, indent=indent)
        yield f"{indent}-> {first.strip()}"
        yield from (f"   {line}" for line in rest)
    if check.command:
        yield f"{indent}   {printable(check.command)}"


def summary(checks: Sequence[Check], calls: Mapping[str, int]) -> str:
    """How many of each verdict, and how many calls AWS got for them."""
    count = Counter(each.verdict for each in checks)
    verdicts = ", ".join(f"{count[each]} {each}" for each in _ORDER)
    return f"{len(checks)} checks: {verdicts}; {counted(calls)}"


def as_json(checks: Sequence[Check], calls: Mapping[str, int], identity: str) -> str:
    """An object with ``checks``, ``summary``, ``identity`` and ``awsCalls``."""
    document: dict[str, Any] = {
        "checks": [
            {
                "id": each.id,
                "verdict": str(each.verdict),
                "title": each.title,
                "proof": each.proof,
                "remedy": each.remedy,
                "command": each.command,
            }
            for each in checks
        ],
        "summary": Counter(str(each.verdict) for each in checks),
        "identity": identity,
        "awsCalls": dict(calls),
    }
    return json.dumps(document, indent=2)


def as_junit(checks: Sequence[Check]) -> str:
    """A test suite: failures and warnings fail or print, what is unknown is skipped."""
    count = Counter(each.verdict for each in checks)
    skipped = count[Verdict.SKIPPED] + count[Verdict.UNKNOWN]
    head = (
        f'<testsuite name="kubectl ebs doctor" tests="{len(checks)}" errors="0" '
        f'failures="{count[Verdict.FAILED]}" skipped="{skipped}">'
    )
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', head]
    lines += [_case(each) for each in checks]
    return "\n".join([*lines, "</testsuite>"])


def _case(check: Check) -> str:
    name = f"<testcase classname={quoteattr('doctor.' + check.id)} name={_attribute(check.title)}"
    proof = printable(check.proof)
    remedy = "\n".join(printable(each) for each in (check.remedy, check.command) if each)
    match check.verdict:
        case Verdict.FAILED:
            return (
                f"{name}><failure message={_attribute(proof)}>{escape(remedy)}</failure></testcase>"
            )
        case Verdict.SKIPPED | Verdict.UNKNOWN:
            return f"{name}><skipped message={_attribute(proof)}/></testcase>"
        case Verdict.WARNING:
            return f"{name}><system-out>{escape(f'{proof} {remedy}')}</system-out></testcase>"
        case _:
            return f"{name}/>"


def _attribute(text: str) -> str:
    return quoteattr(printable(text))
