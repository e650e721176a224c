"""Look-ups that many who ask for one thing each share: by id, and by name tag.

EC2 has no filter by client token, so a volume whose CreateVolume reply was lost is found by the
tag that the call wrote; so is a snapshot, of which CreateSnapshot takes no token at all.
An answer is never older than the question: who asks while EC2 is asked is in the next call.
"""

from collections.abc import Mapping

from provisioner.ec2.batches import FILTER_VALUES, ask_about
from provisioner.ec2.coalescer import Coalescer
from provisioner.ec2.modifications import Modifications
from provisioner.ec2.pace import Pace
from provisioner.ec2.snapshots import Snapshots
from provisioner.ec2.volumes import Volumes
from provisioner.model import tags
from provisioner.model.ebs_snapshot import EbsSnapshot
from provisioner.model.errors import Ec2Error
from provisioner.model.modification import Modification
from provisioner.model.volume import Volume

WINDOW_S = 0.5
READ_WINDOW_S = 0.05


class NameLookUps:
    """Volumes by ``CSIVolumeName``, many names a call, at the common pace."""

    def __init__(self, volumes: Volumes, pace: Pace | None = None) -> None:
        self._volumes = volumes
        self._coalescer = Coalescer[list[Volume]](
            self._fetch, window_s=WINDOW_S, fresh_for_s=0.0, pace=pace
        )

    async def find(self, name: str) -> list[Volume]:
        """All volumes with this name: none, or not shown by EC2 yet; usually one.

        Raises:
            Ec2Error: EC2 could not be asked; that is not a "none".
        """
        return await self._coalescer.get(name)

    async def close(self) -> None:
        """Stop looking."""
        await self._coalescer.close()

    async def _fetch(self, names: list[str]) -> Mapping[str, list[Volume] | Ec2Error]:
        found: dict[str, list[Volume]] = {name: [] for name in names}

        async def ask(some: list[str]) -> None:
            for volume in await self._volumes.find_any(tags.VOLUME_NAME, some):
                found[volume.tags[tags.VOLUME_NAME]].append(volume)

        return found | await ask_about(names, FILTER_VALUES, ask)


class SnapshotLookUps:
    """EBS snapshots by ``CSIVolumeSnapshotName``, many names a call, at the common pace."""

    def __init__(self, snapshots: Snapshots, pace: Pace | None = None) -> None:
        self._snapshots = snapshots
        self._coalescer = Coalescer[list[EbsSnapshot]](
            self._fetch, window_s=WINDOW_S, fresh_for_s=0.0, pace=pace
        )

    async def find(self, name: str) -> list[EbsSnapshot]:
        """All snapshots with this name: none, or not shown by EC2 yet; usually one.

        Raises:
            Ec2Error: EC2 could not be asked; that is not a "none".
        """
        return await self._coalescer.get(name)

    async def close(self) -> None:
        """Stop looking."""
        await self._coalescer.close()

    async def _fetch(self, names: list[str]) -> Mapping[str, list[EbsSnapshot] | Ec2Error]:
        found: dict[str, list[EbsSnapshot]] = {name: [] for name in names}

        async def ask(some: list[str]) -> None:
            for snapshot in await self._snapshots.find_any(tags.SNAPSHOT_NAME, some):
                found[snapshot.tags[tags.SNAPSHOT_NAME]].append(snapshot)

        return found | await ask_about(names, FILTER_VALUES, ask)


class VolumeReads:
    """Volumes by id, many a call, at the common pace."""

    def __init__(self, volumes: Volumes, pace: Pace | None = None) -> None:
        self._volumes = volumes
        self._coalescer = Coalescer[Volume | None](
            self._fetch, window_s=READ_WINDOW_S, fresh_for_s=0.0, pace=pace
        )

    async def volume(self, volume_id: str) -> Volume | None:
        """A volume as EC2 shows it now; None if EC2 does not know it (or not yet).

        Raises:
            Ec2Error: EC2 could not be asked.
        """
        return await self._coalescer.get(volume_id)

    async def close(self) -> None:
        """Stop looking."""
        await self._coalescer.close()

    async def _fetch(self, volume_ids: list[str]) -> Mapping[str, Volume | Ec2Error | None]:
        return dict.fromkeys(volume_ids) | await self._volumes.describe(volume_ids)


class ModificationReads:
    """The latest modifications of volumes by the volume's id, many a call, at the common pace."""

    def __init__(self, modifications: Modifications, pace: Pace | None = None) -> None:
        self._modifications = modifications
        self._coalescer = Coalescer[Modification | None](
            self._fetch, window_s=READ_WINDOW_S, fresh_for_s=0.0, pace=pace
        )

    async def latest(self, volume_id: str) -> Modification | None:
        """The latest modification of a volume; None if it was never modified.

        A modification that has just begun may be missing for some seconds, or the one before it be
        shown (EC2 is eventually consistent).

        Raises:
            Ec2Error: EC2 could not be asked.
        """
        return await self._coalescer.get(volume_id)

    async def close(self) -> None:
        """Stop looking."""
        await self._coalescer.close()

    async def _fetch(self, volume_ids: list[str]) -> Mapping[str, Modification | Ec2Error | None]:
        return dict.fromkeys(volume_ids) | await self._modifications.latest(volume_ids)
