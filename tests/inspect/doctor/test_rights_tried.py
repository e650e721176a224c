"""Each action is tried as EC2 takes it, and nothing of it is carried out."""

from typing import Any

import boto3
import pytest

from provisioner.inspect.doctor import probes
from provisioner.inspect.doctor.check_rules import Verdict
from provisioner.inspect.doctor.right_rules import Samples, attempts, verdict
from provisioner.inspect.doctor.tries import try_it
from provisioner.inspect.reading.aws import Aws
from provisioner.model.names import MADE_BY_DRIVER
from provisioner.sandbox.strict_ec2.client import StrictEc2
from provisioner.sandbox.strict_ec2.instances import make_instances

ZONE = "us-east-1a"


@pytest.fixture
def tags() -> list[dict[str, str]]:
    return [{"Key": MADE_BY_DRIVER, "Value": "true"}]


def samples_of(ec2: Any, instance_id: str, tags: list[dict[str, str]]) -> Samples:
    """A free volume, an attached one, and a snapshot, all of the driver."""
    about = [{"ResourceType": "volume", "Tags": tags}]
    free, used = (
        ec2.create_volume(AvailabilityZone=ZONE, Size=8, TagSpecifications=about)["VolumeId"]
        for _ in range(2)
    )
    ec2.get_waiter("volume_available").wait(VolumeIds=[free, used])
    ec2.attach_volume(VolumeId=used, InstanceId=instance_id, Device="/dev/xvdba")
    ec2.get_waiter("volume_in_use").wait(VolumeIds=[used])
    snapshot = ec2.create_snapshot(VolumeId=used)["SnapshotId"]
    ec2.get_waiter("snapshot_completed").wait(SnapshotIds=[snapshot])
    return Samples(ZONE, free, 8, used, instance_id, snapshot, "production")


def what_is_there(ec2: Any) -> tuple[dict[str, Any], set[str]]:
    """What a call that is carried out would change at once, and time alone does not."""
    volumes = {
        each["VolumeId"]: (
            each["Size"],
            each["State"],
            each.get("Tags"),
            [there["InstanceId"] for there in each["Attachments"]],
        )
        for each in ec2.describe_volumes()["Volumes"]
    }
    snapshots = ec2.describe_snapshots(OwnerIds=["self"])["Snapshots"]
    return volumes, {each["SnapshotId"] for each in snapshots}


async def test_all_actions_are_allowed_and_nothing_changes(
    strict_ec2: StrictEc2, aws_environment: None, monkeypatch: pytest.MonkeyPatch, tags: Any
):
    monkeypatch.setenv("AWS_EC2_ENDPOINT", strict_ec2.endpoint)
    strict_ec2.control(delays={"create_s": 0.0, "attach_s": 0.0, "snapshot_s": 0.0})
    [instance] = make_instances(strict_ec2.endpoint, 1, [ZONE])
    ec2 = boto3.client(
        "ec2",
        endpoint_url=strict_ec2.endpoint,
        region_name="us-east-1",
        aws_access_key_id="AKIAIOSFODNN7EXAMPLE",
        aws_secret_access_key="secret",
    )
    samples = samples_of(ec2, instance.instance_id, tags)
    before = what_is_there(ec2)
    aws = Aws.of_caller("us-east-1")
    try:
        refused = await probes.why_no_tries(aws)
        tried = [await try_it(aws, each) for each in attempts(samples)]
    finally:
        aws.close()
        after = what_is_there(ec2)
        ec2.close()

    assert refused == ""
    found = {each.action: verdict(each, is_controllers=True, who="me") for each in tried}
    assert len(found) > 18
    assert {k: v.proof for k, v in found.items() if v.verdict is not Verdict.OK} == {}
    assert after == before
