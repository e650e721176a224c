from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from webhook.certificates.rotation_rules import (
    MOST_AUTHORITIES,
    Adopt,
    Content,
    Make,
    Pair,
    Publish,
    Seen,
    Sign,
    Wait,
    Waits,
    decide,
    load_in_s,
)

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
WAITS = Waits(settle_s=60, check_s=3600)
LONG = 10**6


def a_pair(
    name: str, authority: str = "A", *, since_days: float = 10, for_days: float = 80
) -> Pair:
    not_before, not_after = NOW - timedelta(days=since_days), NOW + timedelta(days=for_days)
    return Pair(name, authority, not_before, not_after)


def an_authority(name: str = "A", *, since_days: float = 400, for_days: float = 3250) -> Pair:
    return a_pair(name, name, since_days=since_days, for_days=for_days)


def seen(found: str | None = None, **trusted_s: float) -> Seen:
    return Seen(found={*(trusted_s if found is None else found)}, trusted_s=trusted_s)


A, LEAF = an_authority(), a_pair("leaf")
IDLE = Content(A, LEAF, ("A",))
# A new authority A beside B, of which the certificate still is.
NEW = Content(an_authority(since_days=1), a_pair("leaf", "B"), ("A", "B"))


@pytest.mark.parametrize(
    ("content", "so", "expected"),
    [
        pytest.param(Content(), seen(), Make(), id="an empty Secret"),
        pytest.param(Content(serving=LEAF, known=("A",)), seen(A=LONG), Make(), id="no key"),
        pytest.param(replace(IDLE, serving=None), seen(), Publish(("A",)), id="trust first"),
        pytest.param(replace(IDLE, serving=None), seen(A=0.0), Sign(), id="then a certificate"),
        pytest.param(IDLE, seen(A=LONG), Wait(3600), id="nothing to do"),
        pytest.param(
            replace(IDLE, serving=a_pair("leaf", since_days=61, for_days=30)),
            seen(A=0.0),
            Sign(),
            id="renewed at once, a third of its time is left",
        ),
        pytest.param(
            replace(IDLE, authority=an_authority(since_days=2440, for_days=1210)),
            seen(A=LONG),
            Make(),
            id="a third of the authority's time is left",
        ),
        pytest.param(NEW, seen(B=LONG), Publish(("A", "B")), id="a new one, not published"),
        pytest.param(NEW, seen(A=20, B=LONG), Wait(40), id="published a moment ago"),
        pytest.param(NEW, seen(A=60, B=LONG), Sign(), id="it has settled"),
    ],
)
def test_each_state_has_its_step(content: Content, so: Seen, expected: object):
    assert decide(content, so, NOW, WAITS) == expected


@pytest.mark.parametrize(
    ("authority_days", "serving_days", "old", "expected"),
    [
        (1.5, 1.5, True, Wait(3600)),
        (1.5, 1.5, False, Publish(("A", "B"))),
        (2.5, 2.5, True, Wait(3600)),
        (2.5, 2.5, False, Wait(3600)),
        (3.5, 3.5, True, Publish(("A",))),
        (3.5, 3.5, False, Wait(3600)),
        # The certificate came late: an hour ago.
        (9.0, 1.04, True, Wait(3600)),
        (9.0, 1.04, False, Wait(3600)),
    ],
)
def test_an_old_authority_is_trusted_for_days_after_nothing_of_it_is_served(
    authority_days: float, serving_days: float, *, old: bool, expected: object
):
    content = Content(
        an_authority(since_days=authority_days),
        a_pair("leaf", since_days=serving_days),
        ("A", "B"),
    )
    so = seen(A=LONG, B=LONG) if old else seen(A=LONG)

    assert decide(content, so, NOW, WAITS) == expected


@pytest.mark.parametrize("hours", [-1, 1])
@pytest.mark.parametrize("days", [1.0, 1.5, 2.0, 2.5, 3.0, 3.5])
def test_clocks_an_hour_apart_never_undo_each_others_step(days: float, hours: int):
    content = Content(an_authority(since_days=days), a_pair("leaf", since_days=days), ("A", "B"))
    for so in (seen(A=LONG, B=LONG), seen(A=LONG)):
        step = decide(content, so, NOW, WAITS)
        if isinstance(step, Publish):
            after = Seen({*step.authorities}, dict.fromkeys(step.authorities, 0.0))
            other = decide(content, after, NOW + timedelta(hours=hours), WAITS)
            assert not isinstance(other, Publish)


def test_what_others_trust_is_adopted_before_anything_is_published():
    assert decide(IDLE, seen("AX", A=LONG), NOW, WAITS) == Adopt()
    assert decide(IDLE, seen("X"), NOW, WAITS) == Adopt()


def test_a_full_bundle_adopts_nobody():
    full = replace(IDLE, known=("A", *(str(number) for number in range(1, MOST_AUTHORITIES))))

    assert decide(full, seen("X"), NOW, WAITS) == Publish(("A",))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (Content(problems=("a", "b")), Make("a; b")),
        (replace(IDLE, serving=None, problems=("tls.crt: odd",)), Sign("tls.crt: odd")),
        (
            replace(IDLE, serving=a_pair("leaf", for_days=0)),
            Sign("the certificate expired at 2026-06-01 12:00 UTC"),
        ),
        (
            replace(IDLE, serving=a_pair("leaf", since_days=-1)),
            Sign("the certificate is not valid before 2026-06-02 12:00 UTC"),
        ),
        (
            replace(IDLE, authority=an_authority(for_days=0)),
            Make("the CA expired at 2026-06-01 12:00 UTC"),
        ),
    ],
)
def test_rubbish_is_replaced_at_once_and_told(content: Content, expected: object):
    assert decide(content, seen(A=0.0), NOW, WAITS) == expected


def test_it_waits_until_the_moment_it_is_due():
    content = replace(IDLE, serving=a_pair("leaf", since_days=60, for_days=30 + 10 / 24 / 60))

    waiting = decide(content, seen(A=LONG), NOW, WAITS)

    assert isinstance(waiting, Wait)
    assert 0 < waiting.seconds <= 1000


OF_A, OF_B = a_pair("a"), a_pair("b", "B")


@pytest.mark.parametrize(
    ("loaded", "so", "expected"),
    [
        pytest.param(None, seen(), 0, id="nothing is served yet"),
        pytest.param(a_pair("c", "B"), seen(A=LONG), 0, id="of the same authority"),
        pytest.param(OF_A, seen(A=LONG, B=60), 0, id="the new one has settled"),
        pytest.param(OF_A, seen(A=LONG, B=20), 40, id="the new one is trusted since a moment ago"),
        pytest.param(OF_A, seen(A=LONG), 60, id="the new one is not trusted"),
        pytest.param(OF_A, seen(B=20), 0, id="the old one is not trusted any more"),
        pytest.param(replace(OF_A, not_after=NOW), seen(A=LONG), 0, id="the old one has expired"),
    ],
)
def test_what_is_served_goes_on_until_the_new_one_is_trusted(
    loaded: Pair | None, so: Seen, expected: float
):
    assert load_in_s(OF_B, loaded, so, NOW, WAITS) == expected
