"""What the node plugin is told of where a volume's data come from, and of whose its name is."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from provisioner.sandbox import nodes
from tests.cluster.by_hand import by_hand, is_free
from tests.cluster.cluster import ATTACHMENTS, Json, handle_of
from tests.cluster.place import Place
from tests.cluster.together import Together

pytestmark = pytest.mark.asyncio(loop_scope="module")
together = Together()

MADE_FROM = "ebs-provisioner.io/made-from"
INSTANCE_ID = "ebs-provisioner.io/instance-id"


async def told(place: Place, attachment: str) -> Json:
    """What an attached volume's node is told; the attachment is gone afterwards."""
    found = await place.attached(attachment)
    metadata: Json = found["status"]["attachmentMetadata"]
    assert metadata["devicePath"].startswith("/dev/")
    await place.remove(f"{ATTACHMENTS}/{attachment}")
    return metadata


async def of_static(place: Place, volume_id: str, **source: Any) -> str:
    """What is told of a volume that somebody else has made."""
    pv = await place.static_pv(volume_id, **source)
    metadata = await told(place, await place.attachment(pv, volume_id=volume_id))
    await is_free(place.cluster, volume_id)
    return str(metadata[MADE_FROM])


@together.test
async def test_a_new_volume_is_blank(place: Place):
    pv = await place.a_volume()

    metadata = await told(place, await place.attachment(pv["metadata"]["name"]))

    instance_id = place.cluster.instance().instance_id
    assert metadata == {
        "devicePath": metadata["devicePath"],
        INSTANCE_ID: instance_id,
        MADE_FROM: "blank",
    }


@together.test
async def test_a_volume_that_was_attached_in_ec2_already_is_told_about_all_the_same(place: Place):
    pv = await place.a_volume()
    instance = place.cluster.instance(number=1)
    await asyncio.to_thread(
        by_hand(place.cluster).attach, handle_of(pv), instance.instance_id, "/dev/xvdbx"
    )

    name = await place.attachment(pv["metadata"]["name"], instance.private_dns_name)

    assert await told(place, name) == {
        "devicePath": "/dev/xvdbx",
        INSTANCE_ID: instance.instance_id,
        MADE_FROM: "blank",
    }


@together.test
async def test_restored_and_copied_volumes_are_told_by_their_source(place: Place):
    hand = by_hand(place.cluster)
    source = await asyncio.to_thread(hand.volume)
    snapshot = await asyncio.to_thread(hand.snapshot, source)

    async def is_taken() -> bool:
        return await asyncio.to_thread(hand.snapshot_state, snapshot) == "completed"

    await place.cluster.until("the snapshot is taken", is_taken)
    restored = await asyncio.to_thread(hand.volume, SnapshotId=snapshot)
    copy = await asyncio.to_thread(hand.copy, source)

    assert await of_static(place, source, suffix="source") == "blank"
    assert await of_static(place, restored, suffix="restored") == snapshot
    assert await of_static(place, copy, suffix="copy") == source
    for volume_id in (source, restored, copy):
        await asyncio.to_thread(place.cluster.ec2.delete_volume, VolumeId=volume_id)
    await asyncio.to_thread(place.cluster.ec2.delete_snapshot, SnapshotId=snapshot)


@together.test
async def test_in_tree_and_inline_volumes_are_told_about_too(place: Place):
    volume_id = await asyncio.to_thread(by_hand(place.cluster).volume)
    in_tree = {"awsElasticBlockStore": {"volumeID": f"aws://us-east-1a/{volume_id}"}, "csi": None}
    assert await of_static(place, volume_id, suffix="in-tree", **in_tree) == "blank"

    spec = {
        "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": nodes.DRIVER, "volumeHandle": volume_id},
    }
    name = f"{place.name}-inline"
    node = place.cluster.instance().private_dns_name
    wish = {
        "attacher": nodes.DRIVER,
        "nodeName": node,
        "source": {"inlineVolumeSpec": spec},
    }
    await place.api.create(
        ATTACHMENTS, {"metadata": {"name": name, "labels": {"story": place.name}}, "spec": wish}
    )
    assert (await told(place, name))[MADE_FROM] == "blank"
    await is_free(place.cluster, volume_id)
    await asyncio.to_thread(place.cluster.ec2.delete_volume, VolumeId=volume_id)
