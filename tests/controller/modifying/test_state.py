"""The states of a request's parts: what another request, a refusal and an answer leave of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from provisioner.classes.volume_attributes_class_rules import Attributes
from provisioner.controller.modifying.class_rules import Change
from provisioner.controller.modifying.growth_rules import Grow
from provisioner.controller.modifying.rules import BOTH, Answers, Limit, Part, Requested, limit_of
from provisioner.controller.modifying.state import GATHER_S, ClaimState
from provisioner.model.decision import SETTLED, Later
from provisioner.model.errors import Ec2Error, Reason, StorageError
from provisioner.model.modification import Modification, ModificationState, Shape
from tests.ec2.virtual_time import Clock, in_virtual_time

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
GROW, GOLD = Grow("20Gi", 20), Change("gold", Attributes(iops=4000))
SIZE = Requested(GROW)
BOTH_PARTS = Requested(GROW, GOLD)
NO = StorageError(Reason.INVALID_REQUEST, "EC2 says no")
Story = Callable[[ClaimState], Coroutine[Any, Any, None]]


def in_a_state(story: Story) -> ClaimState:
    """The state of a claim after a story that begins with a request for both parts."""

    async def whole(_: Clock) -> ClaimState:
        state = ClaimState(0.0)
        state.note_request(BOTH_PARTS)
        await asyncio.sleep(10)
        await story(state)
        return state

    return in_virtual_time(whole)


@pytest.mark.parametrize(
    ("requested", "ceiling"),
    [
        (Requested(Grow("30Gi", 30), GOLD), 16_000),
        (Requested(None, GOLD), 16_000),
        (Requested(GROW, Change("fast", Attributes(iops=4000))), None),
        (SIZE, None),
    ],
    ids=["another size", "the size is there", "another class", "no class"],
)
def test_another_request_keeps_only_the_region_s_ceiling_for_the_same_class(
    requested: Requested, ceiling: int | None
):
    async def story(state: ClaimState) -> None:
        state.answers = Answers(NO, 16_000, NO)
        state.note_request(BOTH_PARTS)
        assert state.answers == Answers(NO, 16_000, NO)
        state.note_request(requested)
        assert state.answers == Answers(iops_ceiling=ceiling)

    in_a_state(story)


def test_only_the_part_that_is_requested_differently_is_tried_at_once():
    async def story(state: ClaimState) -> None:
        state.set_in_flight(BOTH)
        for part in Part:
            state.refuse(part, NO, 600.0)
        assert state.refused == BOTH
        assert [state.is_free(part) for part in Part] == [True, True]
        state.note_request(Requested(Grow("30Gi", 30), GOLD))
        assert state.refused == {Part.ATTRIBUTES}
        assert state.next_try() == Later(600.0)
        await asyncio.sleep(600)
        assert not state.refused

    in_a_state(story)


def test_another_class_of_the_same_name_is_tried_at_once():
    async def story(state: ClaimState) -> None:
        state.refuse(Part.ATTRIBUTES, NO, 600.0)
        state.answers = Answers(NO)
        state.forget_class()
        assert (state.refused, state.answers) == (frozenset(), Answers())
        assert state.next_try() == SETTLED

    in_a_state(story)


def test_a_part_that_is_taken_back_delays_nothing_and_the_time_counts_from_the_first_request():
    async def story(state: ClaimState) -> None:
        assert state.gather_until_s == GATHER_S
        state.note_request(SIZE)
        assert (state.gather_until_s, state.requested_at_s) == (GATHER_S, 0.0)
        state.note_request(BOTH_PARTS)
        assert (state.gather_until_s, state.requested_at_s) == (10.0 + GATHER_S, 0.0)

    in_a_state(story)


def test_the_time_counts_from_a_request_that_comes_after_none():
    async def story(state: ClaimState) -> None:
        state.note_request(Requested())  # its class is missing, for instance
        assert state.requested_at_s == 0.0
        await asyncio.sleep(100)
        state.note_request(SIZE)
        assert state.requested_at_s == 110.0

    in_a_state(story)


def test_a_modification_that_ec2_takes_ends_its_limit():
    async def story(state: ClaimState) -> None:
        state.limit = Limit(NOW)
        state.sent(
            Modification("vol-1", ModificationState.MODIFYING, Shape(20, "gp3"), started_at=NOW),
            BOTH,
        )
        assert state.limit is None

    in_a_state(story)


def test_what_was_reported_of_a_part_is_news_again_once_it_was_done():
    async def story(state: ClaimState) -> None:
        assert state.to_report("it waits", BOTH) == BOTH
        assert state.to_report("it waits", BOTH) == frozenset()
        state.done(frozenset({Part.SIZE}))
        assert state.to_report("it waits", BOTH) == {Part.SIZE}

    in_a_state(story)


@pytest.mark.parametrize(
    ("said", "limit"),
    [
        ({"retry_at": NOW + timedelta(hours=2)}, Limit(NOW + timedelta(hours=2))),
        # The clocks differ: EC2 has just refused, so its time cannot be over.
        ({"retry_at": NOW - timedelta(hours=2)}, Limit(NOW + timedelta(minutes=1))),
        ({"retry_after_s": 60.0}, Limit(NOW + timedelta(minutes=1))),
        ({"between_s": 6 * 3600.0}, Limit(NOW + timedelta(hours=5))),
        ({"between_s": 60.0}, Limit(NOW + timedelta(hours=1), is_guess=True)),
        ({}, Limit(NOW + timedelta(hours=1), is_guess=True)),
    ],
)
def test_until_when_ec2_takes_no_modification(said: dict[str, Any], limit: Limit):
    error = Ec2Error(Reason.MODIFICATION_LIMIT, "no more", action="ModifyVolume", **said)

    assert limit_of(error, NOW - timedelta(hours=1), NOW) == limit
