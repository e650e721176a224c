"""The moves of a StatefulSet's replicas, so many at a time."""

import asyncio
from collections.abc import Collection, Sequence

from provisioner.inspect.shell_words import shell
from provisioner.model.errors import NO_ANSWER, StorageError
from provisioner.model.sentences import listed
from provisioner.moves import together
from provisioner.moves.display import SharedDisplay
from provisioner.moves.requests import Moves
from provisioner.moves.sets import set_rules
from provisioner.moves.sets.preparing import PreparedSet, down_of, is_under_way
from provisioner.moves.sets.set_rules import Replica
from provisioner.moves.wish_rules import Prepared

_LOOK_AGAIN_S = 2.0
# A pod that takes longer to become Ready has something that waiting does not help.
_PATIENCE_S = 600.0


class Row:
    """The moves of a StatefulSet's replicas, so many at a time.

    Args:
        moves: on the API server.
        prepared: what is to be done.
        display: where it is shown.
    """

    def __init__(self, moves: Moves, prepared: PreparedSet, display: SharedDisplay) -> None:
        self._moves = moves
        self._prepared = prepared
        self._display = display
        self._todo = list(prepared.replicas)
        self._going: dict[asyncio.Task[int], Replica] = {}
        self._waits_since: float | None = None
        self._told = ""

    async def carry_out(self) -> int:
        """Move one replica after the other; the status to exit with.

        Raises:
            StorageError: a move could not be made, or cannot be read any more.
        """
        try:
            for each, group in list(self._todo):
                if any(is_under_way(claim) for claim in group):
                    self._begin(each)
            while True:
                why = await self._ended()
                if why is not None:
                    return await self._stop(why)
                down = await self._down()
                self._begin_those_that_may(down)
                if not self._todo and not self._going and not down:
                    self._display.say(f"StatefulSet {self._prepared.wish.key} is moved", "green")
                    return 0
                why = self._impatient(down)
                if why is not None:
                    return await self._stop(why)
                await self._pause()
        finally:
            for task in self._going:
                task.cancel()
            await asyncio.gather(*self._going, return_exceptions=True)
            self._display.clear()

    def _begin(self, chosen: Replica) -> None:
        group = next(group for each, group in self._todo if each is chosen)
        self._todo = [pair for pair in self._todo if pair[0] is not chosen]
        self._going[asyncio.create_task(self._move(group))] = chosen

    async def _move(self, group: Sequence[Prepared]) -> int:
        going = [each for each in group if not each.is_there]
        made = await together.make(self._moves, going, self._display)
        followed = list(zip(made, [each.agreed for each in going], strict=True))
        return await together.follow(self._moves, followed, self._display)

    def _begin_those_that_may(self, down: Collection[str]) -> None:
        prepared = self._prepared
        while True:
            waiting, going = [each for each, _ in self._todo], [*self._going.values()]
            at_once = prepared.wish.at_once
            if prepared.wish.is_stopped_whole:
                at_once = len(prepared.running) + 1
            chosen = set_rules.next_one(waiting, going, down, at_once)
            if chosen is None:
                return
            self._begin(chosen)

    async def _ended(self) -> str | None:
        """Why no other replica is begun, as a sentence; None if all that have ended are moved."""
        done = [each for each in self._going if each.done()]
        failed = []
        for each in done:
            chosen = self._going.pop(each)
            if each.result():
                failed.append(chosen.pod)
        return f"the move of replica {listed(failed, 'and')} did not end well" if failed else None

    async def _down(self) -> set[str]:
        """Pods that are not Ready; all of them while the API server does not answer."""
        prepared, namespace = self._prepared, self._prepared.wish.wish.namespace
        try:
            return await down_of(self._moves, prepared.found, prepared.running, namespace)
        except StorageError as error:
            if error.reason not in NO_ANSWER:
                raise
            return {each.pod for each in prepared.running}

    def _impatient(self, down: Collection[str]) -> str | None:
        """Why it is not waited any longer for pods to be Ready."""
        now_s = asyncio.get_running_loop().time()
        if self._going or not down:
            self._waits_since = None
            return None
        pods = listed(down, "and")
        if self._waits_since is None:
            self._waits_since = now_s
        told = f"waiting until pod {pods} is Ready"
        if told != self._told:
            self._told = told
            self._display.say(told)
        if now_s - self._waits_since < _PATIENCE_S:
            return None
        look = shell("kubectl ebs explain pod {}/{}", self._prepared.wish.wish.namespace, min(down))
        return f"pod {pods} is not Ready after {_PATIENCE_S / 60:.0f} minutes ({look})"

    async def _pause(self) -> None:
        if self._going:
            await asyncio.wait(
                self._going, timeout=_LOOK_AGAIN_S, return_when=asyncio.FIRST_COMPLETED
            )
        else:
            await asyncio.sleep(_LOOK_AGAIN_S)

    async def _stop(self, why: str) -> int:
        """Begin no other replica; those that were begun are shown to their end."""
        if self._going:
            await asyncio.wait(self._going)
        left = [each.pod for each, _ in self._todo]
        rest = f"; replicas {listed(left, 'and')} are as they were" if left else ""
        self._display.say(f"{why}, so no other replica is begun{rest}: run it again then", "red")
        return 1
