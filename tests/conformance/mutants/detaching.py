"""Broken rules of ``probes/detaching.py``."""

from tests.conformance.mutants.mutant import Mutant, off

MUTANTS = (
    Mutant(
        "detach-answers-detaching",
        "attachments.detach_volume",
        'render_attachment(attachment, "detaching")',
        'render_attachment(attachment, "detached")',
    ),
    Mutant(
        "detach-again",
        "attachments._start_detaching",
        'if attachment.status in ("detaching", "busy") and not force:\n        return',
        "if attachment.status in (\"detaching\", \"busy\") and not force:\n        raise Ec2Error('IncorrectState', 'It is detaching.')",
    ),
    Mutant(
        "detach-of-available",
        "attachments._attachment_of",
        '"IncorrectState"',
        '"InvalidAttachment.NotFound"',
    ),
    Mutant(
        "detach-from-another-instance",
        "attachments._attachment_of",
        "else attachments.get(instance_id)",
        "else attachments.get(instance_id, next(iter(attachments.values())))",
    ),
    Mutant(
        "detach-from-another-device",
        "attachments._attachment_of",
        "or device not in (None, attachment.device)",
        "",
    ),
    Mutant(
        "detach-from-missing-instance",
        "attachments._attachment_of",
        "find_instance(call.backend, instance_id)",
        "pass",
    ),
    Mutant(
        "detach-without-instance",
        "attachments._attachment_of",
        "if instance_id is None and volume.multi_attach_enabled:",
        "if instance_id is None:",
    ),
    off(
        "detach-of-shared",
        "attachments._attachment_of",
        "instance_id is None and volume.multi_attach_enabled",
    ),
    off("delete-of-attached", "volumes.delete_volume", "record.attachments"),
    off("delete-while-creating", "volumes.delete_volume", 'record.state == "creating"'),
    Mutant(
        "delete-shows-deleting",
        "volumes.delete_volume",
        'record.state = "deleting"',
        'record.state = "available"',
    ),
    Mutant("deleted-is-not-found", "volumes._remove", "remove_volume(volume)", "pass"),
    Mutant(
        "deleted-is-not-listed",
        "records.remove_volume",
        "del backend.volumes[volume.id]\n        backend.tags.pop(volume.id, None)",
        "pass",
    ),
    Mutant(
        "delete-of-missing",
        "volumes.delete_volume",
        "volume = find_volume(call.backend, volume_id, call.world.now_s())",
        "volume = call.backend.volumes.get(volume_id)\n    if volume is None:\n        return reply('DeleteVolume', '<return>true</return>')",
    ),
)
