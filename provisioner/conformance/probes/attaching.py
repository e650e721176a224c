"""AttachVolume: one instance at a time, one zone, one device name each."""

import asyncio
from dataclasses import replace
from typing import Any

from provisioner.conformance.lab import Lab
from provisioner.conformance.probe import (
    CannotRunError,
    Confirmed,
    Finding,
    NotSeenError,
    Probe,
    RefusedError,
    Refuted,
    Usage,
)
from provisioner.conformance.probes.asking import (
    SHARED,
    SHARED_VOLUMES,
    all_held,
    cheap,
    filtered,
    held,
    refused,
    refused_while_creating,
)
from provisioner.conformance.probes.sources import (
    DEVICES,
    DRIVER,
    ERRORS,
    LIMITS,
    MODEL,
    MULTI_ATTACH,
    assumed,
    observed,
    rests,
    row,
)

_MOST_VOLUMES = 40
_ONE_WRITER = rests(
    "Two nodes would write to one file system.",
    "controller/attaching/rules.py",
)
_NAMES = rests(
    "Attachments would fail until a name is tried that is free.",
    "ec2/attachments.py",
)
_STATES = rests(
    "A pod would start before its disk is there, or never.",
    "controller/attaching/rules.py",
    "controller/attaching/flow.py",
)
_SHARED_USE = Usage(SHARED_VOLUMES, needs_instance=True, seconds=20)


def _twin(device: str) -> str:
    """The other name for the same place: sdf and xvdf."""
    if device.startswith("/dev/sd"):
        return device.replace("/dev/sd", "/dev/xvd")
    return device.replace("/dev/xvd", "/dev/sd")


async def _is_attaching_first(lab: Lab) -> Finding:
    volume_id = await lab.volume()
    reply = await lab.call(
        "attach_volume", VolumeId=volume_id, InstanceId=lab.instance, Device=lab.device()
    )

    async def attached() -> bool:
        volume = await lab.describe(volume_id)
        states = [each.get("State") for each in volume.get("Attachments", [])]
        return (volume["State"], states) == ("in-use", ["attached"])

    try:
        await lab.until(f"{volume_id} is in-use and attached", attached, 60)
    except NotSeenError as late:
        return Refuted(f"AttachVolume answered {reply.get('State')}; {late}.")
    seen = f"AttachVolume answered {reply.get('State')}; then the volume was attached and in-use."
    return held(reply.get("State") == "attaching", seen)


async def _refused(
    lab: Lab, codes: str, volume_id: str, *, text: str = "", **changes: Any
) -> Finding:
    """Confirmed if EC2 refuses to attach a volume to the instance, at a name that is free."""
    asked = {"VolumeId": volume_id, "InstanceId": lab.instance, "Device": lab.device(), **changes}
    return await refused(lab, codes, "attach_volume", text=text, **asked)


async def _not_attached_twice(lab: Lab) -> Finding:
    volume_id = await lab.volume()
    await lab.attached(volume_id)
    return await _refused(lab, "VolumeInUse", volume_id)


async def _not_attached_elsewhere(lab: Lab) -> Finding:
    other = lab.other_instance
    volume_id = await lab.volume()
    await lab.attached(volume_id)
    finding = await _refused(lab, "VolumeInUse", volume_id, InstanceId=other)
    holders = [each["InstanceId"] for each in (await lab.describe(volume_id))["Attachments"]]
    return all_held(finding, held(holders == [lab.instance], f"It is attached to {holders}."))


async def _zone(lab: Lab) -> Finding:
    if len(lab.zones) == 1:
        raise CannotRunError("it needs two zones")
    volume_id = await lab.volume(AvailabilityZone=lab.zones[1])
    return await _refused(lab, "InvalidVolume.ZoneMismatch", volume_id)


async def _while_creating(lab: Lab) -> Finding:
    to = {"InstanceId": lab.instance, "Device": lab.device()}
    return await refused_while_creating(lab, "attach_volume", **to)


async def _device_in_use(lab: Lab) -> Finding:
    first, second = await asyncio.gather(lab.volume(), lab.volume())
    device = await lab.attached(first)
    return await _refused(
        lab, "InvalidParameterValue", second, text="already in use", Device=device
    )


async def _device_twin(lab: Lab) -> Finding:
    first, second = await asyncio.gather(lab.volume(), lab.volume())
    device = await lab.attached(first)
    return await _refused(lab, "InvalidParameterValue", second, Device=_twin(device))


