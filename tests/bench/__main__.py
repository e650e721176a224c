"""``make bench``: how fast, how many calls, how much memory; against what this machine allows.

Writes the table to standard output and, with a plot, to a folder (``build/bench``).
"""

import asyncio
import signal
import sys
from pathlib import Path

import click

from provisioner.sandbox.binaries import ensure_binaries
from provisioner.sandbox.commands import run_until_signal
from provisioner.sandbox.workdir import work_folder
from tests.bench import (
    cost,
    day,
    inspect_measure,
    memory,
    modify,
    moves_measure,
    moves_report,
    node_measure,
    phases,
    plot,
    pod_chain,
    processes,
    quota,
    report,
    scale,
    shared_account,
    wait_measure,
    webhook_flood,
    webhook_measure,
    writes,
)
from tests.bench.kwok import measure as kwok_run
from tests.bench.kwok import standing_pods
from tests.bench.phases import Phase
from tests.bench.report import Results
from tests.bench.world import (
    BARE,
    NULL,
    OURS,
    PER_NODE,
    RAISED,
    TOLD,
    ZONES,
    Contestant,
    World,
    world,
)

IDLE_S = 15.0
COUNT = 1000
GROWTH = (100, 300, 1000, 3000)
FLOOR_UP_TO = 1000
QUICK = 200
CACHED = 5000
INSPECTED = 10_000
STANDING = 20_000
FEWEST = 1_000
A_DAY = 5_000
KWOK_MINUTES = 20.0
AT_QUOTA = 300
SNAPSHOTS = 200
MOVES = 200
LIVES = 60
PARTS = (
    *("speed", "wait", "quota", "modify", "moves", "memory", "webhook", "flood", "node"),
    *("inspect", "writes", "growth", "scale"),
)
# Only if they are asked for: three clusters at once, a quarter of an hour of nothing but Python, and
# half an hour with pods and nodes that come and go.
ASKED = ("shared", "day", "kwok")


def _tell(text: str) -> None:
    click.echo(text, err=True)


