"""CreateVolume and DeleteVolume."""

from fnmatch import fnmatchcase
from typing import Any, Final

from provisioner.sandbox.strict_ec2 import limits, motos
from provisioner.sandbox.strict_ec2.call import Call
from provisioner.sandbox.strict_ec2.encryption import Encryption, encryption_of
from provisioner.sandbox.strict_ec2.errors import (
    Ec2Error,
    combination,
    dry_run,
    invalid,
    missing,
)
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
from provisioner.sandbox.strict_ec2.tags import specified_tags
from provisioner.sandbox.strict_ec2.world import Token

_TOKEN_LENGTH: Final = 64
# EBS user guide "Multi-Attach" (read 2026-11-21).
_IO1_MULTI_ATTACH_REGIONS: Final = ("us-east-1", "us-west-2", "ap-northeast-2")
_NO_CAPACITY: Final = (
    "There is not enough capacity to fulfill your EBS volume provision request in zone {zone}."
)


def create_volume(call: Call) -> str:
    """Make a volume, or return the one that the client token stands for."""
    params = call.params
    tags = specified_tags(call, "volume")
    zone = _zone(call)
    outpost_arn = asked_outpost(call, zone.name)
    spec = _spec(call)
    encryption = encryption_of(call)
    token = _checked_token(params.get("ClientToken"))
    if params.boolean("DryRun"):
        raise dry_run()
    # Before the token, as real EC2: at the quota a repeated request is refused although its volume
    # exists (aws-ebs-csi-driver #2512).
    check_new_volume(call, spec)
    key = _token_key(call, token, zone.name)
    if key is not None and (known := call.world.tokens.get(key)) is not None:
        return reply("CreateVolume", _repeated(call, known))
    _check_capacity(call, zone.name, spec["volume_type"])
    volume = _make(call, zone, spec, encryption, tags)
    record_of(volume).outpost_arn = outpost_arn
    if key is not None:
        call.world.tokens[key] = Token(params.fingerprint(), volume.id)
    content = render_volume(volume)
    _start(call, volume, vanishes=encryption.key_is_unknown)
    return reply("CreateVolume", content)


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


def _spec(call: Call) -> dict[str, Any]:
    params = call.params
    volume_type = params.get("VolumeType") or "gp2"
    type_limits = limits.check_type(volume_type)
    size_gib, snapshot_id = params.integer("Size"), params.get("SnapshotId")
    if snapshot_id:
        size_gib = _size_with_snapshot(call, snapshot_id, size_gib)
    if size_gib is None:
        raise missing("size/snapshot")
    iops, throughput = params.integer("Iops"), params.integer("Throughput")
    limits.check_size(volume_type, size_gib)
    ceiling = call.world.settings.iops_ceilings.get(volume_type)
    limits.check_iops(volume_type, size_gib, iops, ceiling)
    limits.check_throughput(volume_type, iops, throughput)
    multi_attach = params.boolean("MultiAttachEnabled")
    if multi_attach and not type_limits.multi_attach:
        raise combination(f"Multi-attach is not supported for {volume_type} volumes.")
    if multi_attach and volume_type == "io1" and call.scope[1] not in _IO1_MULTI_ATTACH_REGIONS:
        raise combination("Multi-attach is not supported for io1 volumes in this region.")
    return {
        "volume_type": volume_type,
        "size": size_gib,
        "snapshot_id": snapshot_id,
        "iops": iops or limits.default_iops(volume_type, size_gib),
        "throughput": throughput or (limits.GP3_MIN_THROUGHPUT if volume_type == "gp3" else None),
        "multi_attach_enabled": multi_attach,
    }


def _size_with_snapshot(call: Call, snapshot_id: str, size_gib: int | None) -> int:
    snapshot = call.backend.snapshots.get(snapshot_id)
    if snapshot is None:
        raise Ec2Error("InvalidSnapshot.NotFound", f"The snapshot '{snapshot_id}' does not exist.")
    least_gib = int(snapshot.volume_size)
    if size_gib is not None and size_gib < least_gib:
        raise invalid(
            f"Volume of {size_gib}GiB is smaller than snapshot '{snapshot_id}', "
            f"expect size >= {least_gib}GiB"
        )
    return least_gib if size_gib is None else size_gib


def _checked_token(token: str | None) -> str | None:
    if token is not None and (len(token) > _TOKEN_LENGTH or not token.isascii()):
        raise invalid(f"Value ({token}) for parameter clientToken is invalid.")
    return token or None


def _token_key(call: Call, token: str | None, zone: str) -> tuple[str, ...] | None:
    if token is None:
        return None
    key = (*call.scope, token)
    return (*key, zone) if call.world.settings.token_per_zone else key


def _repeated(call: Call, token: Token) -> str:
    if token.fingerprint != call.params.fingerprint():
        raise Ec2Error(
            "IdempotentParameterMismatch",
            "Parameters on this idempotent request are inconsistent with parameters used in "
            "previous request(s)",
        )
    volume = call.backend.volumes.get(token.volume_id)
    if volume is None or record_of(volume).state == "deleting":
        raise Ec2Error(
            "IdempotentParameterMismatch",
            "The client token you have provided is associated with a resource that is already "
            "deleted. Please use a different client token.",
        )
    return render_volume(volume)


def _check_capacity(call: Call, zone: str, volume_type: str) -> None:
    for rule in call.world.settings.capacity:
        if fnmatchcase(zone, rule.get("zone", "*")) and fnmatchcase(
            volume_type, rule.get("type", "*")
        ):
            code = rule.get("code", "InsufficientVolumeCapacity")
            # AWS lists InsufficientVolumeCapacity among the server errors, others not.
            status = 500 if code == "InsufficientVolumeCapacity" else 400
            raise Ec2Error(code, _NO_CAPACITY.format(zone=zone), status)


def _make(
    call: Call, zone: Any, spec: dict[str, Any], encryption: Encryption, tags: dict[str, str]
) -> Any:
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


def _start(call: Call, volume: Any, *, vanishes: bool) -> None:
    """Let a creating volume become available, fail, or silently vanish."""
    settings = call.world.settings
    ends_in = "available"
    if settings.failing_creates > 0:
        settings.failing_creates -= 1
        ends_in = "error"

    def finish() -> None:
        if vanishes:
            remove_volume(volume)
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
        call.world.after(call.world.settings.delays.delete_s, lambda: remove_volume(volume))
    return reply("DeleteVolume", "<return>true</return>")
