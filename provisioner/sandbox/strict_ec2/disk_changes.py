"""What happens to the content of volumes, in order, for somebody who keeps that content.

moto keeps no bytes. Whoever gives instances real disks (``sandbox/real_node/disks.py``) follows
``GET /_disks?after=N&wait_s=S``: a long poll that answers with what came after change number N. It
also says by it that all up to N has been carried out, and that is what CreateSnapshot and
CopyVolumes wait for: their point in time is the call, so no later write may be in the copy.

Nothing is kept before somebody follows, or after the follower's ``DELETE /_disks``: simulated
nodes with thousands of volumes cost nothing.
"""

import asyncio
import time
from collections import deque
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Final

#: These answer once their moment is held fast.
POINT_IN_TIME: Final = frozenset({"CreateSnapshot", "CopyVolumes"})
HOLD_S: Final = 20.0
_FOLLOWED_S: Final = 60.0
_KEPT: Final = 100_000


@dataclass(frozen=True, slots=True)
class DiskChange:
    """One change.

    ``what``: ``made`` (a volume, of ``source_id`` if that is not ""), ``attached``, ``detached``
    (EC2 says detaching: the instance loses it now), ``resized``, ``snapshot`` (``source_id`` is its
    volume), ``deleted`` (volume or snapshot), ``reset`` (everything is gone).
    """

    number: int
    what: str
    thing_id: str = ""  # volume or snapshot
    source_id: str = ""
    instance_id: str = ""
    device: str = ""
    size_gib: int = 0


class DiskChanges:
    """The changes that somebody follows."""

    def __init__(self) -> None:
        self._changes: deque[DiskChange] = deque(maxlen=_KEPT)
        self._last = 0
        self._done = 0
        self._asked_at_s: float | None = None
        self._stirred = asyncio.Event()

    @property
    def last(self) -> int:
        """The number of the latest change."""
        return self._last

    def record(self, what: str, thing_id: str = "", **about: Any) -> None:
        """Note a change; nothing as long as nobody has asked for any."""
        if self._asked_at_s is None:
            return
        self._last += 1
        self._changes.append(DiskChange(self._last, what, str(thing_id), **about))
        self.stir()

    def stir(self) -> None:
        """Wake who waits: there is a change, or another time to look again."""
        if self._asked_at_s is not None:
            self._stirred.set()
            self._stirred = asyncio.Event()

    @property
    def is_followed(self) -> bool:
        """Whether somebody has asked and has not left since."""
        return self._asked_at_s is not None

    def asked(self, after: int) -> None:
        """Note that somebody follows, and that all up to ``after`` is carried out."""
        # Not the world's clock: a test moves that on by days.
        self._asked_at_s = time.monotonic()
        if after > self._done:
            self._done = after
            self.stir()

    def since(self, after: int) -> list[dict[str, Any]]:
        """What came after the change of this number."""
        return [asdict(each) for each in self._changes if each.number > after]

    def left(self) -> None:
        """Note that nobody follows any more."""
        self._done = self._last
        self.stir()
        self._asked_at_s = None
        self._changes.clear()

    async def wait(self, most_s: float) -> None:
        """Wait until somebody stirs."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stirred.wait(), most_s)

    async def carried_out(self) -> bool:
        """Wait until all changes so far are carried out, if somebody follows them at all.

        False if that was not said in time; the caller goes on, as a sandbox that ends must.
        """
        if self._asked_at_s is None or time.monotonic() > self._asked_at_s + _FOLLOWED_S:
            return True
        until = self._last
        with suppress(TimeoutError):
            async with asyncio.timeout(HOLD_S):
                while self._done < until:
                    await self._stirred.wait()
        return self._done >= until
