"""``kubectl ebs df``: how full the volumes of claims are."""

import asyncio
from collections import deque
from collections.abc import Collection, Iterable, Mapping

import click
import msgspec

from provisioner import options
from provisioner.inspect.command_line import Readers, Target, carry_out, reading, target_options
from provisioner.inspect.df import usage_rules
from provisioner.inspect.df.usage import usage_by_claim
from provisioner.inspect.df.usage_rules import Usage, full_in, full_in_s, size
from provisioner.inspect.reading.cluster import Cluster
from provisioner.inspect.terminal import screen
from provisioner.inspect.terminal.table_rules import NOTHING, table
from provisioner.kube.resources import PERSISTENT_VOLUMES

_HEADINGS = ("CLAIM", "SIZE", "USED", "AVAILABLE", "USE%", "INODES%", "FULL IN")
_PLOT = "OVER TIME"
_MOST_DRAWN = 40


@click.command()
@click.option(
    "--again", type=options.Duration(), help="Look twice, so long apart, for FULL IN: 2m."
)
@click.option("--watch", type=options.Duration(), help="Look again and again, so long apart.")
@click.option("--plot", is_flag=True, help="Draw the use of each volume over these looks, too.")
@click.option("--output", "-o", type=click.Choice(["table", "json"]), default="table")
@target_options
def df(
    *, again: float | None, watch: float | None, plot: bool, output: str, target: Target
) -> None:
    """Show how full the volumes of claims are, the fullest first.

    Each node's kubelet is asked, through the API server (it needs the right get nodes/proxy). So
    only volumes that a running pod has mounted are shown, and no raw devices. The kubelet measures
    every one to two minutes: two looks should be at least two minutes apart. FULL IN supposes that
    a volume grows on as between its last two measurements.

    Exit code 0; 1 if some node could not be asked.
    """
    if plot and ((again is None and watch is None) or output == "json"):
        raise click.UsageError(
            "--plot draws several looks, into the table: use it with --watch or --again, and "
            "without -o json"
        )
    carry_out(_df(target, again, watch, output, plot=plot))


async def _df(
    target: Target, again: float | None, watch: float | None, output: str, *, plot: bool
) -> int:
    looks: deque[Mapping[str, Usage]] = deque(maxlen=_MOST_DRAWN if plot else 0)
    async with reading(target) as readers:
        async with screen.progress("asking the kubelets"):
            now = await _look(readers, target)
        before: Mapping[str, Usage] = {}
        if again is not None:
            looks.append(now)
            before, now = now, await _later(readers, target, again)
        looks.append(now)
        _show(readers, _lines(before, now, output, looks))
        while watch is not None:
            last, now = now, await _later(readers, target, watch)
            before = usage_rules.measured_before(before, last, now)
            looks.append(now)
            _show(readers, ["", *_lines(before, now, output, looks)])
        return 1 if readers.cluster.gaps else 0


def _show(readers: Readers, lines: Iterable[str]) -> None:
    """One look, and what it could not read."""
    screen.show(lines)
    screen.warn(readers.gap_lines())


async def _later(readers: Readers, target: Target, pause_s: float) -> Mapping[str, Usage]:
    async with screen.progress("waiting for the second look"):
        await asyncio.sleep(pause_s)
        fresh = Readers(Cluster(readers.cluster.client), readers.cloud)
        found = await _look(fresh, target)
    readers.cluster.gaps[:] = fresh.cluster.gaps
    return found


async def _look(readers: Readers, target: Target) -> Mapping[str, Usage]:
    """Those of the driver's volumes, and of the namespace."""
    volumes = await readers.cluster.every(PERSISTENT_VOLUMES)
    wanted = {
        each.name: f"{ref.namespace}/{ref.name}"
        for each in volumes
        if (ref := each.spec.claim_ref) is not None
        and each.volume_id(target.driver)
        and target.namespace in {"", ref.namespace}
    }
    found = await usage_by_claim(readers, wanted)
    every, ours = readers.cluster.misses(PERSISTENT_VOLUMES), set(wanted.values())
    return {
        key: each
        for key, each in found.items()
        if key in ours or (every and target.namespace in {"", each.namespace})
    }


def _lines(
    before: Mapping[str, Usage],
    now: Mapping[str, Usage],
    output: str,
    looks: Collection[Mapping[str, Usage]],
) -> list[str]:
    """One look; with the looks that are to be drawn, oldest first, if any are."""
    usages = usage_rules.sorted_by_fullness(now)
    times = {each.key: full_in_s(before.get(each.key), each) for each in usages}
    if output == "json":
        found = [{**msgspec.to_builtins(e), "full_in_s": times[e.key]} for e in usages]
        return [screen.json_text(found)]
    if not usages:
        return ["No mounted volumes found."]
    rows = [(*_cells(e, times[e.key]), *_drawn(e, looks)) for e in usages]
    headings = (*_HEADINGS, _PLOT) if looks else _HEADINGS
    return table(headings, rows, width=screen.width(), shrink="CLAIM")


def _drawn(usage: Usage, looks: Collection[Mapping[str, Usage]]) -> list[str]:
    """The cell of the picture, if there is to be one."""
    found = [look[usage.key].fullness for look in looks if usage.key in look]
    return [usage_rules.plot(found)] if found else []


def _cells(usage: Usage, full_s: float | None) -> tuple[str, ...]:
    inodes = usage.inodes_percent
    return (
        usage.key,
        size(usage.capacity_bytes),
        size(usage.used_bytes),
        size(usage.available_bytes),
        f"{usage.used_percent:.0f}%",
        NOTHING if inodes is None else f"{inodes:.0f}%",
        full_in(full_s),
    )
