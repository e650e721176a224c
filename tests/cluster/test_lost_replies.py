"""EC2 does what it was asked and the answer gets lost: one volume, one attachment, and an end."""

from __future__ import annotations

import pytest

from tests.cluster import calm
from tests.cluster.cluster import ATTACHMENTS, PVS, Cluster, handle_of, token_of
from tests.cluster.place import Place
from tests.cluster.together import Together

pytestmark = pytest.mark.asyncio(loop_scope="module")
together = Together()

LOSSES = ["reset", "html", "error", "hang"]
"""A connection torn down, a proxy's page, an InternalError, and nothing for 20 s."""

lost = pytest.mark.parametrize("how", LOSSES)


def patience_s(how: str) -> float:
    return 30.0 if how != "hang" else 50.0


@together.test
@lost
async def test_a_lost_create_gives_one_volume(place: Place, how: str):
    claim = await place.waiting_claim()
    token = token_of(claim)
    await place.cluster.fault("CreateVolume", how, when="after", match={"ClientToken": token})
    await place.choose_node(claim)

    await place.bound(timeout_s=patience_s(how))

    assert len(await place.volumes()) == 1
    sent = await place.cluster.calls(token, "CreateVolume")
    assert len(sent) == 2
    assert sent[0]["params"] == sent[1]["params"]
    assert [e["message"] for e in await place.events() if e["type"] == "Warning"] == []


@together.test
@lost
async def test_a_lost_attach_gives_one_attachment(place: Place, how: str):
    pv = await place.a_volume()
    match = {"VolumeId": handle_of(pv)}
    await place.cluster.fault("AttachVolume", how, when="after", match=match)

    attachment = await place.attachment(pv["metadata"]["name"])
    seen = await place.attached(attachment, patience_s(how))

    volume = await place.cluster.volume(handle_of(pv))
    assert volume is not None
    (there,) = volume["Attachments"]
    assert seen["status"]["attachmentMetadata"]["devicePath"] == there["Device"]
    assert len(await place.cluster.calls(handle_of(pv), "AttachVolume")) == 1


@together.test
@lost
async def test_a_lost_detach_is_noticed_and_not_asked_for_again(place: Place, how: str):
    pv = await place.a_volume()
    attachment = await place.attachment(pv["metadata"]["name"])
    await place.attached(attachment)
    match = {"VolumeId": handle_of(pv)}
    await place.cluster.fault("DetachVolume", how, when="after", match=match)

    await place.api.delete(f"{ATTACHMENTS}/{attachment}")
    await place.is_gone(f"{ATTACHMENTS}/{attachment}", patience_s(how))

    assert len(await place.cluster.calls(handle_of(pv), "DetachVolume")) == 1


@together.test
@lost
async def test_a_lost_delete_is_asked_for_again(place: Place, how: str):
    pv = await place.a_volume()
    match = {"VolumeId": handle_of(pv)}
    await place.cluster.fault("DeleteVolume", how, when="after", match=match)

    await place.remove(f"{place.claims}/data")
    await place.is_gone(f"{PVS}/{pv['metadata']['name']}", patience_s(how))

    assert await place.cluster.volume(handle_of(pv)) is None
    assert len(await place.cluster.calls(handle_of(pv), "DeleteVolume")) == 2


async def test_nothing_of_this_was_a_tight_loop(cluster: Cluster):
    await calm.assert_calm(cluster)
