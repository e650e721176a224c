"""ModifyVolume and DescribeVolumesModifications.

modifying → optimizing (the new size shows) → completed, or modifying → failed (nothing changed).
Rules: EC2 API model (botocore 1.44.5) and the EBS user guide's pages on modifying volumes and on
Multi-Attach, read 2026-11-21. The texts about a running modification and about the limit follow
what users quote; since EC2's newer text about the limit is quoted nowhere, it can be set.
"""

from datetime import timedelta
from typing import Any, Final

from provisioner.sandbox.strict_ec2 import limits
from provisioner.sandbox.strict_ec2.call import Call
from provisioner.sandbox.strict_ec2.describe import visible_volumes, volumes_by_id
from provisioner.sandbox.strict_ec2.errors import Ec2Error, combination, dry_run, invalid
from provisioner.sandbox.strict_ec2.filters import Field, text_of
from provisioner.sandbox.strict_ec2.listing import Listing, list_page
from provisioner.sandbox.strict_ec2.modification import RUNNING, Modification, Shape, shape_of
from provisioner.sandbox.strict_ec2.quotas import check_modified_volume
from provisioner.sandbox.strict_ec2.records import find_volume, record_of, touch
from provisioner.sandbox.strict_ec2.render import modification as render_modification
from provisioner.sandbox.strict_ec2.render import moment, reply

_CHANGES: Final = ("Size", "VolumeType", "Iops", "Throughput", "MultiAttachEnabled")
_MAX_PAGE: Final = 500
_GP2_FULL_THROUGHPUT_ABOVE_GIB: Final = 170
_FAILED: Final = "The modification failed. Please try again."


def modify_volume(call: Call) -> str:
    """Start a modification; one that changes nothing is one, too."""
    volume = find_volume(call.backend, call.params.required("VolumeId"), call.world.now_s())
    if not any(name in call.params.flat for name in _CHANGES):
        raise invalid(
            "Invalid input: Must specify at least one of size, type, iops, throughput, multi_attach"
        )
    original, target = _shape_behind(volume), _target(call, volume)
    _check_multi_attach(call, volume, original, target)
    _check_state(volume)
    _check_budget(call, volume)
    check_modified_volume(call, original, target)
    if call.params.boolean("DryRun"):
        raise dry_run()
    modification = _record(call, volume, original, target)
    content = render_modification(modification, call.world.now_s())
    _start(call, volume, modification)
    return reply("ModifyVolume", f"<volumeModification>{content}</volumeModification>")


def _target(call: Call, volume: Any) -> Shape:
    """Return what the volume is to be; refuse what its type cannot be."""
    params, now = call.params, _shape_behind(volume)
    kind = params.get("VolumeType") or now.volume_type
    type_limits = limits.check_type(kind)
    asked_gib = params.integer("Size")
    size_gib = now.size_gib if asked_gib is None else asked_gib
    if size_gib < now.size_gib:
        raise invalid("New size cannot be smaller than existing size")
    limits.check_size(kind, size_gib)
    asked_iops, asked_throughput = params.integer("Iops"), params.integer("Throughput")
    iops = _default_iops(now, kind, size_gib) if asked_iops is None else asked_iops
    ceiling = call.world.settings.iops_ceilings.get(kind)
    limits.check_iops(kind, size_gib, iops if type_limits.max_iops else asked_iops, ceiling)
    throughput = _default_throughput(now, kind) if asked_throughput is None else asked_throughput
    limits.check_throughput(kind, iops, throughput)
    multi_attach = (
        params.boolean("MultiAttachEnabled")
        if params.get("MultiAttachEnabled") is not None
        else now.multi_attach
    )
    return Shape(size_gib, kind, iops, throughput, multi_attach)


def _shape_behind(volume: Any) -> Shape:
    """Return what a volume is, also where DescribeVolumes does not show it yet."""
    latest = record_of(volume).modification
    done = latest is not None and latest.state == "completed"
    return latest.target if latest is not None and done else shape_of(volume)


