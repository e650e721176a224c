"""How long a persistent volume's labels are left alone after they were written.

Somebody else may write the same labels, GitOps or an older tool: without a brake each answers the
other at once, for ever. Times are in seconds, of any clock that only goes forward.
"""

from collections.abc import Collection
from dataclasses import dataclass

FIRST_S, MOST_S = 60.0, 3600.0
# Who writes less often than this does not fight.
_CALM_S = 2 * MOST_S
_MOST_KNOWN = 10_000


@dataclass(frozen=True, slots=True)
class _Written:
    at_s: float
    wait_s: float
    keys: frozenset[str]


class Brake:
    """When each was written last, by name, and how long it rests."""

    def __init__(self, first_s: float = FIRST_S) -> None:
        self._first_s = first_s
        self._known: dict[str, _Written] = {}

    def rest_s(self, name: str, now_s: float) -> float:
        """How long its next writing has to wait, 0 for not at all."""
        last = self._known.get(name)
        return 0.0 if last is None else max(0.0, last.at_s + last.wait_s - now_s)

    def wrote(self, name: str, keys: Collection[str], now_s: float) -> bool:
        """Labels were written; whether one of them had been before, so that somebody undid it.

        Each time that is so the next one waits twice as long, up to an hour.
        """
        last = self._known.pop(name, None)
        if last is not None and now_s - last.at_s >= _CALM_S:
            last = None
        again = last is not None and not last.keys.isdisjoint(keys)
        wait_s = min(2 * last.wait_s, MOST_S) if last is not None and again else self._first_s
        known = last.keys if last is not None else frozenset[str]()
        if len(self._known) >= _MOST_KNOWN:
            del self._known[next(iter(self._known))]
        self._known[name] = _Written(now_s, wait_s, known.union(keys))
        return again

    def forget(self, name: str) -> None:
        """It is gone; another of its name has done nothing."""
        self._known.pop(name, None)
