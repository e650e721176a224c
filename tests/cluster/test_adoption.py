"""A cluster is taken over with its running workloads, and handed back with those of ours."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from provisioner.model.names import MADE_BY_DRIVER, UNCLAIMED, VOLUME_NAME
from provisioner.sandbox.api import Api
from tests.cluster import hands
from tests.cluster.adoption import House
from tests.cluster.background import Background
from tests.cluster.hands import ATTACHMENTS, PVS, Json
from tests.cluster.predecessors import FORMS, REGION, ZONE, Workload
from tests.cluster.replicas import eventually
from tests.cluster.sidecars import (
    ATTACHER,
    IN_TREE,
    MIGRATED_TO,
    NODE_ID,
    PROVISIONED_BY,
    PROVISIONER,
)

PROTECTION = "kubernetes.io/pv-protection"


@pytest.fixture
async def house(background: Background, api: Api, namespace: str) -> AsyncIterator[House]:
    async with House.opened(background, api, namespace) as opened:
        yield opened


async def test_workloads_of_all_predecessors_go_on_and_then_live_their_lives(house: House) -> None:
    zone = house.sandbox.zones[0]
    async with house.stock_leads() as stock_driver:
        old = [
            await house.before.workload(form, zone, f"/dev/xvdb{letter}")
            for form, letter in zip(FORMS, "abcd", strict=True)
        ]
        before_s = house.hand.now_s
        async with house.ours_takes_over(stock_driver):
            # What runs is left alone, while a volume of ours is made and attached beside it.
            new = await house.provisioned("new", f"{house.namespace}-old")
            assert house.touched(before_s) == {new.volume_id}
            for each in old:
                assert house.state(each) == "in-use"

            # The pods end, come back, and end for good.
            for each in old:
                await house.remove_pod(each.name)
            await asyncio.gather(*(house.detached(each) for each in old))
            for each in old:
                await hands.make_pod(house.api, house.namespace, each.name, each.name)
            await asyncio.gather(*(house.attached(each) for each in old))
            for each in (*old, new):
                await house.remove_pod(each.name)
                await house.remove_claim(each.name)
            await asyncio.gather(*(house.deleted(each) for each in (*old, new)))


async def test_workloads_of_ours_are_handed_back_as_the_stock_driver_would_have_left_them(
    house: House,
) -> None:
    async with house.replica() as ours:
        await eventually("ours leads", ours.leads)
        made = {
            kind: await house.provisioned(kind, f"{house.namespace}-{kind}")
            for kind in ("new", "old")
        }
        assert await ours.terminate() == 0
    async with house.stock_leads():
        await _nothing_holds_it_that_stock_does_not_know(house, made["new"], {})
        region = house.sandbox.region
        zone = next(z for z in house.sandbox.zones if z.startswith(region))
        found = await house.api.get(f"{PVS}/{made['old'].persistent_volume}")
        assert found["metadata"]["labels"][REGION] == region
        assert found["metadata"]["labels"][ZONE][:-1] == zone[:-1]
        assert found["spec"]["awsElasticBlockStore"]["volumeID"] == made["old"].volume_id
        moved = {PROVISIONED_BY: IN_TREE, MIGRATED_TO: hands.DRIVER}
        await _nothing_holds_it_that_stock_does_not_know(house, made["old"], moved)

        # The stock sidecars do all the rest.
        for each in made.values():
            await house.remove_pod(each.name)
            await house.before.sidecars.detach(each.persistent_volume)
            await house.detached(each)
            await house.remove_claim(each.name)
            await house.before.sidecars.delete(each.persistent_volume)
        await asyncio.gather(*(house.deleted(each) for each in made.values()))


async def _nothing_holds_it_that_stock_does_not_know(
    house: House, workload: Workload, annotated: dict[str, str]
) -> None:
    pv = await house.api.get(f"{PVS}/{workload.persistent_volume}")
    assert set(pv["metadata"]["finalizers"]) == {PROVISIONER, ATTACHER, PROTECTION}
    for key, value in (annotated or {PROVISIONED_BY: hands.DRIVER}).items():
        assert pv["metadata"]["annotations"][key] == value
    [va] = [
        each
        for each in await hands.items(house.api, ATTACHMENTS)
        if each["spec"]["source"].get("persistentVolumeName") == workload.persistent_volume
    ]
    [volume] = [v for v in house.hand.volumes() if v["VolumeId"] == workload.volume_id]
    [attachment] = volume["Attachments"]
    assert va["metadata"]["finalizers"] == [ATTACHER]
    assert va["metadata"]["annotations"][NODE_ID] == attachment["InstanceId"]
    assert va["status"]["attachmentMetadata"]["devicePath"] == attachment["Device"]
    # Its IAM policy lets the stock driver touch what has this tag; by the name it finds volumes.
    written = hands.tags_of(volume)
    assert written[MADE_BY_DRIVER] == "true"
    assert written[VOLUME_NAME] == workload.persistent_volume
    assert UNCLAIMED not in written


async def test_an_old_class_may_name_its_zone_or_wait_for_a_pod(house: House) -> None:
    zone = house.sandbox.zones[2]
    kinds = {"zoned": {"zone": zone}, "waiting": {}}
    for kind, parameters in kinds.items():
        body = {
            "metadata": {"name": f"{house.namespace}-{kind}"},
            "provisioner": IN_TREE,
            "parameters": {"type": "gp2", **parameters},
            "volumeBindingMode": "Immediate" if parameters else "WaitForFirstConsumer",
        }
        await house.api.create(hands.CLASSES, body)
    try:
        async with house.replica():
            made = [await house.provisioned(kind, f"{house.namespace}-{kind}") for kind in kinds]

            zones = {v["VolumeId"]: v["AvailabilityZone"] for v in house.hand.volumes()}
            assert zones[made[0].volume_id] == zone
            for each in made:
                pv = await house.api.get(f"{PVS}/{each.persistent_volume}")
                assert pv["metadata"]["labels"][ZONE] == zones[each.volume_id]
                await house.remove_pod(each.name)
                await house.remove_claim(each.name)
            await asyncio.gather(*(house.deleted(each) for each in made))
    finally:
        for kind in kinds:
            await hands.discard(house.api, f"{hands.CLASSES}/{house.namespace}-{kind}")


async def test_a_volume_that_a_pod_itself_names_is_attached_and_detached(house: House) -> None:
    zone = house.sandbox.zones[1]
    made = house.hand.ec2.create_volume(AvailabilityZone=zone, Size=4)
    volume_id = str(made["VolumeId"])
    inline = {"volumeID": f"aws:///{volume_id}", "fsType": "ext4"}
    pod = {
        "metadata": {"name": "old"},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": {ZONE: zone},
            "containers": [{"name": "main", "image": "main"}],
            "volumes": [{"name": "data", "awsElasticBlockStore": inline}],
        },
    }

    async def named() -> list[Json]:
        """The attachments that have the volume in themselves."""
        return [
            each
            for each in await hands.items(house.api, ATTACHMENTS)
            for inline in [each["spec"]["source"].get("inlineVolumeSpec") or {}]
            if inline.get("csi", {}).get("volumeHandle") == volume_id
        ]

    async def attached() -> bool:
        return any((each.get("status") or {}).get("attached") for each in await named())

    async def detached() -> bool:
        return not await named()

    try:
        async with house.replica():
            await house.api.create(hands.pods_of(house.namespace), pod)
            await eventually("the volume is attached", attached)
            assert house.state(Workload("old", "", volume_id)) == "in-use"
            await house.remove_pod("old")
            await eventually("the volume is detached", detached)
            assert house.state(Workload("old", "", volume_id)) == "available"
    finally:
        house.hand.remove([volume_id])


async def test_a_volume_that_backs_another_namespaces_claim_is_not_attached_by_its_id(
    house: House,
) -> None:
    zone = house.sandbox.zones[1]
    volume_id = str(house.hand.ec2.create_volume(AvailabilityZone=zone, Size=4)["VolumeId"])
    name = f"{house.namespace}-ledger"
    persistent_volume = {
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "4Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": "bank", "name": "ledger"},
            "csi": {"driver": hands.DRIVER, "volumeHandle": volume_id},
        },
    }
    inline = {"volumeID": f"aws:///{volume_id}", "fsType": "ext4"}
    pod = {
        "metadata": {"name": "thief"},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": {ZONE: zone},
            "containers": [{"name": "main", "image": "main"}],
            "volumes": [{"name": "data", "awsElasticBlockStore": inline}],
        },
    }

    async def told() -> str:
        found = await hands.items(house.api, ATTACHMENTS)
        errors = [(each.get("status") or {}).get("attachError") or {} for each in found]
        messages = [each.get("message", "") for each in errors]
        return next((each for each in messages if volume_id in each), "")

    try:
        await house.api.create(PVS, persistent_volume)
        async with house.replica():
            await house.api.create(hands.pods_of(house.namespace), pod)
            message = await eventually("the attachment is refused", told)
            assert "a pod of another namespace names it" in message
            assert "bank" not in message
            assert house.state(Workload("thief", "", volume_id)) == "available"
            await house.remove_pod("thief")
    finally:
        await hands.discard(house.api, f"{PVS}/{name}")
        house.hand.remove([volume_id])