def _default_iops(now: Shape, kind: str, size_gib: int) -> int | None:
    """Return the IOPS of a modification that names none.

    Kept within a type; 3,000 for a new one; from gp2 to gp3 at least what the volume had (EBS user
    guide, requirements for volume modifications).
    """
    if kind == now.volume_type and limits.TYPES[kind].max_iops:
        return now.iops
    if kind == "gp3" and now.volume_type == "gp2":
        return max(limits.TYPES["gp3"].min_iops, now.iops or 0)
    return (
        limits.TYPES["gp3"].min_iops
        if kind in ("io1", "io2")
        else (limits.default_iops(kind, size_gib))
    )


def _default_throughput(now: Shape, kind: str) -> int | None:
    if kind != "gp3":
        return None
    if now.volume_type == "gp3":
        return now.throughput or limits.GP3_MIN_THROUGHPUT
    large = now.size_gib > _GP2_FULL_THROUGHPUT_ABOVE_GIB
    return 250 if now.volume_type == "gp2" and large else limits.GP3_MIN_THROUGHPUT


def _check_multi_attach(call: Call, volume: Any, original: Shape, target: Shape) -> None:
    """Refuse what Multi-Attach forbids: io1 all, io2 another type, a switch while attached."""
    if target.multi_attach and not limits.TYPES[target.volume_type].multi_attach:
        raise combination(f"Multi-attach is not supported for {target.volume_type} volumes.")
    if target.multi_attach != original.multi_attach:
        if original.volume_type == "io1":
            raise combination("Multi-attach cannot be changed for io1 volumes after creation.")
        if record_of(volume).attachments:
            raise Ec2Error("IncorrectState", f"{volume.id} is not 'available'.")
    elif original.multi_attach and original.volume_type == "io1":
        raise Ec2Error(
            "UnsupportedOperation", "Multi-attach enabled io1 volumes cannot be modified."
        )
    if original.multi_attach and call.params.get("VolumeType") not in (None, original.volume_type):
        raise Ec2Error(
            "UnsupportedOperation", "The type of a multi-attach enabled volume cannot be modified."
        )


def _check_state(volume: Any) -> None:
    record = record_of(volume)
    if record.state != "available":
        raise Ec2Error("IncorrectState", f"{volume.id} is not 'available' or 'in-use'.")
    latest = record.modification
    if latest is not None and latest.state in RUNNING:
        raise Ec2Error(
            "IncorrectModificationState",
            f"Volume {volume.id} cannot be modified in modification state {latest.state.upper()}",
        )


def _check_budget(call: Call, volume: Any) -> None:
    """Refuse one modification too many in a rolling window; the refusal says until when."""
    settings, record, now_s = call.world.settings, record_of(volume), call.world.now_s()
    window_s = settings.modification_window_s
    recent = [each for each in record.modified_at_s if each > now_s - window_s]
    record.modified_at_s[:] = recent
    if len(recent) < settings.modification_budget:
        return
    free_in_s = recent[-settings.modification_budget] + window_s - now_s
    next_at = moment(call.world.moment() + timedelta(seconds=free_in_s))
    raise Ec2Error(
        "VolumeModificationRateExceeded",
        settings.modification_refusal.format(volume_id=volume.id, next_at=next_at),
    )


def _record(call: Call, volume: Any, original: Shape, target: Shape) -> Modification:
    world, record = call.world, record_of(volume)
    now_s, delays = world.now_s(), world.settings.delays
    optimizing_from_s = now_s + delays.modify_s
    modification = Modification(
        volume_id=volume.id,
        original=original,
        target=target,
        started_at=world.moment(),
        optimizing_from_s=optimizing_from_s,
        completed_from_s=optimizing_from_s + delays.optimize_s,
        visible_at_s=now_s + delays.modification_visible_after_s,
    )
    record.former_modification, record.modification = shown(volume, now_s), modification
    record.modified_at_s.append(now_s)
    return modification


