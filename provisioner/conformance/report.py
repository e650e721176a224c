"""The report of a run: what is refuted comes first, with what in the product relies on it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from provisioner.conformance.journal import Begun, sentence_of, verdict_of
from provisioner.conformance.probe import Confirmed, Finding, NotRun, Refuted
from provisioner.conformance.rule import Rule

ALL_CONFIRMED, SOME_REFUTED, COULD_NOT_RUN = 0, 1, 2
_ORDER = (Refuted, NotRun, Confirmed)


@dataclass(frozen=True, slots=True)
class Report:
    """All there is to say about a run.

    Attributes:
        begun: where and when, and which version.
        rules: that were asked for.
        findings: by the rule's name; one that is missing did not run.
        left: what could not be deleted, and why.
        stopped: why the run ended early, "" if it did not.
    """

    begun: Begun
    rules: Sequence[Rule]
    findings: Mapping[str, Finding]
    left: Mapping[str, str]
    stopped: str = ""

    def finding(self, rule: Rule) -> Finding:
        """What was found about a rule."""
        return self.findings.get(rule.name, NotRun("the run ended before"))

    def of(self, kind: type[Confirmed] | type[Refuted] | type[NotRun]) -> list[Rule]:
        """The rules with such a finding."""
        return [rule for rule in self.rules if isinstance(self.finding(rule), kind)]

    @property
    def exit_status(self) -> int:
        """0: what ran is confirmed; 1: something is refuted; 2: it could not run or clean up."""
        if self.of(Refuted):
            return SOME_REFUTED
        if self.stopped or self.left or not self.of(Confirmed):
            return COULD_NOT_RUN
        return ALL_CONFIRMED

    @property
    def counts(self) -> str:
        """How many of each."""
        return (
            f"{len(self.of(Refuted))} refuted, {len(self.of(Confirmed))} confirmed, "
            f"{len(self.of(NotRun))} not run"
        )


def as_json(report: Report) -> dict[str, Any]:
    """The report for programs."""
    begun = report.begun
    return {
        "run": begun.run,
        "version": begun.version,
        "date": begun.at.isoformat(timespec="seconds"),
        "endpoint": begun.endpoint,
        "region": begun.region,
        "zone": begun.zone,
        "instances": list(begun.instances),
        "instance_type": begun.instance_type,
        "stopped": report.stopped,
        "left": dict(report.left),
        "rules": [_row(report, rule) for rule in _sorted(report)],
    }


def as_markdown(report: Report) -> str:
    """The report for people."""
    begun = report.begun
    instances = f", {' and '.join(begun.instances)} ({begun.instance_type})"
    instance = instances if begun.instances else ""
    where = (
        f"{report.counts}. Endpoint {begun.endpoint}, {begun.region}, {begun.zone}{instance}; "
        f"{begun.at:%Y-%m-%d %H:%M} UTC; ebs-provisioner {begun.version}; run {begun.run}."
    )
    lines = ["# Is EC2 as ebs-provisioner assumes?", "", where]
    if report.stopped:
        lines += ["", f"The run ended early: {report.stopped}."]
    if report.left:
        lines += ["", "Not deleted:", ""]
        lines += [f"- {each}: {why}" for each, why in report.left.items()]
    lines += _section("Refuted", _refuted(report))
    lines += _section("Not run", _table(report, NotRun, "why"))
    lines += _section("Confirmed", _table(report, Confirmed, "seen"))
    return "\n".join([*lines, ""])


def _refuted(report: Report) -> list[str]:
    lines: list[str] = []
    for rule in report.of(Refuted):
        files = ", ".join(f"`{file}`" for file in rule.rests_on.files)
        lines += [
            f"### {rule.name}",
            "",
            f"- Assumed ({rule.certainty}): {rule.sentence}",
            f"- Seen: {sentence_of(report.finding(rule))}",
            f"- What rests on it: {rule.rests_on.consequence} ({files})",
            f"- Source of the assumption: {rule.source} (read {rule.read_on})",
            "",
        ]
    return lines


def _table(report: Report, kind: type[Confirmed] | type[NotRun], word: str) -> list[str]:
    rows = [
        f"| {rule.name} | {_cell(rule.sentence)} | {_cell(sentence_of(report.finding(rule)))} |"
        for rule in report.of(kind)
    ]
    return [f"| rule | assumed | {word} |", "|---|---|---|", *rows] if rows else []


def _section(title: str, lines: Iterable[str]) -> list[str]:
    body = list(lines)
    return ["", f"## {title}", "", *body] if body else []


def _cell(text: str) -> str:
    return " ".join(text.replace("|", r"\|").split())


def _sorted(report: Report) -> list[Rule]:
    return sorted(report.rules, key=lambda rule: _ORDER.index(type(report.finding(rule))))


def _row(report: Report, rule: Rule) -> dict[str, Any]:
    finding = report.finding(rule)
    return {
        "name": rule.name,
        "verdict": verdict_of(finding),
        "finding": sentence_of(finding),
        "rule": rule.sentence,
        "certainty": str(rule.certainty),
        "source": rule.source,
        "read_on": rule.read_on.isoformat(),
        "rests_on": {
            "consequence": rule.rests_on.consequence,
            "files": list(rule.rests_on.files),
        },
    }
