"""What a check is: a question with a stable id, and what was found."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from provisioner.inspect.doctor.evidence_rules import Evidence

_MOST_NAMED = 5
_RIGHT = (
    "give the account that runs this command the right (docs/kubectl-ebs.md), or ask somebody who "
    "has it to run it"
)
_ANSWER = (
    "there was no answer, which says nothing about rights: check the network from this machine, "
    "the address and the credentials in use, then run it again"
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
        command: that does it, to be pasted as it is; "" for none.
    """

    verdict: Verdict
    proof: str
    remedy: str = ""
    command: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report; ``id`` is stable, for scripts.

    Attributes:
        id: "driver-object", "iam-CreateVolume".
        verdict: see ``Verdict``.
        title: what is checked, as a statement that holds where the verdict is ok.
        proof: see ``Finding``.
        remedy: see ``Finding``.
        command: see ``Finding``.
        is_cut_off: whether it could not be made because the API server did not answer.
    """

    id: str
    verdict: Verdict
    title: str
    proof: str
    remedy: str = ""
    command: str = ""
    is_cut_off: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """A check that can be made.

    Attributes:
        id: see ``Check``.
        title: see ``Check``.
        needs: what must have been read: plurals of kinds, or actions of AWS, which begin with a
            capital. Where one is missing, nothing can be said.
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
            proof = "; ".join(sorted(missing))
            cut_off = any(each in seen.unanswered for each in rule.needs if each.islower())
            yield Check(rule.id, Verdict.UNKNOWN, rule.title, proof, remedy, is_cut_off=cut_off)
            continue
        found = rule.look(seen)
        yield Check(rule.id, found.verdict, rule.title, found.proof, found.remedy, found.command)


def without_api_server(checks: Iterable[Check], region: str) -> Iterator[Check]:
    """The same checks after an API server that did not answer.

    Args:
        checks: as they were made.
        region: in which AWS was asked; "" if only the Nodes could have told it, so that what was
            not asked there is for the same reason.
    """
    for each in checks:
        is_unknown = each.verdict is Verdict.UNKNOWN
        yield replace(each, is_cut_off=is_unknown and (each.is_cut_off or not region))


def ok(proof: str) -> Finding:
    """Nothing is wrong."""
    return Finding(Verdict.OK, proof)


def skipped(why: str) -> Finding:
    """There is nothing to check."""
    return Finding(Verdict.SKIPPED, why)


def unknown(why: str, remedy: str = "") -> Finding:
    """It cannot be told."""
    return Finding(Verdict.UNKNOWN, why, remedy)


def asked_elsewhere(seen: Evidence) -> Finding:
    """EC2 shows nothing that the cluster names; for where ``is_confirmed_cloud`` is False."""
    what = "volumes" if not seen.cloud.volumes else "the nodes' instances"
    return unknown(
        f"EC2 in {seen.cloud.region} shows none of {what}: probably another account or Region "
        "is asked",
        "see the checks region and account",
    )


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
