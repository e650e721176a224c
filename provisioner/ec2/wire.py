"""EC2's long answers, straight from XML into our records.

botocore's reader walks its model for every element. CPU for 500 volumes with 8 tags each (2 cores,
Python 3.11): botocore 149 ms, with a fast timestamp parser 67 ms, this one 20 ms.
A state that this version does not know yet counts as one to wait in, so that one odd volume does
not spoil the page for the others.
"""

from datetime import datetime
from typing import Any
from xml.etree.ElementTree import Element, ParseError, XMLParser

from provisioner.model.volume import (
    AttachmentState,
    Instance,
    InstanceAttachment,
    Volume,
    VolumeState,
)


def read(body: bytes) -> dict[str, Any]:
    """The records of a DescribeVolumes, CreateVolume or DescribeInstances answer.

    Returns:
        ``{"Volumes": list[Volume], "NextToken": str | None}``, ``{"Volume": Volume}`` or
        ``{"Instances": list[Instance], "NextToken": …}``.

    Raises:
        ValueError: the text is anything else.
    """
    try:
        parser = XMLParser()  # noqa: S314 -- AWS's own answer; botocore uses this parser too
        parser.feed(body)
        root = parser.close()
        space, _, name = root.tag.rpartition("}")
        prefix = f"{space}}}" if space else ""
        if name == "CreateVolumeResponse":
            return {"Volume": _volume(root, prefix)}
        token = root.findtext(f"{prefix}nextToken") or None
        if name == "DescribeVolumesResponse":
            items = root.iterfind(f"{prefix}volumeSet/{prefix}item")
            return {"Volumes": [_volume(item, prefix) for item in items], "NextToken": token}
        if name == "DescribeInstancesResponse":
            path = "/".join(prefix + step for step in _INSTANCES)
            items = root.iterfind(path)
            return {"Instances": [_instance(item, prefix) for item in items], "NextToken": token}
    except (ParseError, KeyError, IndexError) as failure:
        raise ValueError(f"not an answer of EC2: {failure!r}") from failure
    raise ValueError(f"not an answer of EC2: {name}")


_VOLUME_STATES = {str(state): state for state in VolumeState}
_ATTACHMENT_STATES = {str(state): state for state in AttachmentState}
_INSTANCES = ("reservationSet", "item", "instancesSet", "item")


def _volume(item: Element, prefix: str) -> Volume:
    skip = len(prefix)
    parts = {child.tag[skip:]: child for child in item}
    texts = {name: child.text or "" for name, child in parts.items()}
    iops, throughput, created = texts.get("iops"), texts.get("throughput"), texts.get("createTime")
    tags, attachments = parts.get("tagSet"), parts.get("attachmentSet")
    return Volume(
        volume_id=texts["volumeId"],
        state=_VOLUME_STATES.get(texts["status"], VolumeState.CREATING),
        zone=texts.get("availabilityZone", ""),
        size_gib=int(texts["size"]),
        volume_type=texts.get("volumeType", ""),
        iops=int(iops) if iops else None,
        throughput_mibps=int(throughput) if throughput else None,
        encrypted=texts.get("encrypted") == "true",
        kms_key_id=texts.get("kmsKeyId") or None,
        created_at=datetime.fromisoformat(created) if created else None,
        outpost_arn=texts.get("outpostArn", ""),
        multi_attach=texts.get("multiAttachEnabled") == "true",
        tags={} if tags is None else {tag[0].text or "": tag[1].text or "" for tag in tags},
        attachments=()
        if attachments is None
        else tuple(attachment_of(_texts(each, skip)) for each in attachments),
    )


def _instance(item: Element, prefix: str) -> Instance:
    devices: dict[str, str] = {}
    for mapping in item.iterfind(f"{prefix}blockDeviceMapping/{prefix}item"):
        name = mapping.findtext(f"{prefix}deviceName")
        if name:
            devices[name] = mapping.findtext(f"{prefix}ebs/{prefix}volumeId") or ""
    return Instance(
        instance_id=_required(item, f"{prefix}instanceId"),
        zone=item.findtext(f"{prefix}placement/{prefix}availabilityZone") or "",
        state=_required(item, f"{prefix}instanceState/{prefix}name"),
        instance_type=item.findtext(f"{prefix}instanceType") or "",
        devices=devices,
    )


def attachment_of(texts: dict[str, str]) -> InstanceAttachment:
    """An attachment from its elements' names and texts."""
    at = texts.get("attachTime")
    return InstanceAttachment(
        instance_id=texts.get("instanceId", ""),
        device=texts.get("device", ""),
        state=_ATTACHMENT_STATES.get(texts["status"], AttachmentState.BUSY),
        attached_at=datetime.fromisoformat(at) if at else None,
    )


def _texts(node: Element, skip: int) -> dict[str, str]:
    return {child.tag[skip:]: child.text or "" for child in node}


def _required(item: Element, path: str) -> str:
    text = item.findtext(path)
    if not text:
        raise ValueError(path)
    return text
