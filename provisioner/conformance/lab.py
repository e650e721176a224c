"""What a probe gets: calls to EC2 that can neither lose a volume nor touch a stranger's.

Everything that is made carries the tag of the run, and is journaled before and after the call.
A change is refused here unless it names something that this run has made, something that cannot
exist, or the instance that the user has named.
"""

import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

from provisioner.conformance.probe import CannotRunError, NotSeenError, RefusedError
from provisioner.model.names import CONFORMANCE_RUN

T = TypeVar("T")
Params = Mapping[str, Any]

# What each action makes, by boto3's name of it: kind, and how its reply tells the ids.
_MAKES: Mapping[str, str] = {
    "create_volume": "volume",
    "copy_volumes": "volume",
    "create_snapshot": "snapshot",
    "copy_snapshot": "snapshot",
}
# What each action makes things of: to take a stranger's volume or snapshot costs its size.
_SOURCES = ("SourceVolumeId", "VolumeId", "SourceSnapshotId", "SnapshotId")
# What each action changes, by the parameters that name it.
_CHANGES: Mapping[str, tuple[str, ...]] = {
    "delete_volume": ("VolumeId",),
    "modify_volume": ("VolumeId",),
    "modify_volume_attribute": ("VolumeId",),
    "attach_volume": ("VolumeId", "InstanceId"),
    "detach_volume": ("VolumeId",),
    "delete_snapshot": ("SnapshotId",),
    "lock_snapshot": ("SnapshotId",),
    "unlock_snapshot": ("SnapshotId",),
    "enable_fast_snapshot_restores": ("SourceSnapshotIds",),
    "disable_fast_snapshot_restores": ("SourceSnapshotIds",),
    "create_tags": ("Resources",),
    "delete_tags": ("Resources",),
}
_READS = re.compile(r"describe_\w+|get_\w+")
_PREFIXES = {"volume": "vol-", "snapshot": "snap-", "instance": "i-"}
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0


class Door(Protocol):
    """The way to EC2; see ``provisioner/conformance/ec2.py``."""

    async def call(self, operation: str, params: Params, *, again: bool) -> dict[str, Any]:
        """Send one call; ``again``: if it is throttled, until it is not."""

    async def undisturbed(self, work: Coroutine[Any, Any, T]) -> T:
        """Do work to its end, even if its caller is cancelled meanwhile."""


class Diary(Protocol):
    """Where a lab writes down what it makes; see ``provisioner/conformance/journal.py``."""

    async def making(self, kind: str, operation: str) -> int:
        """Note that something is going to be made; returns the number of this note."""

    async def made(self, number: int, ids: Sequence[str]) -> None:
        """Note what came of it; no ids: EC2 refused."""

    def is_ours(self, each: str) -> bool:
        """Whether this run has made it."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the probes run.

    Attributes:
        run: the id of this run, the value of its tag.
        region: of EC2.
        zone: where volumes are made; that of the instance, if there is one.
        zones: all that are available, ``zone`` first.
        instance: the id of a running instance, None if the user has named none.
        instance_type: of it.
        other_instance: the id of a second running instance in ``zone``, None if there is none.
        devices: names that are free on both.
    """

    run: str
    region: str
    zone: str
    zones: tuple[str, ...]
    instance: str | None = None
    instance_type: str | None = None
    other_instance: str | None = None
    devices: tuple[str, ...] = ("/dev/sdf",)


