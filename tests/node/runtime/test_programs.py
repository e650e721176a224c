"""Programs run to their end, whoever waits; real processes throughout."""

import asyncio
import errno
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from provisioner.model.errors import NodeError, Reason
from provisioner.node.runtime.operations import Operations
from provisioner.node.runtime.programs import PATH, Programs, check_kernel

pytestmark = pytest.mark.usefixtures("no_leaked_tasks")
SHELL = "/bin/sh"


@pytest.fixture
async def programs(tmp_path):
    found = Programs(f"{tmp_path}:{PATH}")
    yield found
    await asyncio.wait_for(found.idle(), 30)


@pytest.fixture
def gate(tmp_path):
    """A fifo that a program waits at until the test writes to it."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


def fake(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!{SHELL}\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


async def test_tells_how_it_ended_and_what_it_said(programs):
    result = await programs.run("sh", "-c", "echo out; echo err >&2; exit 3", why="to try")

    assert (result.exit_code, result.stdout, result.stderr) == (3, "out\n", "err\n")
    assert (result.ending, result.summary) == ("exit code 3", "err")


async def test_tells_the_signal_that_ended_it(programs):
    result = await programs.run("sh", "-c", "kill -TERM $$", why="to try")

    assert (result.exit_code, result.ending, result.summary) == (
        -signal.SIGTERM,
        "ended by SIGTERM",
        "no output",
    )


async def test_keeps_the_beginning_and_the_end_of_a_flood(programs):
    result = await programs.run(
        "sh", "-c", "echo begin; head -c 9000000 /dev/zero | tr '\\0' x; echo end", why="to try"
    )

    assert result.stdout.startswith("begin\nxxx")
    assert "x\n[...]\nx" in result.stdout
    assert result.stdout.endswith("xxxend\n")
    assert len(result.stdout) < 70_000
    assert len(result.summary) <= 402


async def test_output_that_is_no_text_is_no_failure(programs):
    result = await programs.run("sh", "-c", "printf '\\377\\376'", why="to try")

    assert result.stdout == "\ufffd\ufffd"


async def test_a_child_that_keeps_the_pipe_is_not_waited_for(programs, gate):
    result = await programs.run("sh", "-c", f"cat {gate} & echo done", why="to try")
    with gate.open("w"):
        pass

    assert (result.exit_code, result.stdout) == (0, "done\n")


async def test_a_missing_program_is_told_with_its_package(tmp_path):
    with pytest.raises(NodeError) as missing:
        await Programs(str(tmp_path)).run("mkfs.xfs", "-f", why="to format")

    assert missing.value.reason is Reason.PROGRAM_MISSING
    assert missing.value.message == (
        f"program mkfs.xfs is not installed (not found in {tmp_path}); install the package xfsprogs"
    )


async def test_a_program_that_cannot_be_started_is_told(tmp_path):
    fake(tmp_path, "mkfs.ext4", "exit 0")
    (tmp_path / "mkfs.ext4").write_text("#!/no/such/shell\n")

    with pytest.raises(NodeError, match=r"mkfs\.ext4 cannot be started: No such file") as missing:
        await Programs(str(tmp_path)).run("mkfs.ext4", why="to format")

    assert missing.value.reason is Reason.PROGRAM_MISSING


async def test_knows_what_runs(programs, gate):
    run = asyncio.ensure_future(programs.run("cat", gate, why="to read the gate"))
    await asyncio.sleep(0)
    (running,) = programs.running()
    assert (running.name, running.why, running.lasting_s < 30) == ("cat", "to read the gate", True)

    gate.write_text("open")
    result = await run

    assert (result.stdout, programs.running()) == ("open", ())


def is_collected(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


async def test_goes_on_when_its_waiter_leaves(programs, gate, tmp_path):
    fake(tmp_path, "mkfs.ext4", f"cat {gate}; touch {tmp_path}/done")
    run = asyncio.ensure_future(programs.run("mkfs.ext4", why="to format"))
    await asyncio.sleep(0)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run

    (running,) = programs.running()
    assert running.name == "mkfs.ext4"
    with gate.open("w"):
        pass
    await programs.idle()

    assert (tmp_path / "done").exists()
    assert is_collected(running.pid)  # no zombie is left


async def test_an_operation_left_in_a_program_is_joined_by_the_retry(programs, gate, tmp_path):
    """The deadline of a request passes while mkfs hangs: mkfs goes on, the retry joins it."""
    fake(tmp_path, "mkfs.ext4", f"echo run >> {tmp_path}/runs; cat {gate}")
    operations = Operations()

    async def stage() -> str:
        await programs.run("mkfs.ext4", why="to format /dev/nvme1n1")
        await asyncio.sleep(0)
        return "staged"

    def ask(key: str) -> "asyncio.Task[str]":
        return asyncio.ensure_future(operations.run("vol-1", key, stage, what=f"The {key}"))

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(ask("stage"), 0.1)
    with pytest.raises(NodeError, match=r"now: mkfs\.ext4 to format /dev/nvme1n1"):
        await ask("unstage")
    retry = ask("stage")
    await asyncio.sleep(0)
    with gate.open("w"):
        pass

    assert await retry == "staged"
    assert (tmp_path / "runs").read_text() == "run\n"


async def test_an_operation_left_for_good_ends_after_its_program(programs, gate):
    operations = Operations()
    steps: list[str] = []

    async def stage() -> None:
        await programs.run("cat", gate, why="to format")
        await asyncio.sleep(0)
        steps.append("mounted though nobody asked any more")

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(operations.run("vol-1", "stage", stage, what="It"), 0.05)
    assert len(operations) == 1
    with gate.open("w"):
        pass
    await programs.idle()
    for _ in range(5):
        await asyncio.sleep(0)

    assert len(operations) == 0
    assert steps == []


async def test_an_operation_left_in_a_program_starts_no_other(programs, gate, tmp_path):
    """Not even if there is no await between the two, where a cancelling could arrive."""
    fake(tmp_path, "mkfs.ext4", f"touch {tmp_path}/formatted")
    operations = Operations()

    async def stage() -> None:
        await programs.run("cat", gate, why="to look")
        await programs.run("mkfs.ext4", why="to format")

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(operations.run("vol-1", "stage", stage, what="It"), 0.05)
    with gate.open("w"):
        pass
    await programs.idle()
    for _ in range(5):
        await asyncio.sleep(0)

    assert len(operations) == 0
    assert programs.running() == ()
    assert not (tmp_path / "formatted").exists()


def test_survives_the_end_of_this_process_and_its_broken_pipe(tmp_path):
    """The plugin is killed: mkfs, which still has something to say, does its work to the end."""
    gate, done = tmp_path / "gate", tmp_path / "done"
    os.mkfifo(gate)
    os.mkfifo(done)
    script = (
        "import asyncio, sys\n"
        "from provisioner.node.runtime.programs import Programs\n"
        "async def main():\n"
        "    run = asyncio.ensure_future(Programs().run('sh', '-c', sys.argv[1], why='to try'))\n"
        "    await asyncio.sleep(0)\n"
        "    print('running', flush=True)\n"
        "    await run\n"
        "asyncio.run(main())\n"
    )
    work = f"cat {gate}; echo into a broken pipe; echo alive > {done}"
    with subprocess.Popen(
        [sys.executable, "-c", script, work], stdout=subprocess.PIPE, text=True, cwd=Path.cwd()
    ) as plugin:
        assert plugin.stdout is not None
        assert plugin.stdout.readline() == "running\n"
        os.killpg(os.getpgid(plugin.pid), 0)
        plugin.kill()
        plugin.wait(30)
    gate.write_text("")

    assert done.read_text() == "alive\n"


def test_is_not_killed_when_the_event_loop_ends(tmp_path):
    """asyncio's own subprocesses are, with their transport."""
    gate, done = tmp_path / "gate", tmp_path / "done"
    os.mkfifo(gate)
    os.mkfifo(done)
    script = (
        "import asyncio, sys\n"
        "from provisioner.node.runtime.programs import Programs\n"
        "async def main():\n"
        "    run = asyncio.ensure_future(Programs().run('sh', '-c', sys.argv[1], why='to try'))\n"
        "    await asyncio.sleep(0)\n"
        "    run.cancel()\n"
        "asyncio.run(main())\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script, f"cat {gate}; echo alive > {done}"],
        timeout=60,
        check=True,
        capture_output=True,
        text=True,
    )
    gate.write_text("")

    assert (done.read_text(), ended.stderr) == ("alive\n", "")


def test_a_kernel_that_tells_of_no_programs_end_is_named_at_the_start(monkeypatch):
    check_kernel()

    def refused(_: int) -> int:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(os, "pidfd_open", refused)

    with pytest.raises(NodeError, match=r"pidfd_open fails .*: the node plugin needs Linux 5\.3"):
        check_kernel()
