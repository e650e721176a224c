"""How often EC2 was looked at, by how many things were in transition then: read from EC2's log.

What is in transition is what EC2 was asked to change, until the last look that names it.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from provisioner.ec2.look_rules import looks_a_second
from tests.bench.wait_numbers import Call

WINDOW_S = 10.0
# A call's way to EC2 takes now longer and now shorter: a second's looks may arrive within the
# window, though they were sent before or after it.
_MARGIN_S = 0.5
_BEGINS = {"CreateVolume", "AttachVolume", "DetachVolume", "ModifyVolume"}


@dataclass(frozen=True, slots=True)
class Window:
    """Ten seconds.

    Attributes:
        looks: calls that only look, of every kind but DescribeInstances, which nothing in
            transition is looked at with.
        allowed: how many the rule gives to it.
        in_transition: things at most.
    """

    looks: int
    allowed: float
    in_transition: int

    @property
    def above(self) -> float:
        """Looks too many; negative below the limit."""
        return self.looks - self.allowed


def busiest(calls: Sequence[Call]) -> Window | None:
    """The ten seconds that are most above their limit, or closest to it; None without a look.

    Args:
        calls: that EC2 carried out, in the order of their beginning.
    """
    looks_s = [each.at_s for each in calls if _is_look(each.action)]
    changes = _changes(calls)
    found = [
        Window(
            sum(at_s <= each < at_s + WINDOW_S for each in looks_s),
            _allowed(changes, at_s - _MARGIN_S, at_s + WINDOW_S + _MARGIN_S),
            _most(changes, at_s, at_s + WINDOW_S),
        )
        for at_s in looks_s
    ]
    return max(found, key=lambda each: each.above, default=None)


def _is_look(action: str) -> bool:
    return action.startswith("Describe") and action != "DescribeInstances"


def _changes(calls: Collection[Call]) -> list[tuple[float, int]]:
    """When the number of things in transition became what it then was, in order."""
    last_s: dict[str, float] = {}
    steps: Counter[float] = Counter()
    for each in calls:
        if each.action in _BEGINS:
            steps[each.ended_s] += 1
        elif each.action.startswith("DescribeVolumes"):
            named = (value for value in each.values if value.startswith("vol-"))
            last_s |= dict.fromkeys(named, each.ended_s)
    steps.subtract(last_s.values())
    things, changes = 0, [(float("-inf"), 0)]
    for at_s, step in sorted(steps.items()):
        things += step
        changes.append((at_s, max(0, things)))
    return changes


def _allowed(changes: Sequence[tuple[float, int]], from_s: float, until_s: float) -> float:
    ends = [*(at_s for at_s, _ in changes[1:]), float("inf")]
    return sum(
        max(0.0, min(end_s, until_s) - max(at_s, from_s)) * looks_a_second(things)
        for (at_s, things), end_s in zip(changes, ends, strict=True)
    )


def _most(changes: Sequence[tuple[float, int]], from_s: float, until_s: float) -> int:
    ends = [*(at_s for at_s, _ in changes[1:]), float("inf")]
    return max(
        things
        for (at_s, things), end_s in zip(changes, ends, strict=True)
        if at_s < until_s and end_s > from_s
    )
