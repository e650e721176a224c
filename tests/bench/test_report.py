"""What the bench's table says about figures that are given to it."""

from __future__ import annotations

from tests.bench import report
from tests.bench.memory import Memory
from tests.bench.phases import NAMES, Phase
from tests.bench.report import Results
from tests.bench.world import OURS


def test_describes_of_every_kind_count_towards_the_busiest_phase() -> None:
    phases = [Phase(name, 100, seconds=10.0) for name in NAMES]
    phases[0].calls = {"CreateVolume": 100, "DescribeVolumes": 4}
    phases[1].calls = {"AttachVolume": 100, "DescribeVolumes": 5, "DescribeInstances": 2}

    text = report.markdown(Results("a machine", 100, {OURS.name: [phases]}))

    [row] = [line for line in text.splitlines() if line.startswith(f"| {OURS.name} | 1.000")]
    assert row.endswith("| 0.70 |")


def test_the_memory_of_all_is_told_at_its_peak_too() -> None:
    memory = Memory(5000, 75.0, 80.0, 1.0, 94.0, 131.4, 1.3)

    text = report.markdown(Results("a machine", 100, memory=memory))

    assert "94 MiB in all, 131 MiB at the peak (at most 140)" in text
