"""DetachVolume and DeleteVolume."""

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
    cheap,
    held,
    refused,
    refused_while_creating,
)
from provisioner.conformance.probes.sources import (
    DRIVER,
    ERRORS,
    MODEL,
    MULTI_ATTACH,
    assumed,
    rests,
    row,
)

_DONE = rests(
    "A detached volume would be detached for ever, or attached too early elsewhere.",
    "controller/attaching/detach.py",
    "ec2/error_codes.py",
)
_GONE = rests(
    "A persistent volume would stay after its volume is gone, or go before it.",
    "controller/deleting/flow.py",
    "controller/deleting/rules.py",
)


async def _attached(lab: Lab) -> str:
    """The id of a volume that the instance has."""
    volume_id = await lab.volume()
    await lab.attached(volume_id)
    return volume_id


async def _is_detaching_first(lab: Lab) -> Finding:
    volume_id = await _attached(lab)
    reply = await lab.call("detach_volume", VolumeId=volume_id, InstanceId=lab.instance)
    try:
        await lab.volume_state(volume_id, "available")
    except NotSeenError as late:
        return Refuted(f"DetachVolume answered {reply.get('State')}; {late}.")
    left = (await lab.describe(volume_id)).get("Attachments")
    seen = f"DetachVolume answered {reply.get('State')}; then the volume was available."
    return held(reply.get("State") == "detaching" and not left, seen)


async def _detach_again(lab: Lab) -> Finding:
    volume_id = await _attached(lab)
    await lab.call("detach_volume", VolumeId=volume_id)
    try:
        reply = await lab.call("detach_volume", VolumeId=volume_id)
    except RefusedError as no:
        if (await lab.describe(volume_id))["State"] == "available":
            raise CannotRunError("the volume was detached before it could be asked again") from no
        return Refuted(f"A second DetachVolume was refused with {no}.")
    state = reply.get("State")
    return held(state in ("detaching", "busy"), f"A second DetachVolume answered {state}.")


async def _detach_available(lab: Lab) -> Finding:
    volume_id = await lab.volume()
    return await refused(
        lab, "IncorrectState", "detach_volume", text="'available' state", VolumeId=volume_id
    )


async def _detach_elsewhere(lab: Lab) -> Finding:
    other = lab.other_instance
    volume_id = await _attached(lab)
    return await refused(
        lab, "InvalidAttachment.NotFound", "detach_volume", VolumeId=volume_id, InstanceId=other
    )


async def _detach_other_device(lab: Lab) -> Finding:
    volume_id = await _attached(lab)
    return await refused(
        lab,
        "InvalidAttachment.NotFound",
        "detach_volume",
        VolumeId=volume_id,
        InstanceId=lab.instance,
        Device=lab.device(),
    )


async def _detach_missing_instance(lab: Lab) -> Finding:
    volume_id = await _attached(lab)
    return await refused(
        lab,
        "InvalidInstanceID.NotFound",
        "detach_volume",
        VolumeId=volume_id,
        InstanceId=lab.missing_id("instance"),
    )


async def _detach_without_instance(lab: Lab) -> Finding:
    volume_id = await _attached(lab)
    try:
        await lab.detached(volume_id)
    except RefusedError as no:
        return Refuted(f"DetachVolume without an instance was refused with {no}.")
    return Confirmed("DetachVolume without an instance detached the volume.")


async def _detach_shared(lab: Lab) -> Finding:
    volume_id = await lab.volume(4, **SHARED)
    await lab.attached(volume_id)
    finding = await refused(lab, "MissingParameter", "detach_volume", VolumeId=volume_id)
    if isinstance(finding, Confirmed):
        await lab.call("detach_volume", VolumeId=volume_id, InstanceId=lab.instance)
    return finding


async def _delete_attached(lab: Lab) -> Finding:
    volume_id = await _attached(lab)
    return await refused(lab, "VolumeInUse", "delete_volume", VolumeId=volume_id)


async def _delete_creating(lab: Lab) -> Finding:
    return await refused_while_creating(lab, "delete_volume")


async def _deleted_is_gone(lab: Lab) -> Finding:
    volume_id = await lab.volume()
    await lab.call("delete_volume", VolumeId=volume_id)

    async def gone() -> bool:
        code = await lab.code_of("describe_volumes", VolumeIds=[volume_id])
        if code in ("", "InvalidVolume.NotFound"):
            return code != ""
        raise CannotRunError(f"DescribeVolumes of a deleted volume was refused with {code}")

    try:
        await lab.until(f"DescribeVolumes answers InvalidVolume.NotFound of {volume_id}", gone, 300)
    except NotSeenError as late:
        return Refuted(f"{late}.")
    return Confirmed("After DeleteVolume, DescribeVolumes answered InvalidVolume.NotFound.")


async def _deleting_is_shown(lab: Lab) -> Finding:
    volume_id = await lab.volume()
    await lab.call("delete_volume", VolumeId=volume_id)
    try:
        state = (await lab.describe(volume_id))["State"]
    except RefusedError as no:
        return held(no.code == "InvalidVolume.NotFound", f"Right after DeleteVolume: {no}.")
    return held(state == "deleting", f"Right after DeleteVolume the volume is {state}.")


async def _delete_missing(lab: Lab) -> Finding:
    return await refused(
        lab, "InvalidVolume.NotFound", "delete_volume", VolumeId=lab.missing_id("volume")
    )


async def _deleted_loses_tags(lab: Lab) -> Finding:
    volume_id = await lab.volume()
    await lab.call("delete_volume", VolumeId=volume_id)

    async def gone() -> bool:
        found = await lab.call("describe_volumes", Filters=[lab.tag_filter])
        return volume_id not in {each["VolumeId"] for each in found["Volumes"]}

    try:
        await lab.until(f"{volume_id} is not found by its tag", gone, 300)
    except NotSeenError as late:
        return Refuted(f"{late}.")
    return Confirmed("A deleted volume is not found by its tag.")


