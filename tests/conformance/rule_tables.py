"""The table of rules for the documentation, with what was recorded of moto and of the mutants."""

import json
from pathlib import Path
from typing import Any

from provisioner.conformance.probe import Probe
from provisioner.conformance.rule import Rule
from provisioner.conformance.table import SUBJECTS

RECORDED = Path(__file__).with_name("recorded.json")
_PLAIN = {"Confirmed": "the same", "Refuted": "otherwise", "NotRun": "not known"}


def recorded() -> dict[str, Any]:
    """By rule, what ``python -m tests.conformance.record`` found."""
    found: dict[str, Any] = json.loads(RECORDED.read_text())
    return found


def markdown() -> str:
    """All rules, a section for each subject."""
    known = recorded()
    parts = []
    for subject, rules in SUBJECTS.items():
        rows = "\n".join(_row(rule, known.get(rule.name)) for rule in rules)
        parts.append(
            f"## {subject}\n\n"
            "| rule | how sure | if it is false | plain moto | caught |\n"
            f"|---|---|---|---|---|\n{rows}"
        )
    return "\n\n".join(parts)


def _row(rule: Rule, known: dict[str, Any] | None) -> str:
    sure = f"{rule.certainty}: {rule.source} ({rule.read_on})"
    if isinstance(rule.probe, Probe) and known is not None:
        also = len(known["also"])
        caught = f"yes, and by {also} other{'s' if also != 1 else ''}" if also else "yes, alone"
        cells = [_PLAIN[known["plain"]], caught]
    else:
        cells = ["", f"no probe: {rule.probe}"]
    consequence = f"{rule.rests_on.consequence} {_files(rule)}"
    texts = [f"**{rule.name}**: {rule.sentence}", sure, consequence, *cells]
    return f"| {' | '.join(each.replace('|', '/') for each in texts)} |"


def _files(rule: Rule) -> str:
    return ", ".join(f"`{each.removeprefix('provisioner/')}`" for each in rule.rests_on.files)
