"""Volumes made of snapshots and of other volumes, and how far their data has come."""

from dataclasses import replace

import pytest

from provisioner.ec2.batches import whole
from provisioner.ec2.snapshots import Snapshots
from provisioner.ec2.volumes import Volumes, copy_params
from provisioner.model.ebs_snapshot import SnapshotRequest
from provisioner.model.errors import Ec2Error, Outcome, Reason
from provisioner.model.volume import Volume
from provisioner.sandbox.strict_ec2.client import StrictEc2
from tests.ec2.builders import a_request

GONE = "vol-0123456789abcdef0"


@pytest.fixture
async def source(volumes: Volumes) -> Volume:
    return await volumes.create(a_request("source"))


@pytest.fixture
async def snapshot_id(snapshots: Snapshots, source: Volume) -> str:
    return (await snapshots.create(SnapshotRequest(source.volume_id, "", ()))).snapshot_id


async def test_a_volume_is_restored_with_more_room(
    volumes: Volumes, source: Volume, snapshot_id: str
) -> None:
    request = replace(a_request("restored", size_gib=20), snapshot_id=snapshot_id)

    made = await volumes.create(request)
    again = await volumes.create(request)

    assert (made.snapshot_id, made.source_volume_id, made.size_gib) == (snapshot_id, "", 20)
    assert made.volume_id not in {source.volume_id, ""}
    assert again.volume_id == made.volume_id


async def test_a_snapshot_that_is_pending_or_gone_restores_nothing(
    volumes: Volumes, snapshots: Snapshots, source: Volume, strict_ec2: StrictEc2
) -> None:
    strict_ec2.control(delays={"snapshot_s": 60.0})
    pending = (await snapshots.create(SnapshotRequest(source.volume_id, "", ()))).snapshot_id

    with pytest.raises(Ec2Error) as not_yet:
        await volumes.create(replace(a_request("one"), snapshot_id=pending))
    with pytest.raises(Ec2Error) as gone:
        await volumes.create(replace(a_request("two"), snapshot_id="snap-0123456789abcdef0"))

    assert not_yet.value.reason is Reason.SNAPSHOT_STATE
    assert gone.value.reason is Reason.SNAPSHOT_NOT_FOUND
    assert pending in not_yet.value.message


async def test_a_copy_is_made_in_one_call_with_its_own_tags(
    volumes: Volumes, source: Volume, strict_ec2: StrictEc2
) -> None:
    request = replace(
        a_request("copy", size_gib=20, team="a"),
        source_volume_id=source.volume_id,
        iops=4000,
        throughput_mibps=250,
    )

    made = await volumes.create(request)

    assert (made.source_volume_id, made.zone, made.size_gib) == (source.volume_id, source.zone, 20)
    assert (made.volume_type, made.iops, made.throughput_mibps) == ("gp3", 4000, 250)
    assert made.tags == {"Name": "copy", "team": "a"}
    assert strict_ec2.counts()["CopyVolumes"] == 1
    described = whole(await volumes.describe([made.volume_id]))[made.volume_id]
    assert described.source_volume_id == source.volume_id


async def test_a_lost_reply_is_answered_by_the_same_copy(
    volumes: Volumes, source: Volume, strict_ec2: StrictEc2
) -> None:
    strict_ec2.control(faults=[{"action": "CopyVolumes", "when": "after", "do": "reset"}])
    request = replace(a_request("copy"), source_volume_id=source.volume_id)

    with pytest.raises(Ec2Error) as lost:
        await volumes.create(request)
    made = await volumes.create(request)

    assert lost.value.outcome is Outcome.UNKNOWN
    assert [each.volume_id for each in await volumes.find(tags={"Name": "copy"})] == [
        made.volume_id
    ]


async def test_one_copy_of_a_source_at_a_time(
    volumes: Volumes, source: Volume, strict_ec2: StrictEc2
) -> None:
    strict_ec2.control(delays={"initialize_s": 600.0})
    await volumes.create(replace(a_request("one"), source_volume_id=source.volume_id))

    with pytest.raises(Ec2Error) as caught:
        await volumes.create(replace(a_request("two"), source_volume_id=source.volume_id))

    assert (caught.value.reason, caught.value.outcome) == (Reason.COPY_RATE, Outcome.NOTHING)
    assert caught.value.retry_after_s is not None
    assert source.volume_id in caught.value.message


async def test_a_source_that_is_gone_is_told(volumes: Volumes) -> None:
    with pytest.raises(Ec2Error) as caught:
        await volumes.create(replace(a_request("copy"), source_volume_id=GONE))

    assert caught.value.reason is Reason.VOLUME_NOT_FOUND
    assert GONE in caught.value.message


def test_a_copy_is_told_neither_zone_nor_rate() -> None:
    request = replace(
        a_request("copy"),
        source_volume_id=GONE,
        initialization_rate_mibps=200,
        encrypted=True,
        kms_key_id="key",
        multi_attach=True,
    )

    assert copy_params(request) == {
        "ClientToken": "copy",
        "SourceVolumeId": GONE,
        "Size": 4,
        "VolumeType": "gp3",
        "Encrypted": True,
        "KmsKeyId": "key",
        "MultiAttachEnabled": True,
        "TagSpecifications": [
            {"ResourceType": "volume", "Tags": [{"Key": "Name", "Value": "copy"}]}
        ],
    }


async def test_how_far_a_restored_volume_is(
    volumes: Volumes, source: Volume, snapshot_id: str, strict_ec2: StrictEc2
) -> None:
    strict_ec2.control(delays={"initialize_s": 600.0})
    restored = replace(a_request("r"), snapshot_id=snapshot_id, initialization_rate_mibps=100)
    made = (await volumes.create(restored)).volume_id
    strict_ec2.control(advance_s=300.0)

    found = whole(await volumes.initializations([made, GONE, source.volume_id]))

    assert found.keys() == {made, source.volume_id}
    assert (found[made].is_complete, found[made].state) == (False, "initializing")
    assert found[made].progress_percent in range(49, 52)
    assert found[made].estimated_s in range(290, 301)
    assert (found[source.volume_id].state, found[source.volume_id].is_complete) == ("", False)

    strict_ec2.control(advance_s=301.0)
    assert whole(await volumes.initializations([made]))[made].is_complete


async def test_no_initialization_is_asked_for_of_nothing(
    volumes: Volumes, strict_ec2: StrictEc2
) -> None:
    assert await volumes.initializations([]) == {}
    assert await volumes.initializations([GONE]) == {}
    assert strict_ec2.counts()["DescribeVolumeStatus"] == 1
