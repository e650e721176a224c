"""Programs that are started again when they end."""

import asyncio
import sys
from pathlib import Path

from tests.bench.kwok.keeper import IN_A_HURRY, KUBELETS, Kept, Pauses


def test_a_kubelet_starts_a_container_again_at_once_and_then_ever_later():
    assert [KUBELETS.after(ends) for ends in (1, 2, 3, 7, 20)] == [0.0, 10.0, 20.0, 300.0, 300.0]
    assert [IN_A_HURRY.after(ends) for ends in (1, 9)] == [1.0, 20.0]


async def test_the_cpu_and_the_memory_of_all_lives_count(tmp_path: Path) -> None:
    code = "import time; time.sleep(0.05); sum(range(10**6)); print('done', flush=True)"
    argv = [sys.executable, "-c", code]
    kept = Kept("short", argv, {}, tmp_path, Pauses((0.0,), 60.0))

    async with kept.running(), asyncio.timeout(20.0):
        while kept.starts < 3:  # noqa: ASYNC110 -- processes
            await asyncio.sleep(0.01)

    assert kept.log.read_text().count("done") >= 2
    assert kept.peak_mib > 0.0


async def test_a_program_of_kubernetes_is_not_told_where_to_show_its_metrics(
    tmp_path: Path,
) -> None:
    argv = [sys.executable, "-c", "import sys; print(sys.argv[1:], flush=True)"]
    for name, is_ours in [("ours", True), ("theirs", False)]:
        kept = Kept(name, argv, {}, tmp_path, Pauses((60.0,), 60.0), is_ours=is_ours)
        async with kept.running(), asyncio.timeout(20.0):
            while not kept.log.exists() or not kept.log.read_text():  # noqa: ASYNC110 -- a process
                await asyncio.sleep(0.01)

    assert "--metrics-address" in (tmp_path / "ours.log").read_text()
    assert (tmp_path / "theirs.log").read_text() == "[]\n"
