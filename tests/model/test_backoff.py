"""Pauses grow with each failure up to a bound, and jitter only shortens them."""

import pytest

from provisioner.model.backoff import Backoff


@pytest.mark.parametrize(
    ("backoff", "failures", "pause_s"),
    [
        (Backoff(1.0, 300.0), 0, 1.0),
        (Backoff(1.0, 300.0), 1, 2.0),
        (Backoff(1.0, 300.0), 8, 256.0),
        (Backoff(1.0, 300.0), 9, 300.0),
        (Backoff(5.0, 1800.0, factor=4.0), 2, 80.0),
        (Backoff(60.0, 30.0), 0, 30.0),
    ],
)
def test_each_pause_is_longer_up_to_a_bound(backoff, failures, pause_s):
    assert backoff.pause_s(failures) == pause_s


def test_any_number_of_failures_has_a_pause():
    assert Backoff(0.1, 10.0).pause_s(100_000) == 10.0


@pytest.mark.parametrize(("chance", "pause_s"), [(0.0, 2.0), (0.5, 3.0), (1.0, 4.0)])
def test_jitter_takes_off_at_most_half(chance, pause_s):
    assert Backoff(1.0, 300.0).jittered_s(2, chance) == pause_s
