"""EC2's XML for volumes and attachments.

moto's generic serialiser spends about 0.3 ms on a volume; a bench lists hundreds a second. So each
volume is rendered once and kept until it changes.
"""

from datetime import datetime
from typing import Any
from uuid import uuid4
from xml.sax.saxutils import escape

from provisioner.sandbox.strict_ec2.errors import Ec2Error
from provisioner.sandbox.strict_ec2.locks import Lock
from provisioner.sandbox.strict_ec2.modification import Modification
from provisioner.sandbox.strict_ec2.records import is_fast_restored, record_of, status_of
from provisioner.sandbox.strict_ec2.snapshot_records import FastRestore, snapshot_record_of

_NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"


def reply(action: str, content: str) -> str:
    """Wrap the content of a reply."""
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<{action}Response xmlns="{_NAMESPACE}"><requestId>{uuid4()}</requestId>'
        f"{content}</{action}Response>"
    )


def moment(at: datetime) -> str:
    """Return a UTC time as EC2 writes it."""
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"


def _flag(value: object) -> str:
    return "true" if value and str(value).lower() != "false" else "false"


def _given(**elements: object) -> str:
    """Render the elements that have a value."""
    return "".join(
        f"<{name}>{escape(str(value))}</{name}>" for name, value in elements.items() if value
    )


def attachment(item: Any, state: str | None = None) -> str:
    """Render an attachment, optionally with the state that a reply shows."""
    return (
        f"<volumeId>{item.volume.id}</volumeId><instanceId>{item.instance.id}</instanceId>"
        f"<device>{escape(item.device)}</device><status>{state or item.status}</status>"
        f"<attachTime>{moment(item.attach_time)}</attachTime>"
        f"<deleteOnTermination>{_flag(item.delete_on_termination)}</deleteOnTermination>"
    )


def volume(item: Any) -> str:
    """Render a volume as CreateVolume and DescribeVolumes show it; kept until it changes."""
    record = record_of(item)
    if record.xml is None:
        record.xml = _volume(item)
    return record.xml


def _tag_set(item: Any) -> str:
    tags = "".join(
        f"<item><key>{escape(key)}</key><value>{escape(value or '')}</value></item>"
        for key, value in (item.ec2_backend.tags.get(item.id) or {}).items()
    )
    return f"<tagSet>{tags}</tagSet>"


def _volume(item: Any) -> str:
    attachments = "".join(
        f"<item>{attachment(each)}</item>" for each in record_of(item).attachments.values()
    )
    zone, record = item.zone, record_of(item)
    initialization = record.initialization
    optional = _given(
        iops=item.iops,
        throughput=item.throughput,
        outpostArn=record.outpost_arn,
        sourceVolumeId=record.source_volume_id,
        volumeInitializationRate=None if initialization is None else initialization.rate_mibps,
        kmsKeyId=item.kms_key_id if item.encrypted else None,
    )
    return (
        f"<volumeId>{item.id}</volumeId><size>{item.size}</size>"
        f"<snapshotId>{item.snapshot_id or ''}</snapshotId>"
        f"<availabilityZone>{zone.name if zone else ''}</availabilityZone>"
        f"<availabilityZoneId>{zone.zone_id if zone else ''}</availabilityZoneId>"
        f"<status>{status_of(item)}</status><createTime>{moment(item.create_time)}</createTime>"
        f"<attachmentSet>{attachments}</attachmentSet>{_tag_set(item)}"
        f"<volumeType>{item.volume_type}</volumeType>{optional}"
        f"<encrypted>{_flag(item.encrypted)}</encrypted><fastRestored>{_flag(is_fast_restored(item))}</fastRestored>"
        f"<multiAttachEnabled>{_flag(item.multi_attach_enabled)}</multiAttachEnabled>"
    )


def modification(item: Modification, now_s: float) -> str:
    """Render a modification as ModifyVolume and DescribeVolumesModifications show it."""
    shapes = "".join(
        f"<{which}Size>{shape.size_gib}</{which}Size>"
        f"<{which}VolumeType>{shape.volume_type}</{which}VolumeType>"
        f"<{which}MultiAttachEnabled>{_flag(shape.multi_attach)}</{which}MultiAttachEnabled>"
        + _given(**{f"{which}Iops": shape.iops, f"{which}Throughput": shape.throughput})
        for which, shape in (("original", item.original), ("target", item.target))
    )
    return (
        f"<volumeId>{item.volume_id}</volumeId>"
        f"<modificationState>{item.state}</modificationState>{shapes}"
        f"<progress>{item.progress_percent(now_s)}</progress>"
        f"<startTime>{moment(item.started_at)}</startTime>"
        + _given(
            statusMessage=item.message,
            endTime=None if item.ended_at is None else moment(item.ended_at),
        )
    )


def snapshot(item: Any, progress: str) -> str:
    """Render a snapshot; CreateSnapshot's own reply shows an empty progress."""
    record = snapshot_record_of(item)
    return (
        f"<snapshotId>{item.id}</snapshotId><volumeId>{record.volume_id}</volumeId>"
        f"<status>{record.state}</status><startTime>{moment(item.start_time)}</startTime>"
        f"<progress>{progress}</progress><ownerId>{item.owner_id}</ownerId>"
        f"<volumeSize>{record.size_gib}</volumeSize>"
        f"<description>{escape(item.description or '')}</description>"
        f"<encrypted>{_flag(item.encrypted)}</encrypted>"
        f"<storageTier>{item.storage_tier}</storageTier>{_tag_set(item)}"
        + _given(
            statusMessage=record.message,
            outpostArn=record.outpost_arn,
            kmsKeyId=item.kms_key_id if item.encrypted else None,
        )
    )


def fast_restore(item: FastRestore, state: str | None = None) -> str:
    """Render the fast restore of a snapshot in a zone, optionally with the state a reply shows."""
    return (
        f"<snapshotId>{item.snapshot.id}</snapshotId>"
        f"<availabilityZone>{item.zone}</availabilityZone>"
        f"<availabilityZoneId>{item.zone_id}</availabilityZoneId>"
        f"<state>{state or item.state}</state><ownerId>{item.snapshot.owner_id}</ownerId>"
    )


def fast_restore_refusal(snapshot_id: str, zone: str, error: Ec2Error) -> str:
    """Render why fast restore of a snapshot in a zone was refused, while the call succeeds."""
    return (
        f"<snapshotId>{escape(snapshot_id)}</snapshotId><fastSnapshotRestoreStateErrorSet><item>"
        f"<availabilityZone>{zone}</availabilityZone><error><code>{error.code}</code>"
        f"<message>{escape(error.message)}</message></error></item>"
        "</fastSnapshotRestoreStateErrorSet>"
    )


def lock(snapshot_id: str, item: Lock, now: datetime) -> str:
    """Render the lock of a snapshot."""
    until = item.cool_off_until
    return (
        f"<snapshotId>{snapshot_id}</snapshotId><lockState>{item.state_at(now)}</lockState>"
        f"<lockDuration>{item.duration_days}</lockDuration>"
        f"<lockCreatedOn>{moment(item.created_at)}</lockCreatedOn>"
        f"<lockExpiresOn>{moment(item.expires_at)}</lockExpiresOn>"
        f"<lockDurationStartTime>{moment(item.created_at)}</lockDurationStartTime>"
        + _given(
            coolOffPeriod=item.cool_off_hours,
            coolOffPeriodExpiresOn=None if until is None else moment(until),
        )
    )
