"""A cluster is taken over with its running workloads, and handed back with those of ours."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from provisioner.model import tags
from provisioner.sandbox.api import Api
from tests.cluster import hands, stock
from tests.cluster.background import Background
from tests.cluster.hands import ATTACHMENTS, PVS, Ec2Hand, Json
from tests.cluster.predecessors import FORMS, REGION, ZONE, Predecessors, Workload
from tests.cluster.replicas import Replica, eventually, installed
from tests.cluster.sidecars import (
    ATTACHER,
    IN_TREE,
    MIGRATED_TO,
    NODE_ID,
    PROVISIONED_BY,
    PROVISIONER,
    handle,
)
from tests.cluster.stock import Stock

PROTECTION = "kubernetes.io/pv-protection"


class House:
    """What these tests share; the namespace's name is the cluster id, too."""

    def __init__(self, background: Background, api: Api, namespace: str) -> None:
        self.api = api
        self.namespace = namespace
        self.sandbox = background.sandbox
        self.hand = Ec2Hand(background.sandbox.ec2_endpoint)
        self.before = Predecessors(api, self.hand, namespace)

    def replica(self) -> Replica:
        return Replica(self.sandbox, "--cluster-id", self.namespace, name=self.namespace)

    async def provisioned(self, name: str, class_name: str) -> Workload:
        """A pod of ours that runs with its volume attached."""
        await hands.make_claim(self.api, self.namespace, name, class_name)
        await hands.make_pod(self.api, self.namespace, name, name)
        claim: Json = {}

        async def bound() -> bool:
            claim.update(await self.api.get(f"{hands.claims_of(self.namespace)}/{name}"))
            return bool(claim["status"].get("phase") == "Bound")

        await eventually(f"{name} is Bound", bound)
        pv = claim["spec"]["volumeName"]
        made = Workload(name, pv, handle(await self.api.get(f"{PVS}/{pv}")))
        await self.attached(made)
        return made

    async def attached(self, workload: Workload) -> None:
        async def reported() -> bool:
            found = await self.before.sidecars.attached_to(workload.persistent_volume)
            return bool(found and (found[0].get("status") or {}).get("attached"))

        await eventually(f"{workload.name} is attached", reported)
        assert self.state(workload) == "in-use"

    async def detached(self, workload: Workload) -> None:
        async def gone() -> bool:
            return not await self.before.sidecars.attached_to(workload.persistent_volume)

        await eventually(f"{workload.name} is detached", gone)
        assert self.state(workload) == "available"

    async def deleted(self, workload: Workload) -> None:
        async def gone() -> bool:
            return not await hands.persistent_volumes(self.api, self.namespace)

        await eventually("all persistent volumes are gone", gone)
        assert self.state(workload) == ""

    def state(self, workload: Workload) -> str:
        """Of its volume in EC2; "" when there is none."""
        found = {v["VolumeId"]: str(v["State"]) for v in self.hand.volumes()}
        return found.get(workload.volume_id, "")

    async def remove_pod(self, name: str) -> None:
        path = f"{hands.pods_of(self.namespace)}/{name}"
        await self.api.delete(path)

        async def gone() -> bool:
            found = await hands.items(self.api, hands.pods_of(self.namespace))
            return name not in {pod["metadata"]["name"] for pod in found}

        await eventually(f"pod {name} is gone", gone)

    async def remove_claim(self, name: str) -> None:
        await self.api.delete(f"{hands.claims_of(self.namespace)}/{name}")

    def touched(self, after_s: float) -> set[str]:
        """The volumes that a call since then was to change."""
        calls = self.hand.changes(after_s=after_s)
        return {str(call["params"].get("VolumeId", "")) for call in calls} - {""}


@pytest.fixture
async def house(background: Background, api: Api, namespace: str) -> AsyncIterator[House]:
    await installed(background)
    await stock.forget(api)
    made = House(background, api, namespace)
    await hands.make_class(api, f"{namespace}-new")
    await hands.make_class(api, f"{namespace}-old", driver=IN_TREE)
    made.hand.watch()
    yield made
    made.hand.control(**hands.CALM)
    await hands.wipe(api, made.hand, namespace)
    for suffix in ("new", "old"):
        await hands.discard(api, f"{hands.CLASSES}/{namespace}-{suffix}")


async def test_workloads_of_all_predecessors_go_on_and_then_live_their_lives(house: House) -> None:
    stock_driver, zone = Stock(house.api), house.sandbox.zones[0]
    async with stock_driver.running():
        await eventually("stock leads", stock_driver.leads, 2 * stock.RETRY_S)
        old = [
            await house.before.workload(form, zone, f"/dev/xvdb{letter}")
            for form, letter in zip(FORMS, "abcd", strict=True)
        ]
        before_s = house.hand.now_s
        async with house.replica() as ours:
            for sidecar in stock_driver.sidecars:
                await stock_driver.stop(sidecar)
            await eventually("ours leads", ours.leads, 2 * stock.RETRY_S)

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
    stock_driver = Stock(house.api)
    async with stock_driver.running():
        await eventually("stock leads", stock_driver.leads, 2 * stock.RETRY_S)

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
    assert written[tags.CLUSTER] == "true"
    assert written[tags.VOLUME_NAME] == workload.persistent_volume
    assert tags.UNCLAIMED not in written


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
