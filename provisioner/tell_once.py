"""What was said last about each thing, so that it is said again only when it changes."""

import math
from collections.abc import Callable, Collection, Hashable

from provisioner import clock

# An Event lives for an hour: what lasts is recorded again before.
EVENT_AGAIN_S = 1800.0


class TellOnce:
    """Remembers the last text about each thing, and when it was said.

    ``now_s``: the clock; the event loop's unless another one is given.
    ``most``: of so many things, the first are forgotten for others.
    """

    def __init__(self, now_s: Callable[[], float] = clock.now_s, *, most: float = math.inf) -> None:
        self._now_s = now_s
        self._most = most
        self._said: dict[Hashable, tuple[str, float]] = {}

    def __contains__(self, about: Hashable) -> bool:
        return about in self._said

    def is_news(self, about: Hashable, text: str = "", *, again_s: float = math.inf) -> bool:
        """Whether to say this; it counts as said from now on.

        ``again_s``: after so many seconds the same text is said once more.
        """
        said, at_s = self._said.get(about, (None, 0.0))
        now_s = self._now_s()
        if said == text and now_s - at_s < again_s:
            return False
        self._said[about] = text, now_s
        if len(self._said) > self._most:
            del self._said[next(iter(self._said))]
        return True

    def forget(self, about: Hashable) -> None:
        """Its trouble is over, or the thing is gone: whatever comes next is news."""
        self._said.pop(about, None)

    def forget_all_but(self, kept: Collection[Hashable]) -> None:
        """Forget the things that are gone."""
        self._said = {about: said for about, said in self._said.items() if about in kept}

    def clear(self) -> None:
        """Forget everything."""
        self._said.clear()
