"""The matrix as documentation shows it, and all of its ways."""

from __future__ import annotations

from tests.cluster.broken import (
    attaching,
    claims,
    healthy,
    keys,
    moving,
    outage,
    pairs,
    refused,
    setup,
    snapshot_setup,
    snapshots,
)
from tests.cluster.broken.record import Broken, Section
from tests.documents import DOCS

HEALTHY = healthy.matrix.ways
TOGETHER = [
    way
    for each in (refused, claims, attaching, moving, snapshots, pairs)
    for way in each.matrix.ways
]
KEYS = keys.matrix.ways
KILLED = outage.killed.ways
RELEASED = outage.released.ways
SNAPSHOT_SETUP = snapshot_setup.matrix.ways
SETUP = setup.matrix.ways
BROKEN = [*TOGETHER, *KEYS, *KILLED, *RELEASED, *SNAPSHOT_SETUP, *SETUP]
MISSES: frozenset[str] = frozenset()
"""Whose cause is not named, exactly."""


def _anchor(heading: str) -> str:
    """As GitHub makes it of a heading."""
    kept = "".join(each for each in heading.lower() if each.isalnum() or each in " -")
    return kept.replace(" ", "-")


def _shown(check: str) -> str:
    """The check of a key ends with the name of its class."""
    return "`kms-CLASS`" if check.startswith("kms-") else f"`{check}`"


def _row(way: Broken) -> str:
    causes = ", ".join(f"`{each}`" for each in way.causes) or ""
    if way.what in MISSES:
        causes = "not named"
    check = _shown(way.check) if way.check else ""
    more = f"[{way.section}](../troubleshooting.md#{_anchor(way.section)})" if way.section else ""
    return f"| {way.what} | {causes} | {check} | {more} |"


def broken() -> str:
    """Each way in which a cluster is broken, with what names it."""
    head = ("| what is broken | `explain` | `doctor` | more |", "|---|---|---|---|")
    return "\n".join((*head, *map(_row, BROKEN)))


def sections() -> str:
    """The sections of the troubleshooting page, and what the commands name in clusters of each."""
    page = (DOCS / "troubleshooting.md").read_text()
    headings = [line.removeprefix("## ") for line in page.splitlines() if line.startswith("## ")]
    unknown = {*Section} - {*headings}
    assert not unknown, f"docs/troubleshooting.md has no {unknown}"
    rows = []
    for each in headings:
        ways = [way for way in BROKEN if way.section == each]
        causes = sorted({f"`{cause}`" for way in ways for cause in way.causes})
        checks = sorted({_shown(way.check) for way in ways if way.check})
        rows.append(f"| [{each}](#{_anchor(each)}) | {', '.join(causes)} | {', '.join(checks)} |")
    head = ("| symptom | causes that `explain` names | checks of `doctor` |", "|---|---|---|")
    return "\n".join((*head, *rows))


def healthy_ways() -> str:
    """Each healthy cluster."""
    return "\n".join(f"- {way.what}." for way in HEALTHY)
