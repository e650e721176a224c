"""What the volumes of a type come to, for whoever reads that a quota is full.

Service Quotas knows the limit, not the use, and its call needs a right of its own; the use is
counted by DescribeVolumes, in the background and once a while.
"""

import asyncio
import time
from collections.abc import Callable
from contextvars import Context

import structlog

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
        self._clock = clock
        self._known: dict[str, tuple[float, InUse]] = {}
        self._counting: dict[str, asyncio.Task[None]] = {}

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
        counting = list(self._counting.values())
        for each in counting:
            each.cancel()
        await asyncio.gather(*counting, return_exceptions=True)

    async def _of(self, volume_type: str) -> InUse | None:
        """The use of a type; None while it is not known, the count goes on then."""
        known = self._known.get(volume_type)
        if known is None or self._clock() - known[0] >= FRESH_FOR_S:
            await asyncio.wait({self._count(volume_type)}, timeout=PATIENCE_S)
        known = self._known.get(volume_type)
        return known[1] if known else None

    def _count(self, volume_type: str) -> asyncio.Task[None]:
        counting = self._counting.get(volume_type)
        if counting is None:
            counting = asyncio.create_task(
                self._learn(volume_type), name=f"use of {volume_type}", context=Context()
            )
            self._counting[volume_type] = counting
            counting.add_done_callback(lambda _: self._counting.pop(volume_type, None))
        return counting

    async def _learn(self, volume_type: str) -> None:
        try:
            in_use = await self._volumes.in_use(volume_type)
        except Ec2Error as failure:
            log.warning("cannot count volumes", type=volume_type, error=failure.message)
        else:
            self._known[volume_type] = self._clock(), in_use
