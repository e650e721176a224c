"""A hand on EC2 for tests: boto3 without its own checks and retries, and short ways to make things.

Works against the strict EC2 and against plain moto alike, so that one test can be held to both.
"""

import time
import weakref
from collections.abc import Callable
from typing import Any, Final

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from provisioner.sandbox.strict_ec2.client import CREDENTIALS

REGION: Final = "us-east-1"
ZONE: Final = "us-east-1a"
OTHER_ZONE: Final = "us-east-1b"
_PATIENCE_S: Final = 10.0
_LOOK_EVERY_S: Final = 0.005


def client(
    endpoint: str, *, service: str = "ec2", region: str = REGION, read_timeout_s: float = 20.0
) -> Any:
    """Return a boto3 client that sends what it is given, once; it closes itself when forgotten.

    Without that, its open sockets are a warning, and so a failure, of whichever test runs when
    garbage is collected.
    """
    made = boto3.client(
        service,
        region_name=region,
        endpoint_url=endpoint,
        aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        config=Config(
            parameter_validation=False,
            read_timeout=read_timeout_s,
            connect_timeout=3,
            retries={"total_max_attempts": 1},
        ),
    )
    weakref.finalize(made, made._endpoint.http_session.close)
    return made


class Lab:
    """An EC2 under test."""

    def __init__(self, ec2: Any, control: Callable[..., Any]) -> None:
        self.ec2 = ec2
        self.control = control

    def create(self, **changes: Any) -> Any:
        """Create a 10 GiB gp3 volume, or what ``changes`` make of it; None leaves a field out."""
        request = {"AvailabilityZone": ZONE, "Size": 10, "VolumeType": "gp3"} | changes
        return self.ec2.create_volume(**{k: v for k, v in request.items() if v is not None})

    def volume(self, **changes: Any) -> str:
        """Create a volume; returns its id."""
        return str(self.create(**changes)["VolumeId"])

    def instances(self, count: int = 1, zone: str = ZONE, kind: str = "m5.large") -> list[str]:
        """Start instances; returns their ids."""
        reply = self.ec2.run_instances(
            ImageId="ami-00000000000000000",
            InstanceType=kind,
            MinCount=count,
            MaxCount=count,
            Placement={"AvailabilityZone": zone},
        )
        return [str(each["InstanceId"]) for each in reply["Instances"]]

    def instance(self, zone: str = ZONE) -> str:
        """Start an instance; returns its id."""
        return self.instances(zone=zone)[0]

    def attach(self, volume: str, instance: str, device: str | None = "/dev/xvdba") -> Any:
        """Attach a volume."""
        names = {"VolumeId": volume, "InstanceId": instance, "Device": device}
        return self.ec2.attach_volume(**{k: v for k, v in names.items() if v is not None})

    def detach(self, volume: str, **names: Any) -> Any:
        """Detach a volume."""
        return self.ec2.detach_volume(VolumeId=volume, **names)

    def modify(self, volume: str, **changes: Any) -> Any:
        """Modify a volume; returns the modification as the call shows it."""
        return self.ec2.modify_volume(VolumeId=volume, **changes)["VolumeModification"]

    def modification(self, volume: str) -> Any:
        """Describe the only modification that a volume shows."""
        reply = self.ec2.describe_volumes_modifications(VolumeIds=[volume])
        found = reply["VolumesModifications"]
        assert len(found) == 1, found
        return found[0]

    def modification_state(self, volume: str) -> str:
        """Return the state of a volume's latest modification."""
        return str(self.modification(volume)["ModificationState"])

    def snapshot(self, volume: str, **names: Any) -> str:
        """Take a snapshot; returns its id."""
        return str(self.ec2.create_snapshot(VolumeId=volume, **names)["SnapshotId"])

    def copy(self, volume: str, **changes: Any) -> str:
        """Copy a volume as gp3; returns the copy's id."""
        request = {"SourceVolumeId": volume, "VolumeType": "gp3"} | changes
        (made,) = self.ec2.copy_volumes(**request)["Volumes"]
        return str(made["VolumeId"])

    def status(self, volume: str) -> Any:
        """Describe the status of one volume."""
        (found,) = self.ec2.describe_volume_status(VolumeIds=[volume])["VolumeStatuses"]
        return found

    def initialization_state(self, volume: str) -> str:
        """Return how far a restored or copied volume is, "" where nothing is told."""
        details = self.status(volume)["VolumeStatus"]["Details"]
        return next((d["Status"] for d in details if d["Name"] == "initialization-state"), "")

    def look_at_snapshot(self, snapshot: str) -> Any:
        """Describe one snapshot."""
        found = self.ec2.describe_snapshots(SnapshotIds=[snapshot])["Snapshots"]
        assert len(found) == 1, found
        return found[0]

    def snapshot_state(self, snapshot: str) -> str:
        """Return a snapshot's state."""
        return str(self.look_at_snapshot(snapshot)["State"])

    def listed_snapshots(self, *filters: tuple[str, list[str]]) -> set[str]:
        """Return the ids of our own snapshots that match filters."""
        reply = self.ec2.describe_snapshots(
            OwnerIds=["self"],
            Filters=[{"Name": name, "Values": values} for name, values in filters],
        )
        return {str(each["SnapshotId"]) for each in reply["Snapshots"]}

    def look(self, volume: str) -> Any:
        """Describe one volume."""
        (found,) = self.ec2.describe_volumes(VolumeIds=[volume])["Volumes"]
        return found

    def state(self, volume: str) -> str:
        """Return a volume's state."""
        return str(self.look(volume)["State"])

    def attachment_state(self, volume: str) -> str:
        """Return the state of a volume's first attachment, "none" without."""
        attachments = self.look(volume)["Attachments"]
        return str(attachments[0]["State"]) if attachments else "none"

    def listed(self, *filters: tuple[str, list[str]]) -> set[str]:
        """Return the ids that match filters."""
        reply = self.ec2.describe_volumes(
            Filters=[{"Name": name, "Values": values} for name, values in filters]
        )
        return {str(each["VolumeId"]) for each in reply["Volumes"]}


def refusal(call: Callable[..., Any], *arguments: Any, **names: Any) -> tuple[str, str]:
    """Return code and message of a call that EC2 must refuse.

    Raises: AssertionError when it does not.
    """
    try:
        call(*arguments, **names)
    except ClientError as error:
        return str(error.response["Error"]["Code"]), str(error.response["Error"]["Message"])
    raise AssertionError("EC2 did not refuse")


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for what another thread or process brings about.

    Raises: AssertionError after ten seconds.
    """
    deadline_s = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, "it did not come about"
        time.sleep(_LOOK_EVERY_S)
