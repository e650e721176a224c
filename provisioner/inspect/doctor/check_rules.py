"""What a check is: a question with a stable id, and what was found."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from provisioner.inspect.doctor.evidence_rules import Evidence

_MOST_NAMED = 5
_RIGHT = (
    "give the account that runs this command the right (docs/kubectl-ebs.md), or ask somebody who "
    "has it to run it"
)
_ANSWER = (
    "no right is missing: check the address, the credentials and the network from this machine, "
    "then run it again"
)


class Verdict(StrEnum):
    """What a check has found, the worst first."""

    FAILED = "failed"  # something does not work, or will not when it is needed
    WARNING = "warning"  # it works, and a human should look at it
    UNKNOWN = "unknown"  # it could not be read
    SKIPPED = "skipped"  # there is nothing to check
    OK = "ok"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check has found.

    Attributes:
        verdict: see ``Verdict``.
        proof: the objects and fields, or EC2's answer.
        remedy: what would help; "" where nothing is wrong.
    """

    verdict: Verdict
    proof: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report; ``id`` is stable, for scripts.

    Attributes:
        id: "driver-object", "iam-CreateVolume".
        verdict: see ``Verdict``.
        title: what is checked, as a statement that holds where the verdict is ok.
        proof: see ``Finding``.
        remedy: see ``Finding``.
    """

    id: str
    verdict: Verdict
    title: str
    proof: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """A check that can be made.

    Attributes:
        id: see ``Check``.
        title: see ``Check``.
        needs: what must have been read: plurals of kinds, or actions of EC2. Where one is missing,
            nothing can be said.
        look: what the evidence shows.
    """

    id: str
    title: str
    needs: tuple[str, ...]
    look: Callable[[Evidence], Finding]


def apply(rules: Iterable[Rule], seen: Evidence) -> Iterator[Check]:
    """The checks that the rules make."""
    for rule in rules:
        missing = {seen.gaps[each] for each in rule.needs if each in seen.gaps}
        if missing:
            silent = all(each in seen.unanswered for each in rule.needs if each in seen.gaps)
            remedy = _ANSWER if silent else _RIGHT
            found = Finding(Verdict.UNKNOWN, "; ".join(sorted(missing)), remedy)
        else:
            found = rule.look(seen)
        yield Check(rule.id, found.verdict, rule.title, found.proof, found.remedy)


def ok(proof: str) -> Finding:
    """Nothing is wrong."""
    return Finding(Verdict.OK, proof)


def skipped(why: str) -> Finding:
    """There is nothing to check."""
    return Finding(Verdict.SKIPPED, why)


def unknown(why: str, remedy: str = "") -> Finding:
    """It cannot be told."""
    return Finding(Verdict.UNKNOWN, why, remedy)


def judged(
    problems: Sequence[str], good: str, remedy: str, *, worst: Verdict = Verdict.FAILED
) -> Finding:
    """``worst`` with the first problems, or ok."""
    return Finding(worst, some(problems), remedy) if problems else ok(good)


def some(parts: Sequence[str]) -> str:
    """The first of many, and how many more there are."""
    more = len(parts) - _MOST_NAMED
    named = "; ".join(parts[:_MOST_NAMED])
    return f"{named}; and {more} more" if more > 0 else named


def counted(number: int, noun: str) -> str:
    """``1 node``, ``2 nodes``; the noun's plural has an s."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def exit_status(checks: Iterable[Check]) -> int:
    """1 if something fails, otherwise 0; warnings and what is unknown do not fail."""
    return int(any(each.verdict is Verdict.FAILED for each in checks))
