"""EC2 refuses: the user is told what and why, and it goes on once EC2 says yes.

Every fault is bound to one story's client token or volume, so that all run at the same time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from botocore.exceptions import ClientError

from tests.cluster import calm
from tests.cluster.cluster import (
    ATTACHMENTS,
    SELECTED_NODE,
    Cluster,
    Json,
    handle_of,
    token_of,
)
from tests.cluster.place import Place, a_place, away_from
from tests.cluster.refusals import OVER_QUOTA, creates, let_go, look_again, refuse
from tests.cluster.together import Stories, Together
from tests.sandbox import lab

pytestmark = pytest.mark.asyncio(loop_scope="module")
together = Together()

SLOWLY_S = 150.0
"""Where a human has to act, the next try comes after a minute; a look for what may exist takes one."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stuck(cluster: Cluster) -> AsyncIterator[dict[str, tuple[Place, str, str]]]:
    """An attachment that stays attaching and one that stays busy: made while nothing else runs."""
    async with a_place(cluster) as attaching, a_place(cluster) as detaching:
        pv = await attaching.a_volume()
        await cluster.control(stuck_attaching=1)
        slow = await attaching.attachment(pv["metadata"]["name"])
        await attaching.is_requested(handle_of(pv), "AttachVolume")

        other = await detaching.a_volume()
        busy = await detaching.attachment(other["metadata"]["name"])
        await detaching.attached(busy)
        await cluster.control(stuck_detaching=1)
        await cluster.api.delete(f"{ATTACHMENTS}/{busy}")
        await detaching.is_requested(handle_of(other), "DetachVolume")
        yield {
            "attaching": (attaching, slow, handle_of(pv)),
            "detaching": (detaching, busy, handle_of(other)),
        }
        with contextlib.suppress(ClientError):  # unless its story has ended well
            await let_go(cluster, handle_of(other))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broken(cluster: Cluster) -> AsyncIterator[tuple[Place, Json]]:
    """A claim whose first volume ends in state error: asked for while nothing else is."""
    async with a_place(cluster) as place:
        claim = await place.waiting_claim()
        await cluster.control(failing_creates=1)
        await place.choose_node(claim)
        await place.is_requested(token_of(claim), "CreateVolume")
        yield place, claim


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stories(
    cluster: Cluster, stuck: object, broken: object, request: pytest.FixtureRequest
) -> AsyncIterator[Stories]:
    async with together.started(lambda: a_place(cluster), request) as running:
        yield running


# -- soon


@together.test
@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [("InsufficientVolumeCapacity", 500, "gp2"), ("VolumeTypeNotAvailableInZone", 400, "standard")],
)
async def test_a_zone_without_room_is_told_and_the_pod_lands_elsewhere(
    place: Place, code: str, status: int, kind: str
):
    # A type of its own: what others were refused counts, too.
    await place.storage_class("waits", waits=True, parameters={"type": kind})
    claim = await place.waiting_claim()
    # Without that, the scheduler would choose the zone again for as long as its nodes are emptiest.
    pod = await place.pod(claim, gated=True, affinity=away_from("us-east-1a"))
    match = {"ClientToken": token_of(claim), "AvailabilityZone": "us-east-1a"}
    await refuse(place, claim, n=100, match=match, code=code, http_status=status)

    await place.choose_node(claim)
    await place.told(code, "us-east-1a", "another zone")

    async def dropped() -> bool:
        found = await place.api.get(f"{place.claims}/data")
        return SELECTED_NODE not in found["metadata"]["annotations"]

    await place.cluster.until("another node is requested", dropped)
    await place.lift_gate(pod)
    pv = await place.bound()
    volume = await place.cluster.volume(handle_of(pv))
    assert volume is not None
    assert volume["AvailabilityZone"] != "us-east-1a"


@together.test
async def test_a_full_quota_for_a_create_that_was_carried_out_finds_its_volume(place: Place):
    claim = await place.waiting_claim()
    await refuse(place, claim, do="reset", when="after")
    await refuse(place, claim, **OVER_QUOTA)
    await place.choose_node(claim)

    await place.bound()
    assert len(await place.volumes()) == 1
    assert await creates(place, claim) == 2


async def test_a_volume_that_ends_in_error_is_deleted_and_made_again(
    cluster: Cluster, stories: Stories, broken: tuple[Place, Json]
):
    place, claim = broken

    pv = await place.bound()

    assert await place.volumes() == [handle_of(pv)]
    made = await cluster.calls(f"pvc-{claim['metadata']['uid']}", "CreateVolume")
    assert len({call["params"]["ClientToken"] for call in made}) == len(made) == 2


@together.test
async def test_a_device_name_that_is_in_use_is_replaced_by_another(place: Place):
    pv = await place.a_volume()
    match = {"VolumeId": handle_of(pv)}
    text = (
        "Invalid value '/dev/xvdaa' for unixDevice. Attachment point /dev/xvdaa is already in use"
    )
    fault: Json = {"code": "InvalidParameterValue", "message": text, "http_status": 400}
    await place.cluster.fault("AttachVolume", match=match, **fault)

    attachment = await place.attachment(pv["metadata"]["name"])
    await place.attached(attachment)

    tried = await place.cluster.calls(handle_of(pv), "AttachVolume")
    assert len({call["params"]["Device"] for call in tried}) == len(tried) == 2
    seen = await place.api.get(f"{ATTACHMENTS}/{attachment}")
    assert "attachError" not in seen["status"]


