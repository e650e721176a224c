"""Look-ups that many who ask for one thing each share: by id, and by name tag.

EC2 has no filter by client token, so a volume whose CreateVolume reply was lost is found by the
tag that the call wrote; so is a snapshot, of which CreateSnapshot takes no token at all.
An answer is never older than the question: who asks while EC2 is asked is in the next call.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, TypeVar

from provisioner.ec2.batches import FILTER_VALUES, ask_about
from provisioner.ec2.coalescer import Coalescer
from provisioner.ec2.modifications import Modifications
from provisioner.ec2.pace import Pace
from provisioner.ec2.snapshots import Snapshots
from provisioner.ec2.volumes import Volumes
from provisioner.model import tags
from provisioner.model.ebs_snapshot import EbsSnapshot
from provisioner.model.errors import Ec2Error, StorageError
from provisioner.model.modification import Modification
from provisioner.model.volume import Volume

V = TypeVar("V")
WINDOW_S = 0.5
READ_WINDOW_S = 0.05


class _Shared(Generic[V]):
    """What those who ask within a short window are answered together; nothing is remembered."""

    def __init__(
        self,
        fetch: Callable[[list[str]], Awaitable[Mapping[str, V | StorageError]]],
        window_s: float,
        pace: Pace | None,
    ) -> None:
        self._coalescer = Coalescer[V](fetch, window_s=window_s, fresh_for_s=0.0, pace=pace)

    async def close(self) -> None:
        """Stop looking; whoever waits is cancelled."""
        await self._coalescer.close()


class NameLookUps(_Shared[list[Volume]]):
    """Volumes by ``CSIVolumeName``, many names a call, at the common pace."""

    def __init__(self, volumes: Volumes, pace: Pace | None = None) -> None:
        super().__init__(self._fetch, WINDOW_S, pace)
        self._volumes = volumes

    async def find(self, name: str) -> list[Volume]:
        """All volumes with this name: none, or not shown by EC2 yet; usually one.

        Raises:
            Ec2Error: EC2 could not be asked; that is not a "none".
        """
        return await self._coalescer.get(name)

    async def _fetch(self, names: list[str]) -> Mapping[str, list[Volume] | Ec2Error]:
        found: dict[str, list[Volume]] = {name: [] for name in names}

        async def ask(some: list[str]) -> None:
            for volume in await self._volumes.find_any(tags.VOLUME_NAME, some):
                found[volume.tags[tags.VOLUME_NAME]].append(volume)

        return found | await ask_about(names, FILTER_VALUES, ask)


class SnapshotLookUps(_Shared[list[EbsSnapshot]]):
    """EBS snapshots by ``CSIVolumeSnapshotName``, many names a call, at the common pace."""

    def __init__(self, snapshots: Snapshots, pace: Pace | None = None) -> None:
        super().__init__(self._fetch, WINDOW_S, pace)
        self._snapshots = snapshots

    async def find(self, name: str) -> list[EbsSnapshot]:
        """All snapshots with this name: none, or not shown by EC2 yet; usually one.

        Raises:
            Ec2Error: EC2 could not be asked; that is not a "none".
        """
        return await self._coalescer.get(name)

    async def _fetch(self, names: list[str]) -> Mapping[str, list[EbsSnapshot] | Ec2Error]:
        found: dict[str, list[EbsSnapshot]] = {name: [] for name in names}

        async def ask(some: list[str]) -> None:
            for snapshot in await self._snapshots.find_any(tags.SNAPSHOT_NAME, some):
                found[snapshot.tags[tags.SNAPSHOT_NAME]].append(snapshot)

        return found | await ask_about(names, FILTER_VALUES, ask)


class VolumeReads(_Shared[Volume | None]):
    """Volumes by id, many a call, at the common pace."""

    def __init__(self, volumes: Volumes, pace: Pace | None = None) -> None:
        super().__init__(self._fetch, READ_WINDOW_S, pace)
        self._volumes = volumes

    async def volume(self, volume_id: str) -> Volume | None:
        """A volume as EC2 shows it now; None if EC2 does not know it (or not yet).

        Raises:
            Ec2Error: EC2 could not be asked.
        """
        return await self._coalescer.get(volume_id)

    async def _fetch(self, volume_ids: list[str]) -> Mapping[str, Volume | Ec2Error | None]:
        return dict.fromkeys(volume_ids) | await self._volumes.describe(volume_ids)


class ModificationReads(_Shared[Modification | None]):
    """The latest modifications of volumes by the volume's id, many a call, at the common pace."""

    def __init__(self, modifications: Modifications, pace: Pace | None = None) -> None:
        super().__init__(self._fetch, READ_WINDOW_S, pace)
        self._modifications = modifications

    async def latest(self, volume_id: str) -> Modification | None:
        """The latest modification of a volume; None if it was never modified.

        A modification that has just begun may be missing for some seconds, or the one before it be
        shown (EC2 is eventually consistent).

        Raises:
            Ec2Error: EC2 could not be asked.
        """
        return await self._coalescer.get(volume_id)

    async def _fetch(self, volume_ids: list[str]) -> Mapping[str, Modification | Ec2Error | None]:
        return dict.fromkeys(volume_ids) | await self._modifications.latest(volume_ids)
