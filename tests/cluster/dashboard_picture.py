"""Draws the dashboard's panels with matplotlib, from what Prometheus answers: it is not Grafana.

    EBS_PROVISIONER_DASHBOARD_PICTURE=docs/dashboard.png pytest tests/cluster/test_monitoring.py

writes it, from the sandbox in which that test makes all faults.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

from tests.cluster.dashboard import PANELS, Json, filled_in
from tests.cluster.prometheus import Prometheus

mpl.use("Agg")
from matplotlib import pyplot as plt
from PIL import Image

VARIABLE = "EBS_PROVISIONER_DASHBOARD_PICTURE"

Lines = list[tuple[str, list[float], list[float]]]

PAST_S = 100.0
WINDOW = "15s"
COLUMNS = 3
MOST_NAMED = 6
COLOURS = 64  # a third of the bytes


async def answers(prometheus: Prometheus) -> list[Lines]:
    """The lines of each panel, over the last minutes."""
    end_s = time.time()
    return [await _lines(prometheus, panel, end_s) for panel in _drawn()]


def draw(lines: Sequence[Lines], path: Path) -> None:
    """Write one plot a panel, as PNG."""
    rows = -(-len(lines) // COLUMNS)
    figure, plots = plt.subplots(
        rows, COLUMNS, figsize=(13, 2.1 * rows), constrained_layout=True, squeeze=False
    )
    for plot in plots.flat[len(lines) :]:
        plot.set_visible(False)
    for plot, panel, each in zip(plots.flat, _drawn(), lines, strict=False):
        for name, seconds, values in each:
            plot.plot(seconds, values, linewidth=1, label=name)
        plot.set_title(panel["title"], fontsize=9, loc="left")
        plot.tick_params(labelsize=6)
        plot.grid(alpha=0.3)
        if 0 < len(each) <= MOST_NAMED:
            plot.legend(fontsize=5, loc="upper left")
    figure.savefig(path, dpi=72)
    plt.close(figure)
    with Image.open(path) as drawn:
        drawn.convert("RGB").quantize(COLOURS).save(path, optimize=True)


def _drawn() -> list[Json]:
    return [panel for panel in PANELS if panel["type"] == "timeseries"]


def _named(legend: str, labels: dict[str, str]) -> str:
    return re.sub(r"{{(\w+)}}", lambda label: labels.get(label[1], ""), legend)


async def _lines(prometheus: Prometheus, panel: Json, end_s: float) -> Lines:
    found: Lines = []
    for target in panel["targets"]:
        answer = await prometheus.ask(
            "query_range",
            query=filled_in(target["expr"], WINDOW),
            start=str(end_s - PAST_S),
            end=str(end_s),
            step="1",
        )
        for series in answer["result"]:
            name = _named(target["legendFormat"], series["metric"])
            points = [(float(at) - end_s, float(value)) for at, value in series["values"]]
            found.append((name, [at for at, _ in points], [value for _, value in points]))
    return found