class Lab:
    """One probe's hands.

    Attributes:
        place: the run, the region, the zones, the instance.
        made: the ids of what it has made.
    """

    def __init__(
        self, place: Place, door: Door, diary: Diary, device: Callable[[], str] = lambda: "/dev/sdf"
    ) -> None:
        """``device`` gives a device name that no other probe of this run uses."""
        self.place = place
        self._door = door
        self._diary = diary
        self._device = device
        self._missing: set[str] = set()
        self.made: list[str] = []

    # -- where

    @property
    def zone(self) -> str:
        """Where volumes are made."""
        return self.place.zone

    @property
    def zones(self) -> tuple[str, ...]:
        """All available zones, ``zone`` first.

        A probe that needs two raises ``CannotRunError`` if there is only one.
        """
        return self.place.zones

    @property
    def region(self) -> str:
        """The Region."""
        return self.place.region

    @property
    def instance(self) -> str:
        """A running instance in ``zone``.

        Raises:
            CannotRunError: the user has named none.
        """
        if self.place.instance is None:
            raise CannotRunError("it needs a running instance: name one with --instance")
        return self.place.instance

    @property
    def other_instance(self) -> str:
        """A second running instance in ``zone``.

        Raises:
            CannotRunError: the user has not named two.
        """
        if self.place.other_instance is None:
            raise CannotRunError("it needs two running instances in one zone: name both")
        return self.place.other_instance

    @property
    def tag(self) -> dict[str, str]:
        """The tag that everything of this run has; it is one of the 50 that a thing may have."""
        return {"Key": CONFORMANCE_RUN, "Value": self.place.run}

    @property
    def tag_filter(self) -> dict[str, Any]:
        """The filter that finds everything of this run, of other probes too."""
        return {"Name": f"tag:{CONFORMANCE_RUN}", "Values": [self.place.run]}

    def device(self) -> str:
        """A device name for the instance that no other probe of this run uses."""
        return self._device()

    # -- calls

    async def call(self, operation: str, **params: Any) -> dict[str, Any]:
        """Send one call, under boto3's name of it, and return the reply; repeated if throttled.

        What makes something gets our tag (with DryRun too); what changes something is refused here
        unless it is ours. Parameters are not validated before they are sent.

        Raises:
            RefusedError: EC2 said no.
            CannotRunError: a right is missing, the endpoint has no such action, or no reply came.
        """
        return await self._send(operation, params, again=True)

    async def call_once(self, operation: str, **params: Any) -> dict[str, Any]:
        """As ``call``; a throttled call is refused with its code (RequestLimitExceeded)."""
        return await self._send(operation, params, again=False)

    async def code_of(self, operation: str, **params: Any) -> str:
        """EC2's error code for a call; "" if it accepts."""
        try:
            await self.call(operation, **params)
        except RefusedError as refused:
            return refused.code
        return ""

    # -- things

    async def volume(self, size_gib: int = 1, **params: Any) -> str:
        """Make a volume in ``zone``, gp3 unless given, and return its id once it is available."""
        asked = {"AvailabilityZone": self.zone, "VolumeType": "gp3", "Size": size_gib, **params}
        made = await self.call("create_volume", **asked)
        volume_id = str(made["VolumeId"])
        await self.volume_state(volume_id, "available")
        return volume_id

    async def snapshot(self, volume_id: str, **params: Any) -> str:
        """Make a snapshot and return its id once it is completed."""
        made = await self.call("create_snapshot", VolumeId=volume_id, **params)
        snapshot_id = str(made["SnapshotId"])

        async def completed() -> bool:
            found = await self.call("describe_snapshots", SnapshotIds=[snapshot_id])
            return bool(found["Snapshots"][0]["State"] == "completed")

        await self.until(f"{snapshot_id} is completed", completed, 600)
        return snapshot_id

    async def attached(self, volume_id: str, device: str | None = None) -> str:
        """Attach a volume to the instance; return the device name once it is attached."""
        name = device or self.device()
        await self.call("attach_volume", VolumeId=volume_id, InstanceId=self.instance, Device=name)

        async def done() -> bool:
            attachments = (await self.describe(volume_id)).get("Attachments", [])
            return any(each.get("State") == "attached" for each in attachments)

        await self.until(f"{volume_id} is attached", done, 60)
        return name

    async def detached(self, volume_id: str) -> None:
        """Detach a volume, and wait until it is available."""
        await self.call("detach_volume", VolumeId=volume_id)
        await self.volume_state(volume_id, "available")

    async def describe(self, volume_id: str) -> dict[str, Any]:
        """A volume as DescribeVolumes shows it now.

        Raises:
            RefusedError: it does not show it.
        """
        found = await self.call("describe_volumes", VolumeIds=[volume_id])
        volume: dict[str, Any] = found["Volumes"][0]
        return volume

    async def volume_state(self, volume_id: str, state: str, within_s: float = 60) -> None:
        """Wait until a volume has a state.

        Raises:
            NotSeenError: it has not.
        """

        async def is_so() -> bool:
            try:
                return bool((await self.describe(volume_id))["State"] == state)
            except RefusedError as refused:
                if refused.code == "InvalidVolume.NotFound":
                    return False  # not visible yet
                raise

        await self.until(f"{volume_id} is {state}", is_so, within_s)

    def missing_id(self, kind: str) -> str:
        """A well-formed id of a volume, snapshot or instance that does not exist."""
        name = f"{_PREFIXES[kind]}{secrets.token_hex(9)[:17]}"
        self._missing.add(name)
        return name

    # -- time

    async def until(
        self, description: str, condition: Callable[[], Awaitable[T]], within_s: float
    ) -> T:
        """Ask again and again until the answer is true, and return it.

        Raises:
            NotSeenError: it was not within so many seconds.
        """
        loop = asyncio.get_running_loop()
        end_s, pause_s = loop.time() + within_s, _FIRST_PAUSE_S
        while True:
            if found := await condition():
                return found
            if loop.time() + pause_s > end_s:
                raise NotSeenError(f"after {within_s:.0f} s this is not so: {description}")
            await asyncio.sleep(pause_s)
            pause_s = min(_LONGEST_PAUSE_S, pause_s * 1.5)

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    def now_s(self) -> float:
        """Seconds on a clock that only goes forward."""
        return asyncio.get_running_loop().time()

    def now(self) -> datetime:
        """The time of day."""
        return datetime.now(UTC)

    # -- inside

    async def _send(self, operation: str, params: Params, *, again: bool) -> dict[str, Any]:
        if operation in _MAKES:
            self._check_named(operation, _SOURCES, params)
            making = self._make(_MAKES[operation], operation, params, again=again)
            return await self._door.undisturbed(making)
        if not _READS.fullmatch(operation):
            self._check_ours(operation, params)
        return await self._door.call(operation, params, again=again)

    async def _make(
        self, kind: str, operation: str, params: Params, *, again: bool
    ) -> dict[str, Any]:
        number = await self._diary.making(kind, operation)
        tagged = {**params, "TagSpecifications": self._with_tag(kind, params)}
        try:
            reply = await self._door.call(operation, tagged, again=again)
        except RefusedError:
            await self._diary.made(number, ())
            raise
        ids = ids_of(reply, kind)
        await self._diary.made(number, ids)
        self.made.extend(each for each in ids if each not in self.made)
        return reply

    def _with_tag(self, kind: str, params: Params) -> list[dict[str, Any]]:
        """The probe's own tag specifications, and our tag in that of the kind."""
        given = [dict(each) for each in params.get("TagSpecifications", ())]
        ours = next((each for each in given if each.get("ResourceType") == kind), None)
        if ours is None:
            return [*given, {"ResourceType": kind, "Tags": [self.tag]}]
        ours["Tags"] = [*ours.get("Tags", ()), self.tag]
        return given

    def _check_ours(self, operation: str, params: Params) -> None:
        """Refuse a change of what this run has not made; a mistake of the probe.

        Raises:
            PermissionError: it is not ours, or no action that a probe may use.
        """
        if operation not in _CHANGES:
            raise PermissionError(f"{operation} is no call that a probe may send")
        if params.get("LockMode") == "compliance":
            raise PermissionError("nobody can delete a snapshot that is locked in compliance mode")
        if operation in {"create_tags", "delete_tags"} and not _keeps_our_tag(operation, params):
            raise PermissionError(f"{operation} would change the tag by which a sweep finds it")
        if operation == "enable_fast_snapshot_restores" and not self._costs_nothing(params):
            raise PermissionError("an hour of fast snapshot restore costs more than a whole run")
        self._check_named(operation, _CHANGES[operation], params)

    def _check_named(self, operation: str, names: Sequence[str], params: Params) -> None:
        for name in names:
            value = params.get(name)
            for each in value if isinstance(value, list) else [value]:
                if each is not None and not self._may_change(str(each), operation):
                    raise PermissionError(f"{operation} of {each}, which this run has not made")

    def _costs_nothing(self, params: Params) -> bool:
        """Whether fast restores can only be refused: of snapshots that do not exist."""
        return all(each in self._missing for each in params.get("SourceSnapshotIds", ()))

    def _may_change(self, each: str, operation: str) -> bool:
        if each in self._missing or not is_id(each) or self._diary.is_ours(each):
            return True
        ours = (self.place.instance, self.place.other_instance)
        return operation == "attach_volume" and each in ours


def _keeps_our_tag(operation: str, params: Params) -> bool:
    keys = {each.get("Key") for each in params.get("Tags", ())}
    removes_all = operation == "delete_tags" and not keys
    return not removes_all and CONFORMANCE_RUN not in keys


_ID = re.compile(r"[a-z]+-[0-9a-f]{8,32}")


def is_id(text: str) -> bool:
    """Whether something in EC2 may have this id."""
    return _ID.fullmatch(text) is not None


def ids_of(reply: Params, kind: str) -> list[str]:
    """The ids of what a call has made, from its reply."""
    key = {"volume": "VolumeId", "snapshot": "SnapshotId"}[kind]
    many: Sequence[Params] = reply.get("Volumes") or reply.get("Snapshots") or [reply]
    return [str(each[key]) for each in many if key in each]
