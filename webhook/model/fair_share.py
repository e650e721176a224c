"""Room that several callers share: when it is full, the one that has most of it makes place.

Anybody who reaches the port can ask for more than there is. API servers are a handful of addresses
with a handful of requests each; so whoever takes most is not an API server, and no number of
requests from one address takes anything from another. Only as many addresses as there are places
do, and no limit here tells those from API servers: a client certificate does, or the network.
"""

from collections.abc import Callable
from contextvars import ContextVar

# The address of the caller whose review is answered, "" for ourselves.
PEER: ContextVar[str] = ContextVar("peer", default="")


class Share:
    """What one caller has of the room.

    Attributes:
        give_up: called when it is taken away; may be set later.
        lost: whether it was.
    """

    __slots__ = ("give_up", "lost", "peer", "size")

    def __init__(self, peer: str, size: int) -> None:
        self.peer = peer
        self.size = size
        self.give_up: Callable[[], object] = lambda: None
        self.lost = False


class Shares:
    """The room and who has what of it.

    Args:
        most: how much there is, in any unit.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: dict[str, dict[Share, None]] = {}  # by peer; of each, the oldest first
        self._sums: dict[str, int] = {}

    @property
    def held(self) -> int:
        """How much of the room is taken."""
        return sum(self._sums.values())

    def take(self, peer: str, size: int = 1) -> Share | None:
        """Some of the room, None if there is none for this peer.

        Others lose theirs, the oldest first, only as long as they have more than this peer will.
        """
        wanted = self._sums.get(peer, 0) + size
        while self.held + size > self._most:
            greedy = max(self._sums, key=self._sums.__getitem__, default=peer)
            if self._sums.get(greedy, 0) <= wanted:
                return None
            victim = next(iter(self._held[greedy]))
            self.give_back(victim)
            victim.lost = True
            victim.give_up()
        share = Share(peer, size)
        self._held.setdefault(peer, {})[share] = None
        self._sums[peer] = wanted
        return share

    def give_back(self, share: Share) -> None:
        """Leave what one had; nothing happens if it was lost before."""
        mine = self._held.get(share.peer, {})
        if share not in mine:
            return
        del mine[share]
        self._sums[share.peer] -= share.size
        if not mine:
            del self._held[share.peer], self._sums[share.peer]
