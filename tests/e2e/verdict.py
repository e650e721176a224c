"""What all runs together say: what failed, what passed against its name, what did not run."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.e2e import expected
from tests.e2e.results import LOST, PASSED, SKIPPED, Outcome, Spec


@dataclass(frozen=True, slots=True)
class Ran:
    """A run and what came of it.

    Attributes:
        name: of the run.
        took_s: how long it took.
        trouble: why it ended early, in a sentence; "" if it did not.
        torn: how many volumes were taken from a node meanwhile that still used them.
    """

    name: str
    outcome: Outcome
    took_s: float
    trouble: str = ""
    torn: int = 0


@dataclass(slots=True)
class Verdict:
    """All tests by what became of them; a test that ran more than once counts once.

    Attributes:
        failed: by the name of the run; a failure in any run counts.
        known: failures that ``expected`` names.
        passed: in at least one run, with the name of that run.
        skipped: in every run that had them.
        surprising: tests that passed although ``expected`` names them.
        troubles: sentences about runs that ended early, tests that never began, things left behind.
    """

    failed: list[tuple[str, Spec]] = field(default_factory=list)
    known: list[tuple[str, Spec]] = field(default_factory=list)
    passed: list[tuple[str, Spec]] = field(default_factory=list)
    skipped: list[tuple[str, Spec]] = field(default_factory=list)
    surprising: list[Spec] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """Whether all is as it should be."""
        bad = self.failed or self.surprising or self.troubles or self.unexplained
        return bool(self.passed) and not bad

    @property
    def unexplained(self) -> Counter[str]:
        """What tests said that skipped themselves, where ``expected`` gives no reason for it."""
        messages = (test.message for _, test in self.skipped)
        return Counter(each for each in messages if not expected.why_skipped(each))

    @property
    def all(self) -> list[tuple[str, Spec]]:
        """Every test once."""
        return [*self.failed, *self.known, *self.passed, *self.skipped]


def judge(ran: Sequence[Ran], left: Sequence[str] = ()) -> Verdict:
    """Judge all runs.

    Args:
        ran: in the order in which they were run.
        left: what was left in the cluster and in EC2 afterwards, in words.
    """
    verdict = Verdict(troubles=[*_troubles(ran), *(f"left behind: {each}" for each in left)])
    by_name: Mapping[str, list[tuple[str, Spec]]] = defaultdict(list)
    for each in ran:
        for test in each.outcome.tests.values():
            by_name[test.name].append((each.name, test))
    for name, seen in sorted(by_name.items()):
        _sort(verdict, name, seen)
    return verdict


def _sort(verdict: Verdict, name: str, seen: Sequence[tuple[str, Spec]]) -> None:
    failed = [(run, test) for run, test in seen if test.state not in (PASSED, SKIPPED)]
    passed = [(run, test) for run, test in seen if test.state == PASSED]
    why = expected.why_failing(name)
    if failed:
        (verdict.known if why else verdict.failed).append(failed[0])
    elif passed:
        verdict.passed.append(passed[0])
        if why:
            verdict.surprising.append(passed[0][1])
    else:
        verdict.skipped.append(seen[0])


def _troubles(ran: Sequence[Ran]) -> list[str]:
    found = []
    for each in ran:
        if each.trouble:
            found.append(f"run {each.name} {each.trouble}")
        if each.torn:
            found.append(f"run {each.name}: {each.torn} volumes were detached while in use")
        if each.outcome.selected is None:
            found.append(f"run {each.name} never began: no test was selected or its log says why")
        if each.outcome.missing:
            found.append(f"run {each.name}: {each.outcome.missing} tests never began")
        lost = sum(test.state == LOST for test in each.outcome.tests.values())
        if lost and not each.trouble:
            found.append(f"run {each.name}: {lost} tests began and never ended; a process died")
    return found
