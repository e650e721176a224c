"""A limit that several callers share: when it is reached, the largest holder is evicted.

Anyone who reaches the port can ask for more than there is. API servers are a handful of addresses
with a handful of requests each, so the address that holds most is not an API server, and no number
of requests from one address takes anything from another. A crowd of as many addresses as there are
places can; no limit here tells those from API servers, only a client certificate or the network.
"""

from collections.abc import Callable
from contextvars import ContextVar

# The address of the caller whose review is answered, "" for ourselves.
PEER: ContextVar[str] = ContextVar("peer", default="")


class Share:
    """What one caller holds.

    Attributes:
        on_evict: called when it is taken away; may be set later.
        evicted: whether it was.
    """

    __slots__ = ("evicted", "on_evict", "peer", "size")

    def __init__(self, peer: str, size: int) -> None:
        self.peer = peer
        self.size = size
        self.on_evict: Callable[[], object] = lambda: None
        self.evicted = False


class FairShares:
    """The limit, and who holds how much of it.

    Args:
        most: how much there is, in any unit.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: dict[str, dict[Share, None]] = {}  # by peer; of each, the oldest first
        self._sums: dict[str, int] = {}

    @property
    def held(self) -> int:
        """How much is taken."""
        return sum(self._sums.values())

    def take(self, peer: str, size: int = 1) -> Share | None:
        """Take a share; None if nothing is left for this peer.

        Others are evicted, the oldest share first, while they hold more than this peer would.
        """
        wanted = self._sums.get(peer, 0) + size
        while self.held + size > self._most:
            greedy = max(self._sums, key=self._sums.__getitem__, default=peer)
            if self._sums.get(greedy, 0) <= wanted:
                return None
            victim = next(iter(self._held[greedy]))
            self.release(victim)
            victim.evicted = True
            victim.on_evict()
        share = Share(peer, size)
        self._held.setdefault(peer, {})[share] = None
        self._sums[peer] = wanted
        return share

    def release(self, share: Share) -> None:
        """Release a share; nothing happens if it was evicted before."""
        mine = self._held.get(share.peer, {})
        if share not in mine:
            return
        del mine[share]
        self._sums[share.peer] -= share.size
        if not mine:
            del self._held[share.peer], self._sums[share.peer]