async def _device_is_one(lab: Lab) -> Finding:
    volume_id = await lab.volume()
    return all_held(
        *[
            await _refused(lab, "InvalidParameterValue", volume_id, Device=device)
            for device in ("/dev/hdf", "xvdba-1", "/dev/xvdea")
        ]
    )


async def _device_last_names(lab: Lab) -> Finding:
    """The last of the names that the product gives: xvddx."""
    volume_id = await lab.volume()
    beyond = await _refused(lab, "InvalidParameterValue", volume_id, Device="/dev/xvddy")
    if not isinstance(beyond, Confirmed):
        return beyond
    try:
        await lab.attached(volume_id, "/dev/xvddx")
    except RefusedError as no:
        if "already in use" in no.message:
            raise CannotRunError("another volume of the instance is at /dev/xvddx") from no
        return Refuted(f"AttachVolume at /dev/xvddx was refused with {no}.")
    return Confirmed("A volume was attached at /dev/xvddx.")


async def _device_is_needed(lab: Lab) -> Finding:
    volume_id = await lab.volume()
    return await refused(
        lab, "MissingParameter", "attach_volume", VolumeId=volume_id, InstanceId=lab.instance
    )


async def _instance_missing(lab: Lab) -> Finding:
    volume_id = await lab.volume()
    asked = {"VolumeId": volume_id, "Device": "/dev/sdf"}
    return await refused(
        lab,
        "InvalidInstanceID.NotFound",
        "attach_volume",
        **asked,
        InstanceId=lab.missing_id("instance"),
    )


async def _instance_malformed(lab: Lab) -> Finding:
    volume_id = await lab.volume()
    asked = {"VolumeId": volume_id, "Device": "/dev/sdf"}
    return all_held(
        *[
            await refused(
                lab, "InvalidInstanceID.Malformed", "attach_volume", **asked, InstanceId=each
            )
            for each in ("i-node", "node-1")
        ]
    )


async def _instance_is_full(lab: Lab) -> Finding:
    limit, used = await asyncio.gather(_limit(lab), _used(lab))
    if limit - used > _MOST_VOLUMES:
        raise CannotRunError(f"the instance takes {limit - used} more volumes")
    volumes = await asyncio.gather(*[lab.volume() for _ in range(limit - used + 1)])
    for number, volume_id in enumerate(volumes[:-1], start=used + 1):
        try:
            await lab.attached(volume_id)
        except RefusedError as no:
            return Refuted(f"Of {limit} devices number {number} was refused with {no}.")
    return await _refused(lab, "AttachmentLimitExceeded", volumes[-1])


async def _limit(lab: Lab) -> int:
    found = await lab.call("describe_instance_types", InstanceTypes=[lab.place.instance_type])
    limit = found["InstanceTypes"][0].get("EbsInfo", {}).get("MaximumEbsAttachments")
    if limit is None:
        raise CannotRunError("EC2 shows no limit of attachments for this instance type")
    return int(limit)


async def _used(lab: Lab) -> int:
    """Devices in use; where volumes share the limit with interfaces, those too, but the first."""
    found = await lab.call("describe_instances", InstanceIds=[lab.instance])
    instance = found["Reservations"][0]["Instances"][0]
    kinds = await lab.call("describe_instance_types", InstanceTypes=[lab.place.instance_type])
    shared = kinds["InstanceTypes"][0]["EbsInfo"].get("AttachmentLimitType", "shared") == "shared"
    interfaces = max(0, len(instance.get("NetworkInterfaces", [])) - 1) if shared else 0
    return len(instance.get("BlockDeviceMappings", [])) + interfaces


async def _kept_at_termination(lab: Lab) -> Finding:
    volume_id = await lab.volume()
    await lab.attached(volume_id)
    (found,) = (await lab.describe(volume_id))["Attachments"]
    kept = found.get("DeleteOnTermination")
    return held(kept is False, f"DeleteOnTermination of a new attachment is {kept}.")


async def _shown_by_instance(lab: Lab) -> Finding:
    volume_id = await lab.volume()
    device = await lab.attached(volume_id)

    async def shown() -> bool:
        found = await lab.call("describe_instances", InstanceIds=[lab.instance])
        devices = found["Reservations"][0]["Instances"][0].get("BlockDeviceMappings", [])
        return any(
            (each.get("DeviceName"), each.get("Ebs", {}).get("VolumeId")) == (device, volume_id)
            for each in devices
        )

    try:
        await lab.until(f"DescribeInstances shows {volume_id}", shown, 30)
    except NotSeenError as late:
        return Refuted(f"{late}.")
    return Confirmed(f"DescribeInstances shows {volume_id} at {device}.")


