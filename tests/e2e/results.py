"""What the test binary writes, a line for each test that begins or ends, and what it says of a run."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

_NAME = re.compile(
    r"\[Testpattern: (?P<pattern>[^\]]*)\] (?:\[[^\]]*\] )*(?P<feature>[\w-]+) ?(?P<what>.*)$"
)
_TAGS = re.compile(r" ?\[[^\]]*\]")

PASSED, SKIPPED, LOST = "passed", "skipped", "lost"
"""How a test ends: as ginkgo says, or ``LOST`` when its process ended before it did."""


@dataclass(frozen=True, slots=True)
class Spec:
    """One test in one run.

    Attributes:
        name: in full, as ginkgo focuses on it.
        state: "passed", "skipped", "failed" or another word of ginkgo's, or ``LOST``.
        seconds: how long it took.
        message: why it failed or skipped itself.
    """

    name: str
    state: str
    seconds: float = 0.0
    message: str = ""

    @property
    def feature(self) -> str:
        """What the suite calls the group of tests, as "volume-expand"."""
        match = _NAME.search(self.name)
        return match["feature"] if match else "(no pattern)"

    @property
    def pattern(self) -> str:
        """Which kind of volume, as "Dynamic PV (default fs)"."""
        match = _NAME.search(self.name)
        return match["pattern"].strip() if match else ""

    @property
    def title(self) -> str:
        """The name for a reader: without the driver and without tags."""
        match = _NAME.search(self.name)
        if match is None:
            return self.name
        what = _TAGS.sub("", match["what"]).strip()
        return f"{self.feature}: {what} ({self.pattern})"


@dataclass(slots=True)
class Outcome:
    """What is known of one run of the test binary.

    Attributes:
        selected: how many tests it was to run; None if it never got so far.
        tests: those that began, by name; what began and did not end is ``LOST``.
    """

    selected: int | None = None
    tests: dict[str, Spec] = field(default_factory=dict)

    @property
    def missing(self) -> int:
        """How many of the selected tests never began."""
        return max((self.selected or 0) - len(self.tests), 0)


def parse(lines: Iterable[str]) -> Outcome:
    """Read a file of results, also of a run that was killed in the middle of a line."""
    outcome = Outcome()
    for text in lines:
        try:
            line = json.loads(text)
        except ValueError:
            continue  # the last one, of a process that was killed
        match line["event"]:
            case "selected":
                outcome.selected = line.get("count", 0)
            case "began":
                outcome.tests.setdefault(line["name"], Spec(line["name"], LOST))
            case "ended":
                outcome.tests[line["name"]] = Spec(
                    line["name"],
                    line["state"],
                    line.get("seconds", 0.0),
                    line.get("message", ""),
                )
    return outcome
