"""``make conformance``: Kubernetes' end-to-end tests of a storage driver, against the sandbox.

Exit status 1 if a test fails that tests/e2e/expected.py does not name, one passes that it names,
one skips itself for a reason that it does not give, a run ends early, or something is left behind.
"""

import asyncio
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import click

from provisioner.sandbox import binaries as programs
from provisioner.sandbox.commands import LATENCY, THROTTLE, one_line_errors, run_until_signal
from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.programs import CONTROL_PLANE, E2E, REAL_NODE
from provisioner.sandbox.real_node.fleet import demand
from tests.e2e import page, report, runs, verdict
from tests.e2e.results import SKIPPED, Spec
from tests.e2e.runs import Run
from tests.e2e.verdict import Ran, Verdict
from tests.e2e.world import World, world

_SYS_RESOURCE = 24  # capabilities(7)
_GRACE_S = 180.0


class Part(click.ParamType[tuple[int, int]]):
    """N/M: the Nth of M parts; commit/M: the one that the commit chooses."""

    name = "N/M"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """Read it."""
        number, slash, count = value.partition("/")
        if number == "commit" and count.isdecimal() and int(count) > 0:
            return runs.rotated(_commit() or f"{datetime.now(UTC):%Y-%m-%d}", int(count)), int(
                count
            )
        numbers = slash and number.isdecimal() and count.isdecimal()
        if not numbers or not 1 <= int(number) <= int(count):
            self.fail(f"{value!r} is not a part: expected one like 1/3 or commit/3", param, ctx)
        return int(number), int(count)


