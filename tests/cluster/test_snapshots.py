"""Snapshots of claims, taken by the cluster's own snapshot-controller and by ours together."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from provisioner.sandbox import nodes
from tests.cluster import copies
from tests.cluster.cluster import Json
from tests.cluster.copies import CONTENTS, snapshots_in_ec2, snapshots_of
from tests.cluster.place import Place
from tests.cluster.snapshot_hands import (
    a_class,
    a_source,
    delete_ec2_snapshot,
    ec2_snapshot,
    error_of,
    give,
    make_ec2_snapshot,
    take,
    told,
    told_by_us,
)
from tests.cluster.together import Together

pytestmark = pytest.mark.asyncio(loop_scope="module")
together = Together()
FAST_AND_LOCKED = {
    "fastSnapshotRestoreAvailabilityZones": "us-east-1a, us-east-1b",
    "lockMode": "governance",
    "lockDuration": "1",
}
BEING_CREATED = "snapshot.storage.kubernetes.io/volumesnapshot-being-created"


@together.test
async def test_a_snapshot_is_taken_and_goes_with_its_object(place: Place):
    volume_id = await a_source(place)
    tags = {"tagSpecification_1": "of={{ .VolumeSnapshotNamespace }}/{{ .VolumeSnapshotName }}"}
    async with a_class(place, tags):
        uid = await take(place)
        content = await copies.ready(place)

        status = content["status"]
        snapshot = await ec2_snapshot(place, status["snapshotHandle"])
        assert snapshot is not None
        assert snapshot["VolumeId"] == volume_id
        written = {each["Key"]: each["Value"] for each in snapshot["Tags"]}
        assert written["CSIVolumeSnapshotName"] == f"snapshot-{uid}"
        assert written["ebs.csi.aws.com/cluster"] == "true"
        assert written["of"] == f"{place.name}/monday"
        assert status["restoreSize"] == 2**30
        assert status["creationTime"] // 10**9 == int(snapshot["StartTime"].timestamp())
        assert BEING_CREATED not in content["metadata"].get("annotations", {})
        user = await place.api.get(f"{snapshots_of(place)}/monday")
        assert user["status"]["restoreSize"] == "1Gi"
        assert await told_by_us(place) == []

        await place.remove(f"{snapshots_of(place)}/monday")
        await place.is_gone(f"{CONTENTS}/{content['metadata']['name']}")

        assert await ec2_snapshot(place, status["snapshotHandle"]) is None


@together.test
async def test_retain_keeps_the_snapshot_and_lets_its_content_go(place: Place):
    await a_source(place)
    async with a_class(place, policy="Retain"):
        await take(place)
        content = await copies.ready(place)
        snapshot_id = content["status"]["snapshotHandle"]
        await place.remove(f"{snapshots_of(place)}/monday")
        # With Retain the content stays until somebody deletes it: its snapshot is gone by then.
        await place.remove(f"{CONTENTS}/{content['metadata']['name']}")

        assert await ec2_snapshot(place, snapshot_id) is not None
        assert await place.cluster.calls(snapshot_id, "DeleteSnapshot") == []
        await delete_ec2_snapshot(place, snapshot_id)


@together.test
async def test_a_snapshot_is_fast_and_locked_before_it_is_ready(place: Place):
    await a_source(place)
    async with a_class(place, FAST_AND_LOCKED):
        await take(place)
        snapshot_id = await copies.id_of(place)

        ec2: Any = place.cluster.ec2
        about = [{"Name": "snapshot-id", "Values": [snapshot_id]}]
        fast = await asyncio.to_thread(ec2.describe_fast_snapshot_restores, Filters=about)
        locked = await asyncio.to_thread(ec2.describe_locked_snapshots, SnapshotIds=[snapshot_id])
        zones = {each["AvailabilityZone"] for each in fast["FastSnapshotRestores"]}
        assert zones == {"us-east-1a", "us-east-1b"}
        assert [each["LockState"] for each in locked["Snapshots"]] == ["governance"]

        await place.api.delete(f"{snapshots_of(place)}/monday")
        await told(place, "Failed to delete snapshot: SnapshotLocked", snapshot_id)
        # The way out of a lock that lasts: the object goes, the snapshot stays.
        user = await place.api.get(f"{snapshots_of(place)}/monday")
        path = f"{CONTENTS}/{user['status']['boundVolumeSnapshotContentName']}"
        await place.api.patch(path, {"spec": {"deletionPolicy": "Retain"}})
        await place.is_gone(path)
        await place.is_gone(f"{snapshots_of(place)}/monday")

        assert await ec2_snapshot(place, snapshot_id) is not None
        await asyncio.to_thread(ec2.unlock_snapshot, SnapshotId=snapshot_id)
        await delete_ec2_snapshot(place, snapshot_id)


@together.test
async def test_a_snapshot_that_ec2_does_not_make_fast_is_ready_all_the_same(place: Place):
    await a_source(place)
    full: Json = {
        "code": "FastSnapshotRestoreLimitExceeded",
        "message": "The maximum of 5 snapshots is reached.",
        "http_status": 400,
        "match": {"AvailabilityZone": "us-east-1c"},  # no other story asks for this zone
    }
    await place.cluster.fault("EnableFastSnapshotRestores", n=100, **full)
    async with a_class(place, {"fastSnapshotRestoreAvailabilityZones": "us-east-1c"}):
        await take(place)
        content = await copies.ready(place)
        snapshot_id = content["status"]["snapshotHandle"]

        await told(place, "QuotaExceeded", "volumes can be created from the snapshot")
        user = await place.api.get(f"{snapshots_of(place)}/monday")
        assert user["status"].get("error") is None
        asked = await place.cluster.calls(snapshot_id, "EnableFastSnapshotRestores")
        assert len(asked) == 1
        await place.remove(f"{snapshots_of(place)}/monday")
        await place.is_gone(f"{CONTENTS}/{content['metadata']['name']}")
        assert await ec2_snapshot(place, snapshot_id) is None


@together.test
async def test_a_snapshot_that_two_contents_name_goes_with_the_last_one(place: Place):
    await a_source(place)
    async with a_class(place):
        await take(place)
        snapshot_id = await copies.id_of(place)
        await give(place, snapshot_id)
        await copies.ready(place, "given")

        await place.remove(f"{snapshots_of(place)}/monday")
        await told(place, "SnapshotInUse", snapshot_id, f"{place.name} names it too")
        assert await ec2_snapshot(place, snapshot_id) is not None
        assert await place.cluster.calls(snapshot_id, "DeleteSnapshot") == []

        await place.remove(f"{snapshots_of(place)}/given")
        await place.is_gone(f"{CONTENTS}/{place.name}")
        assert await ec2_snapshot(place, snapshot_id) is None


@together.test
async def test_a_lost_reply_gives_one_snapshot(place: Place):
    volume_id = await a_source(place)
    await place.cluster.fault(
        "CreateSnapshot", "reset", match={"VolumeId": volume_id}, when="after", n=1
    )
    async with a_class(place):
        await take(place)
        await copies.ready(place)

        assert len(await snapshots_in_ec2(place, volume_id)) == 1
        [note] = await told_by_us(place)
        assert "searching for it" in note["message"]
        await place.remove(f"{snapshots_of(place)}/monday")
        assert await snapshots_in_ec2(place, volume_id) == []


@together.test
async def test_snapshots_of_one_volume_wait_for_each_other_without_a_refusal(place: Place):
    volume_id = await a_source(place)
    async with a_class(place):
        for name in ("monday", "tuesday"):
            await take(place, name)
        await copies.ready(place, "monday")
        await copies.ready(place, "tuesday")

        asked = await place.cluster.calls(volume_id, "CreateSnapshot")
        assert [each["outcome"] for each in asked] == ["ok", "ok"]
        both = [await told_by_us(place, name) for name in ("monday", "tuesday")]
        [note] = [event for events in both for event in events]
        assert "EBS allows one snapshot of a volume every 15 s" in note["message"]
        for name in ("monday", "tuesday"):
            await place.remove(f"{snapshots_of(place)}/{name}")


@together.test
async def test_a_snapshot_of_a_vanished_volume_is_refused_in_words(place: Place):
    gone = "vol-0dddddddddddddddd"
    pv = await place.static_pv(gone)
    await place.claim(place.name, volumeName=pv)
    await place.bound()
    async with a_class(place):
        await take(place)
        await error_of(place, "Failed to create snapshot: VolumeNotFound", gone)
        await told(place, "VolumeNotFound", gone)

        await place.remove(f"{snapshots_of(place)}/monday")


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"lockMode": "governance"}, "needs exactly one of lockDuration"),
        (
            {"fastSnapshotRestoreAvailabilityZones": "us-east-1z"},
            "names us-east-1z, but this Region has",
        ),
        ({"fastRestore": "yes"}, "unknown parameter 'fastRestore'"),
    ],
)
@together.test
async def test_a_class_that_cannot_work_is_refused_before_a_snapshot_is_taken(
    place: Place, parameters: dict[str, str], words: str
):
    volume_id = await a_source(place)
    async with a_class(place, parameters):
        await take(place)
        await error_of(place, "InvalidClass", words)

        assert await place.cluster.calls(volume_id, "CreateSnapshot") == []
        await place.remove(f"{snapshots_of(place)}/monday")


@together.test
async def test_a_content_whose_class_is_gone_is_told(place: Place):
    """The snapshot-controller makes none for such a class; one may go in the moment after."""
    volume_id = await a_source(place)
    uid = await take(place)
    ref = {"namespace": place.name, "name": "monday", "uid": uid}
    spec = {
        "driver": nodes.DRIVER,
        "deletionPolicy": "Retain",
        "source": {"volumeHandle": volume_id},
        "volumeSnapshotClassName": place.name,
        "volumeSnapshotRef": ref,
    }
    made = {"apiVersion": copies.API_VERSION, "kind": "VolumeSnapshotContent"}
    name = f"snapcontent-{uid}"
    await place.api.create(CONTENTS, {**made, "metadata": {"name": name}, "spec": spec})

    async def told_there() -> bool:
        status = (await place.api.get(f"{CONTENTS}/{name}")).get("status") or {}
        told = f"VolumeSnapshotClass {place.name} does not exist"
        return told in (status.get("error") or {}).get("message", "")

    await place.cluster.until("the content says so", told_there)
    assert await place.cluster.calls(volume_id, "CreateSnapshot") == []
    await place.remove(f"{snapshots_of(place)}/monday")
    await place.remove(f"{CONTENTS}/{name}")


@together.test
async def test_a_snapshot_that_was_given_becomes_ready_and_is_deleted_with_its_content(
    place: Place,
):
    volume_id = await a_source(place)
    snapshot_id = await make_ec2_snapshot(place, volume_id, {})
    await give(place, snapshot_id)

    content = await copies.ready(place, "given")

    assert content["status"]["restoreSize"] == 2**30
    assert len(await place.cluster.calls(volume_id, "CreateSnapshot")) == 1
    await place.remove(f"{snapshots_of(place)}/given")
    await place.is_gone(f"{CONTENTS}/{place.name}")
    assert await ec2_snapshot(place, snapshot_id) is None


@together.test
async def test_a_given_snapshot_that_does_not_exist_is_told(place: Place):
    await give(place, "snap-0eeeeeeeeeeeeeee9", policy="Retain")

    gone = ("SnapshotNotFound", "snap-0eeeeeeeeeeeeeee9")
    await error_of(place, *gone, name="given", timeout_s=100)

    await place.remove(f"{snapshots_of(place)}/given")
    await place.remove(f"{CONTENTS}/{place.name}")


@together.test
async def test_a_snapshot_is_deleted_while_it_is_pending(place: Place):
    volume_id = await a_source(place)
    async with a_class(place):
        await take(place)

        async def taken() -> list[str]:
            return await snapshots_in_ec2(place, volume_id)

        await place.cluster.until("EC2 has taken it", taken)
        await place.remove(f"{snapshots_of(place)}/monday")

        async def gone() -> bool:
            return await snapshots_in_ec2(place, volume_id) == []

        async def let_go() -> bool:
            return await _contents(place) == []

        await place.cluster.until("EC2 has deleted it", gone)
        await place.cluster.until("its content is gone", let_go)


async def _contents(place: Place) -> list[Json]:
    found = (await place.api.get(CONTENTS))["items"]
    return [c for c in found if c["spec"]["volumeSnapshotRef"]["namespace"] == place.name]
