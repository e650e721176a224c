"""Fifty cycles of attach, write and detach under SIGKILL of all that moves a volume."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from provisioner.sandbox.real_node.cycle_report import PARTS
from provisioner.sandbox.real_node.cycles import Cycles
from tests.cluster import real_pods, reigns
from tests.cluster.background import Background

CYCLES = 50
VOLUMES = 10


@pytest.fixture(scope="module")
def real() -> Iterator[Background]:
    yield from real_pods.background()


async def test_fifty_cycles_lose_no_byte_and_leave_nothing_whoever_is_killed(
    real: Background, capsys: pytest.CaptureFixture[str]
):
    sandbox, seed = real.sandbox, random.randrange(10**6)
    told: list[str] = [f"seed {seed}"]
    if sandbox.controller_kubeconfig is None:
        await real.call(sandbox.install_controller())
    await real.call(reigns.of_ours(sandbox.plane.api))
    await real.call(sandbox.start_controller())
    cycles = Cycles(sandbox, "cycles", seed, say=told.append)
    try:
        report = await real.call(cycles.run(CYCLES, VOLUMES))
    except BaseException:
        with capsys.disabled():
            print(*told, sep="\n")  # noqa: T201 -- what led to it
        raise
    with capsys.disabled():
        print(f"\n{report}")  # noqa: T201 -- the numbers are what the issue asks for

    assert report.is_well, (report.formatted_anew, report.torn, report.left)
    assert report.cycles == CYCLES
    assert report.checked_bytes >= report.written_bytes > 50 * 2**20
    assert report.moves > 5
    assert all(report.kills[part] >= 3 for part in PARTS), report
