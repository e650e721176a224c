"""Credentials that are late, slow, wrong or gone: calls work as soon as they do."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.client import HTTPException
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from provisioner.ec2 import botocore_client
from provisioner.ec2 import credentials as credentials_module
from provisioner.ec2.calls import Ec2Calls
from provisioner.ec2.credentials import Credentials, NoUsableCredentialsError
from provisioner.metrics import Metrics
from provisioner.model.backoff import Backoff
from provisioner.model.errors import Ec2Error, Outcome, Reason
from provisioner.sandbox.strict_ec2.client import StrictEc2, ask
from tests.ec2.aws_keys import AwsKeys, serving

ROLE = "arn:aws:iam::123456789012:role/ebs"
USABLE = "ebs_provisioner_aws_credentials_usable"


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials_module, "_AGAIN", Backoff(0.01, 0.05))
    monkeypatch.setattr(credentials_module, "_WAIT_S", 4.0)


@pytest.fixture
async def keys(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AwsKeys]:
    """The only place that has any: a metadata service and an STS."""
    await searches_ended()
    made = AwsKeys()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_EC2_METADATA_DISABLED"):
        monkeypatch.delenv(name, raising=False)
    async with serving(made) as url:
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"{url}/")
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", url)
        yield made
    await searches_ended()


async def searches_ended() -> None:
    """Wait for the searches of closed clients: they would go on at the services of the next test.

    An answer of EC2 to old keys that arrives after the new ones has another search begun.
    """
    for thread in threading.enumerate():
        if thread.name == "aws-credentials":
            await asyncio.to_thread(thread.join)


@pytest.fixture
def web_identity(
    keys: AwsKeys, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> AwsKeys:
    token = tmp_path_factory.mktemp("token") / "token"
    token.write_text("a token of the cluster")
    monkeypatch.setenv("AWS_ROLE_ARN", ROLE)
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(token))
    return keys


@asynccontextmanager
async def connected(ec2: StrictEc2, metrics: Metrics | None = None) -> AsyncIterator[Ec2Calls]:
    calls = Ec2Calls.connect(
        region="us-east-1", endpoint=ec2.endpoint, metrics=metrics or Metrics()
    )
    try:
        yield calls
    finally:
        await calls.close()


async def answered(calls: Ec2Calls) -> None:
    """Ask again until EC2 answers."""
    async with asyncio.timeout(10):
        while not await _accepted(calls):  # noqa: ASYNC110 -- only another call can tell
            await asyncio.sleep(0.01)


async def _accepted(calls: Ec2Calls) -> bool:
    try:
        await calls.call("DescribeVolumes", {})
    except Ec2Error as error:
        if error.reason is Reason.CREDENTIALS_INVALID and error.outcome is Outcome.NOTHING:
            return False
        raise
    return True


async def refused(calls: Ec2Calls) -> Ec2Error:
    with pytest.raises(Ec2Error) as caught:
        await calls.call("DescribeVolumes", {})
    assert caught.value.reason is Reason.CREDENTIALS_INVALID
    return caught.value


async def test_the_role_of_an_instance_that_knows_tokens_only_is_taken(
    keys: AwsKeys, strict_ec2: StrictEc2
):
    async with connected(strict_ec2) as calls:
        await calls.call("DescribeVolumes", {})

    assert keys.asked["PUT token"] == 1


async def test_a_first_token_that_takes_longer_than_botocore_waits_is_waited_for(
    keys: AwsKeys, strict_ec2: StrictEc2
):
    keys.trouble.token_delay_s, keys.trouble.slow_tokens = 1.2, 1
    async with connected(strict_ec2) as calls:
        await answered(calls)


async def test_a_metadata_service_that_is_away_at_the_start_is_asked_again(
    keys: AwsKeys, strict_ec2: StrictEc2
):
    metrics = Metrics()
    keys.trouble.absent = True
    async with connected(strict_ec2, metrics) as calls:
        error = await refused(calls)
        before = metrics.registry.get_sample_value(USABLE)
        keys.trouble.absent = False
        await answered(calls)

    assert "hop limit of 2" in error.message
    assert error.retry_after_s == 5
    assert before == 0
    assert metrics.registry.get_sample_value(USABLE) == 1


async def test_a_hop_limit_that_is_corrected_needs_no_restart(
    keys: AwsKeys, strict_ec2: StrictEc2, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("provisioner.ec2.botocore_client._METADATA_S", 0)  # botocore's: 1 s
    monkeypatch.setattr(credentials_module, "_WAIT_S", 5.0)
    keys.trouble.hop_limit = True
    async with connected(strict_ec2) as calls:
        assert "hop limit of 2" in (await refused(calls)).message
        keys.trouble.hop_limit = False
        await answered(calls)


async def test_an_instance_that_gets_its_role_late_needs_no_restart(
    keys: AwsKeys, strict_ec2: StrictEc2
):
    keys.trouble.has_role = False
    async with connected(strict_ec2) as calls:
        await refused(calls)
        keys.trouble.has_role = True
        await answered(calls)


async def test_keys_that_ec2_takes_for_expired_are_exchanged(keys: AwsKeys, strict_ec2: StrictEc2):
    keys.trouble.lifetime_s = -60
    strict_ec2.control(refused_keys={keys.trouble.key_id: "ExpiredToken"})
    metrics = Metrics()
    async with connected(strict_ec2, metrics) as calls:
        error = await refused(calls)
        unusable = metrics.registry.get_sample_value(USABLE)
        keys.trouble.key_id, keys.trouble.lifetime_s = "ASIANEW", 3600
        await answered(calls)

    assert "ExpiredToken" in error.message
    assert unusable == 0
    assert metrics.registry.get_sample_value(USABLE) == 1


async def test_a_web_identity_is_exchanged_at_sts(
    web_identity: AwsKeys, strict_ec2: StrictEc2, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(credentials_module, "_WAIT_S", 60.0)
    monkeypatch.setattr(botocore_client, "_STS_READ_S", 60.0)  # a slow exchange is begun anew
    async with connected(strict_ec2) as calls:
        await calls.call("DescribeVolumes", {})

    assert web_identity.asked == {"AssumeRoleWithWebIdentity": 1}


async def test_renewals_that_go_well_are_not_told(
    web_identity: AwsKeys, strict_ec2: StrictEc2, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(credentials_module, "LOOK_EVERY_S", 0.0)
    web_identity.trouble.lifetime_s = 12 * 60  # botocore renews them from the 15th minute on
    with capture_logs() as logged:
        async with connected(strict_ec2) as calls, asyncio.timeout(10):
            while web_identity.asked["AssumeRoleWithWebIdentity"] < 3:
                await calls.call("DescribeVolumes", {})

    assert [each["event"] for each in logged if each["log_level"] == "warning"] == []


async def test_what_sts_denies_is_told_and_asked_again(
    web_identity: AwsKeys, strict_ec2: StrictEc2
):
    web_identity.trouble.sts_denies = True
    async with connected(strict_ec2) as calls:
        error = await refused(calls)
        web_identity.trouble.sts_denies = False
        await answered(calls)

    assert "Not authorized to perform sts:AssumeRoleWithWebIdentity" in error.message


async def test_an_sts_that_hangs_is_given_up_soon_and_asked_again(
    web_identity: AwsKeys, strict_ec2: StrictEc2, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("provisioner.ec2.botocore_client._STS_READ_S", 0.1)
    web_identity.trouble.sts_delay_s = 60
    async with connected(strict_ec2) as calls:
        await refused(calls)
        web_identity.trouble.sts_delay_s = 0
        await answered(calls)


async def test_an_sts_that_hangs_at_a_renewal_holds_up_no_call(
    web_identity: AwsKeys, strict_ec2: StrictEc2, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(credentials_module, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(botocore_client, "_STS_READ_S", 60.0)
    web_identity.trouble.lifetime_s = 12 * 60  # botocore renews them from the 15th minute on
    async with connected(strict_ec2) as calls:
        await calls.call("DescribeVolumes", {})
        web_identity.trouble.sts_delay_s = 60
        began_s = time.monotonic()
        for _ in range(5):
            await calls.call("DescribeVolumes", {})
        took_s = time.monotonic() - began_s
        async with asyncio.timeout(10):
            while web_identity.asked["AssumeRoleWithWebIdentity"] < 2:  # noqa: ASYNC110 -- a thread
                await asyncio.sleep(0.01)

    assert took_s < 30  # one that waits for STS takes 60


async def test_keys_that_cannot_be_renewed_are_used_until_ec2_refuses_them(
    web_identity: AwsKeys, strict_ec2: StrictEc2, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(credentials_module, "LOOK_EVERY_S", 0.0)
    web_identity.trouble.lifetime_s = 60
    async with connected(strict_ec2) as calls:
        await calls.call("DescribeVolumes", {})
        web_identity.trouble.sts_denies = True
        for _ in range(5):
            await calls.call("DescribeVolumes", {})

        strict_ec2.control(refused_keys={web_identity.trouble.key_id: "ExpiredToken"})

        assert "ExpiredToken" in (await refused(calls)).message


class Finds:
    """A search that takes as long as the test wants, and counts."""

    def __init__(self, found: Any) -> None:
        self.found = found
        self.let_go = threading.Event()
        self.times = 0

    def __call__(self) -> Any:
        self.times += 1
        self.let_go.wait(10)
        return self.found

    def get_frozen_credentials(self) -> Any:
        return SimpleNamespace(access_key="ASIA1")


def test_however_many_calls_wait_one_search_is_made():
    finds = Finds(None)
    finds.found = finds
    credentials = Credentials(finds, tell=lambda _: None)
    threads = [threading.Thread(target=credentials.get_frozen_credentials) for _ in range(8)]
    for thread in threads:
        thread.start()
    finds.let_go.set()
    for thread in threads:
        thread.join()

    assert finds.times == 1
    assert credentials.key_id == "ASIA1"


def test_keys_that_come_after_hours_are_found():
    answers = iter([None] * 1100)  # each at most 15 s after the one before
    found = SimpleNamespace(get_frozen_credentials=lambda: SimpleNamespace(access_key="AKIA"))
    minutes = itertools.count(0.0, 60.0)
    credentials = Credentials(
        lambda: next(answers, found), tell=lambda _: None, clock=lambda: next(minutes)
    )

    for _ in range(1100):
        with pytest.raises(NoUsableCredentialsError):
            credentials.get_frozen_credentials()

    assert credentials.get_frozen_credentials().access_key == "AKIA"


def test_a_call_waits_a_while_for_the_first_search_and_is_then_told_so(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(credentials_module, "_WAIT_S", 0.01)
    finds = Finds(None)
    with pytest.raises(NoUsableCredentialsError, match="none were found"):
        Credentials(finds, tell=lambda _: None).get_frozen_credentials()
    finds.let_go.set()


async def test_the_services_are_told_by_their_control_endpoint_what_goes_wrong():
    async with serving(AwsKeys()) as url:
        status, _ = await asyncio.to_thread(ask, url, "/_control", b'{"absent": true}')
        assert status == 200
        with pytest.raises((ConnectionError, HTTPException)):
            await asyncio.to_thread(ask, url, "/latest/api/token")
        wrong, _ = await asyncio.to_thread(ask, url, "/_control", b'{"absnet": true}')
        await asyncio.to_thread(ask, url, "/_control", b'{"reset": true}')
        denied, _ = await asyncio.to_thread(ask, url, "/latest/meta-data/instance-id")

    assert (wrong, denied) == (400, 401)
