from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from provisioner.sandbox.control_plane import until
from provisioner.sandbox.crew import Crew
from provisioner.sandbox.errors import SandboxError

SLEEP = ["sleep", "60"]


def is_alive(pid: int) -> bool:
    """A zombie is as dead as a process gets while its new parent looks away."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


async def until_dead(pid: int) -> None:
    async def dead() -> bool:
        return not is_alive(pid)

    async with asyncio.timeout(10):
        await until(dead)


async def test_leaving_the_block_ends_every_part(tmp_path: Path) -> None:
    async with Crew(tmp_path) as crew:
        parts = [await crew.start(name, SLEEP) for name in "ab"]
        assert all(is_alive(part.process.pid) for part in parts)

    assert not any(is_alive(part.process.pid) for part in parts)


async def test_the_part_that_died_is_named_with_the_end_of_its_log(tmp_path: Path) -> None:
    async with Crew(tmp_path) as crew:
        await crew.start("well", SLEEP)
        await crew.start("ill", ["sh", "-c", "echo my last words; exit 3"])
        failure = await asyncio.wait_for(crew.failed(), 10)

    assert str(failure) == "ill ended with exit status 3; the end of its log:\n  my last words"


async def test_a_part_that_dies_ends_whatever_is_waited_for(tmp_path: Path) -> None:
    async with Crew(tmp_path) as crew:
        part = await crew.start("api", SLEEP)
        waiting = asyncio.create_task(
            crew.unless_failed(asyncio.Event().wait(), 10, "the start of the API server")
        )
        part.process.kill()

        with pytest.raises(SandboxError, match="api ended by signal 9"):
            await waiting


async def test_a_wait_that_takes_too_long_says_for_what(tmp_path: Path) -> None:
    async with Crew(tmp_path) as crew:
        with pytest.raises(SandboxError, match=r"tea took more than 0\.01 s"):
            await crew.unless_failed(asyncio.Event().wait(), 0.01, "tea")


async def test_what_the_work_raises_reaches_the_one_who_waits(tmp_path: Path) -> None:
    async def work() -> None:
        raise ValueError("x")

    async with Crew(tmp_path) as crew:
        with pytest.raises(ValueError, match="x"):
            await crew.unless_failed(work(), 1, "work")


async def test_a_part_that_was_told_to_stop_is_no_failure(tmp_path: Path) -> None:
    async with Crew(tmp_path) as crew:
        part = await crew.start("api", SLEEP)
        await crew.stop("api")
        assert not is_alive(part.process.pid)

        await crew.start("api", SLEEP)
        crew.check()


async def test_a_part_with_grace_may_end_by_itself(tmp_path: Path) -> None:
    async with Crew(tmp_path) as crew:
        script = "trap 'echo goodbye; exit' TERM; echo up; while :; do sleep 0.01; done"
        part = await crew.start("polite", ["sh", "-c", script])

        async def running() -> bool:
            return "up" in part.log.read_text()

        async with asyncio.timeout(10):
            await until(running)
        await crew.stop("polite", grace_s=10)

    assert part.log.read_text() == "up\ngoodbye\n"


async def test_a_program_that_is_not_there_is_a_failure_that_says_so(tmp_path: Path) -> None:
    async with Crew(tmp_path) as crew:
        await crew.start("nothing", ["/nonexistent/program"])
        failure = await asyncio.wait_for(crew.failed(), 10)

    assert "nothing ended" in str(failure)
    assert "No such file or directory" in str(failure)


OWNER = """
import asyncio, pathlib, sys
from provisioner.sandbox.crew import Crew
async def main():
    async with Crew(pathlib.Path(sys.argv[1])) as crew:
        part = await crew.start("child", ["sleep", "60"])
        print(part.process.pid, flush=True)
        await asyncio.sleep(60)
asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux does it")
async def test_parts_die_with_an_owner_that_is_killed(tmp_path: Path) -> None:
    owner = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", OWNER, str(tmp_path)),
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    assert owner.stdout is not None
    child = int(await owner.stdout.readline())
    owner.kill()
    await owner.communicate()

    await until_dead(child)
