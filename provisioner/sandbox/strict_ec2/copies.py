"""CopyVolumes: a volume made of another one, in the same zone.

Rules: EC2 API model (botocore 1.44.5) and EBS user guide "Copy an Amazon EBS volume", read
2026-11-22. That page names a code for too many copies of a region only; for a second copy of one
source it is taken to be the same.
"""

from typing import Any, Final

from provisioner.sandbox.strict_ec2.call import Call
from provisioner.sandbox.strict_ec2.encryption import encryption_of
from provisioner.sandbox.strict_ec2.errors import Ec2Error, dry_run
from provisioner.sandbox.strict_ec2.initialization import copied
from provisioner.sandbox.strict_ec2.quotas import check_new_volume
from provisioner.sandbox.strict_ec2.records import find_volume, record_of
from provisioner.sandbox.strict_ec2.render import reply
from provisioner.sandbox.strict_ec2.render import volume as render_volume
from provisioner.sandbox.strict_ec2.specs import spec_of
from provisioner.sandbox.strict_ec2.tags import specified_tags
from provisioner.sandbox.strict_ec2.tokens import keep_token, token_key, volume_of_token
from provisioner.sandbox.strict_ec2.volumes import check_capacity, make_volume, start_creating

_LIMIT: Final = "CopyVolumesLimitExceeded"


def copy_volumes(call: Call) -> str:
    """Make a copy of a volume, or return the one that the client token stands for."""
    source_id = call.params.required("SourceVolumeId")
    tags = specified_tags(call, "volume")
    source = find_volume(call.backend, source_id, call.world.now_s())
    spec = spec_of(call, (f"volume '{source_id}'", int(source.size)))
    encryption = encryption_of(call, source)
    key = token_key(call, source.zone.name)
    if call.params.boolean("DryRun"):
        raise dry_run()
    check_new_volume(call, spec)
    known = volume_of_token(call, key)
    if known is not None:
        return _reply(render_volume(known))
    _check_source(source, call.world.now_s())
    _check_limits(call, source_id)
    check_capacity(call, source.zone.name, spec["volume_type"])
    volume = make_volume(call, source.zone, spec, encryption, tags)
    record = record_of(volume)
    record.source_volume_id, record.initialization = source_id, copied(call)
    call.world.disks.record("made", volume.id, source_id=source_id)
    keep_token(call, key, volume)
    content = render_volume(volume)
    start_creating(call, volume, vanishes=encryption.key_is_unusable)
    return _reply(content)


def _reply(content: str) -> str:
    return reply("CopyVolumes", f"<volumeSet><item>{content}</item></volumeSet>")


def _check_source(source: Any, now_s: float) -> None:
    """Refuse a source that is not there in full: in creation, being modified, itself a new copy."""
    record = record_of(source)
    if record.outpost_arn:
        raise Ec2Error("UnsupportedOperation", "Volumes on Outposts cannot be copied.")
    if record.state != "available":
        raise Ec2Error("IncorrectState", f"{source.id} is not 'available' or 'in-use'.")
    if record.modification is not None and record.modification.state == "modifying":
        raise Ec2Error(
            "IncorrectModificationState",
            f"Volume {source.id} cannot be copied in modification state MODIFYING",
        )
    if _is_being_copied(source, now_s):
        raise Ec2Error("IncorrectState", f"The volume copy '{source.id}' is not fully initialized.")


def _check_limits(call: Call, source_id: str) -> None:
    now_s = call.world.now_s()
    running = [each for each in call.backend.volumes.values() if _is_being_copied(each, now_s)]
    if any(record_of(each).source_volume_id == source_id for each in running):
        raise Ec2Error(
            _LIMIT, f"Another copy of the volume '{source_id}' is not fully initialized yet."
        )
    most = call.world.settings.copies_in_progress
    if len(running) >= most:
        raise Ec2Error(
            _LIMIT, f"The maximum of {most} volume copies in progress in this Region is reached."
        )


def _is_being_copied(volume: Any, now_s: float) -> bool:
    """Tell whether a volume is a copy that is in creation or not fully initialized."""
    record = record_of(volume)
    return (
        bool(record.source_volume_id)
        and record.initialization is not None
        and (record.state == "creating" or record.initialization.is_running(now_s))
    )
