"""How much of a quota the volumes of a type use, for the message that it is exceeded.

Service Quotas knows the limit, not the use, and its call needs a right of its own; the use is
counted by DescribeVolumes, in the background and once a while.
"""

import asyncio
import time
from collections.abc import Callable, Mapping

import structlog

from provisioner.ec2.coalescer import Coalescer
from provisioner.ec2.volumes import Volumes
from provisioner.model import quota
from provisioner.model.errors import Ec2Error, Reason, StorageError
from provisioner.model.quota import InUse

FRESH_FOR_S = 600.0
PATIENCE_S = 5.0  # a claim at a full quota is tried again after a minute: it has the time

log = structlog.get_logger(__name__)


class Usage:
    """The use of each type, counted once at a time and remembered for ten minutes."""

    def __init__(self, volumes: Volumes, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Count nothing yet."""
        self._volumes = volumes
        self._counts = Coalescer[InUse](
            self._count, window_s=0.0, fresh_for_s=FRESH_FOR_S, clock=clock
        )

    async def explained(self, error: StorageError, volume_type: str) -> StorageError:
        """A refusal with the quota's name and the amount in use; any other error as it is."""
        if not isinstance(error, Ec2Error) or error.reason is not Reason.QUOTA_EXCEEDED:
            return error
        more = quota.sentence(error.code, error.message, volume_type, await self._of(volume_type))
        if not more:
            return error
        return Ec2Error(
            error.reason,
            f"{error.message}; {more}",
            action=error.action,
            code=error.code,
            outcome=error.outcome,
            retry_after_s=error.retry_after_s,
        )

    async def close(self) -> None:
        """Stop counting."""
        await self._counts.close()

    async def _of(self, volume_type: str) -> InUse | None:
        """The use of a type; None while it is not known, the count goes on then."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await self._counts.get(volume_type)
        except (TimeoutError, Ec2Error):
            return None

    async def _count(self, volume_types: list[str]) -> Mapping[str, InUse | StorageError]:
        counted: dict[str, InUse | StorageError] = {}
        for each in volume_types:
            try:
                counted[each] = await self._volumes.in_use(each)
            except Ec2Error as failure:
                log.warning("cannot count volumes", type=each, error=failure.message)
                counted[each] = failure
        return counted
