"""Fifty cycles of attach, write and detach under SIGKILL of all that moves a volume."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from provisioner.node.formatting.rules import MARK_BYTES, is_mark_of, mark_offsets
from provisioner.sandbox.real_node.cycle_report import PARTS
from provisioner.sandbox.real_node.cycles import Cycles
from tests.cluster import epochs
from tests.cluster.background import Background

CYCLES = 50
VOLUMES = 10


def is_marked(content: Path, volume_id: str) -> bool:
    """Whether a volume bears the mark of a format that was begun."""
    with content.open("rb") as opened:
        size_bytes = opened.seek(0, os.SEEK_END)
        for offset in mark_offsets(size_bytes):
            opened.seek(offset)
            if is_mark_of(opened.read(MARK_BYTES), volume_id):
                return True
    return False


async def test_fifty_cycles_lose_no_byte_and_leave_nothing_whoever_is_killed(
    real: Background, capsys: pytest.CaptureFixture[str]
):
    sandbox, seed = real.sandbox, random.randrange(10**6)
    told: list[str] = [f"seed {seed}"]
    if sandbox.controller_kubeconfig is None:
        await real.call(sandbox.install_controller())
    await real.call(epochs.of_ours(sandbox.plane.api))
    await real.call(sandbox.start_controller())
    cycles = Cycles(sandbox, "cycles", seed, say=told.append, formatting=is_marked)
    try:
        report = await real.call(cycles.run(CYCLES, VOLUMES))
    finally:
        print(*told, sep="\n")  # noqa: T201 -- what led to it, beside a failure
    with capsys.disabled():
        print(f"\n{report}")  # noqa: T201 -- the numbers are what the issue asks for

    assert report.is_well, (report.formatted_anew, report.torn, report.left)
    assert report.cycles == CYCLES
    assert report.checked_bytes >= report.written_bytes > 50 * 2**20
    assert report.moves > 5
    # What the mark on a volume is for: the next one formats it, not a human.
    assert report.formats_ended > 0
    assert all(report.kills[part] >= 3 for part in PARTS), report
