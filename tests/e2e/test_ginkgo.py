"""A run of the test binary, with programs in its place that die, hang and leave children."""

import asyncio
import contextlib
import os
from pathlib import Path

import pytest

from tests.e2e import results
from tests.e2e.claims import Variation
from tests.e2e.ginkgo import Suite
from tests.e2e.results import LOST, PASSED
from tests.e2e.runs import Run

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a process namespace needs root")

SCRIPT = """#!/bin/sh
for each; do case "$each" in --results=*) results=${each#--results=};; esac; done
tell() { printf '%s\\n' "$1" >> "$results"; }
echo "$KUBE_SSH_KEY_PATH" "$@"
"""
TWO = 'tell \'{"event":"selected","count":2}\'\n'
BEGAN = 'tell \'{"event":"began","name":"slow"}\'\n'
PASSES = 'tell \'{"event":"ended","name":"quick","state":"passed","seconds":1}\'\n'
CHILD = "(setsid sleep 1000 & echo $! > /dev/null)\n"


class Programs:
    """A folder with a ginkgo and a test binary that are scripts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.suite = Suite(folder, folder / "kubeconfig", 3, folder / "runs")

    def write(self, name: str, *parts: str) -> None:
        path = self.folder / name
        path.write_text("".join((SCRIPT, *parts)))
        path.chmod(0o755)

    def sleeping(self) -> list[int]:
        """The processes that this test's scripts have left."""
        found = []
        for each in Path("/proc").glob("[0-9]*/environ"):
            try:
                if f"SUITE_TEST={self.folder}".encode() in each.read_bytes():
                    found.append(int(each.parent.name))
            except OSError:
                continue
        return [pid for pid in found if pid != os.getpid()]

    async def all_gone(self) -> bool:
        """Whether nothing of them is left; the kernel takes a moment for a namespace's last ones."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(30):
                while self.sleeping():  # noqa: ASYNC110 - of other processes
                    await asyncio.sleep(0.02)
        return not self.sleeping()


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    monkeypatch.setenv("SUITE_TEST", str(tmp_path))
    return Programs(tmp_path)


def a_run(timeout_s: float = 10.0) -> Run:
    return Run("plain", Variation.PLAIN, "focus", "skip", timeout_s=timeout_s)


async def test_a_run_is_what_its_tests_have_written(programs: Programs):
    programs.write("ginkgo", TWO, BEGAN, PASSES, "sleep 1.2\n", PASSES.replace("quick", "slow"))
    told: list[str] = []

    ran = await programs.suite.run(a_run(), lambda test: told.append(test.name))

    assert {each.name: each.state for each in ran.outcome.tests.values()} == {
        "slow": PASSED,
        "quick": PASSED,
    }
    assert (ran.trouble, ran.outcome.missing) == ("", 0)
    assert told[0] == "quick"
    log = (programs.folder / "runs/plain/log").read_text()
    assert "--procs=8" in log
    assert "--focus=focus --skip=skip" in log
    assert log.startswith("/nowhere ")


async def test_an_earlier_result_does_not_count(programs: Programs):
    programs.write("ginkgo", TWO, PASSES, PASSES.replace("quick", "other"))
    await programs.suite.run(a_run(), lambda _: None)
    programs.write("ginkgo", TWO)

    ran = await programs.suite.run(a_run(), lambda _: None)

    assert ran.outcome.missing == 2


async def test_a_process_that_dies_loses_only_the_test_that_it_ran(programs: Programs):
    programs.write("ginkgo", TWO, BEGAN, PASSES, "kill -9 $$\n")

    ran = await programs.suite.run(a_run(), lambda _: None)

    assert ran.outcome.tests["quick"].state == PASSED
    assert ran.outcome.tests["slow"].state == LOST


async def test_a_run_that_hangs_is_ended_and_says_so(
    programs: Programs, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tests.e2e.ginkgo._GRACE_S", 0.3)
    programs.write("ginkgo", TWO, BEGAN, CHILD, "sleep 1000\n")

    ran = await programs.suite.run(a_run(timeout_s=2.5), lambda _: None)

    assert "it hung" in ran.trouble
    assert ran.outcome.tests["slow"].state == LOST
    assert await programs.all_gone()


async def test_nothing_outlives_a_run_that_is_cancelled(programs: Programs):
    programs.write("ginkgo", TWO, CHILD, "touch $SUITE_TEST/began\nsleep 1000\n")
    work = asyncio.create_task(programs.suite.run(a_run(), lambda _: None))
    async with asyncio.timeout(10):
        while not (programs.folder / "began").exists():  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.02)
    assert len(programs.sleeping()) >= 2

    work.cancel()
    await asyncio.wait({work})

    assert work.cancelled()
    assert await programs.all_gone()


async def test_a_failure_that_no_test_tells_is_a_trouble(programs: Programs):
    programs.write("ginkgo", TWO, PASSES, PASSES.replace("quick", "other"), "exit 3\n")

    ran = await programs.suite.run(a_run(), lambda _: None)

    assert "status 3" in ran.trouble


async def test_the_names_of_tests_come_from_a_dry_run(programs: Programs):
    programs.write("e2e-storage.test", TWO, PASSES)

    assert await programs.suite.names(a_run()) == ["quick"]
    log = (programs.folder / "runs/plain-names/log").read_text()
    assert "--ginkgo.dry-run --ginkgo.focus=focus --ginkgo.skip=skip" in log


async def test_the_images_are_those_that_the_binary_lists(programs: Programs):
    path = programs.folder / "e2e-storage.test"
    path.write_text("#!/bin/sh\necho a/b:1\necho c:2\n")
    path.chmod(0o755)

    assert [each for each in await programs.suite.images() if each] == ["a/b:1", "c:2"]


def test_the_states_are_ginkgos_words():
    assert (results.PASSED, results.SKIPPED) == ("passed", "skipped")
