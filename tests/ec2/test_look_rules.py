from collections.abc import Sequence

import pytest

from provisioner.ec2.look_rules import (
    LOOK_AGAIN_S,
    USUALLY_S,
    Usual,
    after_a_look,
    was_ready,
)


def after(usual: Usual, takes_s: Sequence[float]) -> Usual:
    """What is learned of things that are looked at when they are usually ready."""
    for each in takes_s:
        usual = after_a_look(usual, ready=each <= usual.after_s)
    return usual


@pytest.mark.parametrize("takes_s", [0.3, 1.5, 3.0, 8.0, 12.0])
@pytest.mark.parametrize("guess_s", [0.2, 1.0, 15.0])
def test_the_usual_moment_is_found_in_a_few_looks_and_kept(guess_s: float, takes_s: float) -> None:
    usual, found = Usual(guess_s), []
    for _ in range(60):
        usual = after(usual, [takes_s])
        found.append(usual.after_s)

    assert found[26:] == pytest.approx([takes_s] * 34, rel=0.1)


def test_it_is_the_median_where_times_differ() -> None:
    """Half of them take 2 s, the others longer, in an order without a pattern."""
    order = [int(digit) % 2 for digit in str(3**400)]
    takes_s = [2.0 if each else 6.0 + number % 5 for number, each in enumerate(order)]
    usual, ready = Usual(1.0), 0
    for each in takes_s:
        ready += each <= usual.after_s
        usual = after(usual, [each])

    assert ready / len(takes_s) == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize(("before_s", "now_s"), [(2.0, 10.0), (10.0, 2.0), (1.5, 0.3)])
def test_an_ec2_that_has_changed_is_followed_in_20_looks(before_s: float, now_s: float) -> None:
    usual = after(Usual(1.0), [before_s] * 40)

    changed = after(usual, [now_s] * 20)

    assert changed.after_s == pytest.approx(now_s, rel=0.1)


def test_one_that_is_stuck_makes_the_next_ones_wait_hardly_longer() -> None:
    usual = after(Usual(1.0), [2.0] * 40)

    stuck = after(usual, [3600.0])

    assert stuck.after_s <= usual.after_s * 1.11


def test_an_ec2_in_which_all_is_stuck_delays_no_first_look_beyond_a_limit() -> None:
    assert after(Usual(1.0), [3600.0] * 1000).after_s == USUALLY_S[1]
    assert after(Usual(1.0), [0.0] * 1000).after_s == USUALLY_S[0]


@pytest.mark.parametrize(
    ("looked_s", "ready", "was"),
    [
        (1.5, True, None),  # it may have been ready long before: the look was late
        (1.2, True, True),
        (0.9, True, True),
        (0.9, False, None),  # it was taken along with others: it may be ready in time
        (1.2, False, False),
        (9.0, False, False),
    ],
)
def test_a_look_tells_of_the_usual_moment_only_if_it_was_made_about_then(
    looked_s: float, *, ready: bool, was: bool | None
) -> None:
    assert LOOK_AGAIN_S[0] < 0.5
    assert was_ready(1.0, looked_s, ready=ready) is was
