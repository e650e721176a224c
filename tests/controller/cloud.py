"""EC2 in virtual time, behind the real calls and limiter: volumes attached and detached."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from botocore.exceptions import ClientError

from provisioner.ec2.calls import Ec2Calls
from provisioner.ec2.limiter import Grant, Limiter, Rates, Turn, Urgency
from provisioner.metrics import Metrics
from provisioner.model.errors import Ec2Error, Reason
from provisioner.model.ids import is_instance_id, is_volume_id
from provisioner.model.modification import Initialization
from provisioner.model.node_affinity import region_of
from provisioner.model.volume import AttachmentState as State
from provisioner.model.volume import Instance, Volume
from tests.builders import ZONE, a_volume
from tests.ec2.virtual_time import Clock

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

CALL_S = 0.2
ATTACH_S = 2.0
DETACH_S = 3.0
INSTANCES = 16


def _check_ids(action: str, params: Mapping[str, Any]) -> None:
    """EC2 refuses a whole call for one id that cannot be one."""
    for kind, is_one in (("Volume", is_volume_id), ("Instance", is_instance_id)):
        one = [params[f"{kind}Id"]] if f"{kind}Id" in params else []
        if odd := [each for each in (*one, *params.get(f"{kind}Ids", ())) if not is_one(each)]:
            raise Ec2Error(Reason.INVALID_REQUEST, f"Value ({odd[0]}) is invalid", action=action)


class SlowLimiter(Limiter):
    """The real one; before it, callers wait as long as the queue of an action is said to be."""

    def __init__(self, clock: Clock, waits_s: Mapping[str, float]) -> None:
        super().__init__(clock=clock)
        self._waits_s = waits_s

    async def acquire(
        self,
        action: str,
        urgency: Urgency = Urgency.NORMAL,
        *,
        place: int | None = None,
        turn: Turn | None = None,
    ) -> Grant:
        if self._waits_s.get(action):
            await self._wait(action, turn or Turn())
        return await super().acquire(action, urgency, place=place, turn=turn)

    async def _wait(self, action: str, turn: Turn) -> None:
        """As the real one waits: it can be ended."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[Grant] = loop.create_future()
        turn.begin(waiter)
        turns_up = asyncio.create_task(asyncio.sleep(self._waits_s[action]))
        try:
            both: set[asyncio.Future[Any]] = {waiter, turns_up}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if waiter.done():
                await waiter
        finally:
            turns_up.cancel()
            waiter.cancel()


@dataclass(frozen=True)
class Placed:
    """The last change of a volume on an instance."""

    device: str
    at_s: float
    leaving: bool = False


