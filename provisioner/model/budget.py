"""How often a volume may still be modified, and whether a modification that was sent took place.

EC2 allows four modifications of a volume in any 24 hours and shows only the latest one. So the
times of ours are kept in an annotation of the persistent volume, written right before ModifyVolume
is sent. The same entry says what became of a call whose reply was lost: it names the modification
that was the latest before it, so any other one that EC2 shows is newer, whatever the clocks say.
Source: EBS user guide "Modify a volume", "Limitations" (read 2026-11-21). EC2's own refusal counts
more than this.
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import msgspec

from provisioner.model.consistency import CONSISTENCY_S
from provisioner.model.modification import Modification, ModifyRequest

MOST = 4
# EC2's 24 hours begin when a call arrives, which can be 45 s after ``Start.at``.
WINDOW = timedelta(hours=24, minutes=1)
_KEPT = 8
# Requests to AWS are signed with the time, which may be wrong by so much at the most.
_SKEW = timedelta(minutes=5)


class Start(msgspec.Struct, frozen=True, omit_defaults=True):
    """One ModifyVolume that was about to be sent.

    ``at`` by our clock; ``after`` names the modification that was the latest one then, "" for none;
    ``asked`` is for people.
    """

    at: datetime
    after: str = ""
    asked: str = ""


class _Written(msgspec.Struct, frozen=True):
    uid: str = ""
    volume: str = ""
    starts: tuple[Start, ...] = ()


@dataclass(frozen=True, slots=True)
class Ledger:
    """The modifications of one volume that we have started, the oldest first."""

    starts: tuple[Start, ...] = ()

    @classmethod
    def read(cls, text: str | None, *, persistent_volume_uid: str, volume_id: str) -> "Ledger":
        """What the annotation says of this very object and volume; nothing if it is another's.

        Annotations travel, with backups and ``kubectl get -o yaml``, and may be anything.
        """
        if not text:
            return cls()
        try:
            written = msgspec.json.decode(text, type=_Written)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return cls()
        if (written.uid, written.volume) != (persistent_volume_uid, volume_id):
            return cls()
        # As they were written: the clocks of two leaders may differ by minutes.
        return cls(tuple(each for each in written.starts if each.at.tzinfo is not None))

    def text(self, *, persistent_volume_uid: str, volume_id: str) -> str:
        """The annotation that says this."""
        written = _Written(persistent_volume_uid, volume_id, self.starts)
        return msgspec.json.encode(written).decode()

    def plausible(self, now: datetime) -> "Ledger":
        """Without entries of a clock that was far ahead: EC2 has refused those calls.

        It takes none whose time is wrong by more than ``_SKEW``, and it takes ours, so the clocks
        of two that it heard are no further apart than twice that.
        """
        return replace(self, starts=tuple(e for e in self.starts if e.at - now <= 2 * _SKEW))

    def doubt_s(self, latest: Modification | None, now: datetime) -> float:
        """For how many seconds EC2 may still hide a modification that was sent.

        0.0 when the last one shows, or would show by now. Meanwhile nothing may be sent.
        """
        if self._is_shown(latest):
            return 0.0
        left_s = (self.starts[-1].at - now).total_seconds() + CONSISTENCY_S
        return min(max(left_s, 0.0), CONSISTENCY_S)

    def settled(self, latest: Modification | None, now: datetime) -> "Ledger":
        """Without the last entry, if nothing came of it."""
        if self.starts and not self._is_shown(latest) and not self.doubt_s(latest, now):
            return replace(self, starts=self.starts[:-1])
        return self

    def without_last(self) -> "Ledger":
        """Without the last entry: EC2 has refused it for certain."""
        return replace(self, starts=self.starts[:-1])

    def with_last_at(self, now: datetime) -> "Ledger":
        """With the last entry at this time: EC2 has throttled the call, and it is sent only now."""
        last = self.starts[-1]
        return replace(
            self, starts=(*self.starts[:-1], msgspec.structs.replace(last, at=now.astimezone(UTC)))
        )

    def with_next(
        self, request: ModifyRequest, latest: Modification | None, now: datetime
    ) -> "Ledger":
        """With one more, about to be sent; those that no longer count are left out."""
        counted = tuple(each for each in self.settled(latest, now).starts if now - each.at < WINDOW)
        start = Start(now.astimezone(UTC), name_of(latest), summary(request))
        return replace(self, starts=(*counted[1 - _KEPT :], start))

    def times(self, latest: Modification | None, now: datetime) -> list[datetime]:
        """When the modifications of the last 24 hours began, others' latest one included."""
        ours = [each.at for each in self.settled(latest, now).starts]
        if latest is not None and latest.started_at is not None:
            began = latest.started_at
            if all(abs(began - at) > _SKEW for at in ours):
                ours.append(began)
        return sorted(at for at in ours if now - at < WINDOW)

    def left(self, latest: Modification | None, now: datetime) -> int:
        """How many modifications EC2 would take now, were the latest one completed."""
        return max(0, MOST - len(self.times(latest, now)))

    def more_at(self, latest: Modification | None, now: datetime) -> datetime | None:
        """When one more than now is allowed; None if none of the last 24 hours counts."""
        times = self.times(latest, now)
        return times[max(0, len(times) - MOST)] + WINDOW if times else None

    def _is_shown(self, latest: Modification | None) -> bool:
        return not self.starts or name_of(latest) != self.starts[-1].after


def name_of(modification: Modification | None) -> str:
    """What identifies a modification among those of its volume: when EC2 started it."""
    if modification is None:
        return ""
    began = modification.started_at
    return began.astimezone(UTC).isoformat() if began is not None else "unknown"


def summary(request: ModifyRequest) -> str:
    """What is changed, for people: ``20 GiB, gp3, 4000 IOPS, 250 MiB/s``."""
    parts = (
        f"{request.size_gib} GiB" if request.size_gib is not None else "",
        request.volume_type or "",
        f"{request.iops} IOPS" if request.iops is not None else "",
        f"{request.throughput_mibps} MiB/s" if request.throughput_mibps is not None else "",
    )
    return ", ".join(filter(None, parts))
