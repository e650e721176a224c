"""What the bench's table says about figures that are given to it."""

from __future__ import annotations

import pytest

from tests.bench import modify, report
from tests.bench.hands import BenchError
from tests.bench.memory import Memory
from tests.bench.modify import SNAPSHOT_S, Modified
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


def test_modifications_are_told_beside_their_floor_and_snapshots_by_the_latest() -> None:
    grown = Phase("grown", 300, seconds=52.5, calls={"ModifyVolume": 301, "DescribeVolumes": 70})
    taken = Phase("taken", 3, seconds=20.0, calls={"CreateSnapshot": 3, "DescribeSnapshots": 10})
    modified = Modified(grown, 50.0, taken, (0.4, 0.9, 0.2))

    text = report.markdown(Results("a machine", 100, modified=modified))

    assert "**301 ModifyVolume calls, 0 of them throttled** (exactly 300)" in text
    assert "**52.5 s**, 1.050 x the bucket's floor of 50 s" in text
    assert "1.33 describes a second" in text
    assert "median 0.40 s, at most **0.90 s**" in text


def test_a_snapshot_is_late_from_when_ec2_has_completed_it() -> None:
    volumes = {"content-a": "vol-1", "content-b": "vol-2"}
    ready_s = {"content-a": 5.5 + SNAPSHOT_S, "content-b": 8.0 + SNAPSHOT_S}

    assert modify.lateness(ready_s, volumes, {"vol-1": 5.0, "vol-2": 7.0}) == (0.5, 1.0)
    with pytest.raises(BenchError, match="before EC2 said so"):
        modify.lateness(ready_s, volumes, {"vol-1": 5.0, "vol-2": 9.0})
