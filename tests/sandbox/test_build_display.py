from __future__ import annotations

import io

import pytest
from rich.console import Console

from provisioner.sandbox.build_display import LINE_EVERY_S, Pace, build_display, spoken


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_without_a_terminal_there_is_a_line_for_each_step_and_every_half_minute(
    clock: Clock,
) -> None:
    output = io.StringIO()
    with build_display(Console(file=output), clock) as progress:
        for after_s, step, done in [
            (0, "downloading", 0.0),
            (20, "etcd", 0.0),
            (0, "etcd", 0.001),
            (LINE_EVERY_S - 1, "etcd", 0.1),
            (1, "etcd", 0.201),
            (10, "kwok", 0.5),
        ]:
            clock.now += after_s
            progress(step, done)

    assert output.getvalue().splitlines() == [
        "control plane: downloading (0%, 0 s)",
        "control plane: etcd (0%, 20 s)",
        "control plane: etcd (20%, 50 s, about 2 min 0 s left)",
        "control plane: kwok (50%, 1 min 0 s, about 40 s left)",
    ]


def test_a_terminal_has_one_bar_with_the_same(clock: Clock) -> None:
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=120)
    with build_display(console, clock) as progress:
        progress("etcd", 0.001)
        clock.now += 30
        progress("etcd", 0.251)

    assert "etcd" in output.getvalue()
    assert "25 %, 30 s, about 1 min 30 s left" in output.getvalue()


def test_what_is_left_is_not_guessed_from_downloads_or_from_the_first_packages(
    clock: Clock,
) -> None:
    pace = Pace(clock)
    clock.now += 60
    assert pace.told(0.0) == "1 min 0 s"
    assert pace.told(0.01) == "1 min 0 s"
    clock.now += 1
    assert pace.told(0.02) == "1 min 1 s"
    clock.now += 9
    assert pace.told(0.11) == "1 min 10 s, about 1 min 29 s left"
    assert pace.told(1.0) == "1 min 10 s"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (125, "2 min 5 s")]
)
def test_times_are_spoken_in_minutes_and_seconds(seconds: float, text: str) -> None:
    assert spoken(seconds) == text
