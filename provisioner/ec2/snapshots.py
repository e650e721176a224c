"""EBS snapshots in EC2: take, delete, find, describe, make fast, lock; nothing is waited for."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from provisioner.ec2.batches import (
    FILTER_VALUES,
    PAGE,
    Call,
    ask_about,
    chunks,
    one_of,
    pages,
)
from provisioner.ec2.calls import Ec2Calls, Gate
from provisioner.ec2.errors import refusal
from provisioner.model.ebs_snapshot import (
    EVERY_S,
    EbsSnapshot,
    LockRequest,
    SnapshotRequest,
    SnapshotState,
)
from provisioner.model.errors import Ec2Error, Outcome, Reason, StorageError
from provisioner.model.ids import is_snapshot_id

IDS_PER_CALL = 500
# Everybody's public snapshots can be seen too, and can carry any tag.
_OURS: Mapping[str, list[str]] = {"OwnerIds": ["self"]}
# Ours, and what other accounts share with ours by name: not what they make public.
# Source: EC2 API DescribeSnapshots, RestorableBy (read 2026-11-22).
_FOR_US: Mapping[str, list[str]] = {"RestorableByUserIds": ["self"]}


# Why a snapshot of a volume waits for its turn, as the end of a sentence; told of longer waits.
WHY_IT_WAITS = f"EBS allows one snapshot of a volume every {EVERY_S:.0f} s"
WORTH_TELLING_S = 2.0
_SOON_S = 1.0


class Turns:
    """Whose turn it is, for all who take snapshots; seconds of one monotonic clock.

    Of one volume one snapshot is asked for at a time, and the next one ``EVERY_S`` after EC2's
    answer. A refusal because there are too many holds back its volume alone: by EC2's code it may
    be the volume's limit or the account's (EBS user guide "Quotas for Amazon EBS"). Who was refused
    asks less and less often by the backoff of its own queue.
    """

    def __init__(self) -> None:
        self._busy: set[str] = set()
        self._free_at_s: dict[str, float] = {}

    def waits_s(self, volume_id: str, now_s: float) -> float:
        """For how long nothing should be asked for this volume; 0: it may be asked now."""
        wait_s = self._free_at_s.get(volume_id, 0.0) - now_s
        if wait_s > 0:
            return wait_s
        return _SOON_S if volume_id in self._busy else 0.0

    def begin(self, volume_id: str) -> None:
        """A request for this volume is about to be sent."""
        self._busy.add(volume_id)

    def end(self, volume_id: str, now_s: float, *, rests: bool = True) -> None:
        """It was answered, lost, or not sent.

        ``rests``: EC2 may have taken a snapshot, or has just said that there are too many.
        """
        self._busy.discard(volume_id)
        self._free_at_s = {key: at_s for key, at_s in self._free_at_s.items() if at_s > now_s}
        if rests:
            self._free_at_s[volume_id] = now_s + EVERY_S


def rests_after(error: StorageError) -> bool:
    """Whether no snapshot of the volume is asked for in the next seconds after such a refusal."""
    return error.outcome is Outcome.UNKNOWN or error.reason is Reason.SNAPSHOT_RATE


class Snapshots:
    """The EBS snapshots of this account in one Region.

    Attributes:
        turns: when a snapshot of a volume is worth asking for; shared by all who take some.
    """

    def __init__(self, calls: Ec2Calls) -> None:
        self._calls = calls
        self.turns = Turns()

    async def create(
        self, request: SnapshotRequest, *, gate: Gate | None = None, patient: bool = False
    ) -> EbsSnapshot:
        """Send one CreateSnapshot, its tags with it; the snapshot is ``pending``.

        The same record sent again takes another snapshot.

        Args:
            request: everything that EC2 is told.
            gate: the last look, right before the call is sent (see ``Ec2Calls.call``).
            patient: others go first.

        Raises:
            Ec2Error: VOLUME_NOT_FOUND, VOLUME_STATE, SNAPSHOT_RATE (wait), QUOTA_EXCEEDED, …;
                ``outcome`` UNKNOWN if it may have been taken.
        """
        params: dict[str, Any] = {
            "VolumeId": request.volume_id,
            "Description": request.description,
        }
        if request.tags:
            tags = [{"Key": key, "Value": value} for key, value in request.tags]
            params["TagSpecifications"] = [{"ResourceType": "snapshot", "Tags": tags}]
        if request.outpost_arn is not None:
            params["OutpostArn"] = request.outpost_arn
        answer = await self._calls.call("CreateSnapshot", params, gate=gate, patient=patient)
        snapshot: EbsSnapshot = answer["Snapshot"]
        return snapshot

    async def delete(
        self, snapshot_id: str, *, gate: Gate | None = None, patient: bool = False
    ) -> bool:
        """Send one DeleteSnapshot; a snapshot that is not there counts as deleted.

        Returns:
            Whether it was there until now.

        Args:
            snapshot_id: the snapshot.
            gate: the last look, right before the call is sent (see ``Ec2Calls.call``).
            patient: others go first.

        Raises:
            Ec2Error: SNAPSHOT_IN_USE, SNAPSHOT_LOCKED, …; ``outcome`` UNKNOWN if it may be gone.
        """
        try:
            params = {"SnapshotId": snapshot_id}
            await self._calls.call("DeleteSnapshot", params, gate=gate, patient=patient)
        except Ec2Error as failure:
            if failure.reason is not Reason.SNAPSHOT_NOT_FOUND:
                raise
            return False
        return True

    async def describe(self, snapshot_ids: Iterable[str]) -> dict[str, EbsSnapshot | Ec2Error]:
        """What EC2 knows of these snapshots, at most 500 ids a call; absent: it knows no such one.

        Also snapshots that another account shares with ours: who names one by its id means it. One
        that EC2 refuses to describe costs the others nothing (see ``ask_about``).

        Raises:
            Ec2Error: EC2 could not be asked.
        """
        found: dict[str, EbsSnapshot | Ec2Error] = {}

        async def ask(ids: list[str]) -> None:
            params = {"SnapshotIds": ids}
            answer = await self._calls.call("DescribeSnapshots", params)
            found.update((snapshot.snapshot_id, snapshot) for snapshot in answer["Snapshots"])

        return found | await ask_about(filter(is_snapshot_id, snapshot_ids), IDS_PER_CALL, ask)

    async def look_for(self, snapshot_ids: Iterable[str]) -> dict[str, EbsSnapshot | Ec2Error]:
        """As ``describe``, for snapshots that may well not be there: by a filter, ≤ 200 ids a call.

        Also what another account shares with ours, perhaps only since the last look; but not
        what it shares with everybody: those are too many to search.

        Raises:
            Ec2Error: EC2 could not be asked.
        """
        described = partial(self._describe, background=False, whose=_FOR_US)
        found: dict[str, EbsSnapshot | Ec2Error] = {}

        async def ask(ids: list[str]) -> None:
            found.update(await self._filtered("snapshot-id", ids, described))

        return found | await ask_about(filter(is_snapshot_id, snapshot_ids), FILTER_VALUES, ask)

    async def find_any(
        self, key: str, values: Sequence[str], *, background: bool = False
    ) -> list[EbsSnapshot]:
        """All snapshots of ours whose tag has one of these values: 200 values a call, all pages.

        A new snapshot may be missing for some seconds (EC2 is eventually consistent).

        Raises:
            Ec2Error: any page failed; there is no partial answer.
        """
        ask = partial(self._describe, background=background)
        found = await self._filtered(f"tag:{key}", values, ask)
        wanted = frozenset(values)
        return [each for each in found.values() if each.tags.get(key) in wanted]

    async def pending(self) -> list[EbsSnapshot]:
        """All snapshots of ours that are not completed, whoever takes them; in background.

        Raises:
            Ec2Error: any page failed; there is no partial answer.
        """
        ask = partial(self._describe, background=True)
        found = await self._filtered("status", [SnapshotState.PENDING], ask)
        return list(found.values())

    async def enable_fast_restore(self, snapshot_id: str, zones: Sequence[str]) -> None:
        """Make volumes of a snapshot fast from the start, in these zones.

        Where it is enabled already, nothing changes.

        Raises:
            Ec2Error: EC2 refuses it, in any of the zones; in the others it may be carried out.
        """
        params = {"AvailabilityZones": list(zones), "SourceSnapshotIds": [snapshot_id]}
        answer = await self._calls.call("EnableFastSnapshotRestores", params)
        _check_all("EnableFastSnapshotRestores", snapshot_id, answer)

    async def fast_restores(self, snapshot_id: str) -> dict[str, str]:
        """EC2's state of fast restore of a snapshot by zone, such as "enabled"; else absent.

        Raises:
            Ec2Error: any page failed; there is no partial answer.
        """
        found: dict[str, str] = {}
        params = {"Filters": [one_of("snapshot-id", [snapshot_id])]}
        async for page in pages(
            lambda page: self._calls.call("DescribeFastSnapshotRestores", page), params
        ):
            for each in page.get("FastSnapshotRestores", ()):
                found[each["AvailabilityZone"]] = each.get("State", "")
        return found

    async def lock(self, snapshot_id: str, request: LockRequest) -> None:
        """Lock a snapshot; locked once more in the same way, it is locked for longer.

        Raises:
            Ec2Error: SNAPSHOT_NOT_FOUND, INVALID_REQUEST, …; ``outcome`` UNKNOWN if it may be
                locked.
        """
        wanted = {
            "SnapshotId": snapshot_id,
            "LockMode": request.mode,
            "LockDuration": request.duration_days,
            "ExpirationDate": request.expires_at,
            "CoolOffPeriod": request.cool_off_hours,
        }
        params = {name: value for name, value in wanted.items() if value is not None}
        await self._calls.call("LockSnapshot", params)

    async def lock_state(self, snapshot_id: str) -> str:
        """EC2's state of the lock of a snapshot, such as "governance"; "" if it never had one.

        Raises:
            Ec2Error: SNAPSHOT_NOT_FOUND; or EC2 could not be asked.
        """
        params = {"SnapshotIds": [snapshot_id]}
        answer = await self._calls.call("DescribeLockedSnapshots", params)
        return next((each.get("LockState", "") for each in answer.get("Snapshots", ())), "")

    async def _filtered(
        self, name: str, values: Sequence[str], ask: Call
    ) -> dict[str, EbsSnapshot]:
        found: dict[str, EbsSnapshot] = {}
        for some in chunks(values, FILTER_VALUES):
            params = {"Filters": [one_of(name, some)], "MaxResults": PAGE}
            async for page in pages(ask, params):
                found.update((each.snapshot_id, each) for each in page["Snapshots"])
        return found

    async def _describe(
        self,
        params: Mapping[str, Any],
        *,
        background: bool,
        whose: Mapping[str, list[str]] = _OURS,
    ) -> dict[str, Any]:
        asked = {**whose, **params}
        return await self._calls.call("DescribeSnapshots", asked, background=background)


def _check_all(action: str, snapshot_id: str, answer: Mapping[str, Any]) -> None:
    """Raise what EC2 has against one of the zones; its answer is a success all the same."""
    for one in answer.get("Unsuccessful", ()):
        for failed in one.get("FastSnapshotRestoreStateErrors", ()):
            error, zone = failed.get("Error", {}), failed.get("AvailabilityZone", "")
            what = f"{action} {snapshot_id} in {zone}"
            raise refusal(action, what, error.get("Code", ""), error.get("Message", ""))
