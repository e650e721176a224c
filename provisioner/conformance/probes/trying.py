"""DryRun of the calls that change something."""

from typing import Any

from provisioner.conformance.lab import Lab
from provisioner.conformance.probe import Confirmed, Finding
from provisioner.conformance.probes.asking import DRY_RUN, all_held, cheap, held, refused
from provisioner.conformance.probes.sources import MODEL, rests, row


async def _changes_nothing(lab: Lab) -> Finding:
    volume_id = await lab.volume()
    snapshot_id = await lab.snapshot(volume_id)
    tags = {"Resources": [volume_id], "Tags": [{"Key": "a", "Value": "1"}]}
    lock = {"SnapshotId": snapshot_id, "LockMode": "governance", "LockDuration": 1}
    attachment = {"VolumeId": volume_id, "InstanceId": lab.instance}
    tried: list[tuple[str, dict[str, Any]]] = [
        ("modify_volume", {"VolumeId": volume_id, "Size": 2}),
        ("create_tags", tags),
        ("delete_tags", tags),
        ("create_snapshot", {"VolumeId": volume_id}),
        ("lock_snapshot", lock),
        ("unlock_snapshot", {"SnapshotId": snapshot_id}),
        ("delete_snapshot", {"SnapshotId": snapshot_id}),
        ("delete_volume", {"VolumeId": volume_id}),
        ("attach_volume", {**attachment, "Device": lab.device()}),
    ]
    for operation, params in tried:
        finding = await _tried(lab, operation, params)
        if not isinstance(finding, Confirmed):
            return finding
    await lab.attached(volume_id)
    finding = await _tried(lab, "detach_volume", attachment)
    volume = await lab.describe(volume_id)
    states = [each["State"] for each in volume["Attachments"]]
    found = (volume["Size"], states, "a" in {each["Key"] for each in volume["Tags"]})
    is_so = found == (1, ["attached"], False)
    seen = f"{len(tried) + 1} calls with DryRun left a volume of {found[0]} GiB, {states}."
    return all_held(finding, held(is_so, seen))


async def _tried(lab: Lab, operation: str, params: dict[str, Any]) -> Finding:
    return await refused(lab, DRY_RUN, operation, **params, DryRun=True)


RULES = (
    row(
        "dry-run-of-changes",
        "A valid call that changes something is answered with DryRunOperation where it carries "
        "DryRun, and changes nothing.",
        MODEL.at("DryRun of each action: DryRunOperation"),
        rests("Nothing: the product tries CreateVolume and listings only.", "ec2/volumes.py"),
        cheap(
            _changes_nothing,
            "CreateVolume",
            "CreateSnapshot",
            "ModifyVolume",
            "CreateTags",
            "DeleteTags",
            "LockSnapshot",
            "UnlockSnapshot",
            "DeleteSnapshot",
            "DeleteVolume",
            "AttachVolume",
            "DetachVolume",
            volumes=2,
            snapshots=2,
            instance=True,
            seconds=120,
        ),
    ),
    row(
        "flag-values",
        "A flag is true or false; anything else is refused with InvalidParameterValue.",
        MODEL.at("DryRun: boolean; the code is assumed"),
        rests("Nothing: botocore sends nothing else.", "ec2/botocore_client.py"),
        "botocore sends nothing else.",
    ),
)
