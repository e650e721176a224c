"""EC2 with one volume that can be modified: states, one at a time, four a day, faults."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from provisioner.model.errors import Ec2Error, Outcome, Reason
from provisioner.model.modification import (
    Modification,
    ModificationState,
    ModifyRequest,
    shape_of,
)
from provisioner.model.volume import CreateRequest, Volume, VolumeState

Json = dict[str, Any]
VOLUME = "vol-0123456789abcdef0"
CALL_S = 0.1
MODIFYING_S, OPTIMIZING_S = 3.0, 600.0


class Cloud:
    """One volume that can be modified.

    Attributes:
        sent: every ModifyVolume that reached EC2, carried out or not.
        refuses: for a request, the error that it gets, or None.
        loses: so many replies are lost, after the effect; ``drops``: before it.
        hides_s: so long after it began a modification is not shown.
        fails: so many modifications fail.
        ceiling: the most IOPS that the region gives; ``ceiling_asked``: each time that is asked.
    """

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self.volume: Volume | None = Volume(
            VOLUME, VolumeState.IN_USE, "us-east-1a", 10, "gp3", 3000, 125
        )
        self.latest_: Modification | None = None
        self.sent: list[ModifyRequest] = []
        self.taken = 0
        self.reads = 0
        self.tagged: list[Json] = []
        self.refuses: Callable[[ModifyRequest], Ec2Error | None] = lambda _: None
        self.loses = self.drops = self.fails = 0
        self.ceiling: int | Ec2Error | None = None
        self.ceiling_asked: list[CreateRequest] = []
        self.hides_s = 0.0
        self.waits_s = 0.0
        self.modifying_s, self.optimizing_s = MODIFYING_S, OPTIMIZING_S
        self.meanwhile: Callable[[], None] = lambda: None
        self.budget = 4
        self.began: list[datetime] = []

    async def modify(self, request: ModifyRequest, *, gate: Any = None) -> Modification:
        await asyncio.sleep(self.waits_s)
        if gate is not None:
            await gate()
        self.sent.append(request)
        self.meanwhile()
        await asyncio.sleep(CALL_S)
        if self.drops:
            self.drops -= 1
            raise _error(Reason.REPLY_LOST, "no answer", outcome=Outcome.UNKNOWN)
        refusal = self._refusal(request)
        if refusal is not None:
            raise refusal
        begun = self._begin(request)
        if self.loses:
            self.loses -= 1
            raise _error(Reason.REPLY_LOST, "no answer", outcome=Outcome.UNKNOWN)
        return begun

    def _refusal(self, request: ModifyRequest) -> Ec2Error | None:
        now, latest = self._now(), self._shown(hidden=False)
        if latest is not None and latest.state in (
            ModificationState.MODIFYING,
            ModificationState.OPTIMIZING,
        ):
            return _error(Reason.MODIFICATION_RUNNING, "it is being modified")
        recent = [at for at in self.began if now - at < timedelta(hours=24)]
        if len(recent) >= self.budget:
            return _error(
                Reason.MODIFICATION_LIMIT,
                "used up",
                retry_at=recent[-self.budget] + timedelta(hours=24),
            )
        return self.refuses(request)

    async def ceiling_of(self, request: CreateRequest) -> int | None:
        self.ceiling_asked.append(request)
        await asyncio.sleep(CALL_S)
        if isinstance(self.ceiling, Ec2Error):
            raise self.ceiling
        return self.ceiling

    def _begin(self, request: ModifyRequest) -> Modification:
        assert self.volume is not None
        has, now = shape_of(self.volume), self._now()
        target = replace(
            has,
            size_gib=request.size_gib or has.size_gib,
            volume_type=request.volume_type or has.volume_type,
            iops=request.iops or has.iops,
            throughput_mibps=request.throughput_mibps or has.throughput_mibps,
        )
        self.taken += 1
        self.began.append(now)
        self.latest_ = Modification(
            VOLUME, ModificationState.MODIFYING, target, original=has, started_at=now
        )
        return self.latest_

    def _shown(self, *, hidden: bool = True) -> Modification | None:
        latest = self.latest_
        if latest is None or latest.started_at is None:
            return latest
        age_s = (self._now() - latest.started_at).total_seconds()
        if hidden and age_s < self.hides_s:
            return None
        if latest.state is ModificationState.FAILED or age_s < self.modifying_s:
            return latest
        if self.fails and latest.state is ModificationState.MODIFYING:
            self.fails -= 1
            self.latest_ = replace(latest, state=ModificationState.FAILED, message="a fault")
            return self.latest_
        state = (
            ModificationState.OPTIMIZING
            if age_s < self.modifying_s + self.optimizing_s
            else ModificationState.COMPLETED
        )
        self.latest_ = replace(latest, state=state)
        if self.volume is not None:
            target = latest.target
            self.volume = replace(
                self.volume,
                size_gib=target.size_gib,
                volume_type=target.volume_type,
                iops=target.iops,
                throughput_mibps=target.throughput_mibps,
            )
        return self.latest_

    async def read(self, volume_id: str) -> Volume | None:
        self.reads += 1
        await asyncio.sleep(CALL_S)
        self._shown()
        return self.volume if volume_id == VOLUME else None

    async def latest(self, _: str) -> Modification | None:
        await asyncio.sleep(CALL_S)
        return self._shown()

    async def describe(self, ids: list[str], /) -> Mapping[str, Modification]:
        shown = self._shown()
        return {VOLUME: shown} if shown is not None and VOLUME in ids else {}

    look_for = describe

    async def tag(self, _: list[str], tags: Mapping[str, str]) -> dict[str, Ec2Error]:
        assert self.volume is not None
        self.tagged.append(dict(tags))
        self.volume = replace(self.volume, tags=dict(self.volume.tags) | dict(tags))
        return {}

    async def untag(self, _: list[str], key: str) -> dict[str, Ec2Error]:
        assert self.volume is not None
        kept = {name: value for name, value in self.volume.tags.items() if name != key}
        self.volume = replace(self.volume, tags=kept)
        return {}


def _error(reason: Reason, message: str, **given: Any) -> Ec2Error:
    return Ec2Error(reason, message, action="ModifyVolume", **given)


def refusal(reason: Reason, message: str = "EC2 says no") -> Ec2Error:
    """What EC2 answers to a ModifyVolume."""
    return _error(reason, message)