def _start(call: Call, volume: Any, modification: Modification) -> None:
    """Let a modification be applied and completed, or fail."""
    settings = call.world.settings
    fails = settings.failing_modifications > 0
    settings.failing_modifications -= fails
    modify_s, optimize_s = settings.delays.modify_s, settings.delays.optimize_s

    def apply() -> None:
        if fails:
            modification.state, modification.message = "failed", _FAILED
            modification.ended_at = modification.started_at + timedelta(seconds=modify_s)
        else:
            modification.state = "optimizing"
            call.world.disks.record("resized", volume.id, size_gib=modification.target.size_gib)

    def complete() -> None:
        modification.state = "completed"
        modification.ended_at = modification.started_at + timedelta(seconds=modify_s + optimize_s)

    call.world.after(modify_s, apply)
    if not fails:
        shown_s = modify_s + settings.delays.modified_shown_after_s
        call.world.after(shown_s, lambda: _reshape(volume, modification.target))
        call.world.after(modify_s + optimize_s, complete)


def _reshape(volume: Any, target: Shape) -> None:
    volume.size, volume.volume_type = target.size_gib, target.volume_type
    volume.iops, volume.throughput = target.iops, target.throughput
    volume.multi_attach_enabled = target.multi_attach
    for attachment in record_of(volume).attachments.values():
        block = attachment.instance.block_device_mapping.get(attachment.device)
        if block is not None:
            block.size = target.size_gib
    touch(volume)


def shown(volume: Any, now_s: float) -> Modification | None:
    """Return the modification that EC2's readers know: the latest, or still the one before it."""
    record = record_of(volume)
    latest: Modification | None = record.modification
    if latest is not None and latest.visible_at_s > now_s:
        former: Modification | None = record.former_modification
        return former
    return latest


def describe_volumes_modifications(call: Call) -> str:
    """Answer with the latest modification of each volume; the never modified have none."""
    page, more = list_page(call, _LISTING)
    now_s = call.world.now_s()
    items = "".join(f"<item>{render_modification(each, now_s)}</item>" for each in page)
    content = f"<volumeModificationSet>{items}</volumeModificationSet>{more}"
    return reply("DescribeVolumesModifications", content)


def _by_id(call: Call, volume_ids: list[str]) -> list[Modification]:
    now_s = call.world.now_s()
    found = {each.id: shown(each, now_s) for each in volumes_by_id(call, volume_ids)}
    never = [volume_id for volume_id, each in found.items() if each is None]
    if never:
        raise Ec2Error(
            "InvalidVolumeModification.NotFound",
            f"Modification for volume '{never[0]}' does not exist."
            if len(never) == 1
            else f"Modifications for volumes '{', '.join(never)}' do not exist.",
        )
    return [each for each in found.values() if each is not None]


def _find(call: Call, volume_id: str) -> Modification | None:
    volume = call.backend.volumes.get(volume_id)
    return None if volume is None else shown(volume, call.world.now_s())


def _everything(call: Call) -> list[Modification]:
    now_s = call.world.now_s()
    found = (shown(each, now_s) for each in visible_volumes(call))
    return [each for each in found if each is not None]


_FIELDS: Final[dict[str, Field]] = {
    "modification-state": lambda m: [m.state],
    "original-iops": lambda m: [text_of(m.original.iops)],
    "original-size": lambda m: [text_of(m.original.size_gib)],
    "original-volume-type": lambda m: [m.original.volume_type],
    "originalMultiAttachEnabled": lambda m: [text_of(m.original.multi_attach)],
    "start-time": lambda m: [moment(m.started_at)],
    "target-iops": lambda m: [text_of(m.target.iops)],
    "target-size": lambda m: [text_of(m.target.size_gib)],
    "target-volume-type": lambda m: [m.target.volume_type],
    "targetMultiAttachEnabled": lambda m: [text_of(m.target.multi_attach)],
    "volume-id": lambda m: [m.volume_id],
}
_LISTING: Final = Listing(
    ids="VolumeId",
    id_set="volumeSet",
    fields=_FIELDS,
    by_id=_by_id,
    find=_find,
    everything=_everything,
    key_of=lambda modification: str(modification.volume_id),
    max_page=_MAX_PAGE,
    min_page=1,
)
