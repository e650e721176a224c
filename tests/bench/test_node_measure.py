"""The node's bench itself: it says what it cannot measure, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from provisioner.sandbox.real_node import requirements
from tests.bench import node_measure
from tests.bench.node_numbers import Node
from tests.cluster.replicas import eventually
from tests.node import privileged

_ROOT = Path(__file__).parents[2]
_BACKING_FILES = "loop*/loop/backing_file"


async def test_what_a_machine_cannot_do_is_not_measured_and_has_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(privileged, "lacks", lambda: "no root")
    monkeypatch.setattr(requirements, "missing", lambda: "no containerd")

    found = await node_measure.measure(tmp_path)

    assert found == Node(None, "no root", (), "no containerd")


def disks_below(folder: Path) -> list[str]:
    """The files there that are loop devices now."""
    found = []
    for each in Path("/sys/block").glob(_BACKING_FILES):
        with contextlib.suppress(OSError):  # it went just now
            file = each.read_text().strip()
            found += [file] if str(folder) in file else []
    return found


def processes_in(folder: Path) -> list[str]:
    """Programs whose command line names the folder."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            line = each.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            found += [line] if str(folder) in line else []
    return found


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short one, for sockets."""
    with tempfile.TemporaryDirectory(prefix="nb-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def has_ended(bench: asyncio.subprocess.Process) -> bool:
    return bench.returncode is not None


@pytest.mark.skipif(privileged.lacks() != "", reason=privileged.lacks())
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_bench_that_is_ended_leaves_no_disk_and_no_process(
    folder: Path, number: signal.Signals
) -> None:
    # Not an option of the bench: a process whose command line names the folder is to be looked for.
    bench = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.bench", "--only", "node", "--out", "build/bench-ended"),
        cwd=_ROOT,
        env=os.environ | {"TMPDIR": str(folder)},
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        await eventually(
            "it measures", lambda: has_ended(bench) or len(disks_below(folder)) > 1, 60.0
        )
        assert not has_ended(bench)
        assert processes_in(folder)
        bench.send_signal(number)
        async with asyncio.timeout(20):
            code = await bench.wait()
    finally:
        if bench.returncode is None:
            bench.kill()
            await bench.wait()

    await eventually("its processes end", lambda: not processes_in(folder))
    await eventually("the kernel clears its disks", lambda: not disks_below(folder))
    if number is signal.SIGTERM:
        assert code == 128 + signal.SIGTERM
        assert not list(folder.iterdir())
