"""``conformance aws``: what a run, a resumed run and a sweep do, from first to last."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from provisioner.conformance import plan as plans
from provisioner.conformance.cluster import part as parts
from provisioner.conformance.cluster.hand import Hand
from provisioner.conformance.cluster.leaving import leave
from provisioner.conformance.cluster.objects import name_of
from provisioner.conformance.cluster.part import Part
from provisioner.conformance.cluster.steps import BY_NAME, Step
from provisioner.conformance.cluster.survey import Survey
from provisioner.conformance.cluster.survey import lines as steps_planned
from provisioner.conformance.ec2 import Ec2, region_told
from provisioner.conformance.journal import (
    Begun,
    InCluster,
    Journal,
    JournalError,
    Story,
    is_alive,
    is_finished,
    new_run,
    stories,
)
from provisioner.conformance.lab import Place
from provisioner.conformance.places import find_place
from provisioner.conformance.probe import CannotRunError, Finding
from provisioner.conformance.report import Report
from provisioner.conformance.rule import Rule
from provisioner.conformance.runner import Runner
from provisioner.conformance.sweep import Left, Patience, sweep, things
from provisioner.model.names import CLUSTER_RUN_TAG
from provisioner.version import our_version

_PATIENCE = Patience()


@dataclass(frozen=True, slots=True)
class Order:
    """What the user has asked for.

    Attributes:
        rules: whose probes are to run.
        folder: of the journals.
        endpoint: None for AWS's own.
        region: None for that of the environment.
        zone: None for that of the instance, or the first one.
        instances: up to two that volumes may be attached to.
        budget_usd: what the run may cost.
        copies: whether probes that copy volumes run.
        patience: of the sweep.
        cluster: in which the steps of the worked example are done; None for no cluster.
    """

    rules: Sequence[Rule]
    folder: Path
    endpoint: str | None = None
    region: str | None = None
    zone: str | None = None
    instances: Sequence[str] = ()
    budget_usd: float = 0.05
    copies: bool = False
    patience: Patience = _PATIENCE
    cluster: InCluster | None = None


@dataclass(frozen=True, slots=True)
class Terminal:
    """How the user hears of a run, and is asked.

    Attributes:
        say: prints a line.
        agrees: asks whether a run may start.
        tell: prints a finding as it comes.
    """

    say: Callable[[str], None]
    agrees: Callable[[], bool]
    tell: Callable[[Rule | Step, Finding], None]


@dataclass(frozen=True, slots=True)
class Site:
    """Where a run takes place.

    Attributes:
        ec2: the account.
        place: in it.
        hand: in the cluster, None without one.
        seen: what was found there.
    """

    ec2: Ec2
    place: Place
    hand: Hand | None = None
    seen: Survey | None = None


async def planned(order: Order, terminal: Terminal) -> None:
    """Print what a run would do; makes nothing.

    Raises:
        CannotRunError: it could not run.
    """
    async with _connected(order) as ec2:
        place = await find_place(ec2, "", zone=order.zone, instances=order.instances)
        async with _site(ec2, place, order.cluster) as site:
            _tell_plan(_plan(order, place), order, terminal, site)


async def run(order: Order, terminal: Terminal) -> Report | None:
    """Plan, ask, run, sweep; None if the user does not agree.

    Raises:
        CannotRunError: it cannot start; nothing was made.
    """
    async with _connected(order) as ec2:
        number = new_run(datetime.now(UTC))
        place = await find_place(ec2, number, zone=order.zone, instances=order.instances)
        async with _site(ec2, place, order.cluster) as site:
            await _nobody_else(order, site)
            planned = _plan(order, place)
            _tell_plan(planned, order, terminal, site)
            if not _may_start(planned, order, terminal):
                return None
            with closing(Journal.begin(order.folder, _begun(order, site))) as journal:
                terminal.say(f"Run {number}; journal {journal.path}")
                return await _carry_out(terminal, order, site, planned, journal)


async def resume(order: Order, terminal: Terminal, run: str) -> Report | None:
    """Sweep what an interrupted run has left, and run the probes that it has not finished.

    ``run``: its id, "" for the latest unfinished one of this endpoint and Region.

    Raises:
        CannotRunError: it cannot start.
        JournalError: there is no such run, or it is under way.
    """
    async with _connected(order) as ec2:
        await find_place(ec2, run)
        number = run or _latest_unfinished(order, ec2)
        with closing(Journal.resume(order.folder, number)) as journal:
            begun = journal.story.begun
            if not _is_of(begun, ec2):
                raise CannotRunError(
                    f"the run {number} was at {begun.endpoint} in {begun.region}, not at "
                    f"{ec2.endpoint} in {ec2.region}"
                )
            order = replace(order, rules=[r for r in order.rules if r.name in begun.rules])
            order = replace(order, cluster=begun.cluster)
            left = await _sweep(order, ec2, journal)
            if left.why:
                _tell_left(terminal, number, left)
                raise CannotRunError("what this run has left cannot be deleted")
            place = await find_place(ec2, number, zone=begun.zone, instances=begun.instances)
            planned = _plan(order, place, journal)
            async with _site(ec2, place, order.cluster if planned.in_cluster else None) as site:
                _tell_plan(planned, order, terminal, site)
                if not _may_start(planned, order, terminal):
                    return None
                return await _carry_out(terminal, order, site, planned, journal)


def _may_start(planned: plans.Plan, order: Order, terminal: Terminal) -> bool:
    if why := plans.refusal(planned, order.budget_usd):
        raise CannotRunError(why)
    return terminal.agrees()


async def sweep_all(order: Order, terminal: Terminal, run: str) -> int:
    """Delete what runs have left; returns how many things could not be deleted.

    ``run``: one id, of another machine too; "" for all runs of this machine. A run that is under
    way here is left alone, and so is what runs of other machines have made.

    Raises:
        CannotRunError: EC2 does not list what there is.
        JournalError: the run that was named is under way.
    """
    async with _connected(order) as ec2:
        place = await find_place(ec2, run)
        here = [story.begun for story in stories(order.folder)]
        mine = [each.run for each in here if _is_of(each, ec2) and run in {"", each.run}]
        failed = 0
        if run and run not in mine:
            failed += _tell_left(terminal, run, await _sweep_unknown(order, ec2, place))
        for each in mine:
            failed += await _sweep_own(order, terminal, ec2, each, is_named=bool(run))
        others = {each.run async for each in things(ec2)} - {each.run for each in here} - {run}
        for each in sorted(others):
            terminal.say(f"{_of_another_machine(each)}.")
        return failed


async def _sweep_own(
    order: Order, terminal: Terminal, ec2: Ec2, run: str, *, is_named: bool
) -> int:
    try:
        journal = Journal.resume(order.folder, run)
    except JournalError as failure:
        if is_named:
            raise
        terminal.say(f"Not swept: {failure}.")
        return 0
    with closing(journal):
        left = await _sweep(order, ec2, journal)
    return _tell_left(terminal, run, left)


async def _sweep(order: Order, ec2: Ec2, journal: Journal) -> Left:
    """Delete what a run has left, first in the cluster where it was."""
    story, in_cluster = journal.story, Left()
    if story.begun.cluster is not None and story.in_cluster:
        in_cluster = await _leave(order, ec2, story.begun.cluster, story.begun.run)
        if not in_cluster.why:
            await journal.left_cluster()
    swept = await sweep(ec2, story, order.patience)
    if not in_cluster.why and not swept.why:
        await journal.swept()
    return Left(in_cluster.why | swept.why)


async def _sweep_unknown(order: Order, ec2: Ec2, place: Place) -> Left:
    """Delete what a run of another machine has left; where its cluster is, only the user knows."""
    in_cluster = Left()
    if order.cluster is not None:
        in_cluster = await _leave(order, ec2, order.cluster, place.run)
    else:
        async for each in things(ec2, place.run, CLUSTER_RUN_TAG):
            in_cluster.why[each.id] = "it was made in a cluster: name that with --context"
    swept = await sweep(ec2, Story(_begun(order, Site(ec2, place))), order.patience)
    return Left(in_cluster.why | swept.why)


async def _leave(order: Order, ec2: Ec2, cluster: InCluster, run: str) -> Left:
    try:
        async with parts.connected(cluster, run) as hand:
            return await leave(hand, ec2, order.patience)
    except CannotRunError as failure:
        return Left({f"namespace {name_of(run)}": str(failure)})


async def _carry_out(
    terminal: Terminal, order: Order, site: Site, planned: plans.Plan, journal: Journal
) -> Report:
    part = _part(terminal, order, site, planned, journal)
    runner = Runner(site.ec2, site.place, journal, order.patience, tell=terminal.tell, part=part)
    with _stopped_by_signals(terminal, journal.story.begun.run):
        result = await runner.run(planned.run)
    steps = {name: each for name, each in journal.story.findings.items() if name in BY_NAME}
    for name, finding in planned.known.items():
        await journal.found(name, finding)
    return Report(
        journal.story.begun,
        order.rules,
        {**planned.known, **result.findings, **steps},
        result.left.why,
        result.stopped,
        journal.story.seconds,
    )


def _part(
    terminal: Terminal, order: Order, site: Site, planned: plans.Plan, journal: Journal
) -> Part | None:
    cluster = journal.story.begun.cluster
    if not planned.in_cluster or cluster is None or site.hand is None or site.seen is None:
        return None
    return Part(site.hand, site.seen, cluster, site.ec2, journal, order.patience, terminal.tell)


async def _nobody_else(order: Order, site: Site) -> None:
    """Two runs would do each other no harm, but their limits are those of one account.

    Raises:
        CannotRunError: another run is under way, or has left something.
    """
    ec2 = site.ec2
    here = {story.begun.run for story in stories(order.folder)}
    alive = [
        story.begun.run
        for story in stories(order.folder)
        if _is_of(story.begun, ec2) and is_alive(order.folder, story.begun.run)
    ]
    if alive:
        raise CannotRunError(f"the run {alive[0]} is under way here: wait until it has ended")
    others = {each.run async for each in things(ec2)}
    others |= await parts.runs_of(site.hand) if site.hand is not None else set()
    for each in sorted(others):
        if each in here:
            raise CannotRunError(
                f"the run {each} was interrupted and has left things: continue it with "
                f"--resume {each}, or delete them with --sweep"
            )
        raise CannotRunError(_of_another_machine(each))


def _of_another_machine(run: str) -> str:
    return (
        f"the run {run}, of another machine or without a journal here, has things in this Region "
        "or cluster: wait for it, or if it is not under way any more, delete them with "
        f"--sweep {run}"
    )


def _plan(order: Order, place: Place, journal: Journal | None = None) -> plans.Plan:
    return plans.plan(
        order.rules,
        place.region,
        allowed=plans.Allowed(
            instance=place.instance is not None,
            copies=order.copies,
            other=place.other_instance is not None,
        ),
        findings=journal.story.findings if journal else {},
        started=journal.story.started if journal else {},
        cluster=order.cluster is not None,
    )


def _tell_plan(planned: plans.Plan, order: Order, terminal: Terminal, site: Site) -> None:
    place = site.place
    named = " and ".join(each for each in (place.instance, place.other_instance) if each)
    instance = f", {named} ({place.instance_type})" if named else ""
    terminal.say(f"Endpoint {site.ec2.endpoint}, {place.region}, {place.zone}{instance}.")
    if order.cluster is not None and site.seen is not None and site.hand is not None:
        for line in steps_planned(order.cluster, site.seen, site.hand.namespace):
            terminal.say(line)
    for line in plans.lines(planned, order.budget_usd):
        terminal.say(line)
    terminal.say(f"Needs the rights ec2: {', '.join(plans.actions(planned.run))}.")


def _begun(order: Order, site: Site) -> Begun:
    place, cluster = site.place, order.cluster
    if cluster is not None and site.seen is not None:
        names = tuple(node.name for node in site.seen.nodes)
        cluster = msgspec.structs.replace(cluster, uid=site.seen.uid, nodes=names)
    return Begun(
        run=place.run,
        version=our_version(),
        endpoint=site.ec2.endpoint,
        region=place.region,
        zone=place.zone,
        zones=place.zones,
        instances=tuple(order.instances),
        instance_type=place.instance_type,
        rules=tuple(rule.name for rule in order.rules),
        at=datetime.now(UTC),
        cluster=cluster,
    )


def _is_of(begun: Begun, ec2: Ec2) -> bool:
    return (begun.endpoint, begun.region) == (ec2.endpoint, ec2.region)


def _latest_unfinished(order: Order, ec2: Ec2) -> str:
    runs = [
        story.begun.run
        for story in stories(order.folder)
        if _is_of(story.begun, ec2) and not is_finished(story)
    ]
    if not runs:
        raise CannotRunError(
            f"there is nothing to resume: no run at {ec2.endpoint} was interrupted ({order.folder})"
        )
    return runs[-1]


def _tell_left(terminal: Terminal, run: str, left: Left) -> int:
    for each, why in left.why.items():
        terminal.say(f"Run {run}: {each} is not deleted: {why}")
    if not left.why:
        terminal.say(f"Run {run}: nothing is left.")
    return len(left.why)


@asynccontextmanager
async def _connected(order: Order) -> AsyncIterator[Ec2]:
    ec2 = Ec2.connect(region=order.region or region_told(), endpoint=order.endpoint)
    try:
        yield ec2
    finally:
        await ec2.close()


@asynccontextmanager
async def _site(ec2: Ec2, place: Place, cluster: InCluster | None) -> AsyncIterator[Site]:
    if cluster is None:
        yield Site(ec2, place)
        return
    async with parts.connected(cluster, place.run) as hand:
        yield Site(ec2, place, hand, await parts.look(hand, place))


@contextmanager
def _stopped_by_signals(terminal: Terminal, run: str) -> Iterator[None]:
    """The first Ctrl-C (or SIGTERM) stops the probes and sweeps; the second stops the sweep."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()

    def stop() -> None:
        terminal.say(
            "Stopping: everything that was made is being deleted. After another Ctrl-C it would "
            f"be left, for --sweep {run}."
        )
        if task is not None:
            task.cancel()

    signals = (signal.SIGINT, signal.SIGTERM)
    for number in signals:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
