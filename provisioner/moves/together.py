"""Claims that are moved at the same time: one, or several that the same pods use.

They are prepared, made and followed together. If one of them cannot be, or fails, the others are
undone as long as that is possible.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from provisioner.inspect.shell_words import with_cluster
from provisioner.inspect.terminal import screen
from provisioner.model.errors import Reason, StorageError
from provisioner.model.volume_move import Phase, VolumeMove
from provisioner.moves import progress_words, wish_rules
from provisioner.moves.display import Display, SharedDisplay
from provisioner.moves.follow import Follower
from provisioner.moves.plan import make_plan
from provisioner.moves.requests import Moves
from provisioner.moves.wish_rules import Prepared, Wish

_VERBS = ("create", "get", "delete")
# Dry runs that are there at the same time; the controller plans each of them.
_PLANS_AT_ONCE = 10
R = TypeVar("R")
Group = Sequence[Wish]


async def prepare(
    moves: Moves, groups: Sequence[Group], *, dry_run: bool = False
) -> list[list[Prepared]]:
    """What is to be done for groups of claims of one namespace.

    Args:
        moves: on the API server.
        groups: claims that go together; dry runs are made, in parallel, for all of them.
        dry_run: nothing is to follow: one move that is under way already is an error then.

    Raises:
        StorageError: one of them cannot be moved; nothing was touched.
    """
    namespace = groups[0][0].namespace
    there = await moves.every(namespace)
    known = {each.claim_key: _under_way(each, there) for group in groups for each in group}
    if dry_run and all(known.values()):
        first = next(each for each in known.values() if each is not None)
        raise StorageError(
            Reason.CONFLICT,
            f"VolumeMove {first.key} is doing this already: follow it without --dry-run",
        )
    if not all(known.values()):
        await moves.check_rights(namespace, *_VERBS)
    limit = asyncio.Semaphore(_PLANS_AT_ONCE)
    found = await _all(_one(moves, wish, group, there, limit) for group in groups for wish in group)
    if len(found) > 1 or found[0].wish.set_name:
        found = [_passed_over(each) for each in found]
    _check_plans(found)
    by_claim = {each.wish.claim_key: each for each in found}
    taken = {each.name for each in there}
    named = [_named([by_claim[wish.claim_key] for wish in group], taken) for group in groups]
    final = [await _all(_planned_as_named(moves, each, limit) for each in group) for group in named]
    every = [each for group in final for each in group]
    _check_plans(every)
    await _all(_check_room(moves, each) for each in every if each.is_planned)
    return final


def _check_plans(found: Iterable[Prepared]) -> None:
    refused = wish_rules.refused([each.move for each in found if each.is_planned])
    if refused is not None:
        raise StorageError(Reason.NOT_SUPPORTED, refused)


async def _check_room(moves: Moves, prepared: Prepared) -> None:
    """Refuse what would be undone once pods are stopped, if their node knows it now."""
    plan = prepared.move.told.plan
    if plan is None or not plan.copies_files:
        return
    why = wish_rules.too_small(prepared.move, await moves.used_bytes(prepared.move))
    if why is not None:
        raise StorageError(Reason.NOT_SUPPORTED, why)


async def _planned_as_named(moves: Moves, named: Prepared, limit: asyncio.Semaphore) -> Prepared:
    """Once more if it goes with fewer claims than it was planned with: others have arrived.

    Their pods do not stop, so that what is agreed to would not be what is done.
    """
    wish = named.wish
    if not named.is_planned or {*named.move.spec.moved_with} == {*wish.moved_with}:
        return named
    claim = await moves.claim(wish.namespace, wish.claim_name)
    if claim is None:
        raise StorageError(Reason.OBJECT_NOT_FOUND, f"there is no pvc {wish.claim_key}")
    async with limit:
        return replace(named, move=await make_plan(moves, wish, claim))


def _under_way(wish: Wish, there: Sequence[VolumeMove]) -> VolumeMove | None:
    """The move that is under way, if it is the one that is asked for."""
    running = wish_rules.running(there, wish.claim_name)
    why = wish_rules.unlike(wish, running) if running is not None else None
    if why is not None:
        raise StorageError(Reason.CONFLICT, why)
    return running


async def _one(
    moves: Moves,
    wish: Wish,
    group: Group,
    there: Sequence[VolumeMove],
    limit: asyncio.Semaphore,
) -> Prepared:
    running = wish_rules.running(there, wish.claim_name)
    if running is not None:
        return Prepared(wish, running)
    claim = await moves.claim(wish.namespace, wish.claim_name)
    if claim is None:
        raise StorageError(Reason.OBJECT_NOT_FOUND, f"there is no pvc {wish.claim_key}")
    before = wish_rules.done_before(there, wish, claim)
    if before is not None:
        why = wish_rules.keeps_otherwise(wish, before)
        if why is not None:
            raise StorageError(Reason.CONFLICT, why)
        return Prepared(wish, before, is_there=True)
    others = tuple(each.claim_name for each in group if each.claim_name != wish.claim_name)
    async with limit:
        planned = await make_plan(moves, replace(wish, moved_with=others), claim)
    return Prepared(wish, planned)


def _passed_over(prepared: Prepared) -> Prepared:
    """Of many claims, those that are as asked; one alone is told that nothing is done."""
    if prepared.is_planned and prepared.move.told.as_asked:
        return replace(prepared, is_there=True)
    return prepared


def _named(group: Sequence[Prepared], taken: set[str]) -> list[Prepared]:
    """The same, each with the name of the move to come, and with those that go with it."""
    going = [each for each in group if not each.is_there]
    named = []
    for each in group:
        if not each.is_planned:
            named.append(each)
            continue
        claim = each.wish.claim_name
        others = tuple(
            other.wish.claim_name
            for other in going
            if other is not each and (other.is_planned or claim in other.move.spec.moved_with)
        )
        wish, source = replace(each.wish, moved_with=others), each.move.told.source
        uid = source.claim_uid if source is not None else ""
        named.append(replace(each, wish=wish, name=wish_rules.name_of(wish, uid, taken)))
    return named


async def _all(work: Iterable[Coroutine[Any, Any, R]]) -> list[R]:
    """All results, or the first failure once all have ended: each clears away what it has made."""
    found = await asyncio.gather(*work, return_exceptions=True)
    failed = next((each for each in found if isinstance(each, BaseException)), None)
    if failed is not None:
        raise failed
    return [each for each in found if not isinstance(each, BaseException)]


async def make(
    moves: Moves, going: Sequence[Prepared], display: Display | None = None
) -> list[VolumeMove]:
    """Make the moves that are not under way yet.

    Args:
        moves: on the API server.
        going: claims that go together, with something to do.
        display: where it is said.

    Returns:
        A move for each.

    Raises:
        StorageError: one could not be made; the others are aborted.
    """
    where, is_alone = display or Display(moves.flags), display is None and len(going) == 1
    work = [_made(moves, each, where, is_alone=is_alone) for each in going]
    try:
        found = await asyncio.gather(*work, return_exceptions=True)
    except asyncio.CancelledError:
        told = "The move may have begun: kubectl ebs move --list shows it."
        screen.warn([with_cluster(told, moves.flags)])
        raise
    failed = next((each for each in found if isinstance(each, BaseException)), None)
    made = [each for each in found if not isinstance(each, BaseException)]
    if failed is not None:
        await abort(moves, made)
        raise failed
    return made


async def _made(
    moves: Moves, prepared: Prepared, display: Display, *, is_alone: bool
) -> VolumeMove:
    if not prepared.is_planned:
        what = "this claim" if is_alone else f"claim {prepared.wish.claim_name}"
        display.say(f"VolumeMove {prepared.move.key} is moving {what} already.")
        return prepared.move
    body = wish_rules.body(prepared.wish, prepared.name)
    made = await moves.make(prepared.wish.namespace, body)
    display.say(f"VolumeMove {made.key} is created.")
    return made


async def follow(
    moves: Moves,
    followed: Sequence[tuple[VolumeMove, VolumeMove | None]],
    display: SharedDisplay | None = None,
    *,
    wanted: Phase = Phase.DONE,
) -> int:
    """Show moves until all have ended. If one does not end as wanted, the others are aborted.

    Args:
        moves: on the API server.
        followed: each with the dry run whose plan somebody has agreed to, if there is one.
        display: where they are shown, each under the name of its claim; None for one alone.
        wanted: how they are to end.

    Returns:
        The status to exit with.

    Raises:
        StorageError: one cannot be read any more.
    """
    tasks: dict[asyncio.Task[int], VolumeMove] = {}
    for move, confirmed in followed:
        where = display.part(move.spec.claim_name) if display is not None else Display(moves.flags)
        follower = Follower(moves, where, wanted=wanted, confirmed=confirmed)
        tasks[asyncio.create_task(follower.follow(move))] = move
    status, pending = 0, set(tasks)
    try:
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            failed = max(each.result() for each in done)
            if failed and wanted is Phase.DONE:
                await abort(moves, [tasks[each] for each in pending])
            status = max(status, failed)
    finally:
        for each in pending:
            each.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
    return status


async def abort(moves: Moves, those: Iterable[VolumeMove]) -> None:
    """Have moves undone, as far as that is still possible."""
    for each in those:
        seen = await moves.one(each.metadata.namespace, each.name)
        if seen is None or seen.uid != each.uid or wish_rules.has_ended(seen):
            continue
        if not progress_words.is_late(seen):
            await moves.abort(seen)
