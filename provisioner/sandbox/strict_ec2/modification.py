"""One modification of a volume: from which shape to which, and how far it is."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

RUNNING: Final = ("modifying", "optimizing")


@dataclass(frozen=True, slots=True)
class Shape:
    """What ModifyVolume can change: GiB, IOPS, MiB/s; None where a type has none."""

    size_gib: int
    volume_type: str
    iops: int | None
    throughput: int | None
    multi_attach: bool


def shape_of(volume: Any) -> Shape:
    """Return what moto's volume is now."""
    return Shape(
        size_gib=int(volume.size),
        volume_type=str(volume.volume_type),
        iops=None if volume.iops is None else int(volume.iops),
        throughput=None if volume.throughput is None else int(volume.throughput),
        multi_attach=str(volume.multi_attach_enabled).lower() == "true",
    )


@dataclass(slots=True)
class Modification:
    """The state of a modification; seconds are of the world's clock, moments are EC2's."""

    volume_id: str
    original: Shape
    target: Shape
    started_at: datetime
    optimizing_from_s: float
    completed_from_s: float
    visible_at_s: float
    state: str = "modifying"
    message: str = ""
    ended_at: datetime | None = None

    def progress_percent(self, now_s: float) -> int:
        """Return how much is done: nothing while modifying, then in step with time."""
        match self.state:
            case "completed":
                return 100
            case "optimizing":
                whole_s = self.completed_from_s - self.optimizing_from_s
                return min(99, int(100 * (now_s - self.optimizing_from_s) / whole_s))
            case _:
                return 0
