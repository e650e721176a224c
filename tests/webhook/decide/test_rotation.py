from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from webhook.decide.rotation import (
    MOST_AUTHORITIES,
    Adopt,
    Content,
    Make,
    Pair,
    Prepare,
    Prune,
    Publish,
    Seen,
    Swap,
    Wait,
    Waits,
    decide,
    load_in_s,
)

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
WAITS = Waits(settle_s=60, prune_after_s=600, check_s=3600)
LONG = 10**6


def a_pair(name: str, *, since_days: float = 1, for_days: float = 89) -> Pair:
    """Signed by the authority of the same name, in capitals."""
    not_before, not_after = NOW - timedelta(days=since_days), NOW + timedelta(days=for_days)
    return Pair(name, name.upper(), not_before, not_after)


def seen(*, carried: bool = True, served_for_s: float = LONG, **trusted_s: float) -> Seen:
    return Seen(carried=carried, trusted_s=trusted_s, serving_s=served_for_s)


A, B = a_pair("a"), a_pair("b")
OLD = a_pair("a", since_days=61, for_days=30)
EXPIRED = a_pair("a", since_days=91, for_days=0)
IDLE = Content(serving=A, authorities=("A",))
PUBLISHING = Content(serving=OLD, upcoming=B, authorities=("B", "A"))
SWAPPED = Content(serving=B, authorities=("B", "A"))


def step(content: Content, so: Seen, now: datetime = NOW) -> object:
    return decide(content, so, now, WAITS)


@pytest.mark.parametrize(
    ("content", "so", "expected"),
    [
        pytest.param(Content(), seen(), Make(), id="an empty Secret"),
        pytest.param(IDLE, seen(carried=False), Publish(), id="a bundle not yet published"),
        pytest.param(IDLE, seen(A=LONG), Wait(3600), id="nothing to do"),
        pytest.param(
            replace(IDLE, serving=OLD), seen(A=LONG), Prepare(), id="a third of its time is left"
        ),
        pytest.param(
            PUBLISHING,
            seen(carried=False, A=LONG),
            Publish(),
            id="the next one made, not published",
        ),
        pytest.param(
            PUBLISHING, seen(A=LONG, B=20), Wait(40), id="the next one published a moment ago"
        ),
        pytest.param(PUBLISHING, seen(A=LONG, B=60), Swap(), id="the next one has settled"),
        pytest.param(
            SWAPPED, seen(A=LONG, B=LONG, served_for_s=90), Wait(510), id="swapped a moment ago"
        ),
        pytest.param(SWAPPED, seen(A=LONG, B=90), Wait(510), id="trusted again only a moment ago"),
        pytest.param(
            SWAPPED, seen(A=LONG, B=700, served_for_s=600), Prune(), id="swapped long ago"
        ),
        pytest.param(
            SWAPPED, seen(carried=False, B=LONG), Publish(), id="trust first, then everything else"
        ),
        pytest.param(
            replace(IDLE, tidy=False), seen(A=LONG), Prune(), id="a bundle with rubbish in it"
        ),
    ],
)
def test_each_phase_has_its_step(content: Content, so: Seen, expected: object):
    assert step(content, so) == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(IDLE, Adopt(), id="another Secret in the place of ours"),
        pytest.param(replace(IDLE, retired={"X"}), Publish(), id="what was pruned is dropped"),
        pytest.param(replace(IDLE, authorities=("A", "X")), Publish(), id="known already"),
        pytest.param(
            replace(IDLE, authorities=("A", *(str(n) for n in range(1, MOST_AUTHORITIES)))),
            Publish(),
            id="no room for more",
        ),
        pytest.param(
            Content(upcoming=A, authorities=("A",), problems=("tls.crt: cannot be read",)),
            Adopt(),
            id="only the next one can be served",
        ),
    ],
)
def test_what_is_trusted_stays_so_until_it_was_pruned(content: Content, expected: object):
    so = Seen(carried=False, found={"A", "X"}, trusted_s={"X": LONG})

    assert step(content, so) == expected


