"""Deletes what one run has made: found by its tag, and by nothing else.

An id in the journal is no reason to delete something that does not carry the tag: EC2 is the truth.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from provisioner.conformance.ec2 import DeniedError, Ec2
from provisioner.conformance.journal import Story
from provisioner.conformance.probe import CannotRunError, RefusedError
from provisioner.model.names import CONFORMANCE_RUN

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 3.0
_FORCE_AFTER_S = 60.0
_LISTS: Mapping[str, tuple[str, str, str]] = {
    "volume": ("describe_volumes", "Volumes", "VolumeId"),
    "snapshot": ("describe_snapshots", "Snapshots", "SnapshotId"),
}
_MAX_RESULTS = 500


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a sweep looks before it believes that nothing is left.

    Attributes:
        quiet_s: after the last creation that EC2 has answered: what is new may show late.
        unanswered_s: after a creation without a reply: it may still be carried out.
        give_up_s: altogether; then what is left is reported.
        cluster_s: the same of what a cluster's controllers have to delete.
        settles_s: after a cluster was seen clean: what was under way there may come late.
    """

    quiet_s: float = 10.0
    unanswered_s: float = 60.0
    give_up_s: float = 300.0
    cluster_s: float = 600.0
    settles_s: float = 10.0


@dataclass(slots=True)
class Left:
    """What a sweep could not delete.

    Attributes:
        why: for each id.
    """

    why: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Thing:
    """A volume or a snapshot that carries the tag of a run.

    Attributes:
        kind: "volume" or "snapshot".
        id: of it.
        run: the tag's value.
        state: as EC2 shows it.
        instances: that a volume is attached to.
    """

    kind: str
    id: str
    run: str
    state: str
    instances: tuple[str, ...] = ()


async def things(ec2: Ec2, run: str = "*", tag: str = CONFORMANCE_RUN) -> AsyncIterator[Thing]:
    """Everything that carries the tag of a run, or of any run.

    Raises:
        CannotRunError: EC2 does not list it.
    """
    for kind, (operation, key, id_key) in _LISTS.items():
        wanted: dict[str, Any] = {"Filters": [{"Name": "tag-key", "Values": [tag]}]}
        if run != "*":
            wanted["Filters"] = [{"Name": f"tag:{tag}", "Values": [run]}]
        if kind == "snapshot":
            wanted["OwnerIds"] = ["self"]
        token = None
        while True:
            page = {"MaxResults": _MAX_RESULTS} | ({"NextToken": token} if token else {})
            try:
                reply = await ec2.call(operation, wanted | page)
            except RefusedError as refused:  # it is throttled for too long, or is no EC2
                raise CannotRunError(f"EC2 does not list what there is: {refused}") from refused
            for each in reply.get(key, ()):
                thing = _thing(kind, str(each[id_key]), each, tag)
                if thing.run and run in {"*", thing.run}:  # whatever a filter may mean elsewhere
                    yield thing
            token = reply.get("NextToken")
            if not token:
                break


def _thing(kind: str, each_id: str, each: Mapping[str, Any], tag: str) -> Thing:
    tags = {one["Key"]: one["Value"] for one in each.get("Tags", ())}
    attachments = [a for a in each.get("Attachments", ()) if a.get("State") != "detached"]
    return Thing(
        kind,
        each_id,
        str(tags.get(tag, "")),
        str(each.get("State")),
        tuple(str(a["InstanceId"]) for a in attachments),
    )


async def sweep(ec2: Ec2, story: Story, patience: Patience) -> Left:
    """Delete everything of a run, and look until it is certain that nothing is left.

    Raises:
        CannotRunError: EC2 does not list what there is.
    """
    run = story.begun.run
    return await _delete(
        ec2, run, only=None, quiet_s=_quiet_s(story, patience), give_up_s=patience.give_up_s
    )


async def delete_these(ec2: Ec2, run: str, ids: Collection[str], give_up_s: float) -> Left:
    """Delete what one probe has made; what is not gone by then is left to the sweep."""
    if not ids:
        return Left()
    return await _delete(ec2, run, only=frozenset(ids), quiet_s=0.0, give_up_s=give_up_s)


def _quiet_s(story: Story, patience: Patience) -> float:
    """For how long from now on nothing may show up."""
    now = datetime.now(UTC)
    unanswered = [each.at for each in story.open.values()]
    untils = [(at - now).total_seconds() + patience.unanswered_s for at in unanswered]
    if story.last_at is not None:
        untils.append((story.last_at - now).total_seconds() + patience.quiet_s)
    # A clock that was set back must not make a sweep wait for days.
    longest_s = max(patience.quiet_s, patience.unanswered_s)
    return max([0.0, *(min(each, longest_s) for each in untils)])


async def _delete(
    ec2: Ec2, run: str, *, only: frozenset[str] | None, quiet_s: float, give_up_s: float
) -> Left:
    loop = asyncio.get_running_loop()
    begun_s, pause_s = loop.time(), _FIRST_PAUSE_S
    while True:
        found = [each async for each in things(ec2, run) if only is None or each.id in only]
        waited_s = loop.time() - begun_s
        if not found and waited_s >= quiet_s:
            return Left()
        left = await _one_pass(ec2, found, force=waited_s > _FORCE_AFTER_S)
        if waited_s > give_up_s or _is_hopeless(left, found):
            return left
        await asyncio.sleep(pause_s)
        pause_s = min(_LONGEST_PAUSE_S, pause_s * 1.5)


def _is_hopeless(left: Left, found: Collection[Thing]) -> bool:
    """Whether each of them is left because a right is missing."""
    denied = [each for each in found if left.why.get(each.id, "").startswith("denied")]
    return bool(found) and len(denied) == len(found)


async def _one_pass(ec2: Ec2, found: Iterable[Thing], *, force: bool) -> Left:
    left = Left()
    for thing in found:
        try:
            await _step(ec2, thing, force=force)
            left.why[thing.id] = f"it is still {thing.state}"
        except RefusedError as refused:
            left.why[thing.id] = str(refused)
        except DeniedError as denied:
            left.why[thing.id] = f"denied: {denied}"
        except CannotRunError as failure:
            left.why[thing.id] = str(failure)
    return left


async def _step(ec2: Ec2, thing: Thing, *, force: bool) -> None:
    """Bring one thing nearer to its end."""
    if thing.kind == "snapshot":
        await _delete_snapshot(ec2, thing.id)
    elif thing.instances:
        for instance in thing.instances:
            detach = {"VolumeId": thing.id, "InstanceId": instance}
            await ec2.call("detach_volume", detach | ({"Force": True} if force else {}))
    elif thing.state not in {"deleting", "creating"}:
        await ec2.call("delete_volume", {"VolumeId": thing.id})


async def _delete_snapshot(ec2: Ec2, snapshot_id: str) -> None:
    try:
        await ec2.call("delete_snapshot", {"SnapshotId": snapshot_id})
    except RefusedError as refused:
        if "lock" not in str(refused).lower():
            raise
        await ec2.call("unlock_snapshot", {"SnapshotId": snapshot_id})
        await ec2.call("delete_snapshot", {"SnapshotId": snapshot_id})
