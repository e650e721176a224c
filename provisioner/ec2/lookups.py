"""Look-ups of volumes by their name tag, many names a call.

EC2 has no filter by client token, so a volume whose CreateVolume reply was lost is found by the
tag that the call wrote.
"""

from collections.abc import Mapping

from provisioner.ec2.coalescer import Coalescer
from provisioner.ec2.volumes import Volumes
from provisioner.model import tags
from provisioner.model.volume import Volume

WINDOW_S = 0.5


class NameLookUps:
    """Volumes by ``CSIVolumeName``; who asks within half a second shares a call."""

    def __init__(self, volumes: Volumes) -> None:
        self._volumes = volumes
        self._coalescer = Coalescer[list[Volume]](self._fetch, window_s=WINDOW_S, fresh_for_s=0.0)

    async def find(self, name: str) -> list[Volume]:
        """All volumes with this name: none, or not shown by EC2 yet; usually one.

        Raises:
            Ec2Error: EC2 could not be asked; that is not a "none".
        """
        return await self._coalescer.get(name)

    async def close(self) -> None:
        """Stop looking."""
        await self._coalescer.close()

    async def _fetch(self, names: list[str]) -> Mapping[str, list[Volume]]:
        found: dict[str, list[Volume]] = {name: [] for name in names}
        for volume in await self._volumes.find_any(tags.VOLUME_NAME, names):
            found[volume.tags[tags.VOLUME_NAME]].append(volume)
        return found
