"""What a cluster of N volumes costs the controller and the webhook: fitted, as a table and a plot.

``python -m tests.bench --only scale --volumes N --out DIR`` leaves a file of each size in DIR;
``python -m tests.bench.cost DIR`` makes one table and one picture of all that are there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec
import numpy as np

from tests.bench import cost_plot
from tests.bench.scale_stage import Scaled

START, QUIET = "start until", "a quiet minute"
TAKE_OVER, DELETION = "take-over", "one claim deleted"
BURST, WEBHOOK = "claims on top", "a webhook replica"
_NOT_OURS = (WEBHOOK, "the same replica")
_ROUNDING = 1e-9  # of a fit, by its size


class Cost(msgspec.Struct, frozen=True):
    """One size.

    Attributes:
        volumes: how many stood, each with its claim; 0.6 of them attached, to a tenth as many nodes.
        measured_on: the day.
        rest_mib: resident at the end of the quiet minute.
        peak_mib: resident at most, in any stage of the controller but a burst.
        start_cpu_s: CPU from its start until the first new claim is Bound.
        minute_cpu_s: CPU of the quiet minute, with the nodes' heartbeats.
        minute_mib: received from the API server in it; None where ``ss`` could not tell.
        burst_mib: resident at most in a burst of claims on top; None where none was made.
        webhook_mib: resident, of a webhook that has all of it cached; None where none was started.
        start_s: from the controller's start until the first new claim is Bound.
        take_over_s: from the end of the leader until a standby's first new claim is Bound.
        deletion_s: from a claim's deletion until its volume is gone.
    """

    volumes: int
    measured_on: str
    rest_mib: float
    peak_mib: float
    start_cpu_s: float
    minute_cpu_s: float
    minute_mib: float | None = None
    burst_mib: float | None = None
    webhook_mib: float | None = None
    start_s: float | None = None
    take_over_s: float | None = None
    deletion_s: float | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """``fixed`` and ``per_volume``, and how far from it a size is at most.

    Attributes:
        off: as a share of what was measured.
        off_by: in the unit of the measure.
        is_small: whether all that was measured is less than 1, so that a share says little.
    """

    fixed: float
    per_volume: float
    off: float
    off_by: float = 0.0
    is_small: bool = False

    def at(self, volumes: int) -> float:
        """What it tells of a size."""
        return self.fixed + self.per_volume * volumes


MEASURES = {
    "rest_mib": "memory at rest, MiB",
    "peak_mib": "memory at most, MiB",
    "burst_mib": "memory at most, a burst of 1,000 claims on top, MiB",
    "start_s": "start until the first new claim is Bound, s",
    "take_over_s": "take-over by a warm standby until the first new claim is Bound, s",
    "deletion_s": "one claim deleted until its volume is gone, s",
    "start_cpu_s": "CPU to start, s",
    "minute_cpu_s": "CPU of a quiet minute, s",
    "minute_mib": "received in a quiet minute, MiB",
    "webhook_mib": "memory of a webhook, MiB",
}


def of(found: Scaled) -> Cost:
    """What a run came to.

    Raises:
        StopIteration: it has no quiet minute, or no start.
    """
    ours = [each for each in found.stages if not each.name.startswith(_NOT_OURS)]
    webhook = next((each for each in found.stages if each.name.startswith(WEBHOOK)), None)
    burst = next((each for each in ours if BURST in each.name), None)
    seconds = {
        what: next((each.seconds for each in ours if each.name.startswith(what)), None)
        for what in (TAKE_OVER, DELETION)
    }
    start = next(each for each in ours if each.name.startswith(START))
    quiet = next(each for each in ours if each.name == QUIET)
    return Cost(
        volumes=found.there.volumes,
        measured_on=datetime.now(UTC).date().isoformat(),
        rest_mib=quiet.rest_mib,
        peak_mib=max(each.peak_mib for each in ours if each is not burst),
        start_cpu_s=start.cpu_s,
        minute_cpu_s=quiet.cpu_s,
        minute_mib=quiet.received_mib,
        burst_mib=burst.peak_mib if burst else None,
        webhook_mib=webhook.rest_mib if webhook else None,
        start_s=start.seconds,
        take_over_s=seconds[TAKE_OVER],
        deletion_s=seconds[DELETION],
    )


def save(found: Scaled, folder: Path) -> None:
    """Leave it where ``read`` finds it."""
    path = folder / f"scale-{found.there.volumes}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(of(found))))


def read(folder: Path) -> list[Cost]:
    """All sizes, the smallest first."""
    files = folder.glob("scale-*.json")
    found = [msgspec.json.decode(each.read_bytes(), type=Cost) for each in files]
    return sorted(found, key=lambda each: each.volumes)


def fit(costs: Sequence[Cost], measure: str) -> Line | None:
    """A straight line from which no size is far off by its own measure; None with less than two.

    Squares of relative distances are least, or the largest size alone would place the line.
    """
    points = [(c.volumes, y) for c in costs if (y := getattr(c, measure)) is not None and y > 0]
    if len({volumes for volumes, _ in points}) < 2:
        return None
    x, y = np.array(points, dtype=float).T
    per_volume, fixed = np.polyfit(x, y, 1, w=1 / y)
    if abs(per_volume) * x.max() < _ROUNDING * y.max():
        per_volume = 0.0  # of what costs the same at each size, else of either sign
    off_by = np.abs(fixed + per_volume * x - y)
    off = float(np.max(off_by / y)), float(np.max(off_by))
    return Line(float(fixed), float(per_volume), *off, is_small=bool(y.max() < 1))


def markdown(costs: Sequence[Cost]) -> str:
    """A row for each measure: its sizes, and the line."""
    sizes = [f"{each.volumes:,}" for each in costs]
    head = ["what", *sizes, "fitted", "off the line, at most"]
    lines = [head, ["---", *["--:"] * (len(head) - 1)]]
    for measure, name in MEASURES.items():
        told = [_number(getattr(each, measure)) for each in costs]
        line = fit(costs, measure)
        fitted = ("", "") if line is None else (_formula(line), _off(line, name))
        lines.append([name, *told, *fitted])
    lines.append(["measured on", *(each.measured_on for each in costs), "", ""])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def _off(line: Line, name: str) -> str:
    if line.is_small:
        return f"{line.off_by:.2f} {name.rpartition(', ')[2]}"
    return f"{line.off:.0%}"


def _formula(line: Line) -> str:
    sign = "-" if line.per_volume < 0 else "+"
    each_1000 = abs(line.per_volume) * 1000
    return f"{_two_digits(line.fixed)} {sign} {_two_digits(each_1000)} for 1,000 volumes"


def _two_digits(value: float) -> str:
    return f"{float(f'{value:.2g}'):g}"


def _series(costs: Sequence[Cost], measure: str) -> cost_plot.Series:
    points = [(c.volumes, y) for c in costs if (y := getattr(c, measure)) is not None]
    line = fit(costs, measure)
    return cost_plot.Series(MEASURES[measure], points, None if line is None else line.at)


@click.command(help=__doc__)
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.option("--image", type=Path, help="FOLDER/scale.png without.")
def main(*, folder: Path, image: Path | None) -> None:
    """Make the table and the plot."""
    costs = read(folder)
    series = {measure: _series(costs, measure) for measure in MEASURES}
    memory = [each for measure, each in series.items() if measure.endswith("_mib")]
    received = series["minute_mib"]
    panels = [cost_plot.Panel("memory, MiB", [each for each in memory if each is not received])]
    others = (series["start_cpu_s"], series["minute_cpu_s"], received)
    panels += [cost_plot.Panel(each.name, [each]) for each in others]
    cost_plot.draw(panels, image or folder / "scale.png")
    click.echo(markdown(costs))


if __name__ == "__main__":
    main()
