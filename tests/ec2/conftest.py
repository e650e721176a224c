"""The edge to a strict EC2, and the errors that it is expected to raise."""

from collections.abc import AsyncIterator

import pytest

from provisioner.ec2.attachments import Attachments
from provisioner.ec2.calls import Ec2Calls
from provisioner.ec2.modifications import Modifications
from provisioner.ec2.snapshots import Snapshots
from provisioner.ec2.volumes import Volumes
from provisioner.metrics import Metrics
from provisioner.sandbox.strict_ec2.client import StrictEc2


@pytest.fixture(autouse=True)
def in_no_environment(aws_environment: None) -> None:
    """For all tests of this folder."""


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
