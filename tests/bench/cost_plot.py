"""The plot of what a cluster costs by its size: points, and the fitted line."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
from matplotlib import pyplot as plt

_COLOUR = "tab:blue"


@dataclass(frozen=True, slots=True)
class Panel:
    """One measure: what was measured at each size, and what the line says of any."""

    title: str
    points: Sequence[tuple[int, float | None]]
    line: Callable[[int], float] | None


def draw(panels: Sequence[Panel], path: Path) -> None:
    """Write one panel a measure, as PNG; a size is a power of ten, so its axis is logarithmic."""
    figure, axes = plt.subplots(1, len(panels), figsize=(17, 3.6), constrained_layout=True)
    for panel, axis in zip(panels, np.atleast_1d(axes), strict=True):
        known = [(x, y) for x, y in panel.points if y is not None]
        axis.plot(
            [x for x, _ in known], [y for _, y in known], "o", color=_COLOUR, label="measured"
        )
        if panel.line is not None:
            sizes = np.geomspace(min(x for x, _ in known), max(x for x, _ in known), 50)
            fitted = [panel.line(int(x)) for x in sizes]
            axis.plot(sizes, fitted, "-", color="tab:gray", label="fitted")
        axis.set_title(panel.title, fontsize=10)
        axis.set_xlabel("volumes")
        axis.set_xscale("log")
        axis.set_xticks([x for x, _ in panel.points], [f"{x:,}" for x, _ in panel.points])
        axis.minorticks_off()
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)
