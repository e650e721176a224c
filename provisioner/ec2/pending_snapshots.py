"""How many snapshots of moves may be pending: an account has room for 100 in a Region.

Source: AWS general reference "Amazon EBS endpoints and quotas", an undated copy (2026-11-21).
A tenth is left to the snapshots of others. If these have taken more, EC2 refuses; then nobody asks
until one of ours is complete, or a while has passed.
"""

from collections.abc import Callable

from provisioner.model.ebs_snapshot import EVERY_S

MOST_PENDING = 90


class PendingSnapshots:
    """Places for snapshots that are taken by hundreds; seconds of one monotonic clock.

    ``wake`` is called for one that waits when a place is free for it.
    """

    def __init__(self, wake: Callable[[str], None], *, most: int = MOST_PENDING) -> None:
        self._wake = wake
        self._most = most
        self._pending: set[str] = set()
        self._waiting: dict[str, None] = {}  # in the order of asking
        self._closed_until_s = float("-inf")

    def waits_s(self, who: str, now_s: float) -> float:
        """After how long to ask again, if nobody is woken before; 0: there is a place now."""
        if who in self._pending:
            return 0.0
        closed_s = self._closed_until_s - now_s
        if closed_s <= 0 and len(self._pending) < self._most:
            self._waiting.pop(who, None)
            return 0.0
        self._waiting.setdefault(who)
        return closed_s if closed_s > 0 else EVERY_S

    def begin(self, who: str) -> None:
        """One is pending, or about to be asked for."""
        self._pending.add(who)

    def refused(self, who: str, now_s: float) -> float:
        """EC2 has said that there are too many; after how long to ask again."""
        self._pending.discard(who)
        self._closed_until_s = now_s + EVERY_S
        return self.waits_s(who, now_s)

    def end(self, who: str) -> None:
        """One is complete, was not taken, or nobody wants it any more."""
        self._waiting.pop(who, None)
        if who not in self._pending:
            return
        self._pending.discard(who)
        self._closed_until_s = float("-inf")
        if self._waiting and len(self._pending) < self._most:
            who_next = next(iter(self._waiting))
            del self._waiting[who_next]  # the next place is for the next one
            self._wake(who_next)
