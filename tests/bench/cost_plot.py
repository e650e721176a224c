"""The plot of what a cluster costs by its size: points, and the fitted lines."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
from matplotlib import pyplot as plt

_COLOURS = ("tab:blue", "tab:orange", "tab:green", "tab:red")


@dataclass(frozen=True, slots=True)
class Series:
    """One measure: what was measured at each size, and what the line says of any."""

    name: str
    points: Sequence[tuple[int, float]]
    line: Callable[[int], float] | None


@dataclass(frozen=True, slots=True)
class Panel:
    """Measures in one unit."""

    title: str
    series: Sequence[Series]


def draw(panels: Sequence[Panel], path: Path) -> None:
    """Write the panels side by side, as PNG; a straight line bends on an axis of powers of ten."""
    figure, axes = plt.subplots(1, len(panels), figsize=(17, 3.8), constrained_layout=True)
    sizes = sorted({x for panel in panels for each in panel.series for x, _ in each.points})
    for panel, axis in zip(panels, axes, strict=True):
        for each, colour in zip(panel.series, _COLOURS, strict=False):
            name = each.name if len(panel.series) > 1 else "measured"
            axis.plot([x for x, _ in each.points], [y for _, y in each.points], "o", color=colour)
            axis.plot([], [], "-o", color=colour, label=name)
            if each.line is not None:
                fine = np.geomspace(sizes[0], sizes[-1], 50)
                axis.plot(fine, [each.line(int(x)) for x in fine], "-", color=colour, alpha=0.6)
        axis.set_title(panel.title, fontsize=10)
        axis.set_xlabel("volumes")
        axis.set_xscale("log")
        axis.set_xticks(sizes, [f"{x // 1000:,} k" for x in sizes])
        axis.minorticks_off()
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)