async def _filtered_by_instance(lab: Lab) -> Finding:
    volume_id, other = await asyncio.gather(lab.volume(), lab.volume())
    await lab.attached(volume_id)
    found = await lab.call(
        "describe_volumes",
        Filters=[
            lab.tag_filter,
            filtered("attachment.instance-id", lab.instance),
            filtered("attachment.status", "attached"),
        ],
    )
    ids = {each["VolumeId"] for each in found["Volumes"]}
    return held(volume_id in ids and other not in ids, f"Filters by attachment found {len(ids)}.")


async def _shared(lab: Lab) -> Finding:
    other = lab.other_instance
    volume_id = await lab.volume(4, **SHARED)
    await lab.attached(volume_id)
    asked = {"VolumeId": volume_id, "InstanceId": other, "Device": lab.device()}
    try:
        await lab.call("attach_volume", **asked)
    except RefusedError as no:
        return Refuted(f"A second instance was refused with {no}.")
    return held(len((await lab.describe(volume_id))["Attachments"]) == 2, "Two instances have it.")  # noqa: PLR2004


async def _shared_once_each(lab: Lab) -> Finding:
    volume_id = await lab.volume(4, **SHARED)
    await lab.attached(volume_id)
    return await _refused(lab, "VolumeInUse", volume_id)


