"""Which worker process of ``make test`` runs which file next.

Tests of the control plane mostly wait, all others mostly compute: so one worker has the others, and
together they keep the cores busy. Of the control plane's files the longest come first, so that no
worker is left with one of them when the rest have ended.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

CLUSTER = "tests/cluster/"
COMPUTES = "gw0"
"""The worker that begins with the tests without a control plane."""

LONGEST = (
    *("test_conformance", "test_crash_walk", "test_broken_clusters", "test_move_walk"),
    *("test_installed", "test_move_edges", "test_real_node_moves", "test_real_node_copies"),
    *("test_real_node_ends", "test_real_node_cycles", "test_monitoring", "test_dead_node"),
    *("test_outages", "test_leases", "test_ec2_says_no", "test_real_node_orphans"),
    *("test_real_node_up", "test_real_node_services", "test_chart", "test_real_node_demo"),
    *("test_orphans_faults", "test_adoption_halfway", "test_kill", "test_webhook_outages"),
    *("test_e2e", "test_grow", "test_change_troubles", "test_snapshots", "test_ebs_doctor"),
    *("test_real_node_stories", "test_initialize_nodes", "test_real_node_refusals"),
    *("test_after_stock", "test_modification_limits", "test_adoption", "test_demo_rights"),
    *("test_up",),
)
"""Files that take 40 s and longer, by what they took in whole runs of 2026-11-23.

The crash walk and the cycles of real nodes compute for three quarters of their time (202 of 267 s, 65
of 90 s), most others wait (test_conformance computes for 44 of 183 s, test_dead_node for 17 of 128 s).
So the cycles come when the walk is over.
"""


def next_file(files: list[str], worker: str) -> str:
    """The file that a worker begins next, of those that nobody has begun."""
    kind = [file for file in files if file.startswith(CLUSTER) is not (worker == COMPUTES)]
    return min(kind or files, key=_rank)


def _rank(file: str) -> int:
    stem = file.removeprefix(CLUSTER).removesuffix(".py")
    return LONGEST.index(stem) if stem in LONGEST else len(LONGEST)


class Scheduling(LoadFileScheduling):
    """One file after the other to each worker, as ``next_file`` says."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        file = next_file(list(self.workqueue), node.gateway.id)
        self.workqueue.move_to_end(file, last=False)
        super()._assign_work_unit(node)


def scheduler(config: pytest.Config, log: Any) -> Scheduling | None:
    """That of a run by files; None leaves the choice to xdist."""
    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


def timeline(reports: Iterable[pytest.TestReport], files: int = 25) -> Iterator[str]:
    """How long the longest files took, from first to last test, and when each worker had ended.

    It is what ``LONGEST`` is corrected by. Empty for a run in one process.
    """
    spans: dict[tuple[str, str], tuple[float, float]] = {}
    for each in reports:
        # That of a worker which died has no start.
        if hasattr(each, "node") and each.start:
            key = each.nodeid.partition("::")[0], each.node.gateway.id
            start, stop = spans.get(key, (each.start, each.stop))
            spans[key] = min(start, each.start), max(stop, each.stop)
    if not spans:
        return
    began = min(start for start, _ in spans.values())
    ends: dict[str, float] = {}
    for (_, worker), (_, stop) in spans.items():
        ends[worker] = max(ends.get(worker, 0.0), stop - began)
    by_length = sorted(spans.items(), key=lambda item: item[1][0] - item[1][1])
    for (file, worker), (start, stop) in by_length[:files]:
        yield f"{stop - start:6.1f} s from {start - began:6.1f} s on {worker}: {file}"
    yield "ended after " + ", ".join(f"{ends[each]:.0f} s {each}" for each in sorted(ends))
