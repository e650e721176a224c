"""How the progress of a build is shown: with the time that it took, and the time that is left."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

from provisioner.sandbox.build import Progress as Tell

LINE_EVERY_S = 30.0
"""Where there is no terminal. A new step has its line at once."""

_KNOWN_FROM = 0.03
"""Below this part of the work the pace says nothing yet."""


class Pace:
    """How long it took and, by the pace so far, will still take.

    The work is measured in bytes of source (``maker``), which is about even. What an earlier build
    has compiled is done at once: then less time is left than this says, not more.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._working: tuple[float, float] | None = None

    def told(self, done: float) -> str:
        """Return the time so far and, once it is known, the time left."""
        now = self._clock()
        if done <= 0:
            return spoken(now - self._began)
        if self._working is None:  # downloads have a pace of their own
            self._working = (now, done)
        since, already = self._working
        if done >= 1 or done - already < _KNOWN_FROM:
            return spoken(now - self._began)
        left = (now - since) / (done - already) * (1 - done)
        return f"{spoken(now - self._began)}, about {spoken(left)} left"


def spoken(seconds: float) -> str:
    """Return ``40 s`` or ``2 min 5 s``."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


@contextlib.contextmanager
def build_display(console: Console, clock: Callable[[], float] = time.monotonic) -> Iterator[Tell]:
    """Show what is built, how far it is and what is left; by lines where there is no terminal."""
    pace = Pace(clock)
    if console.is_terminal:
        with _bar(console, pace) as tell:
            yield tell
        return
    last, said_at = "", clock()

    def line(step: str, done: float) -> None:
        nonlocal last, said_at
        times = pace.told(done)  # each time: it sees when the first package is done
        if step == last and clock() - said_at < LINE_EVERY_S:
            return
        last, said_at = step, clock()
        text = f"control plane: {step} ({done:.0%}, {times})"
        console.print(text, highlight=False, soft_wrap=True)

    yield line


@contextlib.contextmanager
def _bar(console: Console, pace: Pace) -> Iterator[Tell]:
    columns = (
        *(SpinnerColumn(), TextColumn("{task.description}"), BarColumn()),
        TextColumn("{task.percentage:.0f} %, {task.fields[time]}"),
    )
    with Progress(*columns, console=console, transient=True) as display:
        task = display.add_task("", total=1.0, visible=False, time="")

        def bar(step: str, done: float) -> None:
            about = f"building the control plane, once: {step}"
            display.update(
                task, description=about, completed=done, visible=True, time=pace.told(done)
            )

        yield bar
