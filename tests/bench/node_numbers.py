"""What the node's bench measures, and the arithmetic of it."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import Any

GP3_BYTES_PER_S = 125 * 1024**2
"""What a gp3 volume of the default class moves (EBS user guide, "General Purpose SSD volumes")."""

_SECTOR_BYTES = 512
_READS, _READ_SECTORS, _WRITES, _WRITTEN_SECTORS = 0, 2, 4, 6


@dataclass(frozen=True, slots=True)
class Traffic:
    """What went to a disk: requests and bytes."""

    reads: int
    read_bytes: int
    writes: int
    written_bytes: int

    @classmethod
    def of(cls, stat: str) -> "Traffic":
        """All of a disk's, since it is there: its ``stat`` in sysfs (Linux Documentation/block)."""
        fields = [int(word) for word in stat.split()]
        read_bytes, written_bytes = (
            fields[place] * _SECTOR_BYTES for place in (_READ_SECTORS, _WRITTEN_SECTORS)
        )
        return cls(fields[_READS], read_bytes, fields[_WRITES], written_bytes)

    def since(self, before: "Traffic") -> "Traffic":
        """The part of it that came after ``before``."""
        return Traffic(
            self.reads - before.reads,
            self.read_bytes - before.read_bytes,
            self.writes - before.writes,
            self.written_bytes - before.written_bytes,
        )

    @property
    def least_s(self) -> float:
        """The seconds that a gp3 volume needs for these bytes, at the least."""
        return (self.read_bytes + self.written_bytes) / GP3_BYTES_PER_S


@dataclass(frozen=True, slots=True)
class Way:
    """One way to mount volumes of a kind, one value a volume: seconds, and what went to its disk."""

    seconds: list[float]
    traffic: list[Traffic]

    @property
    def median_s(self) -> float:
        """The median."""
        return median(self.seconds)

    @property
    def worst_s(self) -> float:
        """The slowest."""
        return max(self.seconds)

    @property
    def typical(self) -> Traffic:
        """What went to the disk of the volume in the middle, by bytes."""
        by_bytes = sorted(self.traffic, key=lambda one: one.read_bytes + one.written_bytes)
        return by_bytes[len(by_bytes) // 2]


@dataclass(frozen=True, slots=True)
class Mounting:
    """Volumes of one kind that were mounted by us and, others like them, by the bare programs.

    Attributes:
        steps_s: the median seconds of each of the bare programs.
    """

    file_system: str
    is_new: bool
    ours: Way
    floor: Way
    steps_s: dict[str, float]


@dataclass(frozen=True, slots=True)
class Machine:
    """What one node plugin cost on a machine without kubelet.

    Attributes:
        starts_s: from the start of the process to its answer on both of its sockets, each.
        empty_mib: resident when it was registered and had no volume.
        resident_mib: at rest, with ``volumes`` mounted, after ``scrapes`` of its metrics.
        scrape_cpu_s: CPU seconds of one scrape.
        idle_cpu_s: CPU seconds of ``idle_s`` seconds in which nobody asked for anything.
    """

    volumes: int
    starts_s: list[float]
    empty_mib: float
    resident_mib: float
    peak_mib: float
    scrapes: int
    scrape_cpu_s: float
    idle_s: float
    idle_cpu_s: float
    mountings: list[Mounting]


@dataclass(frozen=True, slots=True)
class Pods:
    """Pods on a real kubelet, of volumes that were all new, or all existing; one value a pod.

    Attributes:
        rpcs_s: NodeStage and NodePublish, in the plugin.
        attached_s: from the VolumeAttachment's word that it is attached to NodePublish's end, with
            all that the kubelet waits for.
        failed: calls that were not answered with OK.
    """

    is_new: bool
    rpcs_s: list[float]
    attached_s: list[float]
    failed: int


@dataclass(frozen=True, slots=True)
class Node:
    """All of it; a part that could not be measured has its reason.

    Attributes:
        busy: the share of the machine that was in use meanwhile, by this bench and by others.
    """

    machine: Machine | None
    why_no_machine: str
    pods: tuple[Pods, ...]
    why_no_pods: str
    busy: float = 0.0


@dataclass(frozen=True, slots=True)
class Mounted:
    """A volume that was staged and published: seconds of both calls, Unix time of the end."""

    rpcs_s: float
    at_s: float


def mounted(lines: Iterable[str]) -> tuple[dict[str, Mounted], int]:
    """What a node plugin's log tells: volumes by id as they were mounted last, and calls that failed.

    Args:
        lines: of its log, as JSON; others are passed over.
    """
    staged_s: dict[str, float] = {}
    found: dict[str, Mounted] = {}
    failed = 0
    for line in _facts(lines):
        match line.get("event"), line.get("method"):
            case "not answered", "NodeStageVolume" | "NodePublishVolume":
                failed += 1
            case "answered", "NodeStageVolume":
                staged_s[line["volume"]] = line["seconds"]
            case "answered", "NodePublishVolume" if line["volume"] in staged_s:
                at_s = datetime.fromisoformat(line["timestamp"]).timestamp()
                rpcs_s = staged_s.pop(line["volume"]) + line["seconds"]
                found[line["volume"]] = Mounted(rpcs_s, at_s)
    return found, failed


def pods(
    found: Mapping[str, Mounted], attached_at_s: Mapping[str, float], failed: int, *, is_new: bool
) -> Pods:
    """Put a log and a watch together.

    Args:
        found: of ``mounted``.
        attached_at_s: Unix times by volume.
        failed: of ``mounted``.

    Raises:
        ValueError: a volume was attached and not mounted, or the other way round.
    """
    if odd := found.keys() ^ attached_at_s.keys():
        raise ValueError(f"volumes either attached or mounted, not both: {', '.join(sorted(odd))}")
    return Pods(
        is_new=is_new,
        rpcs_s=[one.rpcs_s for one in found.values()],
        attached_s=[one.at_s - attached_at_s[volume] for volume, one in found.items()],
        failed=failed,
    )


def _facts(lines: Iterable[str]) -> Iterable[dict[str, Any]]:
    return (json.loads(line) for line in lines if line.startswith("{") and line.endswith("}\n"))
