import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from provisioner.ec2.calls import Ec2Calls
from provisioner.ec2.rate_option import parse_rates
from provisioner.ec2.volumes import Volumes
from provisioner.metrics import Metrics
from provisioner.model.errors import Ec2Error, Outcome, Reason
from provisioner.sandbox.strict_ec2.client import StrictEc2
from tests.ec2.builders import a_request

LOSSES = [
    {"do": do, "when": when}
    for do in ("error", "reset", "html", "hang")
    for when in ("before", "after")
]


@pytest.fixture
async def impatient(strict_ec2: StrictEc2, metrics: Metrics) -> AsyncIterator[Ec2Calls]:
    """Takes a silence of 0.3 s for a lost reply."""
    calls = Ec2Calls.connect(
        region="us-east-1", endpoint=strict_ec2.endpoint, metrics=metrics, read_timeout_s=0.3
    )
    yield calls
    await calls.close()


def sample(metrics: Metrics, name: str, **labels: str) -> float:
    return metrics.registry.get_sample_value(f"ebs_provisioner_{name}", labels) or 0.0


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: f"{loss['do']}-{loss['when']}")
async def test_a_create_whose_reply_was_lost_is_answered_by_sending_it_again(
    impatient: Ec2Calls, strict_ec2: StrictEc2, loss: dict[str, Any]
) -> None:
    volumes = Volumes(impatient)
    strict_ec2.control(faults=[{"action": "CreateVolume", **loss}])

    with pytest.raises(Ec2Error) as caught:
        await volumes.create(a_request())
    volume = await volumes.create(a_request())

    assert (caught.value.reason, caught.value.outcome) == (Reason.REPLY_LOST, Outcome.UNKNOWN)
    assert [volume.volume_id] == [v.volume_id for v in await volumes.find(tags={"Name": None})]


@pytest.mark.parametrize("action", ["DeleteVolume", "AttachVolume", "DetachVolume"])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: f"{loss['do']}-{loss['when']}")
async def test_a_change_whose_reply_was_lost_is_sent_once_and_unknown(
    impatient: Ec2Calls, strict_ec2: StrictEc2, action: str, loss: dict[str, Any]
) -> None:
    strict_ec2.control(faults=[{"action": action, **loss, "n": 5}])
    params = {"VolumeId": "vol-0123456789abcdef0"}
    if action != "DeleteVolume":
        params["InstanceId"] = "i-0123456789abcdef0"

    with pytest.raises(Ec2Error) as caught:
        await impatient.call(action, params)

    assert (caught.value.reason, caught.value.outcome) == (Reason.REPLY_LOST, Outcome.UNKNOWN)
    assert strict_ec2.counts()[action] == 1


@pytest.mark.parametrize("do", ["error", "reset", "html", "hang"])
async def test_a_read_whose_reply_was_lost_is_repeated(
    impatient: Ec2Calls, strict_ec2: StrictEc2, do: str
) -> None:
    strict_ec2.control(faults=[{"action": "DescribeVolumes", "do": do, "n": 2}])

    assert await Volumes(impatient).find(tags={"Name": None}) == []
    assert strict_ec2.counts()["DescribeVolumes"] == 3


async def test_a_read_is_not_repeated_for_ever(calls: Ec2Calls, strict_ec2: StrictEc2) -> None:
    strict_ec2.control(faults=[{"action": "DescribeVolumes", "do": "html", "n": 99}])

    with pytest.raises(Ec2Error) as caught:
        await calls.call("DescribeVolumes", {})

    assert (caught.value.reason, caught.value.outcome) == (Reason.REPLY_LOST, Outcome.NOTHING)
    assert strict_ec2.counts()["DescribeVolumes"] == 4


async def test_an_ec2_that_cannot_be_reached_has_done_nothing(metrics: Metrics) -> None:
    calls = Ec2Calls.connect(region="us-east-1", endpoint="http://127.0.0.1:9", metrics=metrics)

    with pytest.raises(Ec2Error) as caught:
        await calls.call("DeleteVolume", {"VolumeId": "vol-1"})

    assert (caught.value.reason, caught.value.outcome) == (Reason.UNREACHABLE, Outcome.NOTHING)
    await calls.close()


