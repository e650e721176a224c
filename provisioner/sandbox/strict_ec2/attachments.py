"""AttachVolume and DetachVolume."""

from typing import Any, Final

from provisioner.sandbox.strict_ec2.call import Call
from provisioner.sandbox.strict_ec2.devices import check_free, check_room, suffix_of
from provisioner.sandbox.strict_ec2.errors import Ec2Error, dry_run, missing
from provisioner.sandbox.strict_ec2.outposts import check_same_outpost
from provisioner.sandbox.strict_ec2.records import (
    drop_attachment,
    find_instance,
    find_volume,
    is_current,
    put_attachment,
    record_of,
    set_attachment_state,
    usable_gib,
)
from provisioner.sandbox.strict_ec2.render import attachment as render_attachment
from provisioner.sandbox.strict_ec2.render import reply

_MULTI_ATTACH_INSTANCES: Final = 16


def attach_volume(call: Call) -> str:
    """Attach an available volume to an instance of its zone."""
    volume_id = call.params.required("VolumeId")
    instance_id = call.params.required("InstanceId")
    device = call.params.required("Device")
    volume = find_volume(call.backend, volume_id, call.world.now_s())
    instance = find_instance(call.backend, instance_id)
    _check_volume(volume, instance_id)
    if instance.state not in ("running", "stopped"):
        raise Ec2Error("IncorrectState", f"Instance '{instance_id}' is not 'running'.")
    if volume.zone is None or volume.zone.name != instance.availability_zone:
        raise Ec2Error(
            "InvalidVolume.ZoneMismatch",
            f"The volume '{volume_id}' is not in the same availability zone as instance "
            f"'{instance_id}'",
        )
    check_same_outpost(call, volume, instance)
    suffix_of(device)
    check_free(instance, device)
    check_room(instance, call.world.settings.attach_limits)
    if call.params.boolean("DryRun"):
        raise dry_run()
    attachment = put_attachment(volume, instance, device, state="attaching")
    content = render_attachment(attachment)
    _start_attaching(call, attachment)
    return reply("AttachVolume", content)


def _check_volume(volume: Any, instance_id: str) -> None:
    record = record_of(volume)
    if record.attachments:
        room = (
            volume.multi_attach_enabled
            and instance_id not in record.attachments
            and len(record.attachments) < _MULTI_ATTACH_INSTANCES
        )
        if not room:
            raise Ec2Error("VolumeInUse", f"{volume.id} is already attached to an instance")
    elif record.state != "available":
        raise Ec2Error("IncorrectState", f"{volume.id} is not 'available'.")


def _start_attaching(call: Call, attachment: Any) -> None:
    settings = call.world.settings
    if settings.stuck_attaching > 0:
        settings.stuck_attaching -= 1
        return

    def finish() -> None:
        if is_current(attachment) and attachment.status == "attaching":
            set_attachment_state(attachment, "attached")
            volume = attachment.volume
            call.world.disks.record(
                "attached",
                volume.id,
                instance_id=attachment.instance.id,
                device=attachment.device,
                size_gib=usable_gib(volume),
            )

    call.world.after(settings.delays.attach_s, finish)


def detach_volume(call: Call) -> str:
    """Detach a volume; repeated while it detaches, the call says so again."""
    volume = find_volume(call.backend, call.params.required("VolumeId"), call.world.now_s())
    attachment = _attachment_of(call, volume)
    if attachment.device == attachment.instance.root_device_name and (
        attachment.instance.state == "running"
    ):
        raise Ec2Error(
            "OperationNotPermitted",
            f"Unable to detach root volume '{attachment.device}' from instance "
            f"'{attachment.instance.id}'",
        )
    if call.params.boolean("DryRun"):
        raise dry_run()
    _start_detaching(call, attachment, force=call.params.boolean("Force"))
    return reply("DetachVolume", render_attachment(attachment, "detaching"))


def _attachment_of(call: Call, volume: Any) -> Any:
    attachments = record_of(volume).attachments
    if not attachments:
        raise Ec2Error(
            "IncorrectState",
            f"Volume '{volume.id}' is in the '{record_of(volume).state}' state.",
        )
    instance_id, device = call.params.get("InstanceId"), call.params.get("Device")
    if instance_id is None and volume.multi_attach_enabled:
        raise missing("instanceId")
    if instance_id is not None:
        find_instance(call.backend, instance_id)
    attachment = (
        next(iter(attachments.values())) if instance_id is None else attachments.get(instance_id)
    )
    if attachment is None or device not in (None, attachment.device):
        raise Ec2Error(
            "InvalidAttachment.NotFound",
            f"The volume '{volume.id}' is not attached to instance '{instance_id}'"
            + (f" as device '{device}'." if device else "."),
        )
    return attachment


def _start_detaching(call: Call, attachment: Any, *, force: bool) -> None:
    settings = call.world.settings
    if attachment.status in ("detaching", "busy") and not force:
        return
    if settings.stuck_detaching > 0 and not force:
        settings.stuck_detaching -= 1
        set_attachment_state(attachment, "busy")
        return
    set_attachment_state(attachment, "detaching")
    instance_id = attachment.instance.id
    call.world.disks.record("detached", attachment.volume.id, instance_id=instance_id)
    call.world.after(settings.delays.detach_s, lambda: drop_attachment(attachment))
