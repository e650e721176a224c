"""Whether what is found at the start was made under our own reign.

Where the leases prove none, one begins: all claims that are there when we take over are older, and
all marked volumes that EC2 lists then and that we have not made since. Only with both is it known
since when a later leader may trust marks, so until then no mark proves anything.
"""

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime

from provisioner.model.claim import Claim
from provisioner.model.reign import Reign
from provisioner.model.volume import Volume


class Lineage:
    """``reign``: since when only ours have led; None: that is not known, or not yet."""

    def __init__(self) -> None:
        self.reign: Reign | None = None
        self._older: list[datetime] | None = None  # times of what is older than a new reign
        self._began: asyncio.Future[Reign] | None = None

    def take_over(self, proven: Reign | None, claims: Iterable[Claim]) -> None:
        """Note what the leases prove, and which claims there are."""
        self.reign = proven
        if proven is None:
            made_at = [claim.metadata.creation_timestamp for claim in claims]
            self._older = [datetime.now(UTC), *filter(None, made_at)]
            self._began = asyncio.get_running_loop().create_future()

    def found(self, volumes: Iterable[Volume]) -> None:
        """These marked volumes, made by others, are all that there are: a new reign is known."""
        if self._older is None or self._began is None or self.reign is not None:
            return
        self.reign = Reign.after(self._older, (volume.created_at for volume in volumes))
        self._began.set_result(self.reign)

    async def new_reign(self) -> Reign | None:
        """The reign that begins with this process, once it is known; None: there was one."""
        return await self._began if self._began is not None else None

    def proves(self, volume: Volume) -> bool:
        """Whether the volume's mark, if it has one, proves that nobody has written to it."""
        return self.reign is not None and self.reign.covers(volume.created_at)
