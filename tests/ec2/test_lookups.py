"""Reads that many share: against a strict EC2, and their pace in virtual time."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import cast

import pytest

from provisioner.ec2.look_rules import MOST_A_SECOND
from provisioner.ec2.lookups import ModificationReads, NameLookUps, SnapshotLookUps, VolumeReads
from provisioner.ec2.modifications import Modifications
from provisioner.ec2.pace import Pace
from provisioner.ec2.snapshots import Snapshots
from provisioner.ec2.volumes import Volumes
from provisioner.model.ebs_snapshot import SnapshotRequest
from provisioner.model.errors import Ec2Error, Reason
from provisioner.model.modification import ModifyRequest
from provisioner.model.names import SNAPSHOT_NAME, VOLUME_NAME
from provisioner.model.volume import Volume
from provisioner.sandbox.strict_ec2.client import StrictEc2
from tests.ec2.builders import a_request, a_volume
from tests.ec2.virtual_time import Clock, in_virtual_time

GONE = "vol-0123456789abcdef0"


@pytest.fixture
async def reads(volumes: Volumes) -> AsyncIterator[VolumeReads]:
    made = VolumeReads(volumes, Pace())
    yield made
    await made.close()


async def test_volumes_are_read_together_and_those_that_are_gone_are_none(
    reads: VolumeReads, volumes: Volumes, strict_ec2: StrictEc2
) -> None:
    made = await volumes.create(a_request())

    one, gone = await asyncio.gather(reads.volume(made.volume_id), reads.volume(GONE))

    assert one is not None
    assert one.volume_id == made.volume_id
    assert gone is None
    assert strict_ec2.counts()["DescribeVolumes"] == 2  # once more, without what is gone


async def test_no_answer_is_not_a_none(reads: VolumeReads, strict_ec2: StrictEc2) -> None:
    no = {"code": "UnauthorizedOperation", "http_status": 403}
    strict_ec2.control(faults=[{"action": "DescribeVolumes", "do": "error", **no}])

    with pytest.raises(Ec2Error) as caught:
        await reads.volume(GONE)

    assert caught.value.reason is Reason.PERMISSION_DENIED


async def test_the_never_modified_and_the_modified_share_one_call(
    modifications: Modifications, volumes: Volumes, strict_ec2: StrictEc2
) -> None:
    names = ("one", "two", "three")
    one, two, three = [(await volumes.create(a_request(name))).volume_id for name in names]
    await modifications.modify(ModifyRequest(two, size_gib=8))
    reads = ModificationReads(modifications, Pace())

    found = await asyncio.gather(*(reads.latest(each) for each in (one, two, three, GONE)))

    assert [each and each.target.size_gib for each in found] == [None, 8, None, None]
    assert strict_ec2.counts()["DescribeVolumesModifications"] == 1
    await reads.close()


async def test_snapshots_are_found_by_their_names(
    snapshots: Snapshots, volumes: Volumes, strict_ec2: StrictEc2
) -> None:
    volume = await volumes.create(a_request())
    tags = ((SNAPSHOT_NAME, "one"),)
    made = await snapshots.create(SnapshotRequest(volume.volume_id, "", tags))
    lookups = SnapshotLookUps(snapshots, Pace())

    one, none = await asyncio.gather(lookups.find("one"), lookups.find("two"))

    assert [each.snapshot_id for each in one] == [made.snapshot_id]
    assert none == []
    assert strict_ec2.counts()["DescribeSnapshots"] == 1
    await lookups.close()


async def test_a_name_is_taken_literally(volumes: Volumes) -> None:
    for number, name in enumerate(["a?c", "abc"]):
        tags = ((VOLUME_NAME, name),)
        await volumes.create(replace(a_request(f"v{number}"), tags=tags))
    lookups = NameLookUps(volumes, Pace())

    found = await lookups.find("a?c")

    assert [each.tags[VOLUME_NAME] for each in found] == ["a?c"]
    await lookups.close()


async def test_at_the_end_whoever_waits_is_let_go(volumes: Volumes) -> None:
    lookups = NameLookUps(volumes, Pace())
    waits = asyncio.create_task(lookups.find("pvc-1"))
    await asyncio.sleep(0)

    await lookups.close()

    async with asyncio.timeout(30):
        await asyncio.gather(waits, return_exceptions=True)
    assert waits.cancelled()


class Ec2:
    """Volumes of any id; keeps when it was asked for how many."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.asked: list[tuple[float, int]] = []

    async def describe(self, volume_ids: Sequence[str]) -> dict[str, Volume]:
        self.asked.append((self.clock(), len(volume_ids)))
        await asyncio.sleep(0.1)
        return {each: a_volume(each) for each in volume_ids}


def test_many_who_come_one_by_one_still_cost_few_calls() -> None:
    """300 completions at 5 a second, each of which reads its volume."""

    async def story(clock: Clock) -> Ec2:
        ec2 = Ec2(clock)
        reads = VolumeReads(cast("Volumes", ec2), Pace())
        async with asyncio.TaskGroup() as group:
            for number in range(300):
                group.create_task(reads.volume(f"vol-{number}"))
                await asyncio.sleep(0.2)
        await reads.close()
        return ec2

    ec2 = in_virtual_time(story)

    assert sum(count for _, count in ec2.asked) == 300
    assert len(ec2.asked) <= 60 * MOST_A_SECOND + 4
    assert ec2.asked[0][0] < 0.1
    assert ec2.asked[-1][0] < 60 + 1 / MOST_A_SECOND
