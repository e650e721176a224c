"""Volumes and nodes that are not what their objects say, and objects that go in the wrong order."""

from __future__ import annotations

import asyncio

import pytest

from provisioner.sandbox import nodes
from tests.cluster import calm
from tests.cluster.by_hand import by_hand, force_removal, holders, is_free, is_released, take_name
from tests.cluster.cluster import ATTACHMENTS, PVS, Cluster, Json, handle_of
from tests.cluster.place import Place, a_place
from tests.cluster.together import Together

pytestmark = pytest.mark.asyncio(loop_scope="module")
together = Together()


# -- attach


@together.test
async def test_a_volume_deleted_in_ec2_is_named_in_the_attach_error_and_its_end_is_clean(
    place: Place,
):
    pv = await place.a_volume()
    volume_id = handle_of(pv)
    await asyncio.to_thread(place.cluster.ec2.delete_volume, VolumeId=volume_id)

    attachment = await place.attachment(pv["metadata"]["name"])
    error = await place.attach_error(attachment, volume_id, "does not exist")
    assert error["errorCode"] == 5

    await place.remove(f"{ATTACHMENTS}/{attachment}")
    await place.remove(f"{place.claims}/data")
    await place.is_gone(f"{PVS}/{pv['metadata']['name']}")


@together.test
async def test_a_volume_attached_by_hand_elsewhere_is_attached_once_it_is_free(place: Place):
    cluster = place.cluster
    here, there = cluster.instance(number=0), cluster.instance(number=1)
    pv = await place.a_volume()
    volume_id = handle_of(pv)
    await asyncio.to_thread(by_hand(cluster).attach, volume_id, there.instance_id, "/dev/xvdba")

    attachment = await place.attachment(pv["metadata"]["name"], here.private_dns_name)
    await place.attach_error(attachment, volume_id, there.instance_id)

    await asyncio.to_thread(by_hand(cluster).detach, volume_id)
    await place.attached(attachment)
    assert await holders(cluster, volume_id) == [here.instance_id]


@together.test
async def test_a_full_instance_is_told_as_exhausted_and_takes_the_volume_once_it_has_room(
    place: Place,
):
    pv = await place.a_volume()
    text = "You may attach up to 28 devices for this instance type. Please detach a device and try again."
    await place.cluster.fault(
        "AttachVolume",
        n=2,
        match={"VolumeId": handle_of(pv)},
        code="AttachmentLimitExceeded",
        message=text,
        http_status=400,
    )

    attachment = await place.attachment(pv["metadata"]["name"])
    error = await place.attach_error(attachment, "no more volumes")

    assert error["errorCode"] == 8
    await place.attached(attachment)


@together.test
async def test_a_volume_of_another_zone_is_told_as_such(place: Place):
    volume_id = await asyncio.to_thread(
        by_hand(place.cluster).volume, AvailabilityZone="us-east-1b"
    )
    pv = await place.static_pv(volume_id)

    here = place.cluster.instance("us-east-1a").private_dns_name
    attachment = await place.attachment(pv, here)
    await place.attach_error(attachment, volume_id, "same availability zone")

    await place.remove(f"{ATTACHMENTS}/{attachment}")
    await asyncio.to_thread(place.cluster.ec2.delete_volume, VolumeId=volume_id)


@together.test
async def test_an_attachment_waits_for_a_persistent_volume_that_comes_later(place: Place):
    volume_id = await asyncio.to_thread(by_hand(place.cluster).volume)
    attachment = await place.attachment(f"{place.name}-static", volume_id=volume_id)
    await place.attach_error(attachment, "not found")

    await place.static_pv(volume_id)
    await place.attached(attachment)

    await place.remove(f"{ATTACHMENTS}/{attachment}")
    await asyncio.to_thread(place.cluster.ec2.delete_volume, VolumeId=volume_id)


# -- detach


@together.test
async def test_a_volume_is_detached_although_its_persistent_volume_was_removed_by_force(
    place: Place,
):
    volume_id = await asyncio.to_thread(by_hand(place.cluster).volume)
    pv = await place.static_pv(volume_id)
    attachment = await place.attachment(pv)
    await place.attached(attachment)

    await force_removal(place, f"{PVS}/{pv}")

    await place.remove(f"{ATTACHMENTS}/{attachment}")
    await is_free(place.cluster, volume_id)
    await asyncio.to_thread(place.cluster.ec2.delete_volume, VolumeId=volume_id)


@together.test
async def test_a_volume_is_detached_from_the_instance_that_had_the_nodes_name_before(place: Place):
    cluster = place.cluster
    pv = await place.a_volume()
    zone = (await cluster.volume(handle_of(pv)) or {})["AvailabilityZone"]
    async with cluster.extra_node(zone) as old, cluster.extra_node(zone) as new:
        attachment = await place.attachment(pv["metadata"]["name"], old.private_dns_name)
        await place.attached(attachment)
        await take_name(cluster, old.private_dns_name, new.instance_id)

        await place.remove(f"{ATTACHMENTS}/{attachment}")

        await is_free(cluster, handle_of(pv))
        detached = await cluster.calls(handle_of(pv), "DetachVolume")
        assert {call["params"]["InstanceId"] for call in detached} == {old.instance_id}


