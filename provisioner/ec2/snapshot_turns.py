"""Whose turn it is to ask EC2 for a snapshot: what EC2 refuses anyway is not asked for.

Of one volume one snapshot is asked for at a time, and the next one ``EVERY_S`` after EC2's answer.

EC2 says with one code that a volume has as many pending snapshots as it may have (st1, sc1: one;
others make some too, AWS Backup for example), and that the account has. So a refusal holds back its
volume alone, longer each time. Once several volumes in a row were refused and none was not, the
account is taken for full: then one request in ``PROBE_S``, later in ``PROBE_MOST_S``, is a probe,
first of volumes that were not refused yet. Each one that succeeds doubles how many may be asked for
at once.
Source: EBS user guide "Quotas for Amazon EBS": pending snapshots per volume and per account; EC2
API error codes (read 2026-11-22).
"""

from provisioner.model.ebs_snapshot import EVERY_S

PROBE_S, PROBE_MOST_S = 5.0, 20.0
ALONE_MOST_S = 60.0
# So many volumes in a row that EC2 refused are no longer taken for a matter of each of them.
IN_A_ROW = 3
PER_VOLUME = "SnapshotCreationPerVolumeRateExceeded"
PER_ACCOUNT = "PendingSnapshotLimitExceeded"
WORTH_TELLING_S = 2.0  # a wait of so long
_SOON_S = 1.0
_OLD_S = 600.0
_MANY = 64  # at once: nobody waits for another any more


class Turns:
    """Turns by volume, for all who take snapshots; times in seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._busy: set[str] = set()
        self._free_at_s: dict[str, float] = {}
        # Of a volume, since EC2 took a snapshot of it: how often, and when the last time.
        self._refusals: dict[str, tuple[int, float]] = {}
        self._in_a_row: set[str] = set()  # volumes refused since EC2 took any
        self._probes = 0  # that failed, since one did not
        self._closed_at_s: float | None = None
        self._at_once: int | None = None  # None: the account is not full

    def waits_s(self, volume_id: str, now_s: float) -> float:
        """For how long nothing should be asked for this volume; 0: it may be asked now."""
        closed_until_s = self._closed_until_s(volume_id)
        wait_s = max(self._free_at_s.get(volume_id, 0.0), closed_until_s) - now_s
        if wait_s > 0:
            return wait_s
        is_full = self._at_once is not None and len(self._busy) >= self._at_once
        return _SOON_S if volume_id in self._busy or is_full else 0.0

    def why(self, volume_id: str, now_s: float) -> str:
        """Why a volume's snapshot waits now, as the end of a sentence."""
        if self._closed_until_s(volume_id) > now_s:
            return (
                f"EC2 refused snapshots of {len(self._in_a_row)} volumes in a row, so the account "
                "seems to have as many in progress as it may have; one is tried now and then"
            )
        if volume_id in self._refusals:
            return "EC2 refused a snapshot of this volume; it is asked for again soon"
        return f"EBS takes one snapshot of a volume in {EVERY_S:.0f} s"

    def begin(self, volume_id: str) -> None:
        """A request for this volume is about to be sent."""
        self._busy.add(volume_id)

    def end(self, volume_id: str, now_s: float, *, reached: bool = True) -> None:
        """It was answered or lost; ``reached``: EC2 may have taken a snapshot."""
        self._busy.discard(volume_id)
        self._free_at_s = {key: at_s for key, at_s in self._free_at_s.items() if at_s > now_s}
        if not reached:
            return
        self._free_at_s[volume_id] = now_s + EVERY_S
        self._refusals.pop(volume_id, None)
        self._in_a_row.clear()
        self._probes, self._closed_at_s = 0, None
        if self._at_once is not None:
            self._at_once = None if self._at_once >= _MANY else self._at_once * 2

    def refused(self, volume_id: str, now_s: float, *, code: str) -> None:
        """EC2 takes no further snapshot for now, of this volume or of any; it says why."""
        if code == PER_VOLUME:
            self._free_at_s[volume_id] = now_s + EVERY_S
            return
        self._forget_old(now_s)
        times = self._refusals.get(volume_id, (0, 0.0))[0]
        self._refusals[volume_id] = times + 1, now_s
        self._free_at_s[volume_id] = now_s + min(EVERY_S * 2.0 ** min(times, 9), ALONE_MOST_S)
        self._in_a_row.add(volume_id)
        if code == PER_ACCOUNT or len(self._in_a_row) >= IN_A_ROW:
            # What was under way already when the account closed is no probe.
            closed_at_s = self._closed_at_s
            self._probes += closed_at_s is not None and now_s - closed_at_s >= PROBE_S
            self._at_once, self._closed_at_s = 1, now_s

    def _forget_old(self, now_s: float) -> None:
        """What EC2 said long ago says nothing of now."""
        self._refusals = {
            volume_id: (times, at_s)
            for volume_id, (times, at_s) in self._refusals.items()
            if now_s - at_s < _OLD_S
        }
        self._in_a_row &= self._refusals.keys()
        if not self._refusals:
            self._probes, self._closed_at_s, self._at_once = 0, None, None

    def _closed_until_s(self, volume_id: str) -> float:
        if self._closed_at_s is None:
            return 0.0
        if volume_id not in self._refusals:
            return self._closed_at_s + PROBE_S
        pause_s = PROBE_S * 2.0 ** min(self._probes, 9)
        return self._closed_at_s + min(pause_s, PROBE_MOST_S) + _SOON_S
