"""One plan per volume: the next step, from what is requested, what EC2 has and what was refused."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.classes.volume_attributes_class_rules import Attributes
from provisioner.controller.modifying.class_rules import Change
from provisioner.controller.modifying.growth_rules import Grow
from provisioner.controller.modifying.rules import (
    BOTH,
    AllRefused,
    Answers,
    Await,
    Done,
    Failed,
    Gone,
    Impossible,
    InDoubt,
    Limit,
    Part,
    Requested,
    Send,
    Tag,
    View,
    WaitUntil,
    decide,
)
from provisioner.model.budget import Ledger, Start, name_of
from provisioner.model.errors import Reason, StorageError
from provisioner.model.modification import Modification, ModificationState, ModifyRequest, Shape
from provisioner.model.volume import Volume, VolumeState

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
HAS = Shape(10, "gp3", 3000, 125)
VOLUME = Volume("vol-1", VolumeState.IN_USE, "us-east-1a", 10, "gp3", 3000, 125)
FAST = Attributes(iops=4000)
SIZE, ATTRIBUTES = frozenset({Part.SIZE}), frozenset({Part.ATTRIBUTES})
APART = Answers(StorageError(Reason.INVALID_REQUEST, "not both"))
STATES = ModificationState


def request(size_gib: int | None = None, iops: int | None = None) -> ModifyRequest:
    return ModifyRequest("vol-1", size_gib, None, iops, None)


def modified(state: ModificationState, target: Shape = HAS, *, ago_h: float = 1) -> Modification:
    return Modification("vol-1", state, target, started_at=NOW - timedelta(hours=ago_h))


def view(
    volume: Volume | None = VOLUME,
    *,
    size_gib: int | None = None,
    attributes: Attributes | None = None,
    **given_: Any,
) -> View:
    grow = Grow(f"{size_gib}Gi", size_gib) if size_gib is not None else None
    change = Change("gold", attributes) if attributes is not None else None
    seen = View(volume, None, Ledger(), NOW, Requested(grow, change))
    return replace(seen, **given_)


def test_both_parts_are_one_modification():
    assert decide(view(size_gib=20, attributes=FAST)) == Send(
        request(20, 4000),
        BOTH,
        decide(view(attributes=FAST)).fitted,  # type: ignore[union-attr]
    )


@pytest.mark.parametrize(
    ("given_", "sent", "parts"),
    [
        ({"size_gib": 20}, request(20), SIZE),
        ({"attributes": FAST}, request(iops=4000), ATTRIBUTES),
        ({"size_gib": 20, "attributes": FAST}, request(20, 4000), BOTH),
        # Refused together: each alone, the size first.
        ({"size_gib": 20, "attributes": FAST, "answers": APART}, request(20), SIZE),
        (
            {"size_gib": 20, "attributes": FAST, "answers": APART, "refused": SIZE},
            request(iops=4000),
            ATTRIBUTES,
        ),
        ({"size_gib": 20, "attributes": FAST, "refused": ATTRIBUTES}, request(20), SIZE),
        # What EC2 refused before is over.
        ({"size_gib": 20, "limit": Limit(NOW)}, request(20), SIZE),
    ],
)
def test_what_is_sent(given_, sent, parts):
    step = decide(view(**given_))

    assert isinstance(step, Send)
    assert (step.request, step.parts) == (sent, parts)


@pytest.mark.parametrize(
    ("given_", "done", "size_gib"),
    [
        ({"size_gib": 10}, SIZE, 10),
        ({"size_gib": 5}, SIZE, 10),
        ({"attributes": Attributes(volume_type="gp3", iops=3000)}, ATTRIBUTES, 10),
        ({"size_gib": 10, "attributes": Attributes(iops=3000)}, BOTH, 10),
        # The other one goes on afterwards; one that was refused may have come true all the same.
        ({"size_gib": 10, "attributes": FAST}, SIZE, 10),
        ({"size_gib": 10, "refused": SIZE}, SIZE, 10),
        # A description may be behind a modification that is through.
        (
            {"size_gib": 20, "latest": modified(STATES.OPTIMIZING, Shape(20, "gp3", 3000, 125))},
            SIZE,
            20,
        ),
        (
            {"size_gib": 20, "latest": modified(STATES.COMPLETED, Shape(20, "gp3", 3000, 125))},
            SIZE,
            20,
        ),
    ],
)
def test_nothing_is_sent_when_ec2_agrees(given_, done, size_gib):
    step = decide(view(**given_))

    assert isinstance(step, Done)
    assert (step.parts, step.size_gib) == (done, size_gib)


def test_what_runs_is_waited_for_whatever_else_is_wanted():
    running = modified(STATES.MODIFYING, Shape(20, "gp3", 3000, 125))

    assert decide(view(size_gib=20, latest=running)) == Await()
    for other in ({"size_gib": 30}, {"size_gib": 20, "attributes": FAST}):
        step = decide(view(**other, latest=running))  # not what is wanted: its user hears of it
        assert isinstance(step, Await)
        assert "in progress since 2026-11-22 11:00:00 UTC; EC2 accepts the next" in step.message


def test_the_next_plan_waits_until_the_one_before_is_completed():
    step = decide(view(size_gib=30, latest=modified(STATES.OPTIMIZING)))

    assert isinstance(step, Await)
    assert "still optimizing" in step.message


def test_a_failed_modification_is_told_once_and_tried_again():
    failed = replace(modified(STATES.FAILED, Shape(20, "gp3", 3000, 125)), message="No luck.")

    step = decide(view(size_gib=20, latest=failed))

    assert isinstance(step, Failed)
    assert "the modification failed in EC2: No luck; it will be retried" in step.message
    again = decide(view(size_gib=20, latest=failed, reported_failure=name_of(failed)))
    assert isinstance(again, Send)


def test_nothing_is_sent_while_it_is_in_doubt_whether_something_was():
    ledger = Ledger((Start(NOW - timedelta(seconds=20)),))

    assert decide(view(size_gib=20, ledger=ledger)) == InDoubt(40.0)
    shown = modified(STATES.MODIFYING, Shape(20, "gp3", 3000, 125), ago_h=0)
    assert decide(view(size_gib=20, ledger=ledger, latest=shown)) == Await()


def test_a_budget_that_is_used_up_is_waited_for():
    starts = tuple(Start(NOW - timedelta(hours=each), "x") for each in (23, 10, 5, 1))

    step = decide(view(size_gib=20, ledger=Ledger(starts)))

    assert isinstance(step, WaitUntil)
    assert step.at == NOW + timedelta(hours=1, minutes=1)
    assert "2026-11-22 13:01:00 UTC" in step.message


def test_ec2_s_own_refusal_counts_more_than_what_we_have_counted():
    until = NOW + timedelta(hours=3)

    step = decide(view(size_gib=20, limit=Limit(until)))

    assert step == WaitUntil(until, step.message)  # type: ignore[union-attr]


def test_tags_come_once_the_volume_has_the_rest_and_cost_no_modification():
    """A class that EC2 refuses leaves none of its tags behind."""
    volume = replace(VOLUME, tags={"team": "a", "old": "x"})
    asks = Attributes(iops=4000, deleted_tags=("old", "never"))

    assert isinstance(decide(view(volume=volume, attributes=asks, tags={"team": "b"})), Send)
    has = replace(volume, iops=4000)
    tag = decide(view(volume=has, attributes=asks, tags={"team": "b"}))
    assert tag == Tag({"team": "b"}, ("old",))

    only_tags = decide(view(attributes=Attributes(), tags={"team": "b"}))
    assert only_tags == Tag({"team": "b"}, ())
    tagged = replace(VOLUME, tags={"team": "b"})
    assert isinstance(
        decide(view(volume=tagged, attributes=Attributes(), tags={"team": "b"})), Done
    )


def test_tags_alone_do_not_wait_for_the_budget():
    starts = tuple(Start(NOW - timedelta(hours=each), "x") for each in (23, 10, 5, 1))

    step = decide(view(attributes=Attributes(), tags={"team": "b"}, ledger=Ledger(starts)))

    assert isinstance(step, Tag)


@pytest.mark.parametrize(("removed", "fits"), [((), False), (("k0",), True)])
def test_more_tags_than_ec2_allows_are_found_before_the_volume_is_modified(
    removed: tuple[str, ...], *, fits: bool
):
    full = replace(VOLUME, tags={f"k{number}": "v" for number in range(50)} | {"aws:a": "b"})
    asks = replace(FAST, deleted_tags=removed)

    step = decide(view(volume=full, attributes=asks, tags={"k1": "x", "team": "b"}))

    assert isinstance(step, Send) is fits
    if not fits:
        assert isinstance(step, Impossible)
        assert "would have 51 tags, but EC2 allows 50" in step.message


def test_a_class_that_cannot_be_is_found_before_ec2_is_asked_and_leaves_the_size_alone():
    broken = Attributes(throughput_mibps=2000)

    step = decide(view(size_gib=20, attributes=broken))
    assert isinstance(step, Impossible)
    assert step.part is Part.ATTRIBUTES

    rest = decide(view(size_gib=20, attributes=broken, refused=ATTRIBUTES))
    assert isinstance(rest, Send)
    assert rest.request == request(20)


def test_a_class_that_only_the_larger_volume_can_have_goes_with_the_size():
    step = decide(view(size_gib=40, attributes=Attributes(iops=16_000)))

    assert isinstance(step, Send)
    assert step.request == request(40, 16_000)


def test_a_size_that_is_no_number_of_ec2_leaves_the_class_alone():
    step = decide(view(size_gib=2**33, attributes=FAST))

    assert isinstance(step, Impossible)
    assert step.part is Part.SIZE


def test_what_is_not_there_is_said():
    assert decide(view(volume=None, size_gib=20)) == Gone()
    assert decide(view(size_gib=20, refused=SIZE)) == AllRefused()


MODIFICATIONS = st.none() | st.builds(
    modified,
    st.sampled_from(ModificationState),
    st.builds(Shape, st.integers(10, 60), st.just("gp3"), st.integers(3000, 6000), st.just(125)),
    ago_h=st.floats(0, 40),
)
LEDGERS = st.lists(st.floats(0, 48), max_size=6).map(
    lambda ages: Ledger(
        tuple(Start(NOW - timedelta(hours=each), "x") for each in sorted(ages, reverse=True))
    )
)
VIEWS = st.builds(
    view,
    size_gib=st.none() | st.integers(1, 60),
    attributes=st.none() | st.builds(Attributes, iops=st.none() | st.integers(100, 6000)),
    latest=MODIFICATIONS,
    ledger=LEDGERS,
    refused=st.frozensets(st.sampled_from(Part)),
    answers=st.sampled_from([Answers(), APART]),
).filter(lambda each: each.requested.parts)


@given(VIEWS)
def test_a_modification_is_sent_only_when_ec2_could_take_it(seen):
    step = decide(seen)

    if isinstance(step, Send):
        running = (STATES.MODIFYING, STATES.OPTIMIZING)
        assert seen.latest is None or seen.latest.state not in running
        assert seen.ledger.doubt_s(seen.latest, NOW) == 0
        assert seen.ledger.left(seen.latest, NOW) > 0
        assert not step.parts & seen.refused
        assert step.request != request()
        assert not (seen.answers == APART and step.parts == BOTH)
        has = 10 if seen.latest is None else max(10, seen.latest.target.size_gib)
        if seen.latest is not None and seen.latest.state is STATES.FAILED:
            has = 10
        assert step.request.size_gib is None or step.request.size_gib > has
    if isinstance(step, Done):
        assert step.parts
        assert (
            seen.requested.size_gib is None
            or Part.SIZE not in step.parts
            or step.size_gib >= seen.requested.size_gib
        )
    if isinstance(step, AllRefused):
        assert seen.refused


@given(VIEWS)
def test_a_refused_part_never_blocks_the_other(seen):
    if isinstance(decide(seen), Send | Tag | Impossible) and seen.refused == ATTRIBUTES:
        without = decide(replace(seen, requested=seen.requested.only(SIZE)))
        assert decide(seen) == without
