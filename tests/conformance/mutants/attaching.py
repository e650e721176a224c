"""Broken rules of ``probes/attaching.py``."""

from tests.conformance.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "attach-answers-attaching",
        "attachments.attach_volume",
        'state="attaching"',
        'state="attached"',
    ),
    Mutant(
        "attach-excludes-other-instances",
        "attachments._check_volume",
        "volume.multi_attach_enabled\n            and instance_id",
        "instance_id",
    ),
    Mutant(
        "attach-again",
        "attachments._check_volume",
        "if not room:",
        "if not room and instance_id not in record.attachments:",
    ),
    Mutant(
        "attach-in-another-zone",
        "attachments.attach_volume",
        "volume.zone is None or volume.zone.name != instance.availability_zone",
        "False",
    ),
    Mutant(
        "attach-while-creating",
        "attachments._check_volume",
        'elif record.state != "available":',
        "elif False:",
    ),
    Mutant(
        "attach-at-used-device",
        "devices.check_free",
        "taken == device or (place",
        "(place[1] or place[2]) != wanted and (place",
    ),
    Mutant(
        "attach-at-twin-device",
        "devices.check_free",
        "(place is not None and (place[1] or place[2]) == wanted)",
        "False",
    ),
    Mutant(
        "attach-at-no-device-name",
        "devices.suffix_of",
        "if found is None:",
        "if found is None:\n        return device\n    if False:",
    ),
    Mutant(
        "attach-at-the-last-name",
        "devices.suffix_of",
        "if found is None:",
        "if found is None or device == '/dev/xvddx':",
    ),
    Mutant(
        "attach-needs-a-device",
        "attachments.attach_volume",
        'call.params.required("Device")',
        'call.params.get("Device") or "/dev/sdz"',
    ),
    Mutant(
        "attach-to-missing-instance",
        "errors.instance_not_found",
        '"InvalidInstanceID.NotFound"',
        '"InvalidInstance"',
    ),
    Mutant(
        "attach-to-malformed-instance",
        "params.check_id",
        "if not value.startswith(prefix) or",
        "if prefix != 'i-' and not value.startswith(prefix) or prefix != 'i-' and",
    ),
    Mutant(
        "attach-to-full-instance", "devices.check_room", "if used >= limit:", "if used > limit:"
    ),
    Mutant(
        "attach-keeps-at-termination",
        "records.put_attachment",
        "attachment.delete_on_termination = delete_on_termination",
        "attachment.delete_on_termination = True",
    ),
    Mutant(
        "attach-shown-by-instance",
        "records.put_attachment",
        "volume_id=volume.id,",
        "volume_id='vol-ffffffff',",
    ),
    Mutant("attach-found-by-filter", "filters.VOLUME_FIELDS", "attachment.instance-id", ""),
    Mutant(
        "shared-by-two", "attachments._check_volume", "volume.multi_attach_enabled\n", "False\n"
    ),
    Mutant(
        "shared-once-by-each",
        "attachments._check_volume",
        "and instance_id not in record.attachments",
        "",
    ),
)
