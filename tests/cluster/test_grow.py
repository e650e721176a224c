"""A claim asks for more: its volume, its persistent volume and it itself grow, in this order.

No kubelet runs in the sandbox: where a file system has to grow, ``growing.kubelet_grows`` does on
the API server what kubelet does.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.cluster import calm, growing
from tests.cluster.cluster import PVS, Cluster
from tests.cluster.place import Place
from tests.cluster.together import Together

pytestmark = pytest.mark.asyncio(loop_scope="module")
together = Together()

SLOWLY_S = 150.0
"""Where a human has to act, the next try may come after a minute."""


async def grown(place: Place, size: str, *, name: str = "data") -> None:
    """Wait until nothing of a claim with a file system is left to do, kubelet's part included."""
    claim = await growing.kubelet_grows(place, name)
    assert growing.capacity(claim) == size
    assert growing.conditions(claim) == {}


@together.test
async def test_a_file_system_grows_once_its_volume_has_grown(place: Place):
    pv, volume_id = await growing.a_volume(place)

    await growing.ask(place, "24Gi")
    waiting = await growing.claim_when(
        place, "kubelet's turn", lambda c: growing.resize_status(c) == "NodeResizePending"
    )

    # The volume and the persistent volume have their new size; the claim keeps its old one, which
    # is what its file system has.
    await growing.volume_when(place, "24 GiB", volume_id, lambda v: v["Size"] == 24)
    assert growing.capacity(waiting) == "20Gi"
    assert waiting["status"]["allocatedResources"]["storage"] == "24Gi"
    pending = growing.conditions(waiting)["FileSystemResizePending"]
    assert pending["message"].startswith("Waiting for user to (re-)start a pod")
    found = await place.api.get(f"{PVS}/{pv}")
    assert found["spec"]["capacity"]["storage"] == "24Gi"
    assert found["metadata"]["annotations"][growing.PRE_RESIZE_CAPACITY] == "20Gi"
    await growing.told(place, "Resizing", f"resizing volume {pv}")
    await growing.told(place, "FileSystemResizeRequired")

    await grown(place, "24Gi")

    async def forgotten() -> bool:
        now = await place.api.get(f"{PVS}/{pv}")
        return growing.PRE_RESIZE_CAPACITY not in now["metadata"]["annotations"]

    await place.cluster.until("the old capacity is not kept any more", forgotten)
    assert await growing.modifies(place, volume_id) == [{"Size": "24"}]


@together.test
async def test_a_block_claim_has_grown_at_once(place: Place):
    pv, volume_id = await growing.a_volume(place, volumeMode="Block")

    await growing.ask(place, "24Gi")
    claim = await growing.has_size(place, "24Gi")

    assert growing.resize_status(claim) == ""
    assert growing.conditions(claim) == {}
    assert claim["metadata"]["annotations"][growing.NODE_NOT_REQUIRED] == "true"
    assert await growing.size_of(place, pv) == "24Gi"
    await growing.told(place, "VolumeResizeSuccessful", "Resize volume succeeded")
    assert await growing.events(place, "FileSystemResizeRequired") == []
    assert await growing.modifies(place, volume_id) == [{"Size": "24"}]


@together.test
async def test_a_size_between_two_gib_is_rounded_up_and_never_asked_for_again(place: Place):
    pv, volume_id = await growing.a_volume(place, volumeMode="Block")

    await growing.ask(place, "20900Mi")
    await growing.has_size(place, "21Gi")
    await growing.ask(place, "21Gi")
    await growing.ask(place, "22Gi")
    await growing.has_size(place, "22Gi")

    assert await growing.size_of(place, pv) == "22Gi"
    assert await growing.modifies(place, volume_id) == [{"Size": "21"}, {"Size": "22"}]


@together.test
async def test_an_in_tree_volume_grows(place: Place):
    pv, volume_id = await growing.a_volume(place, in_tree=True)

    await growing.ask(place, "24Gi")
    await grown(place, "24Gi")

    spec = (await place.api.get(f"{PVS}/{pv}"))["spec"]
    assert spec["awsElasticBlockStore"]["volumeID"] == volume_id
    assert spec["capacity"]["storage"] == "24Gi"
    assert await growing.modifies(place, volume_id) == [{"Size": "24"}]


@together.test
async def test_a_size_that_cannot_be_is_told_and_a_smaller_one_recovers(place: Place):
    pv, volume_id = await growing.a_volume(place)

    await growing.ask(place, "70000Gi")
    claim = await growing.claim_when(
        place, "refused", lambda c: growing.resize_status(c) == "ControllerResizeInfeasible"
    )

    assert "ControllerResizeError" in growing.conditions(claim)
    await growing.told(place, "VolumeResizeFailed", pv, "65536")
    assert await growing.size_of(place, pv) == "20Gi"

    await growing.ask(place, "22Gi")
    await grown(place, "22Gi")

    # What EC2 refuses is no modification; each size was asked for once.
    assert await growing.modifies(place, volume_id) == [{"Size": "70000"}, {"Size": "22"}]


