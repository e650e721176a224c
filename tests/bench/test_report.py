"""What the bench's table says about figures that are given to it."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.bench import modify, report
from tests.bench.hands import BenchError
from tests.bench.looks import Window
from tests.bench.memory import Memory
from tests.bench.modify import MODIFY_S, Late, Modified
from tests.bench.phases import NAMES, Phase
from tests.bench.report import Results
from tests.bench.shared_account import Shared
from tests.bench.world import NULL, OURS, Contestant
from tests.bench.writes import Writes


def a_race(*found: Window) -> list[Phase]:
    run = [Phase(name, 100, seconds=10.0) for name in NAMES]
    for phase, each in zip(run, found, strict=False):
        phase.looks = each
    return run


def row_of_calls(who: Contestant, *found: Window) -> str:
    text = report.markdown(Results("a machine", 100, {who.name: [a_race(*found)]}))
    [row] = [line for line in text.splitlines() if line.startswith(f"| {who.name} | 0.000")]
    return row


def test_the_looks_most_above_their_limit_are_told_whatever_phase_they_are_of() -> None:
    many, over = Window(30, 33.0, 400), Window(25, 22.0, 1000)

    assert row_of_calls(OURS, many).endswith("| 30 (limit 33); 400 |")
    assert row_of_calls(OURS, many, over).endswith("| 25 (limit 22); 1,000, **missed** |")


def test_the_floor_has_no_limit_of_looks() -> None:
    assert row_of_calls(NULL, Window(40, 22.0, 1000)).endswith("| 40; 1,000 |")


def test_the_median_object_of_a_phase_is_told_beside_the_last() -> None:
    runs = [[Phase(name, 100, seconds=s, median_s=s / 4) for name in NAMES] for s in (8.0, 12.0)]

    text = report.markdown(Results("a machine", 100, {OURS.name: runs}))

    [row] = [line for line in text.splitlines() if line.startswith(f"| {NAMES[0]} | 10.0 s")]
    assert row.startswith(f"| {NAMES[0]} | 10.0 s |  |  | 2.5 s |  |")


def test_the_median_object_is_told_of_every_number_of_objects_for_ours_and_the_floor() -> None:
    def a_run(s: float) -> list[Phase]:
        return [Phase(n, 300, s, s / 4, cpu_s={"contestant": 3.0}) for n in NAMES]

    growth = {300: {OURS.name: a_run(12.0), NULL.name: a_run(8.0)}}

    text = report.markdown(Results("a machine", 100, growth=growth))

    assert f"| 300 | {OURS.name} | {'12.0, 3.0 | ' * 4}40.0 |" in text
    assert f"| 300 | {NULL.name} | {'8.0, 2.0 | ' * 4}40.0 |" in text


def test_the_memory_of_all_is_told_at_its_peak_too() -> None:
    memory = Memory(5000, 75.0, 80.0, 1.0, 94.0, 131.4, 1.3)

    text = report.markdown(Results("a machine", 100, memory=memory))

    assert "94 MiB in all, 131 MiB at the peak (at most 140)" in text


def test_modifications_are_told_beside_their_floor_and_snapshots_by_the_latest() -> None:
    grown = Phase("grown", 300, seconds=54.0, calls={"ModifyVolume": 303, "DescribeVolumes": 72})
    grown.throttled = {"ModifyVolume": 2}
    taken = Phase("taken", 3, seconds=20.0, calls={"CreateSnapshot": 4, "DescribeSnapshots": 10})
    taken.refused = {"CreateSnapshot": 1}
    late = (Late(0.4, 1), Late(1.9, 2), Late(0.2, 1))

    modified = Modified(grown, 50.0, taken, late)
    text = report.markdown(Results("a machine", 100, modified=modified))

    assert "**301 ModifyVolume** (exactly 300; 2 calls more throttled, 0 refused)" in text
    assert f"**54.0 s**, {54 / (50 + MODIFY_S):.3f} x the floor of {50 + MODIFY_S:.0f} s" in text
    assert "1.33 describes a second" in text
    assert "3 snapshots in 3 CreateSnapshot (0 calls more throttled, 1 refused)" in text
    assert "median 0.40 s, at most 1.90 s and **2 looks at it**" in text


def test_a_snapshot_is_late_from_when_ec2_has_completed_it() -> None:
    ready = {"snap-a": (15.0, 15.5), "snap-b": (17.0, 18.5)}
    both, a, b = {"snap-a", "snap-b"}, {"snap-a"}, {"snap-b"}

    late = modify.lateness(ready, [(14.9, both), (15.2, both), (17.1, b), (18.0, a), (18.2, both)])

    assert late == ((0.5, 1), (1.5, 2))
    with pytest.raises(BenchError, match="before EC2 said so"):
        modify.lateness({"snap-a": (16.0, 15.5)}, [])


def test_writes_are_told_if_they_were_measured() -> None:
    writes = Writes(2, {"bound": Counter({"create persistentvolumes": 2})})

    text = report.markdown(Results("a machine", 100, writes=writes))

    assert "| bound | create persistentvolumes | 1.00 |" in text


def test_each_phase_of_a_shared_account_tells_shares_and_throttled_calls() -> None:
    bound = Shared("Bound", "Create", 200, [110.0, 120.0], 100.0, [0.5, 0.5], 500, 5, 3, 800, 8)
    gone = Shared("gone", "Delete", 200, [60.0, 70.0], 50.0, [0.44, 0.56], 500, 5, 0, 600, 18)

    text = report.markdown(Results("a machine", 100, shared=[bound, gone]))

    assert "## 2 clusters in one account, 200 claims each" in text
    kept = "120.0 | 100.0 | 1.20 | 50, 50 | 500 Create, 5 | 800, 8 (1.00 %) | 3"
    assert f"| Bound | {kept} |" in text
    shares, calls = "44, 56, **missed**", "600, 18 (3.00 %), **missed**"
    assert f"| gone | 70.0 | 50.0 | 1.40 | {shares} | 500 Delete, 5 | {calls} | 0 |" in text
