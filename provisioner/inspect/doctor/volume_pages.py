"""One reading of the account's volumes, for their quotas and for the volumes of this cluster."""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress

from provisioner.ec2.batches import FILTER_VALUES
from provisioner.inspect.reading import quotas
from provisioner.inspect.reading.cloud import Cloud
from provisioner.model.quota import STORAGE_CODES, InUse
from provisioner.model.volume import Volume

_SILENCE_S = 3.0


class VolumePages:
    """What quotas need shows the cluster's volumes too: no need to ask for those by their ids.

    Unless that is cheaper, as for a small cluster in a large account: who waits for the pages stops
    when they have taken as many calls as the ids would, or when none comes any more. Volumes of
    others are counted and not kept.

    Attributes:
        named: the volumes with one of the ids, as far as they were seen.
        tagged: those that have all of the tags, by id.
        is_complete: whether all volumes of all types were seen that the driver can create.
    """

    def __init__(self, ids: Collection[str], tags: Mapping[str, str]) -> None:
        """Nothing is read yet; without ``tags``, no volume counts as tagged."""
        self.named: dict[str, Volume] = {}
        self.tagged: dict[str, Volume] = {}
        self.is_complete = False
        self._ids, self._tags = frozenset(ids), tags
        self._most = -(-len(self._ids) // FILTER_VALUES)
        self._seen = 0
        self._over = asyncio.Event()

    async def count(self, cloud: Cloud) -> Mapping[str, InUse]:
        """Read the pages; what the volumes of each type come to, as ``quotas.in_use``."""
        try:
            found = await quotas.in_use(cloud, self._see)
            self.is_complete = found.keys() == STORAGE_CODES.keys()
            return found
        finally:
            self._over.set()

    async def shown(self) -> None:
        """Wait while pages come, and are not more than the calls that ask for the ids."""
        before = -1
        while before < self._seen < self._most and not self._over.is_set():
            before = self._seen
            with suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), _SILENCE_S)

    def unseen(self) -> frozenset[str]:
        """The ids that no page has shown."""
        return self._ids - self.named.keys()

    def _see(self, page: Iterable[Volume]) -> None:
        self._seen += 1
        for volume in page:
            if volume.volume_id in self._ids:
                self.named[volume.volume_id] = volume
            if self._tags and self._tags.items() <= volume.tags.items():
                self.tagged[volume.volume_id] = volume
        if self._seen >= self._most:
            self._over.set()
