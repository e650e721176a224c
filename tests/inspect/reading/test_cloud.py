"""EC2's half: many ids are asked about some calls at once, and patience ends with silence only."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest

from provisioner.ec2.calls import Ec2Calls
from provisioner.inspect.reading import cloud as module
from provisioner.inspect.reading.aws import Aws
from provisioner.inspect.reading.cloud import Cloud
from provisioner.metrics import Metrics
from provisioner.model.errors import Ec2Error, Reason
from provisioner.model.volume import Instance

IDS = [f"i-{number:017x}" for number in range(1001)]


class Ec2:
    """Answers about instances once as many calls are under way as may be."""

    region = "us-east-1"

    def __init__(self, refused: str = "") -> None:
        self.refused, self.asked, self.at_once, self.most = refused, 0, 0, 0

    async def call(self, action: str, params: Any, **_: Any) -> dict[str, Any]:
        assert action == "DescribeInstances"
        ids = params["Filters"][0]["Values"]
        assert len(ids) <= 200
        self.asked += 1
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        if self.refused in ids:
            raise Ec2Error(Reason.PERMISSION_DENIED, "no", action=action)
        return {"Instances": [Instance(each, "us-east-1a", "running", "x") for each in ids]}


def cloud_of(ec2: Ec2) -> Cloud:
    return Cloud(cast("Ec2Calls", ec2), Metrics())


async def test_many_ids_are_asked_about_in_some_calls_at_once():
    ec2 = Ec2()

    found = await cloud_of(ec2).instances(IDS)

    assert found.keys() == set(IDS)
    assert (ec2.asked, ec2.most) == (6, 6)


async def test_never_more_calls_are_under_way_than_ec2_takes_for_long():
    ec2 = Ec2()

    await cloud_of(ec2).instances(f"i-{number:017x}" for number in range(5000))

    assert (ec2.asked, ec2.most) == (25, 8)


async def test_one_call_that_is_refused_leaves_no_partial_answer():
    cloud = cloud_of(Ec2(refused=IDS[500]))

    assert await cloud.instances(IDS) == {}
    assert [(each.what, each.reason) for each in cloud.gaps] == [
        ("DescribeInstances", Reason.PERMISSION_DENIED)
    ]


async def test_an_ec2_that_is_silent_is_a_gap(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_PATIENCE_S", 0.0)
    cloud = cloud_of(Ec2())

    assert await cloud.ask("DescribeVolumes", asyncio.Future(), "none") == "none"
    assert [each.reason for each in cloud.gaps] == [Reason.TIMED_OUT]


async def test_an_ec2_that_answers_call_by_call_is_waited_for(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_PATIENCE_S", 0.0)
    metrics = Metrics()
    cloud = Cloud(cast("Ec2Calls", Ec2()), metrics)
    whole: asyncio.Future[str] = asyncio.Future()
    looks = 0

    def answered() -> int:
        nonlocal looks
        looks += 1
        if looks == 20:
            whole.set_result("all")
        return looks

    monkeypatch.setattr(cloud, "_answered", answered)

    assert await cloud.ask("DescribeVolumes", whole, "none") == "all"
    assert cloud.gaps == []


async def test_only_answers_count_as_answers():
    metrics = Metrics()
    cloud = Cloud(cast("Ec2Calls", Ec2()), metrics)
    metrics.ec2_calls.labels("DescribeVolumes", "ok").inc()
    metrics.ec2_calls.labels("DescribeVolumes", "Throttled").inc(3)

    assert cloud.sent() == {"DescribeVolumes": 4}
    assert cloud._answered() == 1


class Account:
    """AWS as boto3 has it; it tells the default key, or refuses to."""

    def __init__(self, *, refuses: bool) -> None:
        self.refuses = refuses
        self.sent: Counter[str] = Counter()
        self.is_closed = False

    async def call(self, _service: str, action: str) -> dict[str, Any]:
        self.sent[action] += 1
        if self.refuses:
            raise Ec2Error(Reason.PERMISSION_DENIED, "not authorized", action=action)
        return {"KmsKeyId": "alias/aws/ebs", "EbsEncryptionByDefault": False}

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize("refuses", [False, True])
async def test_the_default_key_is_told_or_the_missing_right_is(
    monkeypatch: pytest.MonkeyPatch, *, refuses: bool
):
    account = Account(refuses=refuses)
    monkeypatch.setattr(Aws, "of_caller", lambda _: account)
    looking = Cloud(cast("Any", SimpleNamespace(region="us-east-1")), Metrics())

    assert await looking.default_key() == ("" if refuses else "alias/aws/ebs")
    assert [each.what for each in looking.gaps] == ["GetEbsDefaultKmsKeyId"] * refuses
    assert looking.sent() == {"GetEbsDefaultKmsKeyId": 1}
    assert account.is_closed


@pytest.mark.parametrize("refuses", [False, True])
async def test_whether_the_account_encrypts_is_told_or_the_missing_right_is(
    monkeypatch: pytest.MonkeyPatch, *, refuses: bool
):
    monkeypatch.setattr(Aws, "of_caller", lambda _: Account(refuses=refuses))
    looking = Cloud(cast("Any", SimpleNamespace(region="us-east-1")), Metrics())

    assert await looking.encrypts_by_default() is (None if refuses else False)
    assert [each.what for each in looking.gaps] == ["GetEbsEncryptionByDefault"] * refuses


async def test_a_cloud_that_cannot_be_asked_has_no_default_key():
    assert await Cloud(None, Metrics()).default_key() == ""
    assert await Cloud(None, Metrics()).encrypts_by_default() is None