class Bench:
    """One run of the bench."""

    def __init__(self, folder: Path, binaries: Path, results: Results) -> None:
        self._folder, self._binaries, self._results = folder, binaries, results

    async def race(self, who: Contestant, count: int, *, idle: bool = False) -> list[Phase]:
        """All phases with one contestant in a world of its own."""
        per_zone = -(-count // (len(ZONES) * PER_NODE))
        instances = per_zone * len(ZONES)
        async with world(
            self._folder, self._binaries, instances=instances, throttle=RAISED
        ) as made:
            made.ec2.control(log=True)
            await made.start(who)
            done = await phases.run_all(made, count, self._idle if idle else None)
        told = ", ".join(f"{p.name} {p.seconds:.1f} s ({_cpu(p)})" for p in done)
        _tell(f"{count} x {who.name}: {told}")
        return done

    async def speed(self, count: int, repeat: int) -> None:
        """Ours and the floor in turns; once the one told its quota, and the bare floor.

        A host that is shared may double all times for minutes: single races prove nothing.
        """
        for number, who in enumerate((*(NULL, OURS) * repeat, TOLD, BARE)):
            done = await self.race(who, count, idle=number == 1)
            self._results.runs.setdefault(who.name, []).append(done)

    async def growth(self, counts: tuple[int, ...]) -> None:
        """Ours and the floor against N; what was measured already is taken from there."""
        for count in counts:
            for who in (NULL, OURS) if count <= FLOOR_UP_TO else (OURS,):
                before = self._results.runs.get(who.name)
                known = before[0] if before and count == self._results.count else None
                done = known or await self.race(who, count)
                self._results.growth.setdefault(count, {})[who.name] = done

    async def wait(self) -> None:
        """What one pod waits for beside EC2's own time."""
        self._results.waits = await wait_measure.measure(self._folder, self._binaries)
        _tell(wait_measure.markdown(self._results.waits))
        self._results.chain = await pod_chain.measure(self._folder)
        _tell(pod_chain.markdown(self._results.chain))

    async def at_quota(self, count: int) -> None:
        """Claims at the documented quota."""
        self._results.quota = await quota.measure(self._folder, self._binaries, count)
        _tell(f"{count} claims at the documented quota: {self._results.quota.seconds:.1f} s")

    async def modified(self, claims: int, snapshots: int) -> None:
        """Claims that grow and change, and snapshots, at the documented quota."""
        found = await modify.measure(self._folder, self._binaries, claims, snapshots)
        self._results.modified = found
        _tell(f"{claims} claims grown and changed: {found.grown.seconds:.1f} s")
        _tell(f"{snapshots} snapshots: at most {max(found.late).seconds:.2f} s after EC2")

    async def moves(self, count: int) -> None:
        """Claims that get another volume, all at once."""
        self._results.moved = await moves_measure.measure(self._folder, self._binaries, count)
        _tell(moves_report.markdown(self._results.moved))

    async def memory(self, objects: int) -> None:
        """Memory and start."""
        self._results.memory = await memory.measure(self._folder, self._binaries, objects)
        _tell(f"{objects} PVs and claims: {self._results.memory.full_mib:.0f} MiB")

    async def webhook(self) -> None:
        """Latency, memory and rotation of the webhook."""
        self._results.webhook = await webhook_measure.measure(self._folder, self._binaries)
        found = self._results.webhook.answered[0].took
        _tell(f"webhook: p50 {found.p50:.2f} ms, p99 {found.p99:.2f} ms")

    async def flood(self) -> None:
        """Pods beside strangers who keep the webhook from its work."""
        found = self._results.flood = await webhook_flood.measure(self._folder, self._binaries)
        _tell(f"floods: p99 alone {found[0].spread.p99:.1f} ms")

    async def node(self) -> None:
        """Memory of the node plugin, and how fast it mounts."""
        found = self._results.node = await node_measure.measure(self._folder)
        if found.machine is not None:
            _tell(f"node plugin: {found.machine.resident_mib:.1f} MiB")

    async def inspect(self, claims: int) -> None:
        """``kubectl ebs`` in a large cluster."""
        found = await inspect_measure.measure(self._folder, self._binaries, claims)
        self._results.inspected = found
        for command, looks in found.looks.items():
            _tell(f"{command}: {max(each.seconds for each in looks):.1f} s at most")

    async def scale(self, volumes: int) -> None:
        """One controller in a large cluster."""
        self._results.scaled = await scale.measure(self._folder, self._binaries, volumes, _tell)

    async def writes(self, volumes: int) -> None:
        """What one volume's life costs the API server."""
        self._results.writes = await writes.measure(self._folder, self._binaries, volumes)
        _tell(writes.markdown(self._results.writes))

    async def shared(self) -> None:
        """Several clusters in one account."""
        self._results.shared = await shared_account.measure(self._folder, self._binaries)
        _tell(shared_account.markdown(self._results.shared))

    async def day(self, volumes: int) -> None:
        """A simulated day, with all its troubles."""
        self._results.day = await day.measure(volumes)

    async def kwok(self, volumes: int, minutes: float, classes: int | None) -> None:
        """A day's kinds of trouble on a real control plane."""
        classes = classes or standing_pods.classes_for(volumes)
        self._results.kwok = await kwok_run.measure(
            *(self._folder, self._binaries, volumes, minutes), classes=classes, tell=_tell
        )

    async def _idle(self, made: World) -> None:
        made.ec2.control(reset_counts=True)
        await asyncio.sleep(IDLE_S)
        self._results.idle_calls, self._results.idle_s = made.ec2.counts(), IDLE_S


def _cpu(phase: Phase) -> str:
    return f"{phase.cpu_s['contestant'] / phase.objects * 1000:.2f} ms CPU each"


async def _measure(
    bench: Bench,
    parts: set[str],
    count: int,
    repeat: int,
    volumes: int | None,
    *,
    moves: int,
    minutes: float,
    classes: int | None,
    quick: bool,
) -> None:
    if "speed" in parts:
        await bench.speed(count, repeat)
    if "wait" in parts:
        await bench.wait()
    await _measure_at_quota(bench, parts, moves)
    if "memory" in parts:
        await bench.memory(CACHED)
    if "webhook" in parts:
        await bench.webhook()
    if "flood" in parts:
        await bench.flood()
    if "node" in parts:
        await bench.node()
    if "inspect" in parts:
        await bench.inspect(count if quick else INSPECTED)
    if "growth" in parts and not quick:
        await bench.growth(GROWTH)
    await _measure_large(bench, parts, volumes, minutes, classes)


async def _measure_large(
    bench: Bench, parts: set[str], volumes: int | None, minutes: float, classes: int | None
) -> None:
    if "scale" in parts:
        await bench.scale(volumes or STANDING)
    if "writes" in parts:
        await bench.writes(LIVES)
    if "shared" in parts:
        await bench.shared()
    if "day" in parts:
        await bench.day(volumes or A_DAY)
    if "kwok" in parts:
        await bench.kwok(volumes or STANDING, minutes, classes)


async def _measure_at_quota(bench: Bench, parts: set[str], moves: int) -> None:
    if "quota" in parts:
        await bench.at_quota(AT_QUOTA)
    if "modify" in parts:
        await bench.modified(AT_QUOTA, SNAPSHOTS)
    if "moves" in parts:
        await bench.moves(moves)


@click.command(help=__doc__)
@click.option("--quick", is_flag=True, help=f"N = {QUICK}, no cost against N; for development.")
@click.option("--count", type=int, help="Objects in each phase; 1,000 without --quick.")
@click.option("--repeat", default=3, help="Races of ours and the floor, in turns; medians count.")
@click.option(
    "--volumes", type=int, help=f"In scale and kwok ({STANDING:,} without), and in day ({A_DAY:,})."
)
@click.option("--minutes", default=KWOK_MINUTES, help="Of coming and going, in kwok.")
@click.option(
    "--classes", type=int, help="StorageClasses in kwok; one for each 1,000 volumes without."
)
@click.option("--moves", default=MOVES, help="Claims that are moved at once, in moves.")
@click.option(
    "--only", multiple=True, type=click.Choice((*PARTS, *ASKED)), help="Some parts alone."
)
@click.option("--out", type=Path, default=Path("build/bench"), help="For table and plot.")
def main(
    *,
    quick: bool,
    count: int | None,
    repeat: int,
    volumes: int | None,
    minutes: float,
    classes: int | None,
    moves: int,
    only: tuple[str, ...],
    out: Path,
) -> None:
    """Run the bench."""
    if "scale" in (only or PARTS) and volumes is not None and volumes < FEWEST:
        # Pods are reviewed with the claims of one team, a 200th of all, in three zones.
        raise click.BadParameter(f"scale needs {FEWEST:,} volumes at least", param_hint="--volumes")
    binaries = ensure_binaries()
    results = Results(processes.machine(), count or (QUICK if quick else COUNT))
    with work_folder() as folder:
        bench = Bench(folder, binaries, results)
        parts = set(only or PARTS)
        run = _measure(
            *(bench, parts, results.count, repeat, volumes),
            moves=moves,
            minutes=minutes,
            classes=classes,
            quick=quick,
        )
        if run_until_signal(run):
            sys.exit(128 + signal.SIGTERM)
    out.mkdir(parents=True, exist_ok=True)
    text = report.markdown(results)
    if results.growth:
        plot.draw(results.growth, out / "cost.png")
    if results.scaled:
        cost.save(results.scaled, out)
    (out / "table.md").write_text(text)
    click.echo(text)
    _tell(f"written to {out}")


if __name__ == "__main__":
    main()
