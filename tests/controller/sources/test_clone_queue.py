"""Clones of one volume wait their turn."""

from __future__ import annotations

from provisioner.controller.sources.origin import CloneQueue
from tests.builders import a_claim

FIRST, SECOND, THIRD = (a_claim(name, uid=f"uid-{name}") for name in ("a", "b", "c"))


def test_one_at_a_time_in_the_order_in_which_they_came():
    woken: list[str] = []
    queue = CloneQueue(woken.append)

    assert queue.ahead_of(FIRST, "vol-1") == ""
    assert queue.ahead_of(SECOND, "vol-1") == "shop/a"
    assert queue.ahead_of(THIRD, "vol-1") == "shop/a"
    assert queue.ahead_of(FIRST, "vol-1") == ""

    queue.leave(FIRST.uid)

    assert woken == [SECOND.uid]
    assert queue.ahead_of(THIRD, "vol-1") == "shop/b"
    assert queue.ahead_of(FIRST, "vol-1") == "shop/b"


def test_whoever_leaves_from_the_middle_wakes_nobody():
    woken: list[str] = []
    queue = CloneQueue(woken.append)
    for claim in (FIRST, SECOND, THIRD):
        queue.ahead_of(claim, "vol-1")

    queue.leave(SECOND.uid)
    queue.leave("nobody")

    assert woken == []
    queue.leave(FIRST.uid)
    assert woken == [THIRD.uid]


def test_volumes_have_lines_of_their_own():
    queue = CloneQueue(lambda _: None)

    assert queue.ahead_of(FIRST, "vol-1") == ""
    assert queue.ahead_of(SECOND, "vol-2") == ""


def test_a_claim_whose_source_has_changed_stands_in_one_line():
    woken: list[str] = []
    queue = CloneQueue(woken.append)
    queue.ahead_of(FIRST, "vol-1")
    queue.ahead_of(SECOND, "vol-1")

    assert queue.ahead_of(FIRST, "vol-2") == ""

    assert woken == [SECOND.uid]
