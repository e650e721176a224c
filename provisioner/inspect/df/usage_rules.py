"""How full volumes are: from the kubelets' statistics, and when they will be full by two looks.

Source: Kubernetes 1.36 k8s.io/kubelet/pkg/apis/stats/v1alpha1 types.go; kubernetes.io "Node metrics
data" (read 2026-11-23). The kubelet asks the CSI driver about a volume at most once a minute by
default (--volume-stats-agg-period), and tells when it did.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

# Below this growth in bytes a second (1 MiB a day) a volume counts as not growing.
_STILL_B_S = 2**20 / 86_400


class _ClaimRef(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    name: str = ""
    namespace: str = ""


class _VolumeStats(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    time: datetime | None = None
    capacity_bytes: int | None = None
    available_bytes: int | None = None
    used_bytes: int | None = None
    inodes: int | None = None
    inodes_used: int | None = None
    pvc_ref: _ClaimRef | None = None


class _PodStats(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    volume: list[_VolumeStats] | None = None


class _Summary(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    pods: list[_PodStats] | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """The file system of one claim, as one look found it.

    Attributes:
        at: when it was measured; None if the kubelet does not say.
        available_bytes: for a user that is not root.
        inodes: 0 for a file system that has no fixed number of them.
    """

    namespace: str
    claim: str
    capacity_bytes: int
    used_bytes: int
    available_bytes: int
    inodes: int = 0
    inodes_used: int = 0
    at: datetime | None = None

    @property
    def key(self) -> str:
        """``namespace/name`` of the claim."""
        return f"{self.namespace}/{self.claim}"

    @property
    def used_percent(self) -> float:
        """Of the space that a user that is not root can have, as df counts."""
        room = self.used_bytes + self.available_bytes
        return 100 * self.used_bytes / room if room else 0.0

    @property
    def inodes_percent(self) -> float | None:
        """Of the inodes; None where there is no fixed number."""
        return 100 * self.inodes_used / self.inodes if self.inodes else None

    @property
    def fullness(self) -> float:
        """The higher of both percentages."""
        return max(self.used_percent, self.inodes_percent or 0.0)


def read_summary(text: str) -> list[Usage]:
    """The claims' file systems of a kubelet's ``/stats/summary``; raw devices have none.

    Raises:
        ValueError: it is none.
    """
    try:
        summary = msgspec.json.decode(text, type=_Summary)
    except msgspec.DecodeError as error:
        raise ValueError(f"the kubelet's statistics cannot be read: {error}") from error
    return [
        usage
        for pod in summary.pods or ()
        for volume in pod.volume or ()
        if (usage := _usage(volume)) is not None
    ]


def _usage(volume: _VolumeStats) -> Usage | None:
    claim, capacity, used = volume.pvc_ref, volume.capacity_bytes, volume.used_bytes
    # A raw device has a capacity, and nothing that is used of it.
    if claim is None or not capacity or used is None or volume.available_bytes is None:
        return None
    return Usage(
        namespace=claim.namespace,
        claim=claim.name,
        capacity_bytes=max(capacity, 0),
        used_bytes=max(used, 0),
        available_bytes=max(volume.available_bytes, 0),
        inodes=max(volume.inodes or 0, 0),
        inodes_used=max(volume.inodes_used or 0, 0),
        at=volume.time,
    )


def by_claim(usages: Iterable[Usage]) -> dict[str, Usage]:
    """One for each claim: of several pods, or nodes, the one that was measured last."""
    found: dict[str, Usage] = {}
    for each in usages:
        known = found.get(each.key)
        if known is None or _moment(known) < _moment(each):
            found[each.key] = each
    return found


def _moment(usage: Usage) -> float:
    return usage.at.timestamp() if usage.at is not None else 0.0


def measured_before(
    older: Mapping[str, Usage], newer: Mapping[str, Usage], now: Mapping[str, Usage]
) -> dict[str, Usage]:
    """What each claim's measurement of now is compared with: the last one that was another.

    A look that comes before the kubelet has measured again sees the same measurement, and tells
    nothing of growth.

    Args:
        older: what ``newer`` was compared with.
        newer: the look before this one.
        now: this look.
    """
    found = {**older, **newer}
    same = {key for key, each in now.items() if key in newer and newer[key].at == each.at}
    return {
        key: older.get(key, each) if key in same else each
        for key, each in found.items()
        if key in now
    }


def full_in_s(before: Usage | None, now: Usage) -> float | None:
    """When a volume will be full if it grows on as between two looks, in seconds.

    Space and inodes count alike; what is full first counts.

    Returns:
        0 for what is full already; None if it does not grow, or was measured once only.
    """
    if not now.available_bytes or (now.inodes and now.inodes_used >= now.inodes):
        return 0.0
    if before is None or before.at is None or now.at is None:
        return None
    passed_s = (now.at - before.at).total_seconds()
    if passed_s <= 0:
        return None
    times = []
    grown = (now.used_bytes - before.used_bytes) / passed_s
    if grown >= _STILL_B_S:
        times.append(now.available_bytes / grown)
    more = (now.inodes_used - before.inodes_used) / passed_s
    if more > 0 and now.inodes:
        times.append(max(now.inodes - now.inodes_used, 0) / more)
    return min(times) if times else None


def sorted_by_fullness(usages: Mapping[str, Usage]) -> list[Usage]:
    """The fullest first."""
    return sorted(usages.values(), key=lambda each: (-each.fullness, each.key))


def full_in(seconds: float | None) -> str:
    """The same for people."""
    return "full" if seconds is not None and seconds <= 0 else duration(seconds)


def duration(seconds: float | None) -> str:
    """Like kubectl's ages: two units at most; "-" for never."""
    if seconds is None:
        return "-"
    whole = int(seconds)
    for unit, size, next_unit, next_size in _UNITS:
        if whole >= size:
            rest = whole % size // next_size
            return f"{whole // size}{unit}{rest}{next_unit}" if rest else f"{whole // size}{unit}"
    return f"{whole}s"


_UNITS = (("d", 86_400, "h", 3_600), ("h", 3_600, "m", 60), ("m", 60, "s", 1))


def plot(percents: Sequence[float]) -> str:
    """A bar for each look, the oldest first, from the lowest to the highest: "▁▂█ 40-47%".

    Args:
        percents: at least one.
    """
    low, high = min(percents), max(percents)
    scale = (len(_BARS) - 1) / max(high - low, _NO_CHANGE)
    bars = "".join(_BARS[round((each - low) * scale)] for each in percents)
    shown, most = f"{low:.0f}", f"{high:.0f}"
    return f"{bars} {shown}%" if shown == most else f"{bars} {shown}-{most}%"


_BARS = "▁▂▃▄▅▆▇█"
_NO_CHANGE = 1.0


def size(count: int) -> str:
    """Bytes as df -h shows them: 1.5Gi, 120Mi."""
    power = min(max(count.bit_length() - 1, 0) // 10, len(_SIZES) - 1)
    value = count / 1024**power
    digits = 0 if power == 0 or value >= _TWO_DIGITS else 1
    return f"{value:.{digits}f}{_SIZES[power]}"


_SIZES = ("", "Ki", "Mi", "Gi", "Ti", "Pi")
_TWO_DIGITS = 10
