"""Runs of the test binary, in several processes, that nothing of outlives."""

import asyncio
import contextlib
import os
import shutil
import signal
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from provisioner.sandbox import processes
from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.programs import GINKGO, STORAGE_SUITE
from tests.e2e import claims, results
from tests.e2e.claims import Variation
from tests.e2e.results import Outcome, Spec
from tests.e2e.runs import Run
from tests.e2e.verdict import Ran

_GRACE_S = 60.0
"""What ginkgo gets to write its reports after its own timeout."""
_LOOK_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class Suite:
    """The test binary with its cluster.

    Attributes:
        binaries: the folder of the programs.
        kubeconfig: the administrator's.
        nodes: how many the cluster has.
        logs: where each run gets a folder.
        ssh_key: of root on the nodes, if they have an ssh server.
        network: what a command begins with that is to reach nodes.
    """

    binaries: Path
    kubeconfig: Path
    nodes: int
    logs: Path
    ssh_key: Path | None = None
    network: Sequence[str] = ()

    async def images(self) -> list[str]:
        """The names of all images that the suite knows.

        Raises:
            SandboxError: the binary does not run.
        """
        async with _running([str(self.binaries / STORAGE_SUITE), "--list-images"]) as process:
            output, _ = await process.communicate()
        if process.returncode:
            raise SandboxError(f"{STORAGE_SUITE} --list-images ended with {process.returncode}")
        return output.decode().split("\n")

    async def names(self, run: Run) -> list[str]:
        """The tests that a run selects.

        Raises:
            SandboxError: the binary does not run.
        """
        folder = self._folder(f"{run.name}-names")
        command = [
            str(self.binaries / STORAGE_SUITE),
            "--ginkgo.dry-run",
            *(f"--ginkgo.{each}" for each in _selection(run)),
            *self._arguments(run.variation, folder),
        ]
        async with _running(
            [*self.network, *command], folder / "log", self._environment()
        ) as process:
            status = await process.wait()
        if status:
            raise SandboxError(f"the tests cannot be listed; see {folder / 'log'}")
        return list(_read(folder).tests)

    async def run(self, run: Run, tell: Callable[[Spec], None]) -> Ran:
        """Run the tests that a run selects; what is known is known also if it has to be killed.

        Args:
            run: which tests.
            tell: is told each test that ends.
        """
        folder = self._folder(run.name)
        command = [
            str(self.binaries / GINKGO),
            "run",
            f"--procs={run.processes}",
            f"--timeout={run.timeout_s:.0f}s",
            "--no-color",
            "--poll-progress-after=120s",
            "--junit-report=junit.xml",
            f"--output-dir={folder}",
            *(f"--{each}" for each in _selection(run)),
            str(self.binaries / STORAGE_SUITE),
            "--",
            *self._arguments(run.variation, folder),
        ]
        began = time.monotonic()
        trouble = ""
        async with _running(
            [*self.network, *command], folder / "log", self._environment()
        ) as process:
            following = asyncio.create_task(_follow(folder, tell), name="follow the results")
            try:
                async with asyncio.timeout(run.timeout_s + _GRACE_S):
                    await process.wait()
            except TimeoutError:
                trouble = f"was ended after {run.timeout_s + _GRACE_S:.0f} s: it hung"
            finally:
                following.cancel()
                await asyncio.wait({following})
        outcome = _read(folder)
        if not trouble and process.returncode and _all_fine(outcome):
            trouble = f"ended with status {process.returncode}; see {folder / 'log'}"
        return Ran(run.name, outcome, time.monotonic() - began, trouble)

    def _folder(self, name: str) -> Path:
        folder = self.logs / name
        shutil.rmtree(folder, ignore_errors=True)  # an earlier result would count
        folder.mkdir(parents=True)
        return folder

    def _arguments(self, variation: Variation, folder: Path) -> list[str]:
        documents = {
            claims.STORAGE_CLASS: claims.storage_class(variation),
            claims.ATTRIBUTES_CLASS: claims.attributes_class(),
            claims.MANIFEST: claims.driver(variation, str(folder)),
        }
        for name, document in documents.items():
            (folder / name).write_text(yaml.safe_dump(document))
        return [
            f"--kubeconfig={self.kubeconfig}",
            f"--storage.testdriver={folder / claims.MANIFEST}",
            # Like skeleton a cluster of no provider; but there, 1.37's Disruptive tests are skipped.
            "--provider=local",
            f"--num-nodes={self.nodes}",
            f"--results={folder / 'results'}",
        ]

    def _environment(self) -> dict[str, str]:
        # Without a key the tests that need ssh skip themselves, whatever this user has in ~/.ssh.
        key = self.ssh_key or Path("/nowhere")
        return {**os.environ, "KUBE_SSH_KEY_PATH": str(key), "KUBE_SSH_USER": "root"}


def _selection(run: Run) -> Sequence[str]:
    return (f"focus={run.focus}", *([f"skip={run.skip}"] if run.skip else []))


def _all_fine(outcome: Outcome) -> bool:
    fine = (results.PASSED, results.SKIPPED)
    return not outcome.missing and all(each.state in fine for each in outcome.tests.values())


def _read(folder: Path) -> Outcome:
    with contextlib.suppress(FileNotFoundError):
        return results.parse((folder / "results").read_text().split("\n"))
    return Outcome()


async def _follow(folder: Path, tell: Callable[[Spec], None]) -> None:
    told: set[str] = set()
    while True:
        await asyncio.sleep(_LOOK_EVERY_S)
        for test in _read(folder).tests.values():
            if test.state != results.LOST and test.name not in told:
                told.add(test.name)
                tell(test)


@contextlib.asynccontextmanager
async def _running(
    argv: Sequence[str], log: Path | None = None, environment: dict[str, str] | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a program in a process namespace of its own: what it starts ends with it, and with us."""
    contained = ["unshare", "--pid", "--fork", "--kill-child", "--", *argv]
    with contextlib.ExitStack() as opened:
        output = opened.enter_context(log.open("ab")) if log else None
        process = await asyncio.create_subprocess_exec(
            *processes.dying_with_us(contained),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output or asyncio.subprocess.PIPE,
            stderr=output or asyncio.subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await asyncio.shield(process.wait())
