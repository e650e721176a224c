"""Follow a move to its end. Nothing depends on it: it may stop at any time, and begin again."""

import asyncio
import math
from dataclasses import replace

from provisioner.model.errors import NO_ANSWER, Reason, StorageError
from provisioner.model.volume_move import Phase, VolumeMove
from provisioner.moves import progress_words, wish_rules
from provisioner.moves.display import Display
from provisioner.moves.plan import NOBODY_PLANS
from provisioner.moves.progress_words import End
from provisioner.moves.requests import Moves

_LOOK_AGAIN_S = 1.0
_MEASURE_AGAIN_S = 10.0
_MEASURE_S = 2.0  # the look at the move does not wait longer for a node
_UNTAKEN_S = 60.0
_CHANGED = (
    "the claim, its volume, its class, what it would lose or an owner of its pods has changed "
    "since you agreed to the plan"
)


class Follower:
    """Shows one move.

    Args:
        moves: on the API server.
        display: where it is shown.
        wanted: how it is to end: DONE, or ABORTED for somebody who aborts it.
        confirmed: the dry run whose plan somebody has agreed to; a move with another is aborted.
    """

    def __init__(
        self,
        moves: Moves,
        display: Display,
        *,
        wanted: Phase = Phase.DONE,
        confirmed: VolumeMove | None = None,
    ) -> None:
        self._moves = moves
        self._display = display
        self._wanted = wanted
        self._confirmed = confirmed
        self._is_unlike_confirmed = False
        self._shown: tuple[str, str, int] | None = None
        self._is_away = False
        self._is_untaken_told = False
        self._told_consumers: set[str] = set()
        self._copied_bytes = (0, 0)  # of all
        self._measure_at_s = 0.0

    async def follow(self, move: VolumeMove) -> int:
        """Show a move until it ends; the status to exit with.

        Raises:
            StorageError: it cannot be read any more, other than for a while.
        """
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            while True:
                await self._hold_to_what_was_confirmed(move)
                end = progress_words.ending(move, wanted=self._wanted)
                self._show_consumers(move)
                if end is not None:
                    return self._ended(end)
                self._show(move, loop.time() - began_s)
                await asyncio.sleep(_LOOK_AGAIN_S)
                seen = await self._look(move)
                if seen is None or seen.uid != move.uid:
                    return self._ended(await self._gone(move))
                move = progress_words.counted(seen, *await self._copied(seen))
        finally:
            self._display.clear()

    def _ended(self, end: End) -> int:
        end = replace(end, status=1) if self._is_unlike_confirmed else end
        self._display.say(end.sentence, end.colour)
        return end.status

    def _show(self, move: VolumeMove, passed_s: float) -> None:
        mark, display = progress_words.mark(move), self._display
        before, self._shown = self._shown, mark
        is_another_phase = before is None or before[0] != mark[0]
        if is_another_phase or (mark != before and not display.is_live):
            display.say(progress_words.line(move))
        display.draw(progress_words.bar_line(move, passed_s))
        is_untaken = move.told.phase == Phase.NEW and passed_s >= _UNTAKEN_S
        if is_untaken and not self._is_untaken_told:
            self._is_untaken_told = True
            display.say(f"nobody has begun for {_UNTAKEN_S:.0f} s: {NOBODY_PLANS}")

    def _show_consumers(self, move: VolumeMove) -> None:
        """Once each: who was scaled, and who is back."""
        for each in progress_words.consumers(move):
            if each not in self._told_consumers:
                self._told_consumers.add(each)
                self._display.say(each)

    async def _hold_to_what_was_confirmed(self, move: VolumeMove) -> None:
        """Until the exchange it costs nothing to abort; one that was faster is told."""
        confirmed = self._confirmed
        if confirmed is None or move.told.plan is None:
            return
        if wish_rules.changed_since(confirmed, move):
            self._is_unlike_confirmed = True
            if progress_words.is_late(move) or move.told.phase == Phase.DONE:
                self._display.say(progress_words.too_late(move, _CHANGED))
            elif not wish_rules.has_ended(move):
                await self._moves.abort(move)
                self._display.say(f"{_CHANGED}, so the move is aborted: run the command again")
        self._confirmed = None

    async def _look(self, move: VolumeMove) -> VolumeMove | None:
        """The move as it is now; as it was while the API server does not answer."""
        try:
            seen = await self._moves.one(move.metadata.namespace, move.name)
        except StorageError as error:
            if error.reason not in NO_ANSWER:
                raise
            if not self._is_away:
                self._display.say(f"{error.message}; the move goes on, and so does the look at it")
            self._is_away = True
            return move
        self._is_away = False
        return seen

    async def _copied(self, move: VolumeMove) -> tuple[int, int]:
        """How far a pod is that copies files, by its node: the controller does not know."""
        now_s = asyncio.get_running_loop().time()
        if move.told.phase != Phase.COPYING or now_s < self._measure_at_s:
            return self._copied_bytes
        self._measure_at_s = now_s + _MEASURE_AGAIN_S
        try:
            async with asyncio.timeout(_MEASURE_S):
                found = await self._moves.copied_bytes(move)
        except StorageError as error:
            if error.reason is Reason.FORBIDDEN:
                self._measure_at_s = math.inf
        except (TimeoutError, ValueError):
            pass  # what was measured before stays; this is only for the eye
        else:
            self._copied_bytes = found if all(found) else self._copied_bytes
        return self._copied_bytes

    async def _gone(self, move: VolumeMove) -> End:
        claim = await self._moves.claim(move.metadata.namespace, move.spec.claim_name)
        name = claim.spec.volume_name if claim is not None else None
        return progress_words.gone(move, name, wanted=self._wanted)
