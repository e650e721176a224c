"""The last look at the leases before EC2 hears of a change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from provisioner.ec2.calls import Ec2Calls
from provisioner.ec2.limiter import Limiter
from provisioner.metrics import Metrics
from provisioner.model.errors import Ec2Error, Outcome, Reason

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

ANSWER = {"ResponseMetadata": {"RequestId": "1"}}
CHANGES = ["CreateVolume", "AttachVolume", "DetachVolume", "DeleteVolume", "DeleteTags"]


class Client:
    """A boto3 client that answers everything, and remembers what it was."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def answer(**_: Any) -> dict[str, Any]:
            self.sent.append(name)
            return ANSWER

        return answer

    def close(self) -> None:
        return


def made(client: Client) -> Ec2Calls:
    metrics = Metrics()
    limiter = Limiter(at_once=1, metrics=metrics)
    return Ec2Calls(cast("EC2Client", client), limiter=limiter, metrics=metrics, at_once=1)


@pytest.mark.parametrize("action", CHANGES)
async def test_nothing_is_changed_once_another_may_lead(action: str) -> None:  # race 28
    client = Client()
    calls = made(client)
    calls.may_change = lambda: False

    with pytest.raises(Ec2Error) as caught:
        await calls.call(action, {})

    assert caught.value.reason is Reason.NOT_LEADING
    assert caught.value.outcome is Outcome.NOTHING
    assert client.sent == []
    await calls.close()


async def test_the_leases_are_looked_at_after_the_wait_for_a_turn() -> None:  # race 28
    client = Client()
    calls = made(client)
    leads = True
    calls.may_change = lambda: leads

    async def lost_meanwhile() -> None:
        nonlocal leads
        leads = False

    with pytest.raises(Ec2Error):
        await calls.call("DeleteVolume", {}, gate=lost_meanwhile)

    assert client.sent == []
    await calls.close()


async def test_looking_is_free_and_a_change_goes_through_again_afterwards() -> None:
    client = Client()
    calls = made(client)
    calls.may_change = lambda: False
    for _ in range(3):  # more than there are places at EC2: each refusal gives its own back
        with pytest.raises(Ec2Error):
            await calls.call("AttachVolume", {})

    await calls.call("DescribeVolumes", {})
    calls.may_change = lambda: True
    await calls.call("AttachVolume", {})

    assert client.sent == ["describe_volumes", "attach_volume"]
    await calls.close()
