"""The plan of a move, by a dry run: made, read, and deleted again."""

import asyncio
import secrets

from provisioner.inspect.shell_words import shell, with_cluster
from provisioner.inspect.terminal import screen
from provisioner.model.claim import Claim
from provisioner.model.errors import NO_ANSWER, Reason, StorageError
from provisioner.model.volume_move import Phase, VolumeMove
from provisioner.moves import wish_rules
from provisioner.moves.requests import Moves
from provisioner.moves.wish_rules import Wish

NOBODY_PLANS = (
    "does a controller run with --volume-moves (with Helm controller.volumeMoves=true), for the "
    "driver of the claim's volume?"
)
PATIENCE_S = 60.0
_LOOK_AGAIN_S = 0.5
_REMOVE_S = 5.0


async def make_plan(moves: Moves, wish: Wish, claim: Claim) -> VolumeMove:
    """A dry run with its plan, or with why there is none; it is deleted already.

    Killed in between, it leaves a dry run, which nobody carries out and which its claim owns.

    Raises:
        StorageError: it cannot be made, or no controller makes a plan within a minute.
    """
    name = wish_rules.plan_name(wish, secrets.token_hex(4))
    body = wish_rules.body(wish, name, dry_run_of=claim)
    made = await moves.make(wish.namespace, body)
    try:
        return await _with_plan(moves, made)
    finally:
        await _remove(moves, made)


async def _with_plan(moves: Moves, made: VolumeMove) -> VolumeMove:
    loop = asyncio.get_running_loop()
    until = loop.time() + PATIENCE_S
    seen: VolumeMove | None = made
    while True:
        if seen is None or seen.uid != made.uid:
            raise StorageError(
                Reason.CONFLICT,
                f"the dry run {made.key} was deleted by somebody before its plan was made: run it "
                "again",
            )
        if seen.told.phase != Phase.NEW:
            return seen
        if loop.time() >= until:
            raise StorageError(
                Reason.TIMED_OUT,
                f"nobody has made a plan for claim {made.claim_key} within {PATIENCE_S:.0f} s: "
                f"{NOBODY_PLANS}",
            )
        await asyncio.sleep(_LOOK_AGAIN_S)
        try:
            seen = await moves.one(made.metadata.namespace, made.name)
        except StorageError as error:
            if error.reason not in NO_ANSWER or loop.time() >= until:
                raise


async def _remove(moves: Moves, made: VolumeMove) -> None:
    """Delete the dry run; one that is left does no harm, so it is told and not raised."""
    try:
        async with asyncio.timeout(_REMOVE_S):
            await moves.remove(made)
    except (StorageError, TimeoutError):
        namespace = made.metadata.namespace
        command = shell("kubectl -n {} delete volumemove {}", namespace, made.name)
        command = with_cluster(command, moves.flags)
        screen.warn([f"the dry run {made.key} could not be deleted; it does nothing: {command}"])