@together.test
async def test_a_late_answer_for_an_attachment_never_reaches_the_one_made_anew(place: Place):
    pv = await place.a_volume()
    volume_id = handle_of(pv)
    await place.cluster.fault("AttachVolume", "delay", delay_s=3.0, match={"VolumeId": volume_id})
    first = await place.attachment(pv["metadata"]["name"])
    await place.is_requested(volume_id, "AttachVolume")
    await force_removal(place, f"{ATTACHMENTS}/{first}")

    second = await place.attachment(pv["metadata"]["name"])

    assert second == first
    seen = await place.attached(second)
    volume = await place.cluster.volume(volume_id)
    assert volume is not None
    (there,) = volume["Attachments"]
    assert seen["status"]["attachmentMetadata"]["devicePath"] == there["Device"]
    assert seen["metadata"]["annotations"]
    await place.remove(f"{ATTACHMENTS}/{second}")
    await is_free(place.cluster, volume_id)


@together.test
async def test_an_attachment_deleted_while_it_waits_for_ec2_is_detached(place: Place):
    pv = await place.a_volume()
    volume_id = handle_of(pv)
    await place.cluster.fault("AttachVolume", "delay", delay_s=3.0, match={"VolumeId": volume_id})
    attachment = await place.attachment(pv["metadata"]["name"])
    await place.is_requested(volume_id, "AttachVolume")

    await place.remove(f"{ATTACHMENTS}/{attachment}")

    assert await holders(place.cluster, volume_id) == []


# -- delete


@together.test
@pytest.mark.parametrize("form", ["csi", "in-tree"])
async def test_a_volume_that_another_object_names_is_kept_until_that_one_is_gone(
    place: Place, form: str
):
    pv = await place.a_volume()
    volume_id = handle_of(pv)
    source: Json = {"csi": {"driver": nodes.DRIVER, "volumeHandle": volume_id}}
    if form == "in-tree":
        source = {
            "csi": None,
            "awsElasticBlockStore": {"volumeID": f"aws://us-east-1a/{volume_id}"},
        }
    other = await place.static_pv(volume_id, "other", **source)

    await place.remove(f"{place.claims}/data")
    await place.told(other, "is kept", name=pv["metadata"]["name"], namespace="default")
    assert await place.cluster.volume(volume_id) is not None
    assert await place.cluster.calls(volume_id, "DeleteVolume") == []

    await place.remove(f"{PVS}/{other}")
    await place.is_gone(f"{PVS}/{pv['metadata']['name']}")
    assert await place.cluster.volume(volume_id) is None


@together.test
async def test_a_volume_is_not_deleted_while_an_attachment_names_it(place: Place):
    pv = await place.a_volume()
    attachment = await place.attachment(pv["metadata"]["name"])
    await place.attached(attachment)
    await place.remove(f"{place.claims}/data")
    await is_released(place, pv["metadata"]["name"])
    await place.remove(f"{ATTACHMENTS}/{attachment}")
    await place.is_gone(f"{PVS}/{pv['metadata']['name']}")

    ends = await place.cluster.calls(handle_of(pv), "De*Volume")
    assert [each["action"] for each in ends] == ["DetachVolume", "DeleteVolume"]


async def test_a_policy_changed_to_retain_in_the_last_moment_keeps_the_volume(cluster: Cluster):
    """The second deletion waits for the limiter; only a live look after that sees the change."""
    await cluster.stop(grace_s=10)
    await cluster.start("--ec2-rate", "DeleteVolume=1:0.05")
    async with a_place(cluster) as place:
        first, second = await place.a_volume("first"), await place.a_volume("second")
        name, volume_id = second["metadata"]["name"], handle_of(second)
        await place.remove(f"{place.claims}/first")
        await place.is_requested(handle_of(first), "DeleteVolume")
        await place.remove(f"{place.claims}/second")
        await is_released(place, name)
        assert await cluster.volume(volume_id) is not None, "the limiter did not hold it back"

        keep = {"spec": {"persistentVolumeReclaimPolicy": "Retain"}}
        await place.api.patch(f"{PVS}/{name}", keep)

        async def let_go() -> bool:
            found = await place.api.get(f"{PVS}/{name}")
            return "finalizers" not in found["metadata"] or not any(
                "provisioner" in each for each in found["metadata"]["finalizers"]
            )

        await cluster.until("the object is let go of", let_go)
        assert await cluster.volume(volume_id) is not None
        assert await cluster.calls(volume_id, "DeleteVolume") == []
        await asyncio.to_thread(cluster.ec2.delete_volume, VolumeId=volume_id)


async def test_nothing_of_this_was_a_tight_loop(cluster: Cluster):
    await calm.assert_calm(cluster)