class Cloud(Ec2Calls):
    """Answers after 0.2 s, at the documented quota. Any volume that it is asked for exists.

    Attributes:
        waits_s: by action, how long calls wait for their turn.
        attach_s: how long an attachment takes.
        drops: what was attached is off again when that time is over.
        shared: up to 16 instances have a volume at once.
        refuses: by action, with what it is refused.
        restored: by volume of a snapshot, when all of its data is there; None is not yet.
        gone: volumes that are not there any more.
        managed: volumes on a resource that another AWS service manages; EC2 shows no instance.
        estimates: whether EC2 tells how long that takes.
        sent: the actions that change something, in order, and when they arrived.
    """

    def __init__(self, clock: Clock) -> None:
        self.waits_s: dict[str, float] = {}
        limiter = SlowLimiter(clock, self.waits_s)
        super().__init__(cast("EC2Client", None), limiter=limiter, metrics=Metrics(), clock=clock)
        self.attach_s = ATTACH_S
        self.drops = False
        self.shared = False
        self.refuses: dict[str, Reason] = {}
        self.restored: dict[str, float | None] = {}
        self.gone: set[str] = set()
        self.managed: set[str] = set()
        self.estimates = True
        self.sent: list[tuple[str, float]] = []
        self.counts: Counter[str] = Counter()
        self._tokens: dict[str, tuple[float, float]] = {}
        self._placed: dict[str, dict[str, Placed]] = {}  # by volume, by instance

    @property
    def region(self) -> str:
        """That of all nodes."""
        return region_of(ZONE)

    def actions(self) -> list[str]:
        """What was sent that changes something, in order."""
        return [action for action, _ in self.sent]

    async def _in_thread(self, grant: Grant, params: Mapping[str, Any]) -> dict[str, Any]:
        try:
            await asyncio.sleep(CALL_S)
            self._admit(grant.action)
            return self._answer(grant.action, params)
        finally:
            self.limiter.release()

    def _admit(self, action: str) -> None:
        quota, now = Rates().of(action), self._clock()
        tokens, at_s = self._tokens.get(action, (quota.burst, now))
        tokens = min(quota.burst, tokens + (now - at_s) * quota.per_s)
        self._tokens[action] = (tokens - 1 if tokens >= 1 else tokens), now
        if tokens < 1:
            self.counts["throttled"] += 1
            raise ClientError({"Error": {"Code": "RequestLimitExceeded"}}, action)
        self.counts[action] += 1

    def _answer(self, action: str, params: Mapping[str, Any]) -> dict[str, Any]:
        _check_ids(action, params)
        if action == "DescribeInstances":
            ids = params["InstanceIds"] if "InstanceIds" in params else _filtered(params)
            return {"Instances": [self._instance(each) for each in ids]}
        if action == "DescribeVolumes":
            ids = params["VolumeIds"] if "VolumeIds" in params else _filtered(params)
            found = [self._volume(each) for each in ids if each not in self.gone]
            return {"Volumes": found, "NextToken": None}
        if action == "DescribeVolumeStatus" and action not in self.refuses:
            told = [self._initialization(each) for each in params["VolumeIds"]]
            return {"Initializations": [t for t in told if t.volume_id not in self.gone]}
        self.sent.append((action, self._clock()))
        if action in self.refuses:
            raise Ec2Error(self.refuses[action], f"EC2 refuses {action}", action=action)
        return self._change(action, params["VolumeId"], params["InstanceId"], params.get("Device"))

    def _volume(self, volume_id: str) -> Volume:
        volume = a_volume(volume_id, on=self._on(volume_id), multi_attach=self.shared)
        return replace(volume, snapshot_id="snap-1" if volume_id in self.restored else "")

    def _initialization(self, volume_id: str) -> Initialization:
        at_s = self.restored.get(volume_id)
        if at_s is None:
            return Initialization(volume_id, is_complete=False)
        left_s = max(0, round(at_s - self._clock()))
        state = "initializing" if left_s else "completed"
        estimated_s = left_s if self.estimates else None
        percent = 50 if left_s else 100
        return Initialization(volume_id, not left_s, state, percent, estimated_s)

    def _change(
        self, action: str, volume_id: str, instance_id: str, device: str | None
    ) -> dict[str, Any]:
        on, now = self._on(volume_id), self._clock()
        placed = self._placed.setdefault(volume_id, {})
        if action == "AttachVolume":
            if instance_id in on or len(on) >= (INSTANCES if self.shared else 1):
                raise Ec2Error(Reason.VOLUME_IN_USE, "in use", action=action)
            placed[instance_id] = Placed(device or "", now)
            return {"State": "attaching", "InstanceId": instance_id, "Device": device}
        if instance_id not in on:
            raise Ec2Error(Reason.NOT_ATTACHED, "not attached", action=action)
        placed[instance_id] = Placed("", now, leaving=True)
        return {"State": "detaching", "InstanceId": instance_id}

    def _on(self, volume_id: str) -> dict[str, State]:
        placed = self._placed.get(volume_id, {})
        states = {instance_id: self._state(each) for instance_id, each in placed.items()}
        shown = {"": State.ATTACHED} if volume_id in self.managed else {}
        return shown | {each: state for each, state in states.items() if state is not None}

    def _state(self, placed: Placed) -> State | None:
        since_s = self._clock() - placed.at_s
        if placed.leaving:
            return State.DETACHING if since_s < DETACH_S else None
        if since_s < self.attach_s:
            return State.ATTACHING
        return None if self.drops else State.ATTACHED

    def _instance(self, instance_id: str) -> Instance:
        devices = {
            placed[instance_id].device or f"/dev/leaving-{volume_id}": volume_id
            for volume_id, placed in self._placed.items()
            if instance_id in placed and self._state(placed[instance_id]) is not None
        }
        return Instance(instance_id, ZONE, "running", "m5.large", devices)


def _filtered(params: Mapping[str, Any]) -> list[str]:
    ids: list[str] = params["Filters"][0]["Values"]
    return ids