@click.command(help=__doc__)
@click.option(
    "--quick", is_flag=True, help="Only tests that are neither Slow, Serial nor Disruptive."
)
@click.option(
    "--part",
    type=Part(),
    help="A part of all tests, as 2/3, or commit/3: which one depends on the commit.",
)
@click.option(
    "--focus", help="Only tests whose names match this regular expression of Go, as well."
)
@click.option("--only", multiple=True, metavar="RUN", help="Only these runs, as xfs or immediate.")
@click.option("--processes", type=click.IntRange(1, 16), help="How many tests at a time.")
@click.option("--latency", type=LATENCY, default="none", show_default=True, help="EC2's.")
@click.option("--throttle", type=THROTTLE, default="none", show_default=True, help="EC2's.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("build/conformance"))
@click.option("--docs", is_flag=True, help="Write the tables into docs/reference/e2e.md too.")
def main(
    *,
    quick: bool,
    part: tuple[int, int] | None,
    focus: str | None,
    only: tuple[str, ...],
    processes: int | None,
    out: Path,
    docs: bool,
    **options: str,
) -> None:
    """Run the suite."""
    with one_line_errors():
        plan = _chosen(quick=quick, only=only, processes=processes)
        demand()
        binaries = _binaries()
        conductor = Conductor(plan, part, focus, out.absolute(), binaries)
        if run_until_signal(conductor.conduct(**options)):
            click.echo(f"ended by a signal; logs: {out}", err=True)
            sys.exit(128 + signal.SIGINT)
    done = conductor.verdict
    click.echo(report.terminal(done, conductor.ran, str(out)))
    ec2 = f"EC2 with latency {options['latency']}, throttling {options['throttle']}"
    text = report.markdown(done, conductor.ran, _setting(conductor, binaries, ec2))
    (out / "table.md").write_text(text + "\n")
    if docs:
        page.write(text)
    sys.exit(0 if done.is_good else 1)


def _chosen(*, quick: bool, only: Sequence[str], processes: int | None) -> list[Run]:
    every = runs.plan(quick=quick, grows_mounted_ext4=_may_grow_mounted_ext4())
    unknown = set(only) - {each.name for each in every}
    if unknown:
        names = ", ".join(each.name for each in every)
        raise SandboxError(
            f"there is no run {', '.join(sorted(unknown))}: expected some of {names}"
        )
    chosen = [each for each in every if not only or each.name in only]
    return [replace(each, processes=processes or each.processes) for each in chosen]


def _binaries() -> Path:
    found = programs.find_binaries(programs=(*CONTROL_PLANE, *REAL_NODE, *E2E))
    if found is None:
        raise SandboxError(
            "the programs of the suite are not built yet: run `ebs-provisioner sandbox binaries "
            "--conformance` (15 to 30 minutes on two cores, once)"
        )
    return found


def _may_grow_mounted_ext4() -> bool:
    status = Path("/proc/self/status").read_text().split("\n")
    effective = next(line for line in status if line.startswith("CapEff:"))
    return bool(int(effective.split()[1], 16) & (1 << _SYS_RESOURCE))


class Conductor:
    """Runs what was planned, one run after the other, on one cluster.

    Attributes:
        ran: the runs so far.
        verdict: on all of them; there once they have ended.
        took_s: for everything, from the first process on.
    """

    def __init__(
        self,
        plan: Sequence[Run],
        part: tuple[int, int] | None,
        focus: str | None,
        out: Path,
        binaries: Path,
    ) -> None:
        self._plan, self._part, self._focus = plan, part, focus
        self._out, self._binaries = out, binaries
        self.ran: list[Ran] = []
        self.verdict = Verdict()
        self.took_s = 0.0
        self.load = ""

    async def conduct(self, *, latency: str, throttle: str) -> None:
        """Do it all.

        Raises:
            SandboxError: a part of the cluster cannot be started or died.
        """
        began = time.monotonic()
        loads = [os.getloadavg()[0]]
        tell("starting a control plane, EC2 and three nodes")
        started = world(self._out, self._binaries, latency=latency, throttle=throttle)
        async with started as running:
            tell(f"up after {time.monotonic() - began:.0f} s")
            for each in self._plan:
                await self._run(running, each)
                loads.append(os.getloadavg()[0])
            self.verdict = verdict.judge(self.ran, [*await running.left(), *running.tracebacks()])
        self.took_s = time.monotonic() - began
        self.load = f"{min(loads):.1f} to {max(loads):.1f}"

    async def _run(self, running: World, run: Run) -> None:
        if self._part or self._focus:
            narrowed = await self._narrowed(running, run)
            if narrowed is None:
                tell(f"run {run.name}: no test of it is chosen")
                return
            run = narrowed
        tell(f"run {run.name}: {run.processes} at a time")
        torn = running.torn()
        work = asyncio.ensure_future(running.suite.run(run, _tell_test))
        # When a part of the cluster dies there is nothing to wait for.
        done = await running.sandbox.crew.unless_failed(
            work, run.timeout_s + _GRACE_S, f"run {run.name}"
        )
        self.ran.append(replace(done, torn=running.torn() - torn))
        tell(f"run {run.name}: {len(done.outcome.tests)} tests in {done.took_s:.0f} s")

    async def _narrowed(self, running: World, run: Run) -> Run | None:
        names = await running.suite.names(run)
        if self._focus:
            wanted = replace(run, focus=self._focus, name=f"{run.name}-focus")
            names = sorted({*names} & {*await running.suite.names(wanted)})
        if self._part:
            names = runs.part(names, *self._part)
        return replace(run, focus=runs.exactly(names)) if names else None


def tell(text: str) -> None:
    """Say what happens, with the time."""
    click.echo(f"{datetime.now(UTC):%H:%M:%S} {text}", err=True)


def _tell_test(test: Spec) -> None:
    if test.state != SKIPPED:  # a hundred of them in the first second
        tell(f"{test.state} {test.seconds:.0f} s  {test.title}")


def _commit() -> str:
    """The commit of this folder; "" where there is no git or no repository."""
    described = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    try:
        return subprocess.run(described, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        return ""


def _setting(conductor: Conductor, binaries: Path, ec2: str) -> report.Setting:
    return report.Setting(
        date=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        machine=f"{os.cpu_count()} cores, Linux {platform.release()}",
        load=conductor.load,
        kubernetes=programs.version_of("kubelet", binaries / "kubelet") or "?",
        commit=_commit() or "unknown",
        ec2=ec2,
        took=f"{conductor.took_s / 60:.0f} minutes",
    )


if __name__ == "__main__":
    main()
