"""``kubectl ebs move sts/NAME``: the claims of a StatefulSet, replica by replica."""

import asyncio
import sys
from typing import NoReturn

import click

from provisioner.inspect.command_line import KubeTarget, carry_out, result_of
from provisioner.inspect.reading import gap_rules
from provisioner.inspect.reading.cluster import Cluster
from provisioner.inspect.shell_words import with_cluster
from provisioner.inspect.terminal import screen
from provisioner.model.errors import StorageError
from provisioner.model.sentences import listed
from provisioner.moves import asking, plan_words, showing
from provisioner.moves.display import Display, SharedDisplay
from provisioner.moves.requests import Moves, connected
from provisioner.moves.sets import preparing
from provisioner.moves.sets.preparing import PreparedSet
from provisioner.moves.sets.row import Row
from provisioner.moves.sets.set_rules import SetWish
from provisioner.moves.wish_rules import Given

_LEFT = (
    "Moves that were begun go on, and no other replica is begun. Run the same command again to go "
    "on with them."
)


def move(target: KubeTarget, wish: SetWish, given: Given) -> NoReturn:
    """In two parts, with nothing under way while somebody thinks."""
    what = f"StatefulSet {wish.key}"
    asking.check(what, given)
    prepared = result_of(_prepare(target, wish, dry_run=given.dry_run))
    if prepared is None:
        sys.exit(0)
    if given.yes and prepared.unready:
        raise click.ClickException(
            f"pod {listed(prepared.unready, 'and')} is not Ready: run it without --yes, and agree "
            "that it is moved all the same"
        )
    if prepared.plans:
        asking.confirm(f"Move {_question(prepared)}?", given)
    carry_out(_carry_out(target, prepared))


def _question(prepared: PreparedSet) -> str:
    wish, number = prepared.wish, len(prepared.plans)
    if wish.is_stopped_whole:
        return f"all claims of StatefulSet {wish.key}, stopped as a whole"
    how = f", {wish.at_once} at a time" if number > 1 else ""
    what = "replica" if number == 1 else "replicas"
    return f"{number} {what} of StatefulSet {wish.key}{how}"


async def _prepare(target: KubeTarget, wish: SetWish, *, dry_run: bool) -> PreparedSet | None:
    """What is to be done; None if there is nothing more, which is said.

    Raises:
        StorageError: it cannot be done; nothing was touched.
    """
    async with connected(target) as client:
        cluster = Cluster(client)
        async with screen.progress("waiting for the plans of all replicas"):
            prepared = await preparing.prepare(
                client, cluster, wish, dry_run=dry_run, flags=target.flags
            )
        if not prepared.replicas:
            screen.show([f"StatefulSet {wish.key} is moved: all of its claims are as asked"])
            return None
        if prepared.plans:
            _show(prepared, target.flags)
        screen.warn(gap_rules.lines(cluster.gaps))
        return None if dry_run else prepared


def _show(prepared: PreparedSet, flags: str) -> None:
    wish, plans = prepared.wish, prepared.plans
    how = "stopped as a whole" if wish.is_stopped_whole else "replica by replica"
    lines = plan_words.lines_of_many(
        [each for group in plans for each in group],
        (),
        title=f"Claims of StatefulSet {wish.key} get other volumes with the same data, {how}:",
        width=screen.text_width(),
        estimates=showing.estimates_of(plans, wish.at_once),
        notes=[with_cluster(each, flags) for each in prepared.notes],
    )
    screen.show(lines)


async def _carry_out(target: KubeTarget, prepared: PreparedSet) -> int:
    async with connected(target) as client:
        if Display().is_live:
            screen.warn(["Ctrl-C: moves that were begun go on, and no other replica is begun."])
        row = Row(Moves(client, target.flags), prepared, SharedDisplay(target.flags))
        try:
            return await row.carry_out()
        except (asyncio.CancelledError, StorageError):
            screen.warn([_LEFT])
            raise
