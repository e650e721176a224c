"""The look-up of zones on an EC2 that throttles, refuses, or is not there."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from provisioner.ec2 import calls as calls_module
from provisioner.ec2.calls import Ec2Calls
from provisioner.ec2.volumes import Volumes
from provisioner.sandbox.strict_ec2.client import CREDENTIALS, StrictEc2
from tests.ec2.builders import ZONE, a_request
from webhook.metrics import WebhookMetrics
from webhook.reviews.persistent_volume_rules import Doubt, Found, Missing
from webhook.reviews.zone_lookup import ZoneLookup

GONE = "vol-0123456789abcdef0"
SILENT = "it is throttling the account's calls, or cannot be reached"


@pytest.fixture
async def calls(strict_ec2: StrictEc2, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Ec2Calls]:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    made = Ec2Calls.connect(
        region="us-east-1", endpoint=strict_ec2.endpoint, metrics=WebhookMetrics()
    )
    yield made
    await made.close()


@pytest.fixture
async def lookup(calls: Ec2Calls) -> AsyncIterator[ZoneLookup]:
    made = ZoneLookup(Volumes(calls), WebhookMetrics())
    yield made
    await made.close()


@pytest.fixture
async def volume_id(calls: Ec2Calls) -> str:
    return (await Volumes(calls).create(a_request())).volume_id


def in_s(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


async def test_what_is_there_and_what_is_not_are_told_apart_in_one_call(
    lookup: ZoneLookup, volume_id: str, strict_ec2: StrictEc2
):
    strict_ec2.control(reset_counts=True)

    found, missing = await asyncio.gather(
        lookup.zone(volume_id, deadline=in_s(30)), lookup.zone(GONE, deadline=in_s(30))
    )

    assert (found, missing) == (Found(ZONE), Missing())
    assert strict_ec2.counts() == {"DescribeVolumes": 2}  # the second asks again for what is gone


async def test_a_throttled_question_is_a_doubt_and_answered_when_ec2_lets_it_through(
    lookup: ZoneLookup, volume_id: str, strict_ec2: StrictEc2
):
    strict_ec2.control(throttle={"DescribeVolumes": [0.5, 0.001]})
    doubt = await lookup.zone(volume_id, deadline=in_s(0.3))
    strict_ec2.control(throttle="none")

    assert isinstance(doubt, Doubt)
    assert doubt.why == f"EC2 did not return the zone of {volume_id} within 0.3 s: {SILENT}"
    assert strict_ec2.throttled()["DescribeVolumes"] > 0
    assert await lookup.zone(volume_id, deadline=in_s(10)) == Found(ZONE)


async def test_a_refusal_is_a_doubt_that_names_the_missing_right(
    lookup: ZoneLookup, volume_id: str, strict_ec2: StrictEc2
):
    refused = {"action": "DescribeVolumes", "do": "error", "http_status": 403}
    strict_ec2.control(faults=[refused | {"code": "UnauthorizedOperation"}])

    doubt = await lookup.zone(volume_id, deadline=in_s(30))

    assert doubt == Doubt("EC2 denies ec2:DescribeVolumes to the webhook's IAM role")


async def test_an_ec2_that_is_not_there_holds_nobody_up(monkeypatch: pytest.MonkeyPatch):
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(calls_module, "READ_AGAIN_S", (60.0,))
    calls = Ec2Calls.connect(
        region="us-east-1", endpoint="http://127.0.0.1:9", metrics=WebhookMetrics()
    )
    lookup = ZoneLookup(Volumes(calls), WebhookMetrics())
    until = in_s(0.5)

    doubt = await lookup.zone(GONE, deadline=until)

    assert isinstance(doubt, Doubt)
    assert in_s(0) - until < 20  # EC2 is asked for 42 s at least: its pause is 0.7 of 60 s or more
    await lookup.close()
    await calls.close()