_ACTIONS = ("CreateVolume", "AttachVolume", "DetachVolume", "DescribeVolumes")
RULES = (
    row(
        "detach-answers-detaching",
        "DetachVolume answers detaching; then the volume is available, without attachments.",
        MODEL.at("VolumeAttachmentState"),
        _DONE,
        cheap(_is_detaching_first, *_ACTIONS, volumes=1, instance=True, seconds=20),
    ),
    row(
        "detach-again",
        "DetachVolume of what is detaching is accepted, and answers so again.",
        assumed("nobody quotes a refusal"),
        _DONE,
        cheap(_detach_again, *_ACTIONS, volumes=1, instance=True, seconds=20),
    ),
    row(
        "detach-of-available",
        "DetachVolume of an available volume is refused with IncorrectState and "
        "\"'available' state\".",
        DRIVER.at("#1801"),
        _DONE,
        cheap(_detach_available, "CreateVolume", "DetachVolume", volumes=1),
    ),
    row(
        "detach-from-another-instance",
        "DetachVolume from an instance that does not have the volume is refused with "
        "InvalidAttachment.NotFound.",
        ERRORS.at("InvalidAttachment.NotFound"),
        _DONE,
        cheap(_detach_elsewhere, *_ACTIONS, volumes=1, instance=True, seconds=15, other=True),
    ),
    row(
        "detach-from-another-device",
        "DetachVolume with another device name is refused with InvalidAttachment.NotFound.",
        ERRORS.at("InvalidAttachment.NotFound"),
        rests("Nothing: the product names no device.", "ec2/attachments.py"),
        cheap(_detach_other_device, *_ACTIONS, volumes=1, instance=True, seconds=15),
    ),
    row(
        "detach-from-missing-instance",
        "DetachVolume from an instance that does not exist is refused with "
        "InvalidInstanceID.NotFound.",
        ERRORS.at("InvalidInstanceID.NotFound"),
        _DONE,
        cheap(_detach_missing_instance, *_ACTIONS, volumes=1, instance=True, seconds=15),
    ),
    row(
        "detach-without-instance",
        "DetachVolume needs no instance where a volume has one attachment.",
        MODEL.at("DetachVolume InstanceId: required for Multi-Attach"),
        rests("Nothing: the product names the instance.", "ec2/attachments.py"),
        cheap(_detach_without_instance, *_ACTIONS, volumes=1, instance=True, seconds=20),
    ),
    row(
        "detach-of-shared",
        "DetachVolume of a volume with Multi-Attach needs the instance (MissingParameter).",
        MULTI_ATTACH.at("the code is assumed"),
        rests("Nothing: the product names the instance.", "ec2/attachments.py"),
        Probe(
            _detach_shared,
            _ACTIONS,
            Usage(SHARED_VOLUMES, needs_instance=True, seconds=20),
        ),
    ),
    row(
        "detach-of-root",
        "The root volume of a running instance is not detached (OperationNotPermitted).",
        ERRORS.at("OperationNotPermitted"),
        rests("Nothing: the product detaches what it attached.", "controller/attaching/detach.py"),
        "It would try to take the root volume from the user's instance.",
    ),
    row(
        "detach-may-be-busy",
        "An attachment may stay busy until the volume is unmounted, or detached by force.",
        MODEL.at("VolumeAttachmentState busy"),
        rests("A pod that moves would wait for ever.", "controller/attaching/detach.py"),
        "It needs a file system that is mounted in the instance.",
    ),
    row(
        "delete-of-attached",
        "DeleteVolume of an attached volume is refused with VolumeInUse.",
        ERRORS.at("VolumeInUse"),
        rests(
            "A volume could be deleted while a pod writes to it.",
            "controller/deleting/flow.py",
            "controller/deleting/rules.py",
        ),
        cheap(
            _delete_attached,
            "CreateVolume",
            "AttachVolume",
            "DeleteVolume",
            volumes=1,
            instance=True,
            seconds=15,
        ),
    ),
    row(
        "delete-while-creating",
        "DeleteVolume of a volume that is creating is refused with IncorrectState.",
        assumed("the API model says that it must be available"),
        _GONE,
        cheap(_delete_creating, "CreateVolume", "DeleteVolume", volumes=2),
    ),
    row(
        "delete-shows-deleting",
        "After DeleteVolume a volume is deleting, or gone.",
        MODEL.at("DeleteVolume: may remain in the deleting state for several minutes"),
        _GONE,
        cheap(_deleting_is_shown, "CreateVolume", "DeleteVolume", volumes=1),
    ),
    row(
        "deleted-is-not-found",
        "A deleted volume is answered with InvalidVolume.NotFound before long.",
        ERRORS.at("InvalidVolume.NotFound"),
        _GONE,
        cheap(_deleted_is_gone, "CreateVolume", "DeleteVolume", volumes=1, seconds=90),
    ),
    row(
        "deleted-is-not-listed",
        "A deleted volume is not found by its tags.",
        assumed("that of instances are, for an hour"),
        rests(
            "A volume that is gone would be taken for the one that a lost call made.",
            "ec2/lookups.py",
            "controller/deleting/orphan_rules.py",
        ),
        cheap(_deleted_loses_tags, "CreateVolume", "DeleteVolume", volumes=1, seconds=90),
    ),
    row(
        "delete-of-missing",
        "DeleteVolume of what does not exist is refused with InvalidVolume.NotFound.",
        ERRORS.at("InvalidVolume.NotFound"),
        _GONE,
        cheap(_delete_missing, "DeleteVolume"),
    ),
)