async def test_without_credentials_nothing_is_sent(
    strict_ec2: StrictEc2, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    calls = Ec2Calls.connect(region="us-east-1", endpoint=strict_ec2.endpoint, metrics=metrics)

    with pytest.raises(Ec2Error) as caught:
        await calls.call("DeleteVolume", {"VolumeId": "vol-1"})

    assert caught.value.reason is Reason.CREDENTIALS_INVALID
    assert caught.value.retry_after_s is not None
    assert "DeleteVolume" not in strict_ec2.counts()
    await calls.close()


async def test_a_missing_web_identity_token_is_a_matter_of_credentials(
    strict_ec2: StrictEc2, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/ebs")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/nowhere/token")
    calls = Ec2Calls.connect(region="us-east-1", endpoint=strict_ec2.endpoint, metrics=metrics)

    with pytest.raises(Ec2Error, match="/nowhere/token") as caught:
        await calls.call("DeleteVolume", {"VolumeId": "vol-1"})

    assert caught.value.reason is Reason.CREDENTIALS_INVALID
    await calls.close()


async def test_a_throttled_call_is_sent_again_and_never_a_failure(
    calls: Ec2Calls, strict_ec2: StrictEc2, metrics: Metrics
) -> None:
    throttle = {"code": "RequestLimitExceeded", "http_status": 503}
    strict_ec2.control(faults=[{"action": "CreateVolume", "do": "error", "n": 2, **throttle}])

    await Volumes(calls).create(a_request())

    assert sample(metrics, "ec2_throttles_total", action="CreateVolume") == 2
    assert sample(metrics, "ec2_calls_total", action="CreateVolume", outcome="Throttled") == 2
    assert sample(metrics, "ec2_calls_total", action="CreateVolume", outcome="ok") == 1
    assert calls.limiter.per_s("CreateVolume") <= 5


async def test_a_documented_quota_is_kept_by_a_real_limiter(
    calls: Ec2Calls, strict_ec2: StrictEc2
) -> None:
    strict_ec2.control(throttle={"CreateVolume": [100, 5]}, latency=[0.05, 0.1])
    volumes = Volumes(calls)

    async with asyncio.TaskGroup() as group:
        for number in range(115):
            group.create_task(volumes.create(a_request(f"name-{number}")))

    assert strict_ec2.throttled().get("CreateVolume", 0) <= 5
    assert len(await volumes.find(tags={"Name": None})) == 115


async def test_many_calls_go_at_once_but_no_more_than_there_are_threads(
    strict_ec2: StrictEc2, metrics: Metrics
) -> None:
    calls = Ec2Calls.connect(
        region="us-east-1",
        endpoint=strict_ec2.endpoint,
        metrics=metrics,
        rates=parse_rates("*=x20"),
        at_once=8,
    )
    strict_ec2.control(latency=[0.6, 0.6])
    loop = asyncio.get_running_loop()

    started = loop.time()
    async with asyncio.TaskGroup() as group:
        for _ in range(24):
            group.create_task(calls.call("DescribeVolumes", {}))
    seconds = loop.time() - started

    assert 3 * 0.6 <= seconds < 24 * 0.6
    await calls.close()


async def test_a_caller_that_leaves_does_not_take_its_thread_along(
    strict_ec2: StrictEc2, metrics: Metrics
) -> None:
    calls = Ec2Calls.connect(
        region="us-east-1", endpoint=strict_ec2.endpoint, metrics=metrics, at_once=1
    )
    strict_ec2.control(faults=[{"action": "DescribeVolumes", "do": "delay", "delay_s": 0.3}])
    leaving = asyncio.create_task(calls.call("DescribeVolumes", {}))
    await until(lambda: strict_ec2.counts().get("DescribeVolumes") == 1)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)

    answer = await calls.call("DescribeVolumes", {})

    assert answer["Volumes"] == []
    await calls.close()


async def test_a_gate_that_refuses_keeps_the_call_from_being_sent(
    calls: Ec2Calls, strict_ec2: StrictEc2
) -> None:
    async def refuse() -> None:
        raise RuntimeError("it is still wanted")

    with pytest.raises(RuntimeError, match="still wanted"):
        await calls.call("DeleteVolume", {"VolumeId": "vol-1"}, gate=refuse)

    assert "DeleteVolume" not in strict_ec2.counts()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not await asyncio.to_thread(condition):  # noqa: ASYNC110 -- another process
            await asyncio.sleep(0.01)
