"""Volumes from snapshots, taken by the cluster's snapshot-controller and by ours together."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from provisioner.sandbox.api import ApiError
from tests.cluster import copies
from tests.cluster.cluster import Json, token_of
from tests.cluster.copies import a_snapshot, in_zones, of_snapshot, size, volume_of
from tests.cluster.place import Place
from tests.cluster.together import Together

pytestmark = pytest.mark.asyncio(loop_scope="module")
together = Together()
BLOCK = {"volumeMode": "Block"}


async def a_source(place: Place) -> Json:
    """A bound claim "data" in us-east-1a; its persistent volume."""
    await place.claim(await place.storage_class(allowedTopologies=in_zones("us-east-1a")))
    return await place.bound()


@together.test
async def test_a_snapshot_is_restored_larger_and_in_another_zone(place: Place):
    await a_source(place)
    elsewhere = await place.storage_class(
        "b",
        allowedTopologies=in_zones("us-east-1b"),
        parameters={"type": "gp3", "volumeInitializationRate": "200"},
    )
    async with a_snapshot(place):
        await place.claim(elsewhere, "copy", **of_snapshot("monday"), **size("3Gi"))

        volume = await volume_of(place, "copy")

        assert volume["SnapshotId"] == await copies.id_of(place)
        assert (volume["Size"], volume["AvailabilityZone"]) == (3, "us-east-1b")
        [call] = await place.cluster.calls(volume["SnapshotId"], "CreateVolume")
        assert str(call["params"]["VolumeInitializationRate"]) == "200"
        path = f"{copies.snapshots_of(place)}/monday"

        async def is_free() -> bool:
            return await copies.finalizers(place, path) == []

        await place.cluster.until("the snapshot is not held any more", is_free)


@together.test
async def test_a_rate_of_initialization_is_not_asked_for_an_empty_volume(place: Place):
    name = await place.storage_class(parameters={"type": "gp3", "volumeInitializationRate": "200"})
    claim = await place.claim(name)

    await place.bound()

    [call] = await place.cluster.calls(token_of(claim), "CreateVolume")
    assert "VolumeInitializationRate" not in call["params"]


@together.test
async def test_a_restored_volume_lies_where_the_scheduler_sends_its_pod(place: Place):
    await a_source(place)
    waits = await place.storage_class("waits", waits=True)
    async with a_snapshot(place):
        claim = await place.claim(waits, "copy", **of_snapshot("monday"))

        await place.choose_node(claim, place.cluster.instance("us-east-1c").private_dns_name)

        assert (await volume_of(place, "copy"))["AvailabilityZone"] == "us-east-1c"


@together.test
async def test_a_class_of_the_in_tree_plugin_restores(place: Place):
    await a_source(place)
    in_tree = await place.storage_class("in-tree", provisioner="kubernetes.io/aws-ebs")
    async with a_snapshot(place):
        await place.claim(in_tree, "copy", **of_snapshot("monday"))

        pv = await place.bound("copy")

        volume = await place.cluster.volume(pv["spec"]["awsElasticBlockStore"]["volumeID"])
        assert volume is not None
        assert volume["SnapshotId"] == await copies.id_of(place)


@together.test
async def test_a_raw_device_comes_of_a_file_system_only_with_leave(place: Place):
    await a_source(place)
    name = f"{place.name}-class"
    async with a_snapshot(place):
        await place.claim(name, "copy", **of_snapshot("monday"), **BLOCK)
        await place.told("volumeMode Block", "allow-volume-mode-change", name="copy")
        await copies.one_event_and_no_volume(place, "copy")

        content = (await copies.ready(place))["metadata"]["name"]
        leave = {"snapshot.storage.kubernetes.io/allow-volume-mode-change": "true"}
        await place.api.patch(f"{copies.CONTENTS}/{content}", {"metadata": {"annotations": leave}})

        await place.bound("copy")


@together.test
async def test_what_is_smaller_than_its_snapshot_is_refused_once(place: Place):
    await place.claim(await place.storage_class(), **size("2Gi"))
    await place.bound()
    async with a_snapshot(place):
        await place.claim(f"{place.name}-class", "copy", **of_snapshot("monday"))

        await place.told("requests 1Gi", "needs at least 2Gi", name="copy")
        await copies.one_event_and_no_volume(place, "copy")
        # A snapshot that a pending claim names is kept, by the snapshot-controller too.
        await place.remove(f"{place.claims}/copy")


@together.test
async def test_a_claim_waits_for_a_snapshot_that_comes_later(place: Place):
    await a_source(place)
    await place.claim(f"{place.name}-class", "copy", **of_snapshot("monday"))
    await place.told("VolumeSnapshot 'monday' does not exist", name="copy")
    await copies.one_event_and_no_volume(place, "copy")

    async with a_snapshot(place):
        volume = await volume_of(place, "copy")

        assert volume["SnapshotId"] == await copies.id_of(place)


@together.test
async def test_a_snapshot_that_is_deleted_while_it_is_restored_is_held_until_then(place: Place):
    await a_source(place)
    waits = await place.storage_class("waits", waits=True)
    async with a_snapshot(place):
        snapshot_id = await copies.id_of(place)
        claim = await place.claim(waits, "copy", **of_snapshot("monday"))
        lost = {"ClientToken": token_of(claim)}
        await place.cluster.fault("CreateVolume", "reset", match=lost, when="after", n=2)
        await place.choose_node(claim)
        await place.is_requested(lost["ClientToken"], "CreateVolume")

        await place.api.delete(f"{copies.snapshots_of(place)}/monday")

        assert (await volume_of(place, "copy"))["SnapshotId"] == snapshot_id
        assert len(await place.cluster.volumes_tagged("CSIVolumeName", _name(claim))) == 1
        await place.is_gone(f"{copies.snapshots_of(place)}/monday")


@together.test
async def test_a_volume_that_was_asked_for_outlives_even_a_snapshot_torn_away(
    place: Place,
):  # race 3
    await a_source(place)
    waits = await place.storage_class("waits", waits=True)
    async with a_snapshot(place):
        snapshot_id, content = await copies.id_of(place), await copies.ready(place)
        claim = await place.claim(waits, "copy", **of_snapshot("monday"))
        lost = {"ClientToken": token_of(claim)}
        await place.cluster.fault("CreateVolume", "reset", match=lost, when="after", n=2)
        await place.choose_node(claim)
        await place.is_requested(lost["ClientToken"], "CreateVolume")

        free = {"metadata": {"finalizers": None}}
        for path in (
            f"{copies.snapshots_of(place)}/monday",
            f"{copies.CONTENTS}/{content['metadata']['name']}",
        ):
            await place.api.delete(path)
            await place.api.patch(path, free)
        await _deleted(place, snapshot_id)

        assert (await volume_of(place, "copy"))["SnapshotId"] == snapshot_id
        assert len(await place.cluster.volumes_tagged("CSIVolumeName", _name(claim))) == 1


@together.test
async def test_what_ec2_no_longer_has_is_told_and_nothing_is_made(place: Place):
    await a_source(place)
    async with a_snapshot(place):
        await _deleted(place, await copies.id_of(place))

        await place.claim(f"{place.name}-class", "copy", **of_snapshot("monday"))

        await place.told("SnapshotNotFound", name="copy")
        await place.remove(f"{place.claims}/copy")


@together.test
async def test_a_snapshot_of_another_driver_is_refused(place: Place):
    name = await place.storage_class()
    ref = {"namespace": place.name, "name": "foreign"}
    made = {"apiVersion": copies.API_VERSION, "metadata": {"name": place.name}}
    spec = {
        "driver": "disk.example",
        "deletionPolicy": "Retain",
        "source": {"snapshotHandle": "snap-of-another"},
        "volumeSnapshotRef": ref,
    }
    kind = {"kind": "VolumeSnapshotContent"}
    await place.api.create(copies.CONTENTS, {**made, **kind, "spec": spec})
    status = {"snapshotHandle": "snap-of-another", "readyToUse": True, "restoreSize": 2**30}
    await place.api.patch(f"{copies.CONTENTS}/{place.name}/status", {"status": status})
    snapshot = {"source": {"volumeSnapshotContentName": place.name}}
    made = made | {"kind": "VolumeSnapshot", "metadata": {"name": "foreign"}}
    await place.api.create(copies.snapshots_of(place), {**made, "spec": snapshot})
    await copies.ready(place, "foreign")

    await place.claim(name, **of_snapshot("foreign"))

    await place.told("'disk.example'")
    await place.remove(f"{place.claims}/data")
    await place.remove(f"{copies.snapshots_of(place)}/foreign")
    path = f"{copies.CONTENTS}/{place.name}"
    await place.api.delete(path)

    async def gone() -> bool:
        """The driver's own sidecar would take the finalizer off; snapshot-controller puts it on."""
        with contextlib.suppress(ApiError):
            await place.api.patch(path, {"metadata": {"finalizers": None}})
        return await place.cluster.get(path) is None

    await place.cluster.until(f"{path} is gone", gone)


@together.test
async def test_a_source_in_another_namespace_does_not_even_reach_us(place: Place):
    """With its feature gate off, as by default, the API server drops the reference in silence."""
    ref = copies.of_snapshot("monday")["dataSource"] | {"namespace": "kube-system"}

    claim = await place.claim(await place.storage_class(waits=True), dataSourceRef=ref)

    assert not {"dataSource", "dataSourceRef"} & claim["spec"].keys()


async def _deleted(place: Place, snapshot_id: str) -> None:
    await asyncio.to_thread(place.cluster.ec2.delete_snapshot, SnapshotId=snapshot_id)


def _name(claim: Json) -> str:
    return f"pvc-{claim['metadata']['uid']}"
