"""The arithmetic of one object's wait: how much of it is EC2's own time, and where the rest goes."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from tests.bench.hands import BenchError


@dataclass(frozen=True, slots=True)
class Call:
    """A call as EC2 has seen it; seconds of the machine's clock.

    Attributes:
        values: of all parameters.
    """

    action: str
    at_s: float
    ended_s: float
    values: frozenset[str]

    @classmethod
    def of(cls, entry: dict[str, Any]) -> "Call":
        """One of the log's entries that is answered."""
        at_s = float(entry["at_s"])
        values = frozenset(map(str, entry["params"].values()))
        return cls(entry["action"], at_s, at_s + float(entry["took_s"]), values)


@dataclass(frozen=True, slots=True)
class Wait:
    """What one object waited for, in seconds.

    Attributes:
        before: until EC2 was asked for it; calls of EC2 that must come first not counted.
        own: EC2's own: those calls, the one that asks for it, and until it has come about.
        unseen: from there until a look had shown it.
        after: from there until the API server told of it.
    """

    before: float
    own: float
    unseen: float
    after: float

    @property
    def over(self) -> float:
        """All but EC2's own."""
        return self.before + self.unseen + self.after


def wait_of(
    ids: Collection[str],
    *,
    action: str,
    takes_s: float,
    first: str = "",
    sent_s: float,
    told_s: float,
    calls: Sequence[Call],
) -> Wait:
    """The wait for one object.

    Args:
        ids: values of which its calls have one: its volume, or its volume's name.
        action: the call that asks EC2 for it.
        takes_s: from that call's end until it has come about.
        first: an action that may have to be carried out before, for many at once.
        sent_s: when the object's request was sent.
        told_s: when the API server told that it has come about.
        calls: all that EC2 carried out, in the order of their beginning.

    Raises:
        BenchError: EC2 was not asked for it exactly once.
    """
    asked = [call for call in calls if call.action == action and not call.values.isdisjoint(ids)]
    if len(asked) != 1:
        raise BenchError(f"{len(asked)} calls of {action} for {', '.join(ids)}, not 1")
    [call] = asked
    preceding = [each for each in calls if each.action == first and sent_s <= each.at_s < call.at_s]
    first_s = preceding[-1].ended_s - preceding[-1].at_s if preceding else 0.0
    ready_s = call.ended_s + takes_s
    own_s = first_s + ready_s - call.at_s
    if not takes_s:
        return Wait(call.at_s - sent_s - first_s, own_s, 0.0, told_s - ready_s)
    shown_s = min(
        (
            each.ended_s
            for each in calls
            if each.action == "DescribeVolumes"
            and each.ended_s >= ready_s
            and not each.values.isdisjoint(ids)
        ),
        default=None,
    )
    if shown_s is None or shown_s > told_s:
        raise BenchError(f"no look has shown {', '.join(ids)} before it was told")
    return Wait(call.at_s - sent_s - first_s, own_s, shown_s - ready_s, told_s - shown_s)
