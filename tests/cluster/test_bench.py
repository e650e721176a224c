from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from tests.cluster.replicas import eventually

ROOT = Path(__file__).parents[2]


def files_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def test_a_bench_that_is_asked_to_end_leaves_no_file(tmp_path: Path):
    bench = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.bench", "--only", "quota", "--out", str(tmp_path / "out")),
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        await eventually("it measures", lambda: list(tmp_path.glob("**/kube-scheduler.log")))
        bench.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            _, errors = await bench.communicate()
    finally:
        if bench.returncode is None:
            bench.kill()
            await bench.communicate()

    assert bench.returncode == 128 + signal.SIGTERM, errors.decode()
    assert b"Traceback" not in errors
    assert files_in(tmp_path) == []
