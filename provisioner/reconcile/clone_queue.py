"""Clone queue: of one volume EC2 makes one copy at a time, so its clones wait their turn.

Source: EBS user guide "Copy an Amazon EBS volume": one copy in progress a source (read 2026-11-21).
"""

from collections.abc import Callable

from provisioner.model.claim import Claim


class CloneQueue:
    """The claims that are cloned from each volume, in the order in which they came.

    It lives as long as the process: whoever comes after us gives turns anew, and those whose copy
    may have been begun do not stand in line (see ``Planning``). ``wake`` has a claim looked at.
    """

    def __init__(self, wake: Callable[[str], None]) -> None:
        self._wake = wake
        self._lines: dict[str, dict[str, str]] = {}  # by volume: the claims' keys by their UIDs
        self._volume_of: dict[str, str] = {}

    def ahead_of(self, claim: Claim, volume_id: str) -> str:
        """The claim whose turn it is instead, as ``namespace/name``; "" when it is this one's.

        A claim keeps its place until it leaves.
        """
        if self._volume_of.get(claim.uid, volume_id) != volume_id:
            self.leave(claim.uid)
        self._volume_of[claim.uid] = volume_id
        line = self._lines.setdefault(volume_id, {})
        line.setdefault(claim.uid, claim.key)
        first = next(iter(line))
        return "" if first == claim.uid else line[first]

    def leave(self, uid: str) -> None:
        """A claim has got its copy, is gone, or cannot have one: the next one's turn."""
        volume_id = self._volume_of.pop(uid, None)
        if volume_id is None:
            return
        line = self._lines[volume_id]
        was_first = next(iter(line)) == uid
        del line[uid]
        if not line:
            del self._lines[volume_id]
        elif was_first:
            self._wake(next(iter(line)))
