"""What comes between a request and its volume: rights, an in-tree form, kubelet, other people."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from provisioner.model.budget import WINDOW, Ledger, Start
from provisioner.model.consistency import CONSISTENCY_S
from provisioner.model.names import MODIFICATIONS
from tests.cluster import calm, growing
from tests.cluster.cluster import PVS, Cluster, Json
from tests.cluster.place import Place
from tests.cluster.together import Together

pytestmark = pytest.mark.asyncio(loop_scope="module")
together = Together()

SLOWLY_S = 150.0
FORBIDDEN: Json = {
    "code": "UnauthorizedOperation",
    "message": "You are not authorized to perform this operation.",
    "http_status": 403,
}


@together.test
async def test_a_missing_right_is_told_and_it_goes_on_once_it_is_given(place: Place):
    pv, volume_id = await growing.a_volume(place)
    await place.cluster.fault("ModifyVolume", n=1, match={"VolumeId": volume_id}, **FORBIDDEN)

    await growing.ask(place, "24Gi")
    await growing.told(place, "VolumeResizeFailed", pv, "PermissionDenied")
    claim = await growing.claim_when(
        place,
        "kubelet's turn",
        lambda c: growing.resize_status(c) == "NodeResizePending",
        timeout_s=SLOWLY_S,
    )

    assert "ControllerResizeError" not in growing.conditions(claim)
    assert await growing.modifies(place, volume_id) == [{"Size": "24"}] * 2


@together.test
async def test_no_right_to_tag_keeps_no_full_disk_from_growing(place: Place):
    _, volume_id = await growing.a_volume(place)
    tagged = await growing.attributes_class(
        place, "tagged", **growing.FAST, tagSpecification_1="team=a"
    )
    match = {"ResourceId": volume_id, "Tag.1.Key": "team"}
    await place.cluster.fault("CreateTags", match=match, **FORBIDDEN)

    await growing.ask(place, "24Gi", attributes=tagged)
    claim = await growing.kubelet_grows(place)
    assert growing.capacity(claim) == "24Gi"
    await growing.told(place, "VolumeModifyFailed", "PermissionDenied")
    await growing.changed(place, tagged, timeout_s=SLOWLY_S)

    assert (await growing.tags_of(place, volume_id))["team"] == "a"


@together.test
async def test_an_in_tree_volume_has_no_class_and_grows_all_the_same(place: Place):
    pv, volume_id = await growing.a_volume(place, in_tree=True)
    fast = await growing.attributes_class(place, "fast", **growing.FAST)

    await growing.ask(place, attributes=fast)
    await growing.told(place, "VolumeModifyFailed", "in-tree")
    await growing.ask(place, "24Gi")
    claim = await growing.kubelet_grows(place)

    assert growing.capacity(claim) == "24Gi"
    assert growing.current_class(claim) == ""
    assert await growing.modifies(place, volume_id) == [{"Size": "24"}]
    spec = (await place.api.get(f"{PVS}/{pv}"))["spec"]
    assert spec.get("volumeAttributesClassName") is None


@together.test
async def test_what_kubelet_could_not_do_is_asked_of_it_again(place: Place):
    _, volume_id = await growing.a_volume(place)
    await growing.ask(place, "24Gi")

    await growing.kubelet_gives_up(place)
    claim = await growing.kubelet_grows(place)

    assert growing.capacity(claim) == "24Gi"
    assert growing.conditions(claim) == {}
    assert await growing.modifies(place, volume_id) == [{"Size": "24"}]


@together.test
async def test_a_volume_that_somebody_has_grown_by_hand_costs_no_modification(place: Place):
    pv, volume_id = await growing.a_volume(place, volumeMode="Block")
    ec2 = place.cluster.ec2
    await asyncio.to_thread(ec2.modify_volume, VolumeId=volume_id, Size=30)

    await growing.ask(place, "24Gi")
    claim = await growing.claim_when(
        place, "grown", lambda c: growing.capacity(c) in {"24Gi", "30Gi"}
    )

    # The persistent volume tells what there is; the claim has at least what it asked for.
    assert await growing.size_of(place, pv) == growing.capacity(claim) == "30Gi"
    assert await growing.modifies(place, volume_id) == [{"Size": "30"}]


@together.test
async def test_a_volume_that_somebody_has_deleted_is_told(place: Place):
    pv, volume_id = await growing.a_volume(place)
    await asyncio.to_thread(place.cluster.ec2.delete_volume, VolumeId=volume_id)

    await growing.ask(place, "24Gi")
    await growing.told(place, "VolumeResizeFailed", pv, volume_id, timeout_s=SLOWLY_S)

    claim = await growing.claim_when(
        place, "refused", lambda c: growing.resize_status(c) == "ControllerResizeInfeasible"
    )
    assert growing.capacity(claim) == "20Gi"
    assert await growing.modifies(place, volume_id) == []


@together.test
async def test_two_classes_one_after_the_other_end_with_the_last_one(place: Place):
    _, volume_id = await growing.a_volume(place)
    fast = await growing.attributes_class(place, "fast", **growing.FAST)
    slow = await growing.attributes_class(place, "slow", iops="3000", throughput="125")

    await growing.ask(place, attributes=fast)
    await growing.ask(place, attributes=slow)
    await growing.changed(place, slow)

    volume = await growing.volume_when(place, "slow", volume_id, lambda v: v["Iops"] == 3_000)
    assert volume["Throughput"] == 125
    # At once is one plan, and it is the last one: EC2 had it already.
    assert len(await growing.modifies(place, volume_id)) in {0, 2}


@together.test
async def test_a_class_and_back_again(place: Place):
    _, volume_id = await growing.a_volume(place)
    fast = await growing.attributes_class(place, "fast", **growing.FAST)
    slow = await growing.attributes_class(place, "slow", iops="3000", throughput="125")

    for name in (fast, slow):
        await growing.ask(place, attributes=name)
        await growing.changed(place, name)

    back: Json = {"Iops": "3000", "Throughput": "125"}
    assert await growing.modifies(place, volume_id) == [growing.AS_FAST, back]


async def note(place: Place, pv: str, volume_id: str, *began_at: datetime) -> None:
    """Write down modifications as a process before this one has."""
    path = f"{PVS}/{pv}"
    uid = (await place.api.get(path))["metadata"]["uid"]
    ledger = Ledger(tuple(Start(at, after="another one") for at in began_at))
    text = ledger.text(persistent_volume_uid=uid, volume_id=volume_id)
    await place.api.patch(path, {"metadata": {"annotations": {MODIFICATIONS: text}}})


@together.test
async def test_what_another_process_has_noted_counts_until_it_is_a_day_old(place: Place):
    pv, volume_id = await growing.a_volume(place, volumeMode="Block")
    now = datetime.now(UTC)
    hours = [now - timedelta(hours=each) for each in (23, 3, 2, 1)]
    await note(place, pv, volume_id, *hours)

    await growing.ask(place, "24Gi")
    in_an_hour = hours[0] + WINDOW
    await growing.told(place, "VolumeResizeFailed", f"until {in_an_hour:%Y-%m-%d %H:%M}")
    assert await growing.modifies(place, volume_id) == []

    await note(place, pv, volume_id, *(at - timedelta(hours=2) for at in hours))
    await growing.ask(place, "25Gi")
    await growing.has_size(place, "25Gi")
    assert await growing.modifies(place, volume_id) == [{"Size": "25"}]


@together.test
async def test_a_note_of_what_was_never_sent_costs_a_minute_and_no_modification(place: Place):
    pv, volume_id = await growing.a_volume(place, volumeMode="Block")
    path = f"{PVS}/{pv}"
    uid = (await place.api.get(path))["metadata"]["uid"]
    # As one that died between its note and the call: EC2 tells of no modification, as before it.
    noted_at = datetime.now(UTC)
    ledger = Ledger((Start(noted_at, after="", asked="24 GiB"),))
    text = ledger.text(persistent_volume_uid=uid, volume_id=volume_id)
    await place.api.patch(path, {"metadata": {"annotations": {MODIFICATIONS: text}}})

    await growing.ask(place, "24Gi")
    await growing.has_size(place, "24Gi", timeout_s=SLOWLY_S)

    assert datetime.now(UTC) - noted_at > timedelta(seconds=CONSISTENCY_S)
    assert await growing.modifies(place, volume_id) == [{"Size": "24"}]
    noted = (await place.api.get(path))["metadata"]["annotations"][MODIFICATIONS]
    found = Ledger.read(noted, persistent_volume_uid=uid, volume_id=volume_id)
    assert len(found.starts) == 1


@together.test
@pytest.mark.parametrize("text", ["{", "[]", '{"uid": "another", "volume": "vol-1"}', "\u0000"])
async def test_a_note_that_is_none_does_not_matter(place: Place, text: str):
    pv, volume_id = await growing.a_volume(place, volumeMode="Block")
    annotations = {MODIFICATIONS: text}
    await place.api.patch(f"{PVS}/{pv}", {"metadata": {"annotations": annotations}})

    await growing.ask(place, "24Gi")
    await growing.has_size(place, "24Gi")

    assert await growing.modifies(place, volume_id) == [{"Size": "24"}]


async def test_nothing_of_this_was_a_tight_loop(cluster: Cluster):
    await calm.assert_calm(cluster)
