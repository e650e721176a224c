"""CreateVolume and DeleteVolume."""

from fnmatch import fnmatchcase
from typing import Any, Final

from provisioner.sandbox.strict_ec2 import motos
from provisioner.sandbox.strict_ec2.call import Call
from provisioner.sandbox.strict_ec2.encryption import Encryption, encryption_of
from provisioner.sandbox.strict_ec2.errors import Ec2Error, combination, dry_run, missing
from provisioner.sandbox.strict_ec2.initialization import restored
from provisioner.sandbox.strict_ec2.outposts import asked_outpost
from provisioner.sandbox.strict_ec2.quotas import check_new_volume
from provisioner.sandbox.strict_ec2.records import (
    Record,
    find_volume,
    record_of,
    remove_volume,
    status_of,
    touch,
)
from provisioner.sandbox.strict_ec2.render import reply
from provisioner.sandbox.strict_ec2.render import volume as render_volume
from provisioner.sandbox.strict_ec2.snapshot_records import (
    check_restorable,
    find_snapshot,
    snapshot_record_of,
)
from provisioner.sandbox.strict_ec2.specs import spec_of
from provisioner.sandbox.strict_ec2.tags import specified_tags
from provisioner.sandbox.strict_ec2.tokens import keep_token, token_key, volume_of_token

_NO_CAPACITY: Final = (
    "There is not enough capacity to fulfill your EBS volume provision request in zone {zone}."
)


def create_volume(call: Call) -> str:
    """Make a volume, or return the one that the client token stands for."""
    tags = specified_tags(call, "volume")
    zone = _zone(call)
    outpost_arn = asked_outpost(call, zone.name)
    snapshot = _snapshot(call)
    spec = spec_of(
        call,
        None
        if snapshot is None
        else (f"snapshot '{snapshot.id}'", snapshot_record_of(snapshot).size_gib),
    )
    initialization = restored(call, snapshot, zone.name)
    encryption = encryption_of(call, snapshot)
    key = token_key(call, zone.name)
    if call.params.boolean("DryRun"):
        raise dry_run()
    # Before the token, as real EC2: at the quota a repeated request is refused although its volume
    # exists (aws-ebs-csi-driver #2512).
    check_new_volume(call, spec)
    known = volume_of_token(call, key)
    if known is not None:
        return reply("CreateVolume", render_volume(known))
    check_capacity(call, zone.name, spec["volume_type"])
    spec["snapshot_id"] = None if snapshot is None else snapshot.id
    volume = make_volume(call, zone, spec, encryption, tags)
    record = record_of(volume)
    record.outpost_arn, record.initialization = outpost_arn, initialization
    if snapshot is not None:
        call.world.disks.record("made", volume.id, source_id=str(snapshot.id))
    keep_token(call, key, volume)
    content = render_volume(volume)
    start_creating(call, volume, vanishes=encryption.key_is_unusable)
    return reply("CreateVolume", content)


def _snapshot(call: Call) -> Any:
    snapshot_id = call.params.get("SnapshotId")
    if not snapshot_id:
        return None
    snapshot = find_snapshot(call.backend, snapshot_id, call.world.now_s())
    check_restorable(snapshot)
    return snapshot


def _zone(call: Call) -> Any:
    name, zone_id = call.params.get("AvailabilityZone"), call.params.get("AvailabilityZoneId")
    if name and zone_id:
        raise combination("Specify one of AvailabilityZone and AvailabilityZoneId, not both.")
    if not name and not zone_id:
        raise missing("zone")
    for zone in call.backend.zones.get(call.backend.region_name, []):
        if zone.name == name or (zone_id and zone.zone_id == zone_id):
            return zone
    raise Ec2Error("InvalidZone.NotFound", f"The zone '{name or zone_id}' does not exist.")


def check_capacity(call: Call, zone: str, volume_type: str) -> None:
    """Refuse where the tests or the demo say that there is no room.

    Raises: ``InsufficientVolumeCapacity``, or the code that was asked for.
    """
    for rule in call.world.settings.capacity:
        if fnmatchcase(zone, rule.get("zone", "*")) and fnmatchcase(
            volume_type, rule.get("type", "*")
        ):
            code = rule.get("code", "InsufficientVolumeCapacity")
            # AWS lists InsufficientVolumeCapacity among the server errors, others not.
            status = 500 if code == "InsufficientVolumeCapacity" else 400
            raise Ec2Error(code, _NO_CAPACITY.format(zone=zone), status)


def make_volume(
    call: Call, zone: Any, spec: dict[str, Any], encryption: Encryption, tags: dict[str, str]
) -> Any:
    """Return a new volume in state creating."""
    volume = motos.Volume(
        call.backend,
        volume_id=motos.ec2_utils.random_volume_id(),
        zone=zone,
        encrypted=encryption.encrypted,
        kms_key_id=encryption.key_id,
        **spec,
    )
    visible_at_s = call.world.now_s() + call.world.settings.delays.visible_after_s
    volume.strict = Record(state="creating", visible_at_s=visible_at_s)
    call.backend.volumes[volume.id] = volume
    if tags:
        call.backend.tags[volume.id].update(tags)
    return volume


def start_creating(call: Call, volume: Any, *, vanishes: bool) -> None:
    """Let a creating volume become available, fail, or silently vanish."""
    settings = call.world.settings
    if settings.vanishing_creates > 0:
        settings.vanishing_creates -= 1
        vanishes = True
    ends_in = "available"
    if settings.failing_creates > 0:
        settings.failing_creates -= 1
        ends_in = "error"

    def finish() -> None:
        if vanishes:
            _remove(call, volume)
        elif record_of(volume).state == "creating":
            record_of(volume).state = ends_in
            touch(volume)

    call.world.after(settings.delays.create_s, finish)


def delete_volume(call: Call) -> str:
    """Delete a volume that nothing is attached to."""
    volume_id = call.params.required("VolumeId")
    volume = find_volume(call.backend, volume_id, call.world.now_s())
    record = record_of(volume)
    if record.attachments:
        holder = next(iter(record.attachments))
        raise Ec2Error("VolumeInUse", f"Volume {volume_id} is currently attached to {holder}")
    if record.state == "creating":
        raise Ec2Error("IncorrectState", f"{volume_id} is not 'available'.")
    if call.params.boolean("DryRun"):
        raise dry_run()
    if status_of(volume) != "deleting":
        record.state = "deleting"
        touch(volume)
        call.world.after(call.world.settings.delays.delete_s, lambda: _remove(call, volume))
    return reply("DeleteVolume", "<return>true</return>")


def _remove(call: Call, volume: Any) -> None:
    remove_volume(volume)
    call.world.disks.record("deleted", volume.id)
