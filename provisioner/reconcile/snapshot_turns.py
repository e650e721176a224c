"""Whose turn it is to ask EC2 for a snapshot: what EC2 refuses anyway is not asked for.

Of one volume one snapshot is asked for at a time, and the next one ``EVERY_S`` after EC2's answer.
Once EC2 has said that the account has as many pending snapshots as it may have, one request is a
probe; each one that succeeds allows one more at once, until EC2 refuses again.
Source: EBS user guide "Quotas for Amazon EBS": pending snapshots per volume and per account.
"""

from provisioner.decide.snapshot_content import EVERY_S

PROBE_S = 5.0
_SOON_S = 1.0
PER_VOLUME = "SnapshotCreationPerVolumeRateExceeded"


class Turns:
    """Turns by volume; times in seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._busy: set[str] = set()
        self._free_at_s: dict[str, float] = {}
        self._closed_until_s = 0.0
        self._at_once: int | None = None  # None: EC2 has not refused anything lately

    def waits_s(self, volume_id: str, now_s: float) -> float:
        """For how long nothing should be asked for this volume; 0: it may be asked now."""
        wait_s = max(self._free_at_s.get(volume_id, 0.0), self._closed_until_s) - now_s
        if wait_s > 0:
            return wait_s
        is_full = self._at_once is not None and len(self._busy) >= self._at_once
        return _SOON_S if volume_id in self._busy or is_full else 0.0

    def why(self, now_s: float) -> str:
        """Why somebody waits now, as the end of a sentence."""
        if self._closed_until_s > now_s:
            return "EC2 has as many snapshots in progress as the account may have"
        return f"EBS takes one snapshot of a volume in {EVERY_S:.0f} s"

    def begin(self, volume_id: str) -> None:
        """A request for this volume is about to be sent."""
        self._busy.add(volume_id)

    def end(self, volume_id: str, now_s: float, *, reached: bool = True) -> None:
        """It was answered or lost; ``reached``: EC2 may have taken a snapshot."""
        self._busy.discard(volume_id)
        self._free_at_s = {key: at_s for key, at_s in self._free_at_s.items() if at_s > now_s}
        if reached:
            self._free_at_s[volume_id] = now_s + EVERY_S
            self._at_once = None if self._at_once is None else self._at_once + 1

    def refused(self, volume_id: str, now_s: float, *, by_volume: bool) -> None:
        """EC2 takes no further snapshot for now: of this volume, or of any."""
        if by_volume:
            self._free_at_s[volume_id] = now_s + EVERY_S
        else:
            self._at_once = 1
            self._closed_until_s = now_s + PROBE_S