_ATTACH = ("CreateVolume", "AttachVolume", "DescribeVolumes")
RULES = (
    row(
        "attach-answers-attaching",
        "AttachVolume answers attaching; then the attachment is attached and the volume in-use.",
        MODEL.at("VolumeAttachmentState"),
        _STATES,
        cheap(_is_attaching_first, *_ATTACH, volumes=1, instance=True, seconds=15),
    ),
    row(
        "attach-excludes-other-instances",
        "A volume that an instance has is refused to another one with VolumeInUse.",
        observed("EC2 API reference, Error codes, VolumeInUse; public issues"),
        _ONE_WRITER,
        cheap(_not_attached_elsewhere, *_ATTACH, volumes=1, instance=True, seconds=15, other=True),
    ),
    row(
        "attach-again",
        "A volume that an instance has is refused to the same instance with VolumeInUse.",
        assumed("as for another instance"),
        rests(
            "A repeated AttachVolume would attach a volume under two names.",
            "controller/attaching/rules.py",
            "ec2/error_codes.py",
        ),
        cheap(_not_attached_twice, *_ATTACH, volumes=1, instance=True, seconds=15),
    ),
    row(
        "attach-in-another-zone",
        "An instance of another zone is refused with InvalidVolume.ZoneMismatch.",
        ERRORS.at("InvalidVolume.ZoneMismatch"),
        rests("A pod would wait without a clear event.", "ec2/error_codes.py"),
        cheap(_zone, *_ATTACH, volumes=1, instance=True),
    ),
    row(
        "attach-while-creating",
        "A volume that is creating is refused with IncorrectState.",
        observed("public issues quote \"vol-… is not 'available'\""),
        _STATES,
        cheap(_while_creating, *_ATTACH, volumes=2, instance=True),
    ),
    row(
        "attach-at-used-device",
        "A device name in use is refused with InvalidParameterValue and 'already in use'.",
        DRIVER.at("pkg/cloud/cloud.go, AttachDisk"),
        _NAMES,
        cheap(_device_in_use, *_ATTACH, volumes=2, instance=True, seconds=15),
    ),
    row(
        "attach-at-twin-device",
        "/dev/sdf and /dev/xvdf are one place: the other is refused with InvalidParameterValue.",
        DEVICES.at("suffixes must not overlap; the code is assumed"),
        _NAMES,
        cheap(_device_twin, *_ATTACH, volumes=2, instance=True, seconds=15),
    ),
    row(
        "attach-at-no-device-name",
        "What is no EBS device name is refused with InvalidParameterValue.",
        DEVICES.at("the code is assumed"),
        _NAMES,
        cheap(_device_is_one, *_ATTACH, volumes=1, instance=True),
    ),
    row(
        "attach-at-the-last-name",
        "The names go to /dev/xvddx; the next is refused with InvalidParameterValue.",
        DRIVER.at("pkg/cloud/devicemanager; the guide says xvdd[a-x]"),
        _NAMES,
        cheap(_device_last_names, *_ATTACH, volumes=1, instance=True, seconds=15),
    ),
    row(
        "attach-needs-a-device",
        "AttachVolume without a device name is refused with MissingParameter.",
        MODEL.at("AttachVolume Device: required; the code is assumed"),
        _NAMES,
        cheap(_device_is_needed, *_ATTACH, volumes=1, instance=True),
    ),
    row(
        "attach-to-missing-instance",
        "An instance that does not exist is refused with InvalidInstanceID.NotFound.",
        ERRORS.at("InvalidInstanceID.NotFound"),
        rests(
            "An attachment to a node that is gone would be tried for ever.",
            "ec2/error_codes.py",
            "controller/attaching/rules.py",
        ),
        cheap(_instance_missing, *_ATTACH, volumes=1),
    ),
    row(
        "attach-to-malformed-instance",
        "What is no instance id is refused with InvalidInstanceID.Malformed.",
        observed("cluster-glue #29"),
        rests("A node with a wrong provider id would be tried for ever.", "ec2/error_codes.py"),
        cheap(_instance_malformed, *_ATTACH, volumes=1),
    ),
    row(
        "attach-to-stopped-or-gone",
        "A running or stopped instance is accepted, any other refused with IncorrectState.",
        observed("public issues quote \"Instance 'i-…' is not 'running'\""),
        rests(
            "An attachment to a node that is gone would be tried for ever.", "ec2/error_codes.py"
        ),
        "It would stop or terminate the user's instance.",
    ),
    row(
        "attach-to-full-instance",
        "An instance takes as many devices as EbsInfo.MaximumEbsAttachments says, its root volume "
        "and, where the limit is shared, its further interfaces counted; one more is refused with "
        "AttachmentLimitExceeded.",
        LIMITS.at("EC2 API model, EbsInfo; AttachVolume: AttachmentLimitExceeded"),
        rests(
            "Pods would be scheduled to nodes that take no more volumes.",
            "model/instance_type_limit.py",
            "controller/nodes/instance_type_limit_rules.py",
            "ec2/error_codes.py",
        ),
        cheap(
            _instance_is_full,
            *_ATTACH,
            "DescribeInstances",
            "DescribeInstanceTypes",
            volumes=_MOST_VOLUMES + 1,
            instance=True,
            seconds=180,
            alone=True,
        ),
    ),
    row(
        "attach-keeps-at-termination",
        "A volume that AttachVolume attached is not deleted with its instance.",
        MODEL.at("EbsInstanceBlockDevice DeleteOnTermination"),
        rests("Data would be lost with a node.", "controller/attaching/rules.py"),
        cheap(_kept_at_termination, *_ATTACH, volumes=1, instance=True, seconds=15),
    ),
    row(
        "attach-shown-by-instance",
        "DescribeInstances shows an attached volume under its device name.",
        MODEL.at("InstanceBlockDeviceMapping"),
        rests("Names in use would be tried.", "ec2/attachments.py"),
        cheap(
            _shown_by_instance, *_ATTACH, "DescribeInstances", volumes=1, instance=True, seconds=15
        ),
    ),
    row(
        "attach-found-by-filter",
        "Volumes can be filtered by attachment.instance-id and attachment.status.",
        MODEL.at("DescribeVolumes Filters"),
        rests("Nothing: the product filters by tag and by id.", "ec2/volumes.py"),
        cheap(_filtered_by_instance, *_ATTACH, volumes=2, instance=True, seconds=15),
    ),
    row(
        "shared-by-two",
        "A volume with Multi-Attach can be attached to a second instance.",
        MULTI_ATTACH,
        rests("Pods that share a raw device would wait.", "controller/attaching/rules.py"),
        Probe(_shared, _ATTACH, replace(_SHARED_USE, needs_other=True)),
    ),
    row(
        "shared-once-by-each",
        "A volume with Multi-Attach is refused to an instance that has it, with VolumeInUse.",
        MULTI_ATTACH.at("one mapping per instance; the code is assumed"),
        _ONE_WRITER,
        Probe(_shared_once_each, _ATTACH, _SHARED_USE),
    ),
    row(
        "shared-by-sixteen",
        "A volume with Multi-Attach is attached to 16 instances at most.",
        MULTI_ATTACH,
        rests("A pod would wait without a clear event.", "ec2/error_codes.py"),
        "It needs 17 instances.",
    ),
    row(
        "attach-may-get-stuck",
        "An attachment may stay attaching; DetachVolume frees the volume.",
        DRIVER.at("#2833"),
        rests("A pod would wait for ever.", "controller/attaching/rules.py"),
        "EC2 cannot be made to fail.",
    ),
)
