"""``kubectl ebs move``: give a claim another volume with the same data."""

import asyncio
import functools
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, NoReturn

import click

from provisioner.inspect.command_line import KubeTarget, carry_out, cluster_options, result_of
from provisioner.inspect.completion.objects import names_of, object_words
from provisioner.inspect.object_name_rules import claim_name, namespaced
from provisioner.inspect.reading import gap_rules
from provisioner.inspect.reading.cluster import Cluster
from provisioner.inspect.shell_words import shell
from provisioner.inspect.terminal import screen
from provisioner.kube.client import KubeClient
from provisioner.kube.resources import VOLUME_MOVES
from provisioner.model.errors import Reason, StorageError
from provisioner.model.sentences import printable
from provisioner.model.volume_move import Phase, VolumeMove
from provisioner.moves import list_words, plan_words, progress_words, wish_rules
from provisioner.moves.display import Display
from provisioner.moves.follow import Follower
from provisioner.moves.owners import how_to_stop
from provisioner.moves.plan import make_plan
from provisioner.moves.requests import Moves
from provisioner.moves.wish_rules import Given, Prepared, Task, Wish

_VERBS = ("create", "get", "delete")
_CLAIM = object_words(["pvc"])
_MOVE = names_of(VOLUME_MOVES)


Function = Callable[..., Any]
_SIZE = click.option(
    "--size",
    metavar="SIZE",
    help="Another size, such as 100Gi; for a smaller one, files are copied.",
)
_FS_TYPE = click.option(
    "--fs-type",
    type=click.Choice(["ext4", "xfs"]),
    help="Another file system; files are copied.",
)


def _change_options(command: Function) -> Function:
    """Give a command the options that say what is to change, as one argument ``to``."""

    @click.option("--to-zone", metavar="ZONE", help="Zone of the new volume.")
    @click.option("--to-class", metavar="CLASS", help="StorageClass of the claim afterwards.")
    @click.option("--encrypted", is_flag=True, help="Encrypt the volume.")
    @click.option("--kms-key", metavar="KEY", help="Encrypt the volume with this key.")
    @_SIZE
    @_FS_TYPE
    @click.option(
        "--form",
        type=click.Choice(["csi"]),
        help="Turn an in-tree PersistentVolume into one in CSI form; alone, nothing is copied.",
    )
    @functools.wraps(command)
    def with_changes(
        *args: Any,
        to_zone: str | None,
        to_class: str | None,
        encrypted: bool,
        kms_key: str | None,
        size: str | None,
        fs_type: str | None,
        form: str | None,
        **kwargs: Any,
    ) -> Any:
        try:
            said = (to_zone, to_class, kms_key, size, form)
            to = wish_rules.target(*said, encrypted=encrypted, fs_type=fs_type)
        except ValueError as error:
            raise click.UsageError(printable(str(error))) from error
        return command(*args, to=to, **kwargs)

    return with_changes


@click.command(short_help="Give a claim another volume with the same data (alpha).")
@click.argument("words", nargs=-1, metavar="[[pvc] [NAMESPACE/]NAME]", shell_complete=_CLAIM)
@_change_options
@click.option(
    "--restart",
    is_flag=True,
    help="Evict the pods that use the claim; those in their place start with the new volume.",
)
@click.option(
    "--without-hold",
    is_flag=True,
    help="Restart them also where no webhook holds those in their place back.",
)
@click.option(
    "--scale-down",
    is_flag=True,
    help="Scale the owners of the pods that use the claim down, and back afterwards.",
)
@click.option(
    "--keep-source", metavar="HOURS", help="Keep the old volume so long.  [default: 168h]"
)
@click.option("--dry-run", is_flag=True, help="Show the plan, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--resume", metavar="MOVE", shell_complete=_MOVE, help="Follow a move again.")
@click.option(
    "--abort", metavar="MOVE", shell_complete=_MOVE, help="Undo a move, before the phase Swapping."
)
@click.option("--list", "listing", is_flag=True, help="List the moves that there are.")
@click.option("--output", "-o", type=click.Choice(["table", "json"]), default="table")
@cluster_options
def move(*, output: str, target: KubeTarget, **same: Any) -> None:
    """Give a claim another volume with the same data: a VolumeMove, which is alpha.

    The plan is shown first, and you are asked. Then the controller carries the move out; the
    command only shows how far it is, and may be left with Ctrl-C. Run again, it follows the move
    that it began. Without arguments, all moves are listed.

    Exit code 0: done, aborted with --abort, planned with --dry-run, or listed; 1: refused, undone,
    or something else is in the way.
    """
    # ``same``: the options that Given has under the same name, and takes as they are.
    given = Given(**same, as_json=output == "json")
    try:
        _run(target, given)
    except ValueError as error:
        raise click.UsageError(printable(str(error))) from error


