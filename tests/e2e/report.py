"""The result for a terminal, and as tables for the documentation."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.e2e import claims, expected
from tests.e2e.results import LOST, Spec
from tests.e2e.verdict import Ran, Verdict

_MESSAGE = 300


@dataclass(frozen=True, slots=True)
class Setting:
    """When and with what it was run; each as a reader writes it."""

    date: str
    machine: str
    load: str
    kubernetes: str
    commit: str
    ec2: str
    took: str


def terminal(verdict: Verdict, ran: Sequence[Ran], logs: str) -> str:
    """A summary, failures first."""
    lines: list[str] = []
    for run, test in verdict.failed:
        lines += [
            f"FAILED   {test.title} [run {run}, {test.seconds:.0f} s]",
            f"         {_said(test)}",
        ]
    lines += [f"TROUBLE  {each}" for each in verdict.troubles]
    for test in verdict.surprising:
        lines.append(
            f"PASSED   {test.title}: tests/e2e/expected.py says that it fails; remove it there"
        )
    for _, test in verdict.known:
        lines.append(f"known    {test.title}: {expected.why_failing(test.name)}")
    for message, count in verdict.unexplained.items():
        lines.append(f"SKIPPED  {count}, and tests/e2e/expected.py gives no reason: {message}")
    each = ", ".join(f"{run.name} {run.took_s / 60:.1f} min" for run in ran)
    return "\n".join([*lines, f"{_counts(verdict)}; {each}; logs: {logs}"])


def _said(test: Spec) -> str:
    if test.state == LOST:
        return "it began and never ended: its process was ended or died"
    text = " ".join(test.message.split())
    return text if len(text) <= _MESSAGE else f"{text[:_MESSAGE]}…"


def _counts(verdict: Verdict) -> str:
    known = f" and {len(verdict.known)} for a known reason" if verdict.known else ""
    return (
        f"{len(verdict.all)} tests: {len(verdict.passed)} passed, {len(verdict.failed)} failed"
        f"{known}, {len(verdict.skipped)} skipped themselves"
    )


def markdown(verdict: Verdict, ran: Sequence[Ran], setting: Setting) -> str:
    """All tables."""
    when = (
        f"{setting.date}, commit `{setting.commit}`, Kubernetes {setting.kubernetes}, "
        f"{setting.machine}, load {setting.load}; {setting.ec2}. {_counts(verdict)}, in "
        f"{setting.took}."
    )
    parts = [when, _features(verdict), _elsewhere(verdict)]
    if verdict.failed or verdict.known:
        parts += ["**Failed**", _failures(verdict)]
    parts += ["**Skipped themselves**", _skips(verdict), "**Not run**", _not_run()]
    return "\n\n".join(each for each in parts if each)


def _features(verdict: Verdict) -> str:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    kinds = {
        "passed": verdict.passed,
        "failed": [*verdict.failed, *verdict.known],
        "skipped": verdict.skipped,
    }
    for kind, tests in kinds.items():
        for _, test in tests:
            counts[test.feature][kind] += 1
    rows = [
        [feature, *(str(count[kind]) for kind in kinds), _stock(feature)]
        for feature, count in sorted(counts.items())
    ]
    return _table(["feature", *kinds, "stock claims it"], rows)


def _stock(feature: str) -> str:
    return "yes" if claims.stock_claims(feature) else "no"


def _elsewhere(verdict: Verdict) -> str:
    """What passed with another class than the plain one."""
    rows = [
        [run, test.title]
        for run, test in sorted(verdict.passed, key=lambda each: (each[0], each[1].title))
        if run not in ("plain", "disruptive")
    ]
    return f"Passed with another class:\n\n{_table(['class', 'test'], rows)}" if rows else ""


def _failures(verdict: Verdict) -> str:
    rows = [
        [test.title, run, expected.why_failing(test.name) or _said(test)]
        for run, test in [*verdict.failed, *verdict.known]
    ]
    return _table(["test", "run", "why"], rows)


def _not_run() -> str:
    return _table(["tests", "why"], [[f"`{e.pattern}`", e.why] for e in expected.NOT_RUN])


def _skips(verdict: Verdict) -> str:
    groups: Counter[tuple[str, str]] = Counter()
    for _, test in verdict.skipped:
        groups[(expected.why_skipped(test.message) or test.message, test.feature)] += 1
    by_reason: dict[str, list[str]] = defaultdict(list)
    for (why, feature), count in sorted(groups.items()):
        by_reason[why].append(f"{feature} {count}")
    rows = [[why, ", ".join(features)] for why, features in _largest_first(by_reason, groups)]
    return _table(["reason", "tests"], rows)


def _largest_first(
    by_reason: dict[str, list[str]], groups: Counter[tuple[str, str]]
) -> Iterable[tuple[str, list[str]]]:
    total: Counter[str] = Counter()
    for (why, _), count in groups.items():
        total[why] += count
    return sorted(by_reason.items(), key=lambda item: (-total[item[0]], item[0]))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([_cell(each) for each in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
