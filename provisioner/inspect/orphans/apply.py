"""Carry out a plan: look again, delete, and write down what became of each volume.

It can be killed anywhere and run again: what is gone is not deleted again, what changed is kept.
Each volume's line is on disk before EC2 is asked, and another one after its answer.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path

import msgspec

from provisioner.ec2.volumes import Volumes
from provisioner.inspect.command_line import Readers
from provisioner.inspect.orphans.look import (
    Seen,
    account_of,
    cluster_side,
    cluster_uid_of,
    ec2_of,
    look,
)
from provisioner.inspect.orphans.orphan_plan_rules import (
    Delete,
    Gone,
    Kept,
    Plan,
    Planned,
    Surroundings,
    signs_of_life,
    verdict,
    wrong_place,
)
from provisioner.model.errors import Ec2Error, Outcome, Reason, StorageError
from provisioner.model.volume import Volume, VolumeState

# So many are deleted by one look: at EC2's documented rate a batch takes some seconds.
BATCH = 20
# Throttled or lost replies make a batch last minutes, and its look old: it is then cut short.
_LOOK_LASTS_S = 30.0
_LOOKS_AFTER_S = (1.0, 3.0, 9.0)
DELETED, GONE, KEPT, FAILED, UNKNOWN, ASKED = (
    *("deleted", "gone", "kept", "failed", "unknown", "asked"),
)


class Line(msgspec.Struct, frozen=True):
    """One line of the outcome file."""

    at: datetime
    volume_id: str
    outcome: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """The outcome file, a line of JSON each, on disk when ``write`` returns.

    Attributes:
        file: open for appending, unbuffered: what could not be written must not be tried at its
            end once more.
        count: how many volumes came to each outcome.
    """

    file: FileIO
    count: Counter[str] = field(default_factory=Counter)

    def write(self, volume_id: str, outcome: str, why: str = "") -> Line:
        """Add a line.

        Raises:
            StorageError: it cannot be written; nothing may be deleted that is not noted.
        """
        line = Line(datetime.now(UTC), volume_id, outcome, why)
        left = msgspec.json.encode(line) + b"\n"
        try:
            while left:  # a disk that is almost full takes a part without an error
                left = left[self.file.write(left) :]
            os.fsync(self.file.fileno())
        except OSError as error:
            raise StorageError(
                Reason.INVALID_REQUEST,
                f"cannot write that {volume_id} is {outcome} to {self.file.name}: {error.strerror}",
            ) from error
        if outcome != ASKED:
            self.count[outcome] += 1
        return line


def outcome_path(plan_path: Path) -> Path:
    """Where the outcomes of a plan are written."""
    return plan_path.with_name(f"{plan_path.name}.outcome")


async def fresh(readers: Readers, plan: Plan) -> Seen:
    """A look of now at the plan's cluster.

    Raises:
        StorageError: something could not be read, or the cluster is alive, or the one asked.
    """
    account, cluster_uid = await asyncio.gather(account_of(readers), cluster_uid_of(readers))
    why = wrong_place(plan, account, readers.cloud.region, cluster_uid)
    if why:
        raise StorageError(Reason.WRONG_CLOUD, why)
    side = await cluster_side(readers)
    seen = await look(readers, side, plan.cluster_id, min_age_s=plan.min_age_s)
    signs = signs_of_life(seen.volumes, seen.around)
    if signs:
        raise StorageError(
            Reason.NOT_SUPPORTED,
            f"nothing is deleted: cluster {plan.cluster_id} seems to be alive: {'; '.join(signs)}",
        )
    return seen


async def carry_out_plan(readers: Readers, plan: Plan, path: Path) -> Mapping[str, int]:
    """Delete what the plan names and a look right before confirms.

    Returns:
        How many volumes came to each outcome.

    Raises:
        StorageError: before anything more was deleted: see ``fresh``; the message says what was.
        ValueError: the outcome file cannot be written; nothing was deleted.
    """
    try:
        file = path.open("ab", buffering=0)
    except OSError as error:
        raise ValueError(f"cannot write the outcomes to {path}: {error.strerror}") from error
    with file:
        record = Record(file)
        left = plan.volumes
        while left:
            try:
                seen = await fresh(readers, plan)
                volumes = Volumes(ec2_of(readers))
                left = left[len(await batch(volumes, left[:BATCH], seen.around, record)) :]
            except StorageError as error:
                raise StorageError(error.reason, _stopped(error, plan, record)) from error
    return record.count


def told(count: Mapping[str, int]) -> str:
    """How many volumes came to each outcome, for people."""
    return ", ".join(f"{number} {outcome}" for outcome, number in sorted(count.items()))


def _stopped(error: StorageError, plan: Plan, record: Record) -> str:
    left = len(plan.volumes) - record.count.total()
    so_far = told(record.count) or "none"
    return f"{error.message} (so far: {so_far}; {left} left; see {record.file.name})"


async def batch(
    volumes: Volumes, some: Sequence[Planned], around: Surroundings, record: Record
) -> list[str]:
    """Delete those of these volumes that a look now confirms.

    They are looked for by their ids, not by the tag: one whose tag was removed is still there.

    Returns:
        The outcome of each, from the first on: of one at least, and not of those that were left
        because the look has become old.

    Raises:
        Ec2Error: EC2 could not be asked about any of them; none was deleted.
    """
    clock = asyncio.get_running_loop()
    began_s = clock.time()
    found = await volumes.look_for([each.volume_id for each in some])
    outcomes: list[str] = []
    for each in some:
        if outcomes and clock.time() - began_s >= _LOOK_LASTS_S:
            break
        now = found.get(each.volume_id)
        if isinstance(now, Ec2Error):
            outcomes.append(record.write(each.volume_id, FAILED, now.message).outcome)
            continue
        match verdict(each, now, around):
            case Gone():
                line = record.write(each.volume_id, GONE)
            case Kept(why=why):
                line = record.write(each.volume_id, KEPT, why)
            case Delete():
                line = await _delete(volumes, each.volume_id, record)
        outcomes.append(line.outcome)
    return outcomes


async def _delete(volumes: Volumes, volume_id: str, record: Record) -> Line:
    """EC2 itself refuses what was attached since the look."""
    record.write(volume_id, ASKED)
    try:
        was_there = await volumes.delete(volume_id)
    except Ec2Error as error:
        if error.outcome is not Outcome.UNKNOWN:
            return record.write(volume_id, FAILED, error.message)
        return await _after_lost_reply(volumes, volume_id, record)
    return record.write(volume_id, DELETED if was_there else GONE)


async def _after_lost_reply(volumes: Volumes, volume_id: str, record: Record) -> Line:
    """What became of it, as EC2 shows; it is not sent again, which the next run does."""
    for pause_s in _LOOKS_AFTER_S:
        await asyncio.sleep(pause_s)
        try:
            found = (await volumes.look_for([volume_id])).get(volume_id)
        except Ec2Error:
            continue
        if found is None or (isinstance(found, Volume) and found.state in _ENDING):
            return record.write(volume_id, DELETED, "EC2's reply was lost; it is gone")
    return record.write(volume_id, UNKNOWN, "EC2's reply was lost, and it may be there: run again")


_ENDING = (VolumeState.DELETING, VolumeState.DELETED)
