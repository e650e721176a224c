"""The edge to a strict EC2, and the errors that it is expected to raise."""

from collections.abc import AsyncIterator

import pytest

from provisioner.ec2.attachments import Attachments
from provisioner.ec2.calls import Ec2Calls
from provisioner.ec2.modifications import Modifications
from provisioner.ec2.snapshots import Snapshots
from provisioner.ec2.volumes import Volumes
from provisioner.metrics import Metrics
from provisioner.sandbox.strict_ec2.client import CREDENTIALS, StrictEc2


@pytest.fixture(autouse=True)
def aws_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials of nobody, and no settings of the machine."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_EC2_ENDPOINT", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
async def calls(strict_ec2: StrictEc2, metrics: Metrics) -> AsyncIterator[Ec2Calls]:
    made = Ec2Calls.connect(region="us-east-1", endpoint=strict_ec2.endpoint, metrics=metrics)
    yield made
    await made.close()


@pytest.fixture
def volumes(calls: Ec2Calls) -> Volumes:
    return Volumes(calls)


@pytest.fixture
def modifications(calls: Ec2Calls) -> Modifications:
    return Modifications(calls)


@pytest.fixture
def snapshots(calls: Ec2Calls) -> Snapshots:
    return Snapshots(calls)


@pytest.fixture
async def attachments(calls: Ec2Calls) -> AsyncIterator[Attachments]:
    made = Attachments(calls)
    yield made
    await made.close()
