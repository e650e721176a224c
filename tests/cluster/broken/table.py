"""The matrix as documentation shows it, and all of its ways."""

from __future__ import annotations

from tests.cluster.broken import (
    attaching,
    claims,
    healthy,
    keys,
    outage,
    pairs,
    refused,
    setup,
    snapshot_setup,
    snapshots,
)
from tests.cluster.broken.record import Broken

HEALTHY = healthy.matrix.ways
TOGETHER = [
    way for each in (refused, claims, attaching, snapshots, pairs) for way in each.matrix.ways
]
KEYS = keys.matrix.ways
KILLED = outage.killed.ways
RELEASED = outage.released.ways
SNAPSHOT_SETUP = snapshot_setup.matrix.ways
SETUP = setup.matrix.ways
MISSES: frozenset[str] = frozenset()
"""Whose cause is not named, exactly."""


def _row(way: Broken) -> str:
    causes = ", ".join(f"`{each}`" for each in way.causes) or ""
    if way.what in MISSES:
        causes = "not named"
    check = f"`{way.check}`" if way.check else ""
    return f"| {way.what} | {causes} | {check} |"


def broken() -> str:
    """Each way in which a cluster is broken, with what names it."""
    rows = [_row(way) for way in (*TOGETHER, *KEYS, *KILLED, *RELEASED, *SNAPSHOT_SETUP, *SETUP)]
    return "\n".join(("| what is broken | `explain` | `doctor` |", "|---|---|---|", *rows))


def healthy_ways() -> str:
    """Each healthy cluster."""
    return "\n".join(f"- {way.what}." for way in HEALTHY)
