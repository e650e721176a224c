"""What goes wrong in the run, when, and what EC2 is told to do meanwhile."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

RECOVERED_WITHIN_S = 120.0
"""After the end of a trouble, when nobody may wait for more than a minute any more."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """One of them.

    Attributes:
        what: in the table.
        at: its beginning, as a share of the run.
        lasts_s: how long.
        does: ``kill``: the leader ends; ``outage``: the API server is away; or ``ec2``.
        begins: what ``/_control`` of the strict EC2 is told at the beginning.
        every: faults that are added to it each second.
    """

    what: str
    at: float
    does: str = "kill"
    lasts_s: float = 0.0
    begins: dict[str, Any] = field(default_factory=dict)
    every: Sequence[dict[str, Any]] = ()


CALM: dict[str, Any] = {"latency": "real", "faults": None, "throttle": "documented"}
"""The end of each brown-out."""

_OUTAGE_S = 45.0  # at most

_CHANGES = ("CreateVolume", "AttachVolume", "DetachVolume", "DeleteVolume")


def troubles(minutes: float, key: str) -> tuple[Trouble, ...]:
    """A day's kinds: three leaders end, one of them in a brown-out; the API server is away once.

    Args:
        minutes: of the run. A brown-out takes a tenth of it.
        key: the access key of those whose calls are disturbed.
    """
    lasts_s = minutes * 6
    failing: dict[str, Any] = {
        "action": "*",
        "do": "error",
        "code": "Unavailable",
        "http_status": 503,
        "n": 2,
    }
    lost: list[dict[str, Any]] = [
        {"action": each, "do": "reset", "when": "after"} for each in _CHANGES
    ]
    hung = {"action": "CreateVolume", "do": "hang", "when": "after"}
    slow = [{"key": key, **each} for each in (failing, *lost, hung)]
    crowded = [{"key": key, **failing, "n": 1}, {"key": key, **lost[0]}]
    return (
        Trouble("leader killed", 0.05),
        Trouble("EC2 slow and failing", 0.17, "ec2", lasts_s, {"latency": [1.0, 4.0]}, slow),
        Trouble("leader killed", 0.40),
        Trouble("API server away", 0.52, "outage", min(_OUTAGE_S, lasts_s)),
        Trouble("EC2 crowded", 0.72, "ec2", lasts_s, {"throttle": "documentedx0.2"}, crowded),
        Trouble("leader killed in the crowd", 0.72 + 0.05),
    )
