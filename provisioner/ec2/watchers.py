"""The loops that look at EC2 again and again, one a kind, and the one pace that they share."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

from provisioner.ec2.modifications import Modifications
from provisioner.ec2.pace import Pace
from provisioner.ec2.snapshots import Snapshots
from provisioner.ec2.volumes import Volumes
from provisioner.ec2.watcher import Watcher, soon_then_seldom
from provisioner.metrics import Metrics
from provisioner.model.ebs_snapshot import EbsSnapshot, SnapshotState
from provisioner.model.errors import Ec2Error
from provisioner.model.modification import Initialization, Modification, ModificationState
from provisioner.model.volume import Volume

VolumeWatcher = Watcher[Volume]

# Optimizing takes minutes to days, and what waits for its end has waited as long.
_OPTIMIZING_MOST_S = 30.0
# EC2's word about an initialization can be five minutes old; aws-ebs-csi-driver asks in 2 minutes.
_INITIALIZING_S = (1.0, 120.0)


@dataclass(frozen=True, slots=True)
class Watchers:
    """All loops; each is by volume id or snapshot id.

    Attributes:
        pace: their budget, which others that look at EC2 share too.
        volumes: volumes that are made, attached, detached.
        modifications: the latest modification of each volume; None is a volume never modified, or
            one whose modification EC2 does not show yet.
        snapshots: snapshots that are taken.
        initializations: volumes whose blocks arrive.
    """

    pace: Pace
    volumes: Watcher[Volume]
    modifications: Watcher[Modification]
    snapshots: Watcher[EbsSnapshot]
    initializations: Watcher[Initialization]

    @classmethod
    def over(
        cls,
        volumes: Volumes,
        modifications: Modifications,
        snapshots: Snapshots,
        metrics: Metrics,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> Self:
        """The loops over these; nothing is looked at yet."""
        pace = Pace()
        return cls(
            pace=pace,
            volumes=Watcher(volumes, metrics=metrics, pace=pace, clock=clock),
            modifications=Watcher(
                modifications,
                metrics=metrics,
                kind="modifications",
                pace=pace,
                clock=clock,
                again_s=seldom_while_optimizing,
            ),
            snapshots=Watcher(
                snapshots,
                metrics=metrics,
                kind="snapshots",
                pace=pace,
                clock=clock,
                again_s=seldom_while_pending,
            ),
            initializations=Watcher(
                _Initializations(volumes),
                metrics=metrics,
                kind="initializations",
                pace=pace,
                clock=clock,
                again_s=by_the_estimate,
            ),
        )

    async def run(self) -> None:
        """Look, for ever."""
        async with asyncio.TaskGroup() as tasks:
            for each in (self.volumes, self.modifications, self.snapshots, self.initializations):
                tasks.create_task(each.run(), name=f"watcher of {each.kind}")


class _Initializations:
    """How far volumes are initialized, as the watcher looks at it."""

    def __init__(self, volumes: Volumes) -> None:
        self._volumes = volumes

    async def describe(self, volume_ids: list[str]) -> Mapping[str, Initialization | Ec2Error]:
        return await self._volumes.initializations(volume_ids)

    look_for = describe


def seldom_while_optimizing(
    found: Modification | None, unchanged_s: float, watched_s: float
) -> float:
    """Seconds until the next look at a modification.

    While it is optimizing each percent of progress is a change, which nobody waits for.
    """
    if found is not None and found.state is ModificationState.OPTIMIZING:
        least_s = soon_then_seldom(found, 0.0, watched_s)
        return min(max(watched_s / 10, least_s), _OPTIMIZING_MOST_S)
    return soon_then_seldom(found, unchanged_s, watched_s)


def seldom_while_pending(found: EbsSnapshot | None, unchanged_s: float, watched_s: float) -> float:
    """Seconds until the next look at a snapshot; a percent more of progress is no change."""
    is_pending = found is not None and found.state is SnapshotState.PENDING
    return soon_then_seldom(found, watched_s if is_pending else unchanged_s, watched_s)


def by_the_estimate(found: Initialization | None, _unchanged_s: float, watched_s: float) -> float:
    """Seconds until the next look at an initialization: when EC2 says that it ends, else seldom."""
    least_s, most_s = _INITIALIZING_S
    estimated_s = None if found is None else found.estimated_s
    wait_s = watched_s / 10 if estimated_s is None else float(estimated_s)
    return min(max(wait_s, least_s), most_s)
