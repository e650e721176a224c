"""The report of a run: what is refuted comes first, with what in the product relies on it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from provisioner.conformance.cluster.steps import SANDBOX, STEPS, Step
from provisioner.conformance.journal import Begun, sentence_of, verdict_of
from provisioner.conformance.probe import Confirmed, Finding, NotRun, Refuted
from provisioner.conformance.rule import Rule

ALL_CONFIRMED, SOME_REFUTED, COULD_NOT_RUN = 0, 1, 2
_ORDER = (Refuted, NotRun, Confirmed)
_COUNTED = (Refuted, Confirmed, NotRun)


@dataclass(frozen=True, slots=True)
class Report:
    """All there is to say about a run.

    Attributes:
        begun: where and when, and which version.
        rules: that were asked for.
        findings: by the name of the rule or the step; one that is missing did not run.
        left: what could not be deleted, and why.
        stopped: why the run ended early, "" if it did not.
        seconds: how long steps in the cluster have taken.
    """

    begun: Begun
    rules: Sequence[Rule]
    findings: Mapping[str, Finding]
    left: Mapping[str, str]
    stopped: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def steps(self) -> Sequence[Step]:
        """Those in the cluster, none without one."""
        return STEPS if self.begun.cluster is not None else ()

    def finding(self, rule: Rule | Step) -> Finding:
        """What was found about a rule or a step."""
        return self.findings.get(rule.name, NotRun("the run ended before"))

    def of(self, kind: type[Confirmed] | type[Refuted] | type[NotRun]) -> list[Rule]:
        """The rules with such a finding."""
        return [rule for rule in self.rules if isinstance(self.finding(rule), kind)]

    @property
    def exit_status(self) -> int:
        """0: what ran is confirmed; 1: something is refuted; 2: it could not run or clean up."""
        topics: list[Rule | Step] = [*self.rules, *self.steps]
        kinds = {type(self.finding(each)) for each in topics}
        if Refuted in kinds:
            return SOME_REFUTED
        if self.stopped or self.left or Confirmed not in kinds:
            return COULD_NOT_RUN
        return ALL_CONFIRMED

    @property
    def counts(self) -> str:
        """How many of each."""
        rules = _counted([self.finding(rule) for rule in self.rules])
        if not self.steps:
            return rules
        steps = _counted([self.finding(step) for step in self.steps])
        return f"{rules}; steps in the cluster: {steps}"


def _counted(findings: Sequence[Finding]) -> str:
    counts = (sum(isinstance(each, kind) for each in findings) for kind in _COUNTED)
    return ", ".join(
        f"{n} {word}" for n, word in zip(counts, ("refuted", "confirmed", "not run"), strict=True)
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
        "cluster": _cluster(report),
    }


def _cluster(report: Report) -> dict[str, Any] | None:
    cluster = report.begun.cluster
    if cluster is None:
        return None
    return {
        "context": cluster.context,
        "uid": cluster.uid,
        "nodes": list(cluster.nodes),
        "image": cluster.image,
        "file_system": cluster.file_system,
        "sandbox": SANDBOX,
        "steps": [
            {
                "name": step.name,
                "verdict": verdict_of(report.finding(step)),
                "finding": sentence_of(report.finding(step)),
                "step": step.sentence,
                "seconds": report.seconds.get(step.name),
                "sandbox_seconds": step.sandbox_s,
            }
            for step in report.steps
        ],
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
    lines += _section("In the cluster", _steps(report))
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


def _steps(report: Report) -> list[str]:
    cluster = report.begun.cluster
    if cluster is None:
        return []
    where = f"Context {cluster.context}, nodes {', '.join(cluster.nodes)}; {cluster.file_system}."
    rows = [
        f"| {step.name} | {step.sentence} | {verdict_of(finding)} | {_seconds(report, step)} | "
        f"{step.sandbox_s:.2f} | {_cell(sentence_of(finding))} |"
        for step in report.steps
        for finding in (report.finding(step),)
    ]
    return [
        f"{where} The sandbox: {SANDBOX}.",
        "",
        "| step | what has to be so | finding | s | s in the sandbox | seen |",
        "|---|---|---|---|---|---|",
        *rows,
    ]


def _seconds(report: Report, step: Step) -> str:
    seconds = report.seconds.get(step.name)
    return "" if seconds is None else f"{seconds:.2f}"


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
