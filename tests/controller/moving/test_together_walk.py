"""Moves that go together, from their plans to their ends, in all orders of their steps.

Each of them reads all, and later writes what it has decided by that: in between, the others go on,
one of them fails, or is aborted by its user. A write to another version than the one that was read
is refused, so who was changed meanwhile reads again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import msgspec
import pytest

from provisioner.controller.moving.phase_rules import Await, Undo
from provisioner.controller.moving.together import companion_rules as rules
from provisioner.controller.moving.together.companion_rules import Companion
from provisioner.model.volume_move import ABORTABLE, Phase, VolumeMove

HERE, THERE, AT = "us-east-1a", "us-east-1b", "2026-11-29T01:00:00+00:00"
ENDS = {Phase.DONE, Phase.ABORTED}
NEXT = {
    Phase.PLANNED: Phase.WARMING,
    Phase.WARMING: Phase.HELD,
    Phase.HELD: Phase.CREATING,
    Phase.CREATING: Phase.SWAPPING,
    Phase.SWAPPING: Phase.CLEANING,
    Phase.CLEANING: Phase.DONE,
    Phase.ABORTING: Phase.ABORTED,
}
TELLING = {Phase.WARMING, Phase.CREATING}  # in these it tells that it is ready


@dataclass(frozen=True, slots=True)
class One:
    """What is written of one move; ``warms``: by its plan; ``abort``: by its user."""

    phase: Phase = Phase.PLANNED
    warms: bool = True
    ready: bool = False
    undone_from: str = ""
    abort: bool = False

    def undone(self) -> One:
        if self.phase is Phase.PLANNED:
            return replace(self, phase=Phase.ABORTED)
        return replace(self, phase=Phase.ABORTING, undone_from=self.phase)


All = tuple[One, ...]


@dataclass(frozen=True, slots=True)
class State:
    """``reads``: what each goes by next; ``troubled``: the one that failed or was aborted, or -1.

    ``is_failed``: it failed by itself, and so may end otherwise than the others.
    """

    now: All
    reads: tuple[All | None, ...]
    troubled: int = -1
    is_failed: bool = False

    def with_one(self, at: int, one: One) -> State:
        return replace(
            self,
            now=(*self.now[:at], one, *self.now[at + 1 :]),
            reads=(*self.reads[:at], None, *self.reads[at + 1 :]),
        )

    @property
    def has_ended(self) -> bool:
        """Whether nothing is left to be done."""
        return {each.phase for each in self.now} <= ENDS


def a_move(at: int, one: One, count: int) -> VolumeMove:
    names = [f"claim-{each}" for each in range(count)]
    body: dict[str, Any] = {
        "metadata": {
            "name": f"move-{at}",
            "namespace": "shop",
            "uid": f"uid-{at}",
            "creationTimestamp": AT,
        },
        "spec": {
            "claimName": names[at],
            "to": {"zone": THERE},
            "movedWith": [each for each in names if each != names[at]],
            "abort": one.abort,
        },
        "status": {
            "phase": one.phase,
            "phaseSince": AT,
            "ready": one.ready,
            "undoneFrom": one.undone_from,
            "plan": {"warms": one.warms},
        },
    }
    return msgspec.convert(body, VolumeMove)


@cache
def decided(at: int, seen: All) -> One:
    """What a move becomes by its next step, or itself if it waits."""
    one, count = seen[at], len(seen)
    moves = [a_move(number, each, count) for number, each in enumerate(seen)]
    move = moves[at]
    others = [
        Companion(
            each.spec.claim_name,
            zones=frozenset({THERE if seen[number].phase is Phase.DONE else HERE}),
            moves=[each],
        )
        for number, each in enumerate(moves)
        if number != at
    ]
    promised = move.is_promised and rules.is_led(move, others)
    if one.abort and one.phase in ABORTABLE and not promised:
        return one.undone()
    match _asked(move, others):
        case Undo():
            return one.undone()
        case Await():
            return replace(one, ready=True) if one.phase in TELLING else one
        case None:
            return _following(one)


def _asked(move: VolumeMove, others: list[Companion]) -> Await | Undo | None:
    """What the flow asks before it writes the next phase."""
    match move.phase:
        case Phase.PLANNED:
            found = rules.before_begin(move, others)
            return found if found is not None or move.warms else rules.before_stop(move, others)
        case Phase.WARMING:
            return rules.before_stop(move, others)
        case Phase.HELD:
            return rules.undone(move, others)
        case Phase.CREATING:
            return rules.before_swap(move, others)
        case Phase.CLEANING:
            return rules.before_return(move, others)
        case _:
            return None


def _following(one: One) -> One:
    if one.phase is Phase.PLANNED and not one.warms:
        return replace(one, phase=Phase.HELD)
    ready = one.ready and one.phase is not Phase.WARMING
    return replace(one, phase=NEXT.get(one.phase, one.phase), ready=ready)


def after(state: State) -> Iterator[State]:
    """All states that the next step of any may lead to."""
    for at, (one, read) in enumerate(zip(state.now, state.reads, strict=True)):
        if one.phase in ENDS:
            continue
        if read is None:
            reads = (*state.reads[:at], state.now, *state.reads[at + 1 :])
            yield replace(state, reads=reads)
        else:
            yield state.with_one(at, decided(at, read))
        if state.troubled < 0:
            aborted = state.with_one(at, replace(one, abort=True))
            yield replace(aborted, troubled=at)
            if one.phase in ABORTABLE or one.phase is Phase.SWAPPING:
                yield replace(state.with_one(at, one.undone()), troubled=at, is_failed=True)


def walked(begin: All) -> dict[State, list[State]]:
    """Each state that can be reached, and those that follow it."""
    todo = [State(begin, (None,) * len(begin))]
    found: dict[State, list[State]] = {}
    while todo:
        state = todo.pop()
        if state not in found:
            found[state] = list(after(state))
            todo.extend(found[state])
    return found


def never_ending(found: dict[State, list[State]]) -> set[State]:
    """States from which no order of steps leads to the end of all moves."""
    before: dict[State, list[State]] = {}
    for state, following in found.items():
        for each in following:
            before.setdefault(each, []).append(state)
    ending, todo = set[State](), [each for each in found if each.has_ended]
    while todo:
        state = todo.pop()
        if state not in ending:
            ending.add(state)
            todo.extend(before.get(state, ()))
    return found.keys() - ending


@pytest.mark.parametrize("warms", [(True, True), (True, False), (False, False)])
def test_two_end_alike_and_always_end(warms: tuple[bool, ...]):
    found = walked(tuple(One(warms=each) for each in warms))

    assert never_ending(found) == set()
    ends = {state for state in found if state.has_ended}
    assert {each.now[0].phase for each in ends} == ENDS
    assert [each for each in ends if is_split(each)] == []


def test_of_three_that_wait_to_swap_those_that_do_not_fail_end_alike_and_always_end():
    found = walked((One(phase=Phase.CREATING, ready=True),) * 3)

    assert never_ending(found) == set()
    ends = {state for state in found if state.has_ended}
    assert {each.now[0].phase for each in ends} == ENDS
    assert [each for each in ends if is_split(each)] == []


def is_split(end: State) -> bool:
    """Whether moves have ended otherwise than others, but for one that failed by itself."""
    failed = end.troubled if end.is_failed else -1
    done = {one.phase is Phase.DONE for at, one in enumerate(end.now) if at != failed}
    return len(done) > 1
