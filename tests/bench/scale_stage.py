"""What a stage of a large cluster's life costs the controller."""

import heapq
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.bench.installed_minute import Minute
from tests.bench.measured_controller import Pass
from tests.bench.scale_burst import Bursts
from tests.bench.standing import Standing
from tests.bench.webhook_measure import Answered

_TOLD_PASSES = 3


@dataclass(slots=True)
class Stage:
    """What one stage cost the controller.

    Attributes:
        name: in the table.
        began_s: on the monotonic clock.
        seconds: from its beginning to its aim.
        marks: seconds from its beginning to what happened on the way.
        ended: how often the controller ended within it; None where none may.
        cpu_s: of the controller, in all of its lives, and of the API server.
        rest_mib: resident at its end.
        peak_mib: resident at most.
        longest: passes of the event loop, the longest first; only those of 20 ms and more.
        has_passes: whether these are measured.
        requests: to the API server, by verb and resource.
        received_mib: at least, from the API server, where ``ss`` can tell.
    """

    name: str
    began_s: float
    seconds: float = 0.0
    marks: dict[str, float] = field(default_factory=dict)
    ended: int | None = None
    cpu_s: float = 0.0
    api_server_cpu_s: float = 0.0
    rest_mib: float = 0.0
    peak_mib: float = 0.0
    longest: Sequence[Pass] = ()
    has_passes: bool = True
    requests: Counter[str] = field(default_factory=Counter)
    received_mib: float | None = None

    def mark(self, what: str) -> None:
        """Something happened now."""
        self.marks[what] = time.monotonic() - self.began_s

    def reach(self) -> None:
        """The aim is reached now; without this, at the end of the stage."""
        self.seconds = time.monotonic() - self.began_s


@dataclass(slots=True)
class Scaled:
    """Everything that was measured.

    Attributes:
        there: what stood.
        loading_s: until it did.
        stages: in their order.
        load: the machine's average before and after.
        answered: reviews by the webhook that has all of it cached.
        bursts: claims on top.
        installed: what all that is installed cost in a quiet minute.
    """

    there: Standing
    loading_s: float
    stages: list[Stage]
    load: tuple[float, float]
    answered: Sequence[Answered] = ()
    bursts: Bursts | None = None
    installed: Sequence[Minute] = ()


def longest(noted: Iterable[Pass]) -> list[Pass]:
    """Three passes: the first of a process makes clients, and is longer than all that wait."""
    return heapq.nlargest(_TOLD_PASSES, noted, key=lambda each: each.cpu_ms)