def _run(target: KubeTarget, given: Given) -> None:
    match wish_rules.task_of(given):
        case Task.LIST:
            carry_out(_list(target, as_json=given.as_json))
        case Task.RESUME:
            carry_out(_resume(target, *_named(given.resume, target)))
        case Task.ABORT:
            carry_out(_abort(target, *_named(given.abort, target)))
        case Task.MOVE:
            name = claim_name(given.words, target.namespace, target.default_namespace)
            wish = Wish(
                name.namespace,
                name.name,
                given.to,
                given.keep_source or "",
                scale_down=given.scale_down,
                restart=given.restart,
                without_hold=given.without_hold,
            )
            _move(target, wish, given)


def _named(text: str | None, target: KubeTarget) -> tuple[str, str]:
    return namespaced(text or "", target.namespace, target.default_namespace)


@asynccontextmanager
async def _connected(target: KubeTarget) -> AsyncIterator[KubeClient]:
    connected = KubeClient.connect(kubeconfig=target.kubeconfig, context=target.context)
    async with await connected as client:
        yield client


# -- the moves that there are


async def _list(target: KubeTarget, *, as_json: bool) -> int:
    async with _connected(target) as client, screen.progress("reading the moves"):
        found = list_words.in_order(await _every(Moves(client), target))
    if as_json:
        screen.show_json(list_words.as_json(found))
    else:
        screen.show(list_words.lines(found, datetime.now(UTC), width=screen.width()))
    return 0


async def _every(moves: Moves, target: KubeTarget) -> list[VolumeMove]:
    """Those of all namespaces, or of one for whoever may only see that."""
    try:
        return await moves.every(target.namespace)
    except StorageError as error:
        namespace = target.default_namespace
        if error.reason is not Reason.FORBIDDEN or target.namespace or not namespace:
            raise
        found = await moves.every(namespace)
        screen.warn([f"only namespace {namespace} is shown: {error.message}"])
        return found


async def _resume(target: KubeTarget, namespace: str, name: str) -> int:
    async with _connected(target) as client:
        moves = Moves(client)
        return await _followed(target, moves, await _found(moves, namespace, name))


async def _abort(target: KubeTarget, namespace: str, name: str) -> int:
    async with _connected(target) as client:
        moves = Moves(client)
        found = await _found(moves, namespace, name)
        if progress_words.is_late(found):
            raise StorageError(
                Reason.NOT_SUPPORTED,
                f"VolumeMove {found.key} is in the phase {found.told.phase} and cannot be aborted "
                f"any more: it goes on to its end; follow it with {_again(target, found)}",
            )
        aborting = found
        if not wish_rules.has_ended(found):
            aborting = await moves.abort(found) or found
        return await _followed(target, moves, aborting, wanted=Phase.ABORTED)


async def _found(moves: Moves, namespace: str, name: str) -> VolumeMove:
    found = await moves.one(namespace, name)
    if found is None:
        raise StorageError(
            Reason.OBJECT_NOT_FOUND,
            f"there is no VolumeMove {namespace}/{name}: kubectl ebs move --list shows all",
        )
    return found


# -- a new move: the plan, a question, the move


def _move(target: KubeTarget, wish: Wish, given: Given) -> NoReturn:
    """In two parts, with nothing under way while somebody thinks."""
    if not (given.yes or given.dry_run or _can_ask()):
        raise click.ClickException(
            f"nobody can be asked whether to move claim {wish.claim_key}: give --yes, or --dry-run "
            "for the plan alone"
        )
    prepared = result_of(_prepare(target, wish, dry_run=given.dry_run))
    if prepared is None:
        sys.exit(0)
    if prepared.is_planned and not given.yes:
        _confirm(wish)
    carry_out(_carry_out(target, wish, prepared))


