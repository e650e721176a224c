"""Stretches of an operation that must not be cut short once begun.

Whoever waits for an operation may leave at any time (the kubelet's deadline passes), and an
operation that nobody waits for is cancelled. Never, though, while a program of the machine runs
(a killed fsck or mkfs does damage), nor between a mkfs and the clearing of its mark. ``unbroken``
marks such a stretch; ``operations.Operations`` puts the cancelling off until its end. Outside of an
operation it does nothing.
"""

from asyncio import CancelledError
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context


class Hold:
    """What one operation is doing that must not be cut short; stretches may lie in each other.

    Args:
        when_free: called at the end of the outermost stretch.

    Attributes:
        is_cancelled: it was asked to end, and no new stretch may begin: the cancelling arrives at
            the next await, which may lie within that stretch.
    """

    def __init__(self, when_free: Callable[[], None]) -> None:
        self._when_free = when_free
        self._doing: list[str] = []
        self.is_cancelled = False

    @property
    def doing(self) -> str:
        """The innermost stretch, for a message; "" while there is none."""
        return self._doing[-1] if self._doing else ""

    def enter(self, doing: str) -> None:
        """Begin a stretch.

        Raises:
            CancelledError: the operation has been cancelled; nothing of the stretch was begun.
        """
        if self.is_cancelled and not self._doing:
            raise CancelledError
        self._doing.append(doing)

    def leave(self, doing: str) -> None:
        """End one; parts of an operation that run side by side end in any order."""
        self._doing.remove(doing)
        if not self._doing:
            self._when_free()


_HOLD: ContextVar[Hold | None] = ContextVar("hold", default=None)


def context_with(hold: Hold) -> Context:
    """A copy of the context, for the task of an operation."""
    context = copy_context()
    context.run(_HOLD.set, hold)
    return context


@contextmanager
def unbroken(doing: str) -> Iterator[None]:
    """Keep the operation from being cancelled until the end of the block.

    Args:
        doing: what is done, for messages: "mkfs.ext4 on /dev/nvme1n1".

    Raises:
        CancelledError: nobody waits for the operation any more; nothing was begun.
    """
    hold = _HOLD.get()
    if hold is None:
        yield
        return
    hold.enter(doing)
    try:
        yield
    finally:
        hold.leave(doing)