@together.test
async def test_growing_again_while_kubelet_has_not_come_yet_waits_for_it(place: Place):
    pv, volume_id = await growing.a_volume(place)
    await growing.ask(place, "22Gi")
    await growing.claim_when(
        place, "kubelet's turn", lambda c: growing.resize_status(c) == "NodeResizePending"
    )

    await growing.ask(place, "24Gi")
    await growing.kubelet_grows(place)
    await grown(place, "24Gi")

    assert await growing.size_of(place, pv) == "24Gi"
    assert await growing.modifies(place, volume_id) == [{"Size": "22"}, {"Size": "24"}]


@together.test
async def test_throttling_is_waited_out(place: Place):
    _, volume_id = await growing.a_volume(place)
    await place.cluster.fault(
        "ModifyVolume",
        n=3,
        match={"VolumeId": volume_id},
        code="RequestLimitExceeded",
        message="Request limit exceeded.",
        http_status=503,
    )

    await growing.ask(place, "24Gi")
    await grown(place, "24Gi")

    assert await growing.events(place, "VolumeResizeFailed") == []


@together.test
@pytest.mark.parametrize("how", ["reset", "html", "error", "hang"])
async def test_a_lost_reply_to_a_modification_costs_no_second_one(place: Place, how: str):
    _, volume_id = await growing.a_volume(place)
    match = {"VolumeId": volume_id}
    await place.cluster.fault("ModifyVolume", how, when="after", match=match)

    await growing.ask(place, "24Gi")
    await grown(place, "24Gi")

    assert await growing.modifies(place, volume_id) == [{"Size": "24"}]


@together.test
@pytest.mark.parametrize("action", ["DescribeVolumes", "DescribeVolumesModifications"])
async def test_lost_replies_to_looks_do_not_matter(place: Place, action: str):
    _, volume_id = await growing.a_volume(place)
    # By ids only we look at volumes, not the tests beside this one.
    match = {"VolumeId.1": volume_id} if action == "DescribeVolumes" else {}
    await place.cluster.fault(action, "reset", n=2, match=match)

    await growing.ask(place, "24Gi")
    await grown(place, "24Gi")

    assert await growing.modifies(place, volume_id) == [{"Size": "24"}]


@together.test
async def test_a_full_quota_is_told_and_growing_goes_on_once_there_is_room(place: Place):
    pv, volume_id = await growing.a_volume(place)
    await place.cluster.fault(
        "ModifyVolume",
        match={"VolumeId": volume_id},
        code="VolumeModificationSizeLimitExceeded",
        message="You have reached the limit of 500 TiB of modified volumes.",
        http_status=400,
    )

    await growing.ask(place, "24Gi")
    await growing.told(place, "VolumeResizeFailed", pv, "VolumeModificationSizeLimitExceeded")
    claim = await growing.claim_when(
        place,
        "kubelet's turn",
        lambda c: growing.resize_status(c) == "NodeResizePending",
        timeout_s=SLOWLY_S,
    )

    assert "ControllerResizeError" not in growing.conditions(claim)
    await grown(place, "24Gi")
    assert len(await growing.modifies(place, volume_id)) == 2


@together.test
async def test_many_claims_grow_by_one_modification_each(place: Place):
    names = [f"data-{number}" for number in range(4)]
    # The first one makes the class.
    made = [await growing.a_volume(place, names[0], volumeMode="Block")]
    rest = (growing.a_volume(place, name, volumeMode="Block") for name in names[1:])
    made += await asyncio.gather(*rest)

    for name in names:
        await growing.ask(place, "24Gi", name=name)
    for name in names:
        await growing.has_size(place, "24Gi", name=name)

    for _, volume_id in made:
        assert await growing.modifies(place, volume_id) == [{"Size": "24"}]


@together.test
async def test_a_claim_deleted_while_its_volume_grows_is_no_trouble(place: Place):
    pv, volume_id = await growing.a_volume(place)
    match = {"VolumeId": volume_id}
    await place.cluster.fault("ModifyVolume", "delay", delay_s=3.0, match=match)

    await growing.ask(place, "24Gi")
    await place.is_requested(volume_id, "ModifyVolume")
    await place.remove(f"{place.claims}/data")

    await place.is_gone(f"{PVS}/{pv}", SLOWLY_S)
    assert await place.cluster.volume(volume_id) is None


async def test_nothing_of_this_was_a_tight_loop(cluster: Cluster):
    await calm.assert_calm(cluster)
