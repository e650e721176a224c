"""The plot: seconds of each phase against N, ours beside the floor."""

from collections.abc import Mapping
from pathlib import Path

import matplotlib as mpl

from tests.bench.phases import NAMES, Phase
from tests.bench.world import NULL, OURS

mpl.use("Agg")
from matplotlib import pyplot as plt

_STYLES = {OURS.name: ("tab:blue", "-o"), NULL.name: ("tab:gray", "--s")}


def draw(scale: Mapping[int, Mapping[str, list[Phase]]], path: Path) -> None:
    """Write one panel a phase, and one for CPU, as PNG."""
    figure, panels = plt.subplots(1, len(NAMES) + 1, figsize=(17, 3.6), constrained_layout=True)
    every = sorted(scale)
    for name, (colour, style) in _STYLES.items():
        counts = [count for count in every if name in scale[count]]
        for number, panel in enumerate(panels[:-1]):
            seconds = [scale[count][name][number].seconds for count in counts]
            panel.plot(counts, seconds, style, color=colour, label=name)
        cpu_ms = [
            sum(p.cpu_s["contestant"] for p in scale[count][name]) / count * 1000
            for count in counts
        ]
        panels[-1].plot(counts, cpu_ms, style, color=colour, label=name)
    for panel, title in zip(panels, (*NAMES, "CPU of the process, all phases"), strict=True):
        panel.set_title(title, fontsize=10)
        panel.set_xlabel("objects")
        panel.set_xscale("log")
        panel.set_xticks(every, [f"{count:,}" for count in every])
        panel.minorticks_off()
        panel.grid(alpha=0.3)
    for panel in panels[:-1]:
        panel.set_yscale("log")  # what grows with N is then a straight line
    panels[-1].set_ylim(bottom=0)
    panels[0].set_ylabel("seconds")
    panels[-1].set_ylabel("ms per object")
    panels[0].legend()
    figure.savefig(path, dpi=110)
    plt.close(figure)
