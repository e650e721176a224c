"""``kubectl ebs move``: give a claim another volume with the same data."""

import asyncio
import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NoReturn

import click

from provisioner.inspect.command_line import KubeTarget, carry_out, cluster_options, result_of
from provisioner.inspect.completion.objects import names_of, object_words
from provisioner.inspect.object_name_rules import namespaced
from provisioner.inspect.shell_words import shell, with_cluster
from provisioner.inspect.terminal import screen
from provisioner.kube.resources import VOLUME_MOVES
from provisioner.model.errors import Reason, StorageError
from provisioner.model.sentences import listed, printable
from provisioner.model.volume_move import Phase, VolumeMove
from provisioner.moves import (
    asking,
    list_words,
    progress_words,
    showing,
    together,
    wish_rules,
)
from provisioner.moves.display import Display, SharedDisplay
from provisioner.moves.requests import Moves, connected
from provisioner.moves.sets import set_command
from provisioner.moves.sets.set_rules import SetWish
from provisioner.moves.subject_rules import Subject, is_set, subject
from provisioner.moves.wish_rules import Given, Prepared, Task, Wish

_CLAIM = object_words(["pvc"])
_MOVE = names_of(VOLUME_MOVES)
_GOES_BACK = "; once it is Done, --abort goes back to the old volume"


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
@click.argument("words", nargs=-1, metavar="[pvc/NAME... | sts/NAME]", shell_complete=_CLAIM)
@_change_options
@click.option(
    "--restart",
    is_flag=True,
    help="Evict the pods that use the claim; those in their place start with the new volume.",
)
@click.option(
    "--without-hold",
    is_flag=True,
    help="Move the claim also where no webhook holds new pods of it back.",
)
@click.option(
    "--scale-down",
    is_flag=True,
    help="Scale the owners of the pods that use the claim down, and back afterwards.",
)
@click.option(
    "--no-warm",
    is_flag=True,
    help="Stop pods at once, and longer: take no snapshots while they run.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Have a node read the file system of the new volume before the claim gets it.",
)
@click.option(
    "--at-once",
    type=click.IntRange(min=1),
    help="So many replicas of a StatefulSet may be stopped at once.  [default: 1]",
)
@click.option(
    "--keep-source", metavar="HOURS", help="Keep the old volume so long.  [default: 168h]"
)
@click.option("--dry-run", is_flag=True, help="Show the plan, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--resume", metavar="MOVE", shell_complete=_MOVE, help="Follow a move again.")
@click.option(
    "--abort",
    metavar="MOVE",
    shell_complete=_MOVE,
    help="Undo a move; one that is done by another move, back to the old volume.",
)
@click.option("--list", "listing", is_flag=True, help="List the moves that there are.")
@click.option("--output", "-o", type=click.Choice(["table", "json"]), default="table")
@cluster_options
def move(*, output: str, target: KubeTarget, **same: Any) -> None:
    """Give a claim another volume with the same data: a VolumeMove, which is alpha.

    The plan is shown first, and you are asked. Then the controller carries the move out; the
    command only shows how far it is, and may be left with Ctrl-C. Run again, it follows the move
    that it began. Without arguments, all moves are listed.

    Several claims are moved at the same time: name all that the same pods use. Of a StatefulSet,
    the claims of one replica after the other are moved, each once the ones before are Ready; left
    and run again, it goes on with the next one.

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
            carry_out(_resume(target, _named(given.resume, target)))
        case Task.ABORT:
            _abort_or_go_back(target, given)
        case Task.MOVE:
            meant = subject(given.words, target.namespace, target.default_namespace)
            wish = Wish(
                meant.namespace,
                "",
                given.to,
                given.keep_source or "",
                scale_down=given.scale_down,
                restart=given.restart,
                without_hold=given.without_hold,
                no_warm=given.no_warm,
                check=given.check,
                set_name=meant.set_name,
            )
            if meant.set_name:
                set_command.move(target, SetWish(wish, given.at_once or 1), given)
            _move(target, [replace(wish, claim_name=each) for each in meant.claims], given)


def _named(text: str | None, target: KubeTarget) -> Subject:
    """A VolumeMove by its name, as a claim of that name; or those of a StatefulSet."""
    if is_set(text or ""):
        return subject((text or "",), target.namespace, target.default_namespace)
    space, name = namespaced(text or "", target.namespace, target.default_namespace)
    return Subject(space, (name,))


# -- the moves that there are


async def _list(target: KubeTarget, *, as_json: bool) -> int:
    async with connected(target) as client, screen.progress("reading the moves"):
        found = list_words.in_order(await _every(Moves(client, target.flags), target))
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


async def _resume(target: KubeTarget, named: Subject) -> int:
    async with connected(target) as client:
        moves = Moves(client, target.flags)
        return await _followed(target, moves, await _found(moves, named))


def _abort_or_go_back(target: KubeTarget, given: Given) -> NoReturn:
    """A move that is done is undone by another one, with a plan of its own."""
    done = result_of(_abort(target, _named(given.abort, target), given))
    if not isinstance(done, int):
        _move(target, done, given)
    sys.exit(done)


async def _abort(target: KubeTarget, named: Subject, given: Given) -> int | Sequence[Wish]:
    """The status to exit with; or the moves that take the place of those that are done."""
    async with connected(target) as client:
        moves = Moves(client, target.flags)
        found = await _found(moves, named)
        if len(found) == 1 and found[0].told.phase == Phase.DONE and found[0].spec.moved_with:
            found += wish_rules.done_with(await moves.every(named.namespace), found[0])
        back = wish_rules.back_before(found, given)
        if back:
            return back
        late = [each for each in found if progress_words.is_late(each)]
        if len(late) == len(found):
            first = late[0]
            if all(each.told.phase == Phase.CLEANING for each in found):
                await _wait_no_longer(moves, found)
            raise StorageError(
                Reason.NOT_SUPPORTED,
                f"VolumeMove {first.key} is in the phase {first.told.phase} and cannot be aborted "
                f"any more: it goes on to its end; follow it with {_again(target, first)}"
                f"{'' if first.keeps_volume else _GOES_BACK}",
            )
        # One that has only promised to go on is undone with those that go by it.
        going_on = [each for each in late if not each.is_promised]
        aborting = [
            each if wish_rules.has_ended(each) else await moves.abort(each) or each
            for each in found
            if each not in going_on
        ]
        for each in going_on:
            screen.warn([f"VolumeMove {each.key} is in the phase {each.told.phase} and goes on"])
        return await _followed(target, moves, aborting, wanted=Phase.ABORTED)


async def _wait_no_longer(moves: Moves, found: Sequence[VolumeMove]) -> NoReturn:
    """Moves that only wait until pods have the new volumes are Done at once then.

    Raises:
        StorageError: always; says how to go on.
    """
    for each in found:
        await moves.abort(each)
    names = listed([each.key for each in found], "and")
    raise StorageError(
        Reason.NOT_SUPPORTED,
        f"VolumeMove {names} has exchanged the claim already, and waits for no pod any more: give "
        "the same command once it is Done, and it goes back to the old volume",
    )


async def _found(moves: Moves, named: Subject) -> list[VolumeMove]:
    """A move and those that go with it; or all under way of a StatefulSet."""
    namespace = named.namespace
    if named.set_name:
        of_set = wish_rules.of_set(await moves.every(namespace), named.set_name)
        if not of_set:
            raise StorageError(
                Reason.OBJECT_NOT_FOUND,
                f"no VolumeMove of StatefulSet {namespace}/{named.set_name} is under way: kubectl "
                "ebs move --list shows all",
            )
        return of_set
    (name,) = named.claims
    found = await moves.one(namespace, name)
    if found is None:
        raise StorageError(
            Reason.OBJECT_NOT_FOUND,
            f"there is no VolumeMove {namespace}/{name}: kubectl ebs move --list shows all",
        )
    if not found.spec.moved_with:
        return [found]
    return [found, *wish_rules.moved_with(await moves.every(namespace), found)]


# -- new moves: the plan, a question, the moves


def _move(target: KubeTarget, wishes: Sequence[Wish], given: Given) -> NoReturn:
    """In two parts, with nothing under way while somebody thinks."""
    what = _what(wishes)
    asking.check(what, given)
    prepared = result_of(_prepare(target, wishes, dry_run=given.dry_run))
    if prepared is None:
        sys.exit(0)
    if any(each.is_planned for each in prepared):
        asking.confirm(_question(wishes), given)
    carry_out(_carry_out(target, prepared))


def _what(wishes: Sequence[Wish]) -> str:
    names = [each.claim_key for each in wishes]
    return f"claim {names[0]}" if len(names) == 1 else f"claims {listed(names, 'and')}"


def _question(wishes: Sequence[Wish]) -> str:
    what, before = _what(wishes), sorted({each.to.source for each in wishes if each.to.source})
    if before:
        theirs = "its volume" if len(wishes) == 1 else "their volumes"
        return f"Give {what} {theirs} from before {listed(before, 'and')} again?"
    return f"Move {what}?"


async def _prepare(
    target: KubeTarget, wishes: Sequence[Wish], *, dry_run: bool
) -> list[Prepared] | None:
    """What is to be followed; None if there is nothing more to do, which is said.

    Raises:
        StorageError: it cannot be; nothing was touched.
    """
    async with connected(target) as client:
        async with screen.progress("waiting for the plan"):
            (prepared,) = await together.prepare(
                Moves(client, target.flags), [wishes], dry_run=dry_run
            )
        for each in prepared:
            if each.is_there:
                screen.show([_is_there(each)])
        planned = [each.move for each in prepared if each.is_planned]
        if planned:
            await showing.show(client, planned, target.flags)
        if dry_run or all(each.is_there for each in prepared):
            return None
        return prepared


def _is_there(prepared: Prepared) -> str:
    key, move = prepared.wish.claim_key, prepared.move
    if move.spec.dry_run:
        return f"claim {key} is passed over: {move.told.message}"
    return f"VolumeMove {move.key} has done this: claim {key} is moved"


async def _carry_out(target: KubeTarget, prepared: Sequence[Prepared]) -> int:
    async with connected(target) as client:
        going = [each for each in prepared if not each.is_there]
        moves = Moves(client, target.flags)
        made = await together.make(moves, going)
        followed = list(zip(made, [each.agreed for each in going], strict=True))
        return await _follow(target, moves, followed)


async def _followed(
    target: KubeTarget,
    moves: Moves,
    found: Sequence[VolumeMove],
    *,
    wanted: Phase = Phase.DONE,
) -> int:
    return await _follow(target, moves, [(each, None) for each in found], wanted=wanted)


async def _follow(
    target: KubeTarget,
    moves: Moves,
    followed: Sequence[tuple[VolumeMove, VolumeMove | None]],
    *,
    wanted: Phase = Phase.DONE,
) -> int:
    """Follow moves; whoever leaves is told that they go on, and how to come back."""
    found = [move for move, _ in followed]
    if Display().is_live and not all(map(wish_rules.has_ended, found)):
        screen.warn([f"Ctrl-C ends the look at {_it(found)}; {_goes_on(found)}."])
    shared = SharedDisplay(moves.flags) if len(found) > 1 else None
    try:
        return await together.follow(moves, followed, shared, wanted=wanted)
    except (asyncio.CancelledError, StorageError):
        for each in found:
            again = with_cluster(_again(target, each), target.flags)
            screen.warn([f"VolumeMove {each.key} goes on. To follow it: {again}"])
        raise


def _it(found: Sequence[VolumeMove]) -> str:
    return "it" if len(found) == 1 else "them"


def _goes_on(found: Sequence[VolumeMove]) -> str:
    return "the move goes on" if len(found) == 1 else "the moves go on"


def _again(target: KubeTarget, found: VolumeMove) -> str:
    """What follows a move again, as the same user; without the flags that name the cluster."""
    command = shell("kubectl ebs move -n {} --resume {}", found.metadata.namespace, found.name)
    other = target.impersonate
    command += shell(" --as {}", other.user) if other.user else ""
    command += "".join(shell(" --as-group {}", each) for each in other.groups)
    return command + (shell(" --as-uid {}", other.uid) if other.uid else "")
