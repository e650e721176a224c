"""When to look at EC2: how often all who look may, and when a thing is usually ready.

What EC2 was asked for takes about as long each time, and nobody tells how long (AWS publishes no
objectives). So the first look at a thing comes when about half of its kind were ready before; each
first look that comes too early or finds it ready moves that moment. After a restart the moment is
the one that the request names.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

THINGS_A_CALL = 500
MOST_A_SECOND = 3
# A thing is looked at again after a tenth of the time that nothing has happened, within these.
LOOK_AGAIN_S = (1 / MOST_A_SECOND, 5.0)
# The first look comes no sooner and no later, whatever was learned.
USUALLY_S = (0.2, 15.0)
_STEP = 0.05
# From the third time in a row that the first looks were wrong on one side, each step is twice as
# large as the one before: an EC2 that has become slower or faster is followed in a few looks. It is
# larger down than up: a look that is too late costs somebody time, one that is too early a call.
_SMALL_STEPS = 2
_MOST_UP, _MOST_DOWN = 0.2, 0.5


def looks_a_second(things: int, most: int = MOST_A_SECOND) -> int:
    """How many looks one second may have, with so many things in transition.

    A user's own describes come out of the same bucket of the account, so ours stay few. Above 500
    things it is one for each started 500, as one look shows no more; up to them it is ``most``.
    """
    return most if things <= THINGS_A_CALL else -(-things // THINGS_A_CALL)


@dataclass(frozen=True, slots=True)
class Asked(Generic[T]):
    """Something that has just been asked of EC2.

    Attributes:
        what: what is learned of one is used for all that have the same.
        guess_s: after how many seconds it is usually ready, before anything is learned.
        is_ready: whether a description shows it carried out.
    """

    what: str
    guess_s: float
    is_ready: Callable[[T], bool]


@dataclass(frozen=True, slots=True)
class Usual:
    """When things are usually ready.

    Attributes:
        after_s: seconds after the request at which about half of them are.
        in_a_row: how many looks in a row came too early (positive) or not (negative).
    """

    after_s: float
    in_a_row: int = 0


def after_a_look(usual: Usual, *, ready: bool) -> Usual:
    """What is learned of a look at the usual moment."""
    in_a_row = min(usual.in_a_row, 0) - 1 if ready else max(usual.in_a_row, 0) + 1
    step = _STEP * 2.0 ** max(0, abs(in_a_row) - _SMALL_STEPS)
    factor = 1 - min(step, _MOST_DOWN) if ready else 1 + min(step, _MOST_UP)
    least_s, most_s = USUALLY_S
    after_s = usual.after_s * factor
    return Usual(min(max(after_s, least_s), most_s), in_a_row)


def was_ready(usual_s: float, looked_s: float, *, ready: bool) -> bool | None:
    """Whether a thing was ready at its usual moment, by a look so long after its request.

    None if the look does not tell: it came sooner and the thing was not ready, or much later.
    """
    if not ready:
        return False if looked_s >= usual_s else None
    return True if looked_s <= usual_s + LOOK_AGAIN_S[0] else None


def soon_then_seldom(_found: object, unchanged_s: float, _watched_s: float) -> float:
    """Seconds until the next look: a tenth of the time that nothing has happened, within bounds."""
    least_s, most_s = LOOK_AGAIN_S
    return min(max(unchanged_s / 10, least_s), most_s)
