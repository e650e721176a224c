"""A controller that was stopped in the middle of its work leaves it to ours, which ends it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from provisioner.sandbox.api import Api
from tests.cluster import hands, stock
from tests.cluster.adoption import House
from tests.cluster.background import Background
from tests.cluster.hands import ATTACHMENTS, PVS
from tests.cluster.predecessors import Workload
from tests.cluster.replicas import eventually
from tests.cluster.sidecars import IN_TREE, PROVISIONED_BY

HALFWAY = "/dev/xvdcx"


@pytest.fixture
async def house(background: Background, api: Api, namespace: str) -> AsyncIterator[House]:
    async with House.opened(background, api, namespace) as opened:
        yield opened


async def _device(house: House, workload: Workload) -> str:
    """What is reported of its attachment, "" while nothing is."""
    [va] = await house.before.sidecars.attached_to(workload.persistent_volume)
    path = f"{ATTACHMENTS}/{va['metadata']['name']}"
    status = (await house.api.get(path)).get("status") or {}
    return str(status.get("attachmentMetadata", {}).get("devicePath", ""))


async def _attaches(house: House, workload: Workload, after_s: float) -> int:
    calls = house.hand.changes("AttachVolume", after_s=after_s)
    return sum(call["params"]["VolumeId"] == workload.volume_id for call in calls)


@pytest.mark.parametrize("form", ["stock", "plugin"])
async def test_an_attachment_that_ec2_has_carried_out_is_reported_with_its_device(
    house: House, form: str
) -> None:
    sidecars = house.before.sidecars
    made = await house.before.waiting(form, house.sandbox.zones[0])
    if form == "plugin":  # it attached without any VolumeAttachment; Kubernetes makes one now
        await sidecars.attach_in_ec2(made.persistent_volume, HALFWAY)
    else:
        await sidecars.begin_to_attach(made.persistent_volume, HALFWAY)
    before_s = house.hand.now_s

    async with house.replica():
        await house.attached(made)

    assert await _device(house, made) == HALFWAY
    assert await _attaches(house, made, before_s) == 0


@pytest.mark.parametrize("form", ["stock", "stock-in-tree"])
async def test_what_was_detached_released_or_deleted_halfway_is_ended(
    house: House, form: str
) -> None:
    sidecars, name = house.before.sidecars, form
    made = await house.before.workload(form, house.sandbox.zones[0], HALFWAY)
    await house.remove_pod(name)
    await sidecars.begin_to_detach(made.persistent_volume)
    async with house.replica():
        await house.detached(made)

    await house.remove_claim(name)
    await sidecars.begin_to_delete(made.persistent_volume)
    assert house.state(made) == ""
    async with house.replica():
        await house.deleted(made)


@pytest.mark.parametrize("kind", ["new", "old"])
async def test_a_volume_that_stock_began_for_a_claim_is_the_claims(house: House, kind: str) -> None:
    async with house.stock_leads() as stock_driver:
        class_name = f"{house.namespace}-{kind}"
        claim = await hands.make_claim(house.api, house.namespace, "begun", class_name)
        begun = stock.begin_volume(house.hand, claim, house.sandbox.zones[1])
        async with house.ours_takes_over(stock_driver):

            async def bound() -> bool:
                return "begun" in await hands.bound(house.api, house.namespace)

            await eventually("the claim is Bound", bound)

            pv = await house.api.get(f"{PVS}/pvc-{claim['metadata']['uid']}")
            spec, annotations = pv["spec"], pv["metadata"]["annotations"]
            made = Workload("begun", pv["metadata"]["name"], begun)
            if kind == "old":
                assert spec["awsElasticBlockStore"]["volumeID"] == begun
                assert annotations[PROVISIONED_BY] == IN_TREE
            else:
                assert spec["csi"]["volumeHandle"] == begun
            named = {v["VolumeId"] for v in house.hand.volumes() if _is_of(v, made)}
            assert named == {begun}
            await house.remove_claim("begun")
            await asyncio.gather(house.deleted(made))


def _is_of(volume: hands.Json, made: Workload) -> bool:
    return hands.tags_of(volume).get("CSIVolumeName") == made.persistent_volume
