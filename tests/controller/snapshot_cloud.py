"""EBS snapshots in virtual time, with EC2's limits, behind a process that can die at any request."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from provisioner.ec2.snapshots import Turns
from provisioner.model.ebs_snapshot import EbsSnapshot, LockRequest, SnapshotRequest, SnapshotState
from provisioner.model.errors import Ec2Error, Outcome, Reason
from provisioner.model.names import SNAPSHOT_NAME
from tests.ec2.virtual_time import Clock

T = TypeVar("T")
EPOCH = datetime(2026, 11, 21, 10, tzinfo=UTC)
CALL_S = 0.2


@dataclass
class Mortal:
    """Counts requests and ends the process at one of them.

    ``dies_at``: the number of the request; ``after``: once it was carried out.
    """

    dies_at: int = -1
    after: bool = False
    seen: list[str] = field(default_factory=list)
    dead: asyncio.Event = field(default_factory=asyncio.Event)

    async def carry_out(self, name: str, took_s: float, act: Callable[[], T]) -> T:
        number = len(self.seen)
        self.seen.append(name)
        if number == self.dies_at and not self.after:
            await self._die()
        await asyncio.sleep(took_s)
        answer = act()
        if number == self.dies_at:
            await self._die()
        return answer

    async def _die(self) -> None:
        self.dead.set()
        await asyncio.Event().wait()


class Ec2:
    """EBS snapshots.

    Attributes:
        takes_s: until a snapshot is completed.
        shown_after_s: until describes show a new one.
        every_s: between two snapshots of one volume.
        pending_most: pending ones of the account.
        full_volumes: others have as many pending of these as there may be.
        loses: the next replies to these actions get lost, after their effect.
        refuses: by action, what the next ones are refused with.
    """

    def __init__(self, clock: Clock, mortal: Mortal) -> None:
        self.clock, self.mortal = clock, mortal
        self.takes_s, self.shown_after_s = 20.0, 1.0
        self.every_s, self.pending_most = 15.0, 100
        self.full_volumes: frozenset[str] = frozenset()
        self.loses: list[str] = []
        self.refuses: dict[str, Exception] = {}
        self.turns = Turns()
        self.taken: dict[str, tuple[EbsSnapshot, float]] = {}
        self.deleted: list[str] = []
        self.fast: dict[str, dict[str, str]] = {}
        self.locked: dict[str, LockRequest] = {}
        self.calls: list[tuple[str, float]] = []
        self.limited = 0
        self._ids = itertools.count(1)

    def actions(self, name: str) -> list[float]:
        """When calls of an action arrived."""
        return [at_s for action, at_s in self.calls if action == name]

    async def _call(self, action: str, act: Callable[[], T]) -> T:
        def carried_out() -> T:
            self.calls.append((action, self.clock()))
            if action in self.refuses:
                raise self.refuses[action]
            return act()

        answer = await self.mortal.carry_out(action, CALL_S, carried_out)
        if action in self.loses:
            self.loses.remove(action)
            raise Ec2Error(
                Reason.REPLY_LOST, f"{action}: lost", action=action, outcome=Outcome.UNKNOWN
            )
        return answer

    async def create(self, request: SnapshotRequest, *, gate: Any = None) -> EbsSnapshot:
        gate()

        def take() -> EbsSnapshot:
            now = self.clock()
            mine = [at_s for s, at_s in self.taken.values() if s.volume_id == request.volume_id]
            pending = [s for s in self.taken if self.shown(s).state is SnapshotState.PENDING]
            if mine and now - max(mine) < self.every_s:
                self._limit("SnapshotCreationPerVolumeRateExceeded")
            if len(pending) >= self.pending_most or request.volume_id in self.full_volumes:
                self._limit("ConcurrentSnapshotLimitExceeded")
            made = EbsSnapshot(
                f"snap-{next(self._ids):017x}",
                request.volume_id,
                SnapshotState.PENDING,
                4,
                EPOCH + timedelta(seconds=now),
                tags=dict(request.tags),
            )
            self.taken[made.snapshot_id] = made, now
            return made

        return await self._call("CreateSnapshot", take)

    def _limit(self, code: str) -> None:
        self.limited += 1
        raise Ec2Error(
            Reason.SNAPSHOT_RATE,
            f"too many: {code}",
            action="CreateSnapshot",
            code=code,
            retry_after_s=15.0,
        )

    def shown(self, snapshot_id: str) -> EbsSnapshot:
        made, at_s = self.taken[snapshot_id]
        done = self.clock() - at_s >= self.takes_s
        return replace(made, state=SnapshotState.COMPLETED) if done else made

    def _visible(self) -> list[EbsSnapshot]:
        now = self.clock()
        old = [s for s, (_, at_s) in self.taken.items() if now - at_s >= self.shown_after_s]
        return [self.shown(each) for each in old]

    async def delete(self, snapshot_id: str, *, gate: Any = None) -> None:
        await gate()

        def delete() -> None:
            if self.taken.pop(snapshot_id, None) is not None:
                self.deleted.append(snapshot_id)

        await self._call("DeleteSnapshot", delete)

    async def describe(self, ids: Sequence[str]) -> Mapping[str, EbsSnapshot]:
        found = await self._call("DescribeSnapshots", self._visible)
        return {each.snapshot_id: each for each in found if each.snapshot_id in ids}

    look_for = describe

    async def find(self, name: str) -> list[EbsSnapshot]:
        found = await self._call("FindSnapshots", self._visible)
        return [each for each in found if each.tags.get(SNAPSHOT_NAME) == name]

    async def enable_fast_restore(self, snapshot_id: str, zones: Sequence[str]) -> None:
        def enable() -> None:
            self.fast.setdefault(snapshot_id, {}).update(dict.fromkeys(zones, "enabling"))

        await self._call("EnableFastSnapshotRestores", enable)

    async def fast_restores(self, snapshot_id: str) -> dict[str, str]:
        return await self._call(
            "DescribeFastSnapshotRestores", lambda: dict(self.fast.get(snapshot_id, {}))
        )

    async def lock(self, snapshot_id: str, request: LockRequest) -> None:
        def lock() -> None:
            if snapshot_id in self.locked:
                raise Ec2Error(Reason.INVALID_REQUEST, "locked already", action="LockSnapshot")
            self.locked[snapshot_id] = request

        await self._call("LockSnapshot", lock)

    async def lock_state(self, snapshot_id: str) -> str:
        def state() -> str:
            lock = self.locked.get(snapshot_id)
            return "" if lock is None else lock.mode

        return await self._call("DescribeLockedSnapshots", state)
