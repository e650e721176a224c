"""``conformance aws``: what a run, a resumed run and a sweep do, from first to last."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from provisioner.conformance import plan as plans
from provisioner.conformance.ec2 import Ec2, region_told
from provisioner.conformance.journal import (
    Begun,
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
from provisioner.ec2.botocore_client import our_version

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
    tell: Callable[[Rule, Finding], None]


async def planned(order: Order, terminal: Terminal) -> None:
    """Print what a run would do; makes nothing.

    Raises:
        CannotRunError: it could not run.
    """
    async with _connected(order) as ec2:
        place = await find_place(ec2, "", zone=order.zone, instances=order.instances)
        _tell_plan(_plan(order, place), order, terminal, ec2, place)


async def run(order: Order, terminal: Terminal) -> Report | None:
    """Plan, ask, run, sweep; None if the user does not agree.

    Raises:
        CannotRunError: it cannot start; nothing was made.
    """
    async with _connected(order) as ec2:
        number = new_run(datetime.now(UTC))
        place = await find_place(ec2, number, zone=order.zone, instances=order.instances)
        await _nobody_else(order, ec2)
        planned = _plan(order, place)
        _tell_plan(planned, order, terminal, ec2, place)
        if not _may_start(planned, order, terminal):
            return None
        with closing(Journal.begin(order.folder, _begun(order, ec2, place))) as journal:
            terminal.say(f"Run {number}; journal {journal.path}")
            runner = Runner(ec2, place, journal, order.patience, terminal.tell)
            return await _carry_out(terminal, order, runner, planned, journal)


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
            left = await sweep(ec2, journal.story, order.patience)
            if left.why:
                _tell_left(terminal, number, left)
                raise CannotRunError("what this run has left cannot be deleted")
            await journal.swept()
            place = await find_place(ec2, number, zone=begun.zone, instances=begun.instances)
            planned = _plan(order, place, journal)
            _tell_plan(planned, order, terminal, ec2, place)
            if not _may_start(planned, order, terminal):
                return None
            runner = Runner(ec2, place, journal, order.patience, terminal.tell)
            return await _carry_out(terminal, order, runner, planned, journal)


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
            left = await sweep(ec2, Story(_begun(order, ec2, place)), order.patience)
            failed += _tell_left(terminal, run, left)
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
        left = await sweep(ec2, journal.story, order.patience)
        if not left.why:
            await journal.swept()
    return _tell_left(terminal, run, left)


async def _carry_out(
    terminal: Terminal, order: Order, runner: Runner, planned: plans.Plan, journal: Journal
) -> Report:
    with _stopped_by_signals(terminal, journal.story.begun.run):
        result = await runner.run(planned.run)
    findings: dict[str, Finding] = {**planned.known, **result.findings}
    for name, finding in planned.known.items():
        await journal.found(name, finding)
    return Report(journal.story.begun, order.rules, findings, result.left.why, result.stopped)


async def _nobody_else(order: Order, ec2: Ec2) -> None:
    """Two runs would do each other no harm, but their limits are those of one account.

    Raises:
        CannotRunError: another run is under way, or has left something.
    """
    here = {story.begun.run for story in stories(order.folder)}
    alive = [
        story.begun.run
        for story in stories(order.folder)
        if _is_of(story.begun, ec2) and is_alive(order.folder, story.begun.run)
    ]
    if alive:
        raise CannotRunError(f"the run {alive[0]} is under way here: wait until it has ended")
    for each in sorted({each.run async for each in things(ec2)}):
        if each in here:
            raise CannotRunError(
                f"the run {each} was interrupted and has left things: continue it with "
                f"--resume {each}, or delete them with --sweep"
            )
        raise CannotRunError(_of_another_machine(each))


def _of_another_machine(run: str) -> str:
    return (
        f"the run {run}, of another machine or without a journal here, has things in this Region: "
        f"wait for it, or if it is not under way any more, delete them with --sweep {run}"
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
    )


def _tell_plan(
    planned: plans.Plan, order: Order, terminal: Terminal, ec2: Ec2, place: Place
) -> None:
    named = " and ".join(each for each in (place.instance, place.other_instance) if each)
    instance = f", {named} ({place.instance_type})" if named else ""
    terminal.say(f"Endpoint {ec2.endpoint}, {place.region}, {place.zone}{instance}.")
    for line in plans.lines(planned, order.budget_usd):
        terminal.say(line)
    terminal.say(f"Needs the rights ec2: {', '.join(plans.actions(planned.run))}.")


def _begun(order: Order, ec2: Ec2, place: Place) -> Begun:
    return Begun(
        run=place.run,
        version=our_version(),
        endpoint=ec2.endpoint,
        region=place.region,
        zone=place.zone,
        zones=place.zones,
        instances=tuple(order.instances),
        instance_type=place.instance_type,
        rules=tuple(rule.name for rule in order.rules),
        at=datetime.now(UTC),
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
