"""Nothing is believed of an EC2 that is not the cluster's, and nobody leads without credentials."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from provisioner.controller.app import Controller
from provisioner.controller.ownership import aws_access as aws_access_module
from provisioner.controller.ownership.aws_access import AwsAccess
from provisioner.controller.shared.settings import Settings
from provisioner.ec2 import account_rules
from provisioner.ec2.calls import Ec2Calls
from provisioner.kube.client import KubeClient
from provisioner.metrics import Metrics
from provisioner.model.errors import Ec2Error, Reason
from provisioner.model.node import NodeSpec
from provisioner.sandbox.strict_ec2.client import CREDENTIALS, StrictEc2
from tests.builders import UID, a_node, a_persistent_volume
from tests.ec2.aws_keys import AwsKeys, serving
from tests.sandbox.lab import Lab, client

KEY = CREDENTIALS["AWS_ACCESS_KEY_ID"]
ELSEWHERE = "eu-central-1"


@pytest.fixture(autouse=True)
def looks_often(aws_environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aws_access_module, "LOOK_EVERY_S", 0.01)


@pytest.fixture
def lab(strict_ec2: StrictEc2) -> Lab:
    return Lab(client(strict_ec2.endpoint), strict_ec2.control)


class Process:
    """A controller that asks EC2 in a Region, and knows what the test tells its caches."""

    def __init__(self, ec2: StrictEc2, region: str = "us-east-1") -> None:
        self.calls = Ec2Calls.connect(region=region, endpoint=ec2.endpoint, metrics=Metrics())
        kube = cast("KubeClient", None)
        self.controller = Controller(Settings(), kube, kube, self.calls, Metrics())
        self.aws_access: AwsAccess = self.controller.aws_access
        self.controller.leading.set()
        self.calls.may_change = lambda: True
        self._version = 0

    def knows_node(self, instance_id: str, zone: str = "us-east-1a", name: str = "node-1") -> None:
        self._version += 1
        node = a_node(name, version=str(self._version))
        node = replace(node, spec=NodeSpec(provider_id=f"aws:///{zone}/{instance_id}"))
        self.controller.caches.nodes._store.apply(node)

    def knows_volume(
        self, volume_id: str, zone: str = "us-east-1a", name: str = f"pvc-{UID}"
    ) -> None:
        volume = a_persistent_volume(name, handle=volume_id)
        labels = {"topology.kubernetes.io/zone": zone}
        volume = replace(volume, metadata=replace(volume.metadata, labels=labels))
        self.controller.caches.persistent_volumes._store.apply(volume)

    async def fit(self) -> str:
        """Why it is not; "" if it is."""
        if await self.aws_access._unusable() is None:
            await self.aws_access.granted()
        return self.aws_access.why_not


@pytest.fixture
async def made(strict_ec2: StrictEc2) -> AsyncIterator[Any]:
    processes: list[Process] = []

    def make(region: str = "us-east-1") -> Process:
        processes.append(Process(strict_ec2, region))
        return processes[-1]

    yield make
    for each in processes:
        await each.controller.services.close()
        await each.calls.close()


async def refusal(work: Any) -> Ec2Error:
    with pytest.raises(Ec2Error) as caught:
        await work
    return caught.value


async def test_in_another_region_no_volume_is_deleted_and_none_detached(made: Any, lab: Lab):
    volume, instance = lab.volume(), lab.instance()
    process = made(ELSEWHERE)
    process.knows_node(instance)
    process.knows_volume(volume)

    deletion = await refusal(process.controller.services.volumes.delete(volume))
    detachment = await refusal(process.controller.services.instances.detach(volume, instance))
    look = await refusal(process.controller.services.instances.instance(instance))

    assert {each.reason for each in (deletion, detachment, look)} == {Reason.WRONG_CLOUD}
    assert "asked in eu-central-1, but Node node-1 is in us-east-1a" in deletion.message
    assert lab.state(volume) == "available"


async def test_in_another_account_no_volume_is_deleted_and_none_detached(
    made: Any, lab: Lab, strict_ec2: StrictEc2, monkeypatch: pytest.MonkeyPatch
):
    volume, instance = lab.volume(), lab.instance()
    strict_ec2.control(accounts={"AKIAOTHER": "210987654321"})
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAOTHER")
    process = made()
    process.knows_node(instance)
    process.knows_volume(volume)

    deletion = await refusal(process.controller.services.volumes.delete(volume))
    detachment = await refusal(process.controller.services.instances.detach(volume, instance))

    assert {deletion.reason, detachment.reason} == {Reason.WRONG_CLOUD}
    assert f"(2 looked up, such as {instance})" in deletion.message


async def test_what_is_gone_from_the_clusters_own_account_is_gone(made: Any, lab: Lab):
    volume, instance = lab.volume(), lab.instance()
    process = made()
    process.knows_node(instance)
    process.knows_volume(volume)
    lab.ec2.delete_volume(VolumeId=volume)

    await process.controller.services.volumes.delete(volume)

    detachment = await refusal(process.controller.services.instances.detach(volume, instance))
    assert detachment.reason is Reason.VOLUME_NOT_FOUND


async def test_a_volume_that_is_found_proves_as_much_as_an_instance(made: Any, lab: Lab):
    gone, there = lab.volume(), lab.volume()
    lab.ec2.delete_volume(VolumeId=gone)
    process = made()
    process.knows_node("i-00000000000000bad")
    process.knows_volume(there)

    await process.controller.services.volumes.delete(gone)


async def test_a_proof_is_asked_for_once(made: Any, lab: Lab, strict_ec2: StrictEc2):
    process = made()
    process.knows_node(lab.instance())
    await asyncio.gather(
        *(process.controller.services.volumes.delete(f"vol-{n:017x}") for n in range(5))
    )

    assert strict_ec2.counts()["DescribeInstances"] == 1


async def test_many_that_are_not_believed_have_it_looked_for_once(
    made: Any, lab: Lab, strict_ec2: StrictEc2, monkeypatch: pytest.MonkeyPatch
):
    strict_ec2.control(accounts={"AKIAOTHER": "210987654321"})
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAOTHER")
    process = made()
    process.knows_node(lab.instance())
    volumes = process.controller.services.volumes

    for each in [volumes.delete(f"vol-{n:017x}") for n in range(5)]:
        assert (await refusal(each)).reason is Reason.WRONG_CLOUD

    assert strict_ec2.counts()["DescribeInstances"] == 1


async def test_an_ec2_that_cannot_prove_it_is_not_believed(
    made: Any, lab: Lab, strict_ec2: StrictEc2
):
    process = made()
    process.knows_node(lab.instance())
    denied = {"do": "error", "code": "UnauthorizedOperation", "message": "no", "http_status": 403}
    strict_ec2.control(faults=[{"action": "DescribeInstances", **denied}])

    deletion = await refusal(process.controller.services.volumes.delete("vol-0123456789abcdef0"))

    assert deletion.reason is Reason.PERMISSION_DENIED
    assert "not trusted" in deletion.message


async def test_nobody_leads_in_another_region_until_it_is_corrected(made: Any, lab: Lab):
    process = made(ELSEWHERE)
    process.knows_node(lab.instance())

    assert "asked in eu-central-1" in await process.fit()

    process.knows_node("i-0123456789abcdef0", zone="eu-central-1a")  # of no such account
    assert "knows none of this cluster" in await process.fit()


async def test_who_asks_in_the_clusters_account_may_lead(made: Any, lab: Lab):
    process = made()
    process.knows_node(lab.instance())

    assert await process.fit() == ""


async def test_one_node_in_the_region_is_enough(made: Any, lab: Lab):
    process = made()
    process.knows_node(lab.instance())
    process.knows_node("i-0123456789abcdef0", zone="eu-west-1a", name="elsewhere")

    assert await process.fit() == ""


async def test_a_cluster_that_knows_nothing_of_ec2_yet_may_be_led(made: Any):
    assert await made().fit() == ""


@pytest.mark.parametrize(
    ("zone", "why"),
    [("us-east-1a", "knows none of this cluster"), ("eu-west-1a", "is in eu-west-1a")],
)
async def test_what_volumes_alone_seem_to_say_keeps_nobody_from_leading(
    made: Any, zone: str, why: str
):
    """They may be deleted or left over; Nodes tell nothing before our ``--initialize-nodes``."""
    process = made()
    process.knows_volume("vol-0123456789abcdef0", zone=zone)

    assert await process.fit() == ""

    deletion = await refusal(process.controller.services.volumes.delete("vol-0123456789abcdef0"))
    assert deletion.reason is Reason.WRONG_CLOUD
    assert why in deletion.message


@pytest.mark.parametrize("region", ["us-east-1", ELSEWHERE])
async def test_the_proof_goes_through_all_volumes_in_slices(
    made: Any, region: str, monkeypatch: pytest.MonkeyPatch
):
    process = made(region)
    for number in range(5_000):
        process.knows_volume(f"vol-{number:017x}", name=f"pvc-{number}")
    most: Counter[str] = Counter()

    def counted(name: str) -> None:
        rule = getattr(account_rules, name)

        def counts(volumes: list[Any], *more: Any) -> Any:
            most[name] = max(most[name], len(volumes))
            return rule(volumes, *more)

        monkeypatch.setattr(account_rules, name, counts)

    counted("newest_volumes")
    counted("regions_of_volumes")

    deletion = await refusal(process.controller.services.volumes.delete("vol-0123456789abcdef0"))

    assert deletion.reason is Reason.WRONG_CLOUD
    assert "(100 looked up" in deletion.message or region == ELSEWHERE
    assert most == {"newest_volumes": 2_100, "regions_of_volumes": 2_000}


async def test_whom_ec2_refuses_does_not_lead_where_volumes_seem_to_be_elsewhere(
    made: Any, strict_ec2: StrictEc2
):
    strict_ec2.control(refused_keys={KEY: "ExpiredToken"})
    process = made()
    process.knows_volume("vol-0123456789abcdef0", zone="eu-west-1a")

    assert "ExpiredToken" in await process.fit()


async def test_an_ec2_that_does_not_answer_keeps_nobody_from_leading(
    made: Any, lab: Lab, strict_ec2: StrictEc2, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(aws_access_module, "_ASK_S", 0.1)
    process = made()
    process.knows_node(lab.instance())
    strict_ec2.control(faults=[{"action": "DescribeInstances", "do": "hang"}])

    with capture_logs() as logged:
        assert [await process.fit(), await process.fit()] == ["", ""]
    strict_ec2.reset()

    told = [each for each in logged if "cannot verify yet" in each["event"]]
    assert [each["error"] for each in told] == ["EC2 gave no answer within 0 s"]


async def test_who_has_no_credentials_waits_for_them_and_says_so(
    made: Any, lab: Lab, monkeypatch: pytest.MonkeyPatch
):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_EC2_METADATA_DISABLED"):
        monkeypatch.delenv(name)
    keys = AwsKeys()
    keys.trouble.has_role = False
    async with serving(keys) as url:
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"{url}/")
        process = made()
        process.knows_node(lab.instance())
        waiting = asyncio.create_task(process.aws_access.granted())
        async with asyncio.timeout(10):
            while not process.aws_access.why_not:  # noqa: ASYNC110 -- it has no event
                await asyncio.sleep(0.01)
            assert "no AWS credentials" in process.aws_access.why_not
            assert not waiting.done()

            keys.trouble.has_role = True
            await waiting

    assert process.aws_access.why_not == ""


async def test_whom_ec2_refuses_does_not_lead(made: Any, strict_ec2: StrictEc2):
    strict_ec2.control(refused_keys={KEY: "ExpiredToken"})

    assert "ExpiredToken" in await made().fit()


async def test_a_leader_whose_credentials_stay_refused_leads_no_more(
    made: Any, strict_ec2: StrictEc2, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(aws_access_module, "GIVE_UP_S", 0.2)
    process = made()
    assert await process.fit() == ""
    lost = asyncio.create_task(process.aws_access.lost())
    strict_ec2.control(refused_keys={KEY: "ExpiredToken"})
    await refusal(process.calls.call("DescribeVolumes", {}))  # somebody works

    async with asyncio.timeout(30):
        error = await lost

    assert error.reason is Reason.CREDENTIALS_INVALID
    assert "ExpiredToken" in error.message


async def test_a_leader_bears_a_short_refusal(
    made: Any, strict_ec2: StrictEc2, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(aws_access_module, "GIVE_UP_S", 0.5)
    process = made()
    lost = asyncio.create_task(process.aws_access.lost())
    strict_ec2.control(refused_keys={KEY: "ExpiredToken"})
    await refusal(process.calls.call("DescribeVolumes", {}))
    await asyncio.sleep(0.1)
    strict_ec2.control(refused_keys={})
    await asyncio.sleep(0.7)

    assert not lost.done()
    lost.cancel()