def test_it_waits_until_the_day_it_is_due():
    content = replace(IDLE, serving=a_pair("a", since_days=60, for_days=30 + 10 / 24 / 60))

    (waiting,) = [step(content, seen(A=LONG))]

    assert isinstance(waiting, Wait)
    assert 0 < waiting.seconds <= 1000


@pytest.mark.parametrize("hours", [-1, 1])
def test_an_hour_changes_nothing(hours: int):
    for content, so in (
        (IDLE, seen(A=LONG)),
        (PUBLISHING, seen(A=LONG, B=20)),
        (SWAPPED, seen(A=LONG, B=LONG, served_for_s=90)),
    ):
        assert step(content, so, NOW + timedelta(hours=hours)) == step(content, so)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(Content(problems=("tls.crt: cannot be read",)), id="rubbish"),
        pytest.param(
            Content(problems=("tls.crt: cannot be read",), authorities=("A", "B")),
            id="rubbish beside a bundle",
        ),
        pytest.param(
            Content(upcoming=EXPIRED, problems=("tls.crt: cannot be read",), authorities=("A",)),
            id="rubbish beside a next one that has expired",
        ),
    ],
)
def test_rubbish_is_replaced_at_once_and_told(content: Content):
    for so in (seen(), seen(carried=False), seen(A=LONG, B=LONG)):
        assert step(content, so) == Make("tls.crt: cannot be read")


def test_what_has_expired_is_replaced_at_once():
    made = step(replace(IDLE, serving=EXPIRED), seen(A=LONG))

    assert made == Make("the certificate has expired at 2026-06-01 12:00 UTC")


def test_what_is_not_valid_yet_is_replaced_at_once():
    made = step(replace(IDLE, serving=a_pair("a", since_days=-1)), seen(A=LONG))

    assert made == Make("the certificate is not valid before 2026-06-02 12:00 UTC")


def test_a_next_one_that_is_trusted_takes_the_place_of_rubbish_at_once():
    content = Content(upcoming=B, authorities=("B", "A"), problems=("tls.crt: cannot be read",))

    assert step(content, seen(carried=False, A=LONG)) == Publish()
    assert step(content, seen(A=LONG, B=0)) == Swap()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (
            Content(
                serving=OLD,
                authorities=("B", "A"),
                problems=("next.crt: cannot be read",),
                spoilt_upcoming=True,
            ),
            "next.crt: cannot be read",
        ),
        (
            replace(PUBLISHING, serving=A, upcoming=a_pair("b", for_days=-1)),
            "the certificate has expired at 2026-05-31 12:00 UTC",
        ),
    ],
)
def test_a_spoilt_next_one_is_made_anew_while_the_one_before_is_served(content: Content, why: str):
    assert step(content, seen(A=LONG, B=LONG)) == Prepare(why)


def test_a_next_one_of_tomorrow_is_waited_for():
    content = replace(PUBLISHING, serving=A, upcoming=a_pair("b", since_days=-1 / 48))

    assert step(content, seen(A=LONG, B=LONG)) == Wait(1800)


@pytest.mark.parametrize(
    ("loaded", "so", "expected"),
    [
        pytest.param(None, seen(), 0, id="nothing is served yet"),
        pytest.param(B, seen(A=LONG), 0, id="it is served already"),
        pytest.param(A, seen(A=LONG, B=60), 0, id="the new one has settled"),
        pytest.param(A, seen(A=LONG, B=20), 40, id="the new one is trusted since a moment ago"),
        pytest.param(A, seen(A=LONG), 60, id="the new one is not trusted"),
        pytest.param(A, seen(B=20), 0, id="the old one is not trusted any more"),
        pytest.param(EXPIRED, seen(A=LONG), 0, id="the old one has expired"),
    ],
)
def test_what_is_served_goes_on_until_the_new_one_is_trusted(
    loaded: Pair | None, so: Seen, expected: float
):
    assert load_in_s(B, loaded, so, NOW, WAITS) == expected