def _can_ask() -> bool:
    return sys.stdin.isatty()


async def _prepare(target: KubeTarget, wish: Wish, *, dry_run: bool) -> Prepared | None:
    """What is to be followed; None if there is nothing more to do, which is said.

    Raises:
        StorageError: it cannot be; nothing was touched.
    """
    async with _connected(target) as client:
        moves = Moves(client)
        there = await moves.every(wish.namespace)
        running = wish_rules.running(there, wish.claim_name)
        if running is not None:
            return Prepared(_usable(wish, running, dry_run=dry_run))
        await moves.check_rights(wish.namespace, *_VERBS)
        claim = await moves.claim(wish.namespace, wish.claim_name)
        if claim is None:
            raise StorageError(Reason.OBJECT_NOT_FOUND, f"there is no pvc {wish.claim_key}")
        before = wish_rules.done_before(there, wish, claim)
        if before is not None:
            screen.show([f"VolumeMove {before.key} has done this: claim {wish.claim_key} is moved"])
            return None
        async with screen.progress("waiting for the plan"):
            planned = await make_plan(moves, wish, claim)
        if planned.told.phase != Phase.PLANNED:
            raise StorageError(
                Reason.NOT_SUPPORTED,
                f"claim {wish.claim_key} cannot be moved so: {planned.told.message}",
            )
        await _show(client, planned)
        if dry_run:
            return None
        name = wish_rules.name_of(wish, claim.uid, {each.name for each in there})
        return Prepared(planned, name)


def _usable(wish: Wish, running: VolumeMove, *, dry_run: bool) -> VolumeMove:
    """The move that is under way, if it is the one that is asked for."""
    why = wish_rules.unlike(wish, running)
    if why is None and dry_run:
        why = f"VolumeMove {running.key} is doing this already: follow it without --dry-run"
    if why is not None:
        raise StorageError(Reason.CONFLICT, why)
    return running


async def _show(client: KubeClient, planned: VolumeMove) -> None:
    cluster = Cluster(client)
    async with screen.progress("looking at what uses the claim"):
        stops = await how_to_stop(cluster, planned)
    screen.show(plan_words.lines(planned, stops, width=screen.text_width()))
    screen.warn(gap_rules.lines(cluster.gaps))


def _confirm(wish: Wish) -> None:
    if not click.confirm(f"Move claim {wish.claim_key}?", default=False, err=True):
        raise click.ClickException("nothing was changed")


async def _carry_out(target: KubeTarget, wish: Wish, prepared: Prepared) -> int:
    async with _connected(target) as client:
        moves = Moves(client)
        if not prepared.is_planned:
            screen.show([f"VolumeMove {prepared.move.key} is moving this claim already."])
            return await _followed(target, moves, prepared.move)
        body = wish_rules.body(wish, prepared.name)
        try:
            made = await moves.make(wish.namespace, body)
        except asyncio.CancelledError:
            screen.warn(["The move may have begun: kubectl ebs move --list shows it."])
            raise
        screen.show([f"VolumeMove {made.key} is created."])
        return await _followed(target, moves, made, confirmed=prepared.move)


async def _followed(
    target: KubeTarget,
    moves: Moves,
    found: VolumeMove,
    *,
    wanted: Phase = Phase.DONE,
    confirmed: VolumeMove | None = None,
) -> int:
    """Follow a move; whoever leaves is told that it goes on, and how to come back."""
    if Display().is_live and not wish_rules.has_ended(found):
        screen.warn(["Ctrl-C ends the look at it; the move goes on."])
    try:
        follower = Follower(moves, Display(), wanted=wanted, confirmed=confirmed)
        return await follower.follow(found)
    except (asyncio.CancelledError, StorageError):
        screen.warn([f"VolumeMove {found.key} goes on. To follow it: {_again(target, found)}"])
        raise


def _again(target: KubeTarget, found: VolumeMove) -> str:
    command = shell("kubectl ebs move -n {} --resume {}", found.metadata.namespace, found.name)
    return command + (shell(" --context {}", target.context) if target.context else "")
