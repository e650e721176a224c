"""One operation at a time for each volume; an equal request joins the one that runs.

The kubelet repeats a call when its deadline has passed, even if the first one still runs. The
repeated request is equal: it waits for the running operation and gets its result. Any other request
for the volume fails with what is running, and is repeated by the kubelet.

An operation that no call waits for any more is cancelled, but never while a program runs (killing
fsck or mkfs does damage), nor between mkfs and the clearing of its mark. Such critical sections are
``shielded``: the operation continues, and keeps its volume, until the section ends. A request that
joins before that takes it over. Outside of an operation ``shielded`` does nothing.
"""

import asyncio
from asyncio import CancelledError
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar

import structlog

from provisioner import clock
from provisioner.model.errors import NodeError, Reason

log = structlog.get_logger(__name__)
T = TypeVar("T")


class Shield:
    """The critical sections that one operation is in; they may be nested.

    Args:
        when_free: called at the end of the outermost section.

    Attributes:
        is_cancelled: the operation was cancelled, so no new section may start: the CancelledError
            arrives at the next await, which might be within that section.
    """

    def __init__(self, when_free: Callable[[], None]) -> None:
        self._when_free = when_free
        self._doing: list[str] = []
        self.is_cancelled = False

    @property
    def doing(self) -> str:
        """The innermost section, for messages; "" for none."""
        return self._doing[-1] if self._doing else ""

    def enter(self, doing: str) -> None:
        """Start a section.

        Raises:
            CancelledError: the operation has been cancelled; the section was not started.
        """
        if self.is_cancelled and not self._doing:
            raise CancelledError
        self._doing.append(doing)

    def leave(self, doing: str) -> None:
        """End one; concurrent parts of an operation end theirs in any order."""
        self._doing.remove(doing)
        if not self._doing:
            self._when_free()


_SHIELD: ContextVar[Shield | None] = ContextVar("shield", default=None)


def context_with(shield: Shield) -> Context:
    """A copy of the context, for the task of an operation."""
    context = copy_context()
    context.run(_SHIELD.set, shield)
    return context


@contextmanager
def shielded(doing: str) -> Iterator[None]:
    """Delay a cancellation of the operation until the end of the block.

    Args:
        doing: what the block does, for messages: "mkfs.ext4 on /dev/nvme1n1".

    Raises:
        CancelledError: no call waits for the operation any more; the block was not entered.
    """
    shield = _SHIELD.get()
    if shield is None:
        yield
        return
    shield.enter(doing)
    try:
        yield
    finally:
        shield.leave(doing)


class _Operation:
    """One operation that runs, and how many calls wait for it."""

    def __init__(self, key: object, what: str, work: Coroutine[Any, Any, Any]) -> None:
        self.key = key
        self.what = what
        self.shield = Shield(self._cancel_if_left)
        self._waiters = 0
        self._loop = asyncio.get_running_loop()
        self._since_s = clock.now_s()
        self.task: asyncio.Task[Any] = self._loop.create_task(
            work, context=context_with(self.shield)
        )

    def __str__(self) -> str:
        lasting_s = clock.now_s() - self._since_s
        within = f" (now: {self.shield.doing})" if self.shield.doing else ""
        return f"{self.what} has been running for {lasting_s:.0f} s{within}"

    async def joined(self) -> Any:
        """Wait for the result; the operation outlives a waiter that is cancelled."""
        self._waiters += 1
        try:
            await asyncio.wait({self.task})
        finally:
            self._waiters -= 1
            if not self.shield.doing:
                self._cancel_if_left()
        return self.task.result()

    @property
    def is_ending(self) -> bool:
        """Whether it is cancelled: one can wait for its end, but not join it any more."""
        return self.shield.is_cancelled

    @property
    def is_left(self) -> bool:
        return not self._waiters

    def _cancel_if_left(self) -> None:
        if self.is_left and not self.task.done():
            self.shield.is_cancelled = True
            self.task.cancel()


class Operations:
    """The operations that run, by volume."""

    def __init__(self) -> None:
        self._running: dict[str, _Operation] = {}

    def __len__(self) -> int:
        return len(self._running)

    async def idle(self) -> None:
        """Wait until none runs."""
        while self._running:
            await asyncio.wait([each.task for each in self._running.values()])

    async def run(
        self,
        volume_id: str,
        key: object,
        work: Callable[[], Coroutine[Any, Any, T]],
        *,
        what: str,
    ) -> T:
        """Run work as the volume's only operation, or join an equal one that runs.

        Args:
            volume_id: the volume.
            key: the request; equal keys are the same request.
            work: the operation; called once at most.
            what: the operation, to begin a sentence with: "Staging volume vol-1".

        Raises:
            NodeError: OPERATION_RUNNING, another operation runs; and what the work raises.
        """
        while (running := self._running.get(volume_id)) is not None and running.is_ending:
            if running.key != key:
                break
            await asyncio.wait({running.task})
        if running is None:
            running = self._begin(volume_id, key, work, what)
        elif running.key != key:
            raise NodeError(
                Reason.OPERATION_RUNNING,
                f"{what} has to wait for another operation on the volume: {running}. No action is "
                "needed: the kubelet tries again",
            )
        result: T = await running.joined()
        return result

    def _begin(
        self, volume_id: str, key: object, work: Callable[[], Coroutine[Any, Any, Any]], what: str
    ) -> _Operation:
        operation = _Operation(key, what, work())
        self._running[volume_id] = operation

        def ended(task: asyncio.Task[Any]) -> None:
            if self._running.get(volume_id) is operation:
                del self._running[volume_id]
            # A call that waits reports the failure itself.
            if not task.cancelled() and (error := task.exception()) and operation.is_left:
                log.warning(
                    "an operation failed after its call had gone",
                    volume=volume_id,
                    what=what,
                    error=error,
                )

        operation.task.add_done_callback(ended)
        return operation
