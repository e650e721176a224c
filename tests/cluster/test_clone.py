"""Claims that are cloned: beside their source, one at a time, or across zones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.cluster import copies
from tests.cluster.background import Background
from tests.cluster.cluster import Cluster, Json, handle_of, opened, token_of
from tests.cluster.copies import ACROSS, in_zones, of_claim, size, volume_of
from tests.cluster.place import Place, away_from
from tests.cluster.together import Together

pytestmark = pytest.mark.asyncio(loop_scope="module")
together = Together()

A, B = "us-east-1a", "us-east-1b"
FILLED_S = 4.0  # so long EC2 fills a copy, and makes no other one of the same volume
TURN_S = 90.0  # EC2 is asked every 30 s whether it makes another copy


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(background: Background) -> AsyncIterator[Cluster]:
    async with opened(background) as running:
        await running.control(delays={"initialize_s": FILLED_S}, copies_in_progress=50)
        yield running
        await running.control(delays={"initialize_s": 0.0}, copies_in_progress=5)


async def a_source(place: Place, **parameters: str) -> Json:
    """A bound claim "data" in us-east-1a; its persistent volume."""
    name = await place.storage_class(
        "source", allowedTopologies=in_zones(A), parameters={"type": "gp3", **parameters}
    )
    await place.claim(name)
    return await place.bound()


async def clones_of(place: Place, pv: Json) -> list[Json]:
    """The CopyVolumes calls for a volume."""
    return await place.cluster.calls(handle_of(pv), "CopyVolumes")


@together.test
async def test_a_clone_is_a_copy_beside_its_source_which_can_go_then(place: Place):
    pv = await a_source(place)
    open_class = await place.storage_class()

    claim = await place.claim(open_class, "copy", **of_claim(), **size("2Gi"))

    volume = await volume_of(place, "copy")
    assert (volume["SourceVolumeId"], volume["Size"]) == (handle_of(pv), 2)
    assert volume["AvailabilityZone"] == A
    [call] = await clones_of(place, pv)
    assert call["params"]["ClientToken"] == token_of(claim)
    await place.remove(f"{place.claims}/data")


@together.test
async def test_clones_of_one_volume_come_one_after_the_other(place: Place):
    pv = await a_source(place)
    name = f"{place.name}-source"
    for number in range(2):
        await place.claim(name, f"copy-{number}", **of_claim())

    made = [await volume_of(place, f"copy-{number}", TURN_S) for number in range(2)]

    assert {each["SourceVolumeId"] for each in made} == {handle_of(pv)}
    assert len({each["VolumeId"] for each in made}) == 2
    told = [
        each["message"]
        for number in range(2)
        for each in await place.events(f"copy-{number}")
        if "came first" in each["message"] or "will try again" in each["message"]
    ]
    assert any(f"claim {place.name}/copy-" in each for each in told)
    assert any("will try again" in each for each in told)
    warnings = [
        each
        for number in range(2)
        for each in await place.events(f"copy-{number}")
        if each["type"] == "Warning"
    ]
    assert warnings == []


@together.test
async def test_a_pod_follows_its_clone_to_the_zone_of_the_source(place: Place):
    await a_source(place)
    waits = await place.storage_class("waits", waits=True)
    claim = await place.claim(waits, "copy", **of_claim())

    pod = await place.pod(claim, affinity=away_from(A))

    assert (await volume_of(place, "copy"))["AvailabilityZone"] == A
    node = await place.node_of(pod)
    assert node in {each.private_dns_name for each in place.cluster.sandbox.instances}
    found = await place.api.get(f"/api/v1/nodes/{node}")
    assert found["metadata"]["labels"][copies.ZONE_LABEL] == A


@together.test
async def test_a_class_that_excludes_the_zone_of_the_source_is_told_of_the_ways_out(place: Place):
    await a_source(place)
    name = await place.storage_class("b", allowedTopologies=in_zones(B))

    await place.claim(name, "copy", **of_claim())

    await place.told(A, B, "clone-across-zones", name="copy")
    await copies.one_event_and_no_volume(place, "copy")


@together.test
async def test_a_clone_goes_across_zones_by_a_snapshot_that_is_gone_afterwards(place: Place):
    pv = await a_source(place)
    name = await place.storage_class(
        "across",
        metadata={"name": f"{place.name}-across", "annotations": ACROSS},
        waits=True,
    )
    claim = await place.claim(name, "copy", **of_claim(), **size("2Gi"))

    await place.choose_node(claim, place.cluster.instance(B).private_dns_name)

    volume = await volume_of(place, "copy", 60)
    assert (volume["AvailabilityZone"], volume["Size"]) == (B, 2)
    assert volume["SnapshotId"]
    assert await clones_of(place, pv) == []
    assert len(await place.cluster.calls(handle_of(pv), "CreateSnapshot")) == 1

    async def none_left() -> bool:
        return await copies.snapshots_in_ec2(place, handle_of(pv)) == []

    await place.cluster.until("the snapshot is gone", none_left)


@together.test
async def test_beside_its_source_a_class_that_goes_across_makes_a_plain_copy(place: Place):
    pv = await a_source(place)
    metadata = {"name": f"{place.name}-across", "annotations": ACROSS}
    name = await place.storage_class("across", metadata=metadata)

    await place.claim(name, "copy", **of_claim())

    assert (await volume_of(place, "copy"))["SourceVolumeId"] == handle_of(pv)
    assert await place.cluster.calls(handle_of(pv), "CreateSnapshot") == []


@together.test
async def test_a_lost_createsnapshot_is_not_sent_twice_while_one_may_exist(place: Place):
    pv = await a_source(place)
    metadata = {"name": f"{place.name}-across", "annotations": ACROSS}
    name = await place.storage_class("across", metadata=metadata, allowedTopologies=in_zones(B))
    await place.cluster.fault(
        "CreateSnapshot", "reset", match={"VolumeId": handle_of(pv)}, when="after", n=1
    )

    await place.claim(name, "copy", **of_claim())

    assert (await volume_of(place, "copy", 90))["AvailabilityZone"] == B
    assert len(await place.cluster.calls(handle_of(pv), "CreateSnapshot")) == 1


@together.test
async def test_a_source_that_is_deleted_while_it_is_cloned_is_held_until_then(place: Place):
    pv = await a_source(place)
    waits = await place.storage_class("waits", waits=True)
    claim = await place.claim(waits, "copy", **of_claim())
    lost = {"ClientToken": token_of(claim)}
    await place.cluster.fault("CopyVolumes", "reset", match=lost, when="after", n=2)
    await place.choose_node(claim)
    await place.is_requested(lost["ClientToken"], "CopyVolumes")

    await place.api.delete(f"{place.claims}/data")

    assert (await volume_of(place, "copy"))["SourceVolumeId"] == handle_of(pv)
    name = f"pvc-{claim['metadata']['uid']}"
    assert len(await place.cluster.volumes_tagged("CSIVolumeName", name)) == 1
    await place.is_gone(f"{place.claims}/data")


@together.test
async def test_a_copy_that_was_asked_for_outlives_a_source_torn_away(place: Place):  # race 3
    pv = await a_source(place)
    waits = await place.storage_class("waits", waits=True)
    claim = await place.claim(waits, "copy", **of_claim())
    lost = {"ClientToken": token_of(claim)}
    await place.cluster.fault("CopyVolumes", "reset", match=lost, when="after", n=2)
    await place.choose_node(claim)
    await place.is_requested(lost["ClientToken"], "CopyVolumes")

    await place.api.delete(f"{place.claims}/data")
    await place.api.patch(f"{place.claims}/data", {"metadata": {"finalizers": None}})

    assert (await volume_of(place, "copy"))["SourceVolumeId"] == handle_of(pv)
    name = f"pvc-{claim['metadata']['uid']}"
    assert len(await place.cluster.volumes_tagged("CSIVolumeName", name)) == 1


@together.test
async def test_a_claim_waits_for_a_source_that_comes_later(place: Place):
    name = await place.storage_class()
    await place.claim(name, "copy", **of_claim())
    await place.told("claim 'data'", "does not exist", name="copy")
    await copies.one_event_and_no_volume(place, "copy")

    await place.claim(name)

    assert (await volume_of(place, "copy"))["SourceVolumeId"]


@together.test
async def test_a_clone_has_the_size_and_the_mode_of_its_source(place: Place):
    name = await place.storage_class()
    await place.claim(name, **size("2Gi"))
    await place.bound()

    await place.claim(name, "small", **of_claim())
    await place.claim(name, "raw", **of_claim(), **size("2Gi"), volumeMode="Block")

    await place.told("requests 1Gi", "needs at least 2Gi", name="small")
    await place.told("volumeMode Block", "Filesystem", name="raw")
    for each in ("small", "raw"):
        await copies.one_event_and_no_volume(place, each)


@together.test
async def test_a_class_of_the_in_tree_plugin_clones_its_own(place: Place):
    name = await place.storage_class(provisioner="kubernetes.io/aws-ebs")
    await place.claim(name)
    pv = await place.bound()

    await place.claim(name, "copy", **of_claim())

    copy = (await place.bound("copy"))["spec"]["awsElasticBlockStore"]["volumeID"]
    volume = await place.cluster.volume(copy)
    assert volume is not None
    assert volume["SourceVolumeId"] == pv["spec"]["awsElasticBlockStore"]["volumeID"]


@together.test
async def test_a_copy_of_what_is_encrypted_is_never_plain(place: Place):
    await a_source(place, encrypted="true")
    plain = await place.storage_class("plain", parameters={"type": "gp3", "encrypted": "false"})

    await place.claim(plain, "copy", **of_claim())
    await place.claim(f"{place.name}-source", "other", **of_claim())

    await place.told("encrypted: false", name="copy")
    assert (await volume_of(place, "other"))["Encrypted"]
    await copies.one_event_and_no_volume(place, "copy")


@together.test
async def test_a_claim_that_goes_before_its_turn_leaves_nothing(place: Place):
    await a_source(place)
    name = f"{place.name}-source"
    await place.claim(name, "copy-0", **of_claim())
    await place.claim(name, "copy-1", **of_claim())
    await place.bound("copy-0", TURN_S)

    await asyncio.gather(*(place.remove(f"{place.claims}/copy-{n}") for n in range(2)))

    await place.remove(f"{place.claims}/data")

    async def nothing_left() -> bool:
        return await place.volumes() == []

    await place.cluster.until("no volume of the story is left", nothing_left)