@together.test
async def test_an_attachment_waits_until_the_mark_is_off(place: Place):
    claim = await place.waiting_claim()
    token = token_of(claim)
    how: Json = {"do": "delay", "when": "after", "delay_s": 2.0}
    await place.cluster.fault("CreateVolume", match={"ClientToken": token}, **how)
    await place.choose_node(claim)
    (volume_id,) = await place.cluster.until("the volume is in EC2", place.volumes)
    await place.cluster.fault("DeleteTags", n=2, match={"ResourceId": volume_id})

    pv = await place.bound()
    attachment = await place.attachment(pv["metadata"]["name"])
    await place.attach_error(attachment, "DeleteTags", "InternalError")
    await place.attached(attachment)

    log = await place.cluster.calls(volume_id)
    ends = [each for each in log if each["action"] in ("DeleteTags", "AttachVolume")]
    assert [(each["action"], each["outcome"]) for each in ends] == [
        ("DeleteTags", "fault:error"),
        ("DeleteTags", "fault:error"),
        ("DeleteTags", "ok"),
        ("AttachVolume", "ok"),
    ]


async def test_throttling_is_never_told_as_a_failure(cluster: Cluster, stories: Stories):
    """By itself: all creates share one limiter, which it slows down."""
    async with a_place(cluster) as place:
        claims = [await place.waiting_claim(f"data-{number}") for number in range(8)]
        for claim in claims:
            await refuse(
                place,
                claim,
                n=1,
                code="RequestLimitExceeded",
                message="Request limit exceeded.",
                http_status=503,
            )
        for claim in claims:
            await place.choose_node(claim)

        for claim in claims:
            await place.bound(claim["metadata"]["name"])
            events = await place.events(claim["metadata"]["name"])
            assert [each["message"] for each in events if each["type"] == "Warning"] == []
        assert len(await place.volumes()) == len(claims)


# -- after a minute or more


@together.test
async def test_a_full_quota_is_named_and_tried_again_once_nothing_can_exist(place: Place):
    claim = await place.waiting_claim()
    await refuse(place, claim, **OVER_QUOTA)
    await place.choose_node(claim)

    await place.told("gp3 storage limit of 50 TiB", "Service Quotas")

    async def certain() -> bool:
        return bool(place.cluster.said(claim["metadata"]["uid"], "QuotaExceeded", "will try again"))

    await place.cluster.until("it is certain that there is no volume", certain, SLOWLY_S)
    assert await creates(place, claim) == 1
    await look_again(place, "waits")
    await place.bound()
    assert await creates(place, claim) == 2


@together.test
async def test_a_missing_permission_is_named_without_the_encoded_text(place: Place):
    claim = await place.waiting_claim()
    text = (
        "You are not authorized to perform this operation. User: arn:aws:sts::1:assumed-role/ebs "
        "is not authorized to perform: ec2:CreateVolume on resource: arn:aws:ec2:us-east-1:1:volume"
        "/* because no identity-based policy allows it. Encoded authorization failure message: "
        "c2VjcmV0"
    )
    await refuse(place, claim, code="UnauthorizedOperation", message=text, http_status=403)
    await place.choose_node(claim)

    event = await place.told("allow ec2:CreateVolume", "IAM role")
    assert "c2VjcmV0" not in event["message"]

    await place.bound(timeout_s=SLOWLY_S)
    assert await creates(place, claim) == 2


@together.test
async def test_a_key_that_ec2_takes_and_cannot_use_is_named_until_it_works(place: Place):
    alias = f"alias/{place.name}"
    key = f"arn:aws:kms:us-east-1:123456789012:{alias}"
    await place.storage_class(parameters={"type": "gp3", "encrypted": "true", "kmsKeyId": key})
    claim = await place.claim(f"{place.name}-class")

    await place.told(key, "kms:CreateGrant", timeout_s=90)
    assert await creates(place, claim) == 1

    kms = lab.client(place.cluster.sandbox.ec2_endpoint, service="kms")
    made = await asyncio.to_thread(kms.create_key)
    await asyncio.to_thread(
        kms.create_alias, AliasName=alias, TargetKeyId=made["KeyMetadata"]["KeyId"]
    )
    await look_again(place, "class")
    pv = await place.bound()
    volume = await place.cluster.volume(handle_of(pv))
    assert volume is not None
    assert volume["Encrypted"]


async def test_an_attachment_that_hangs_is_taken_back_and_made_again(
    cluster: Cluster, stories: Stories, stuck: dict[str, tuple[Place, str, str]]
):
    place, attachment, volume_id = stuck["attaching"]

    await place.attached(attachment, timeout_s=SLOWLY_S)

    calls = await cluster.calls(volume_id, "*tachVolume")
    assert [each["action"] for each in calls] == ["AttachVolume", "DetachVolume", "AttachVolume"]
    await place.remove(f"{ATTACHMENTS}/{attachment}")


async def test_a_detachment_that_hangs_is_told_and_ends_once_the_instance_lets_go(
    cluster: Cluster, stories: Stories, stuck: dict[str, tuple[Place, str, str]]
):
    place, attachment, volume_id = stuck["detaching"]

    async def told() -> Json | None:
        found = await place.api.get(f"{ATTACHMENTS}/{attachment}")
        error: Json = found["status"].get("detachError") or {}
        return error if "unmount" in error.get("message", "") else None

    await cluster.until("a detachError", told, SLOWLY_S)
    await let_go(cluster, volume_id)
    await place.is_gone(f"{ATTACHMENTS}/{attachment}")


async def test_nothing_of_this_was_a_tight_loop(cluster: Cluster, stories: Stories):
    await calm.assert_calm(cluster)
