"""Fast snapshot restore: enabling while its snapshot is pending, optimizing, enabled.

Sources: EC2 API model (botocore 1.44.5), EBS user guide "Fast snapshot restore" and quotas (read
2026-11-22); pingcap/tidb #48505 quotes the refusal of more than ten snapshots. A call can succeed
for some pairs of snapshot and zone and fail for others: HTTP 200 tells both. Nobody quotes what is
said beyond the quota: it is ours.
"""

from itertools import product
from typing import Any, Final

from provisioner.sandbox.strict_ec2.call import Call
from provisioner.sandbox.strict_ec2.errors import (
    Ec2Error,
    combination,
    dry_run,
    invalid,
    missing,
    snapshots_not_found,
)
from provisioner.sandbox.strict_ec2.filters import Field
from provisioner.sandbox.strict_ec2.listing import Listing, list_page
from provisioner.sandbox.strict_ec2.render import fast_restore as render
from provisioner.sandbox.strict_ec2.render import fast_restore_refusal, reply
from provisioner.sandbox.strict_ec2.snapshot_records import FastRestore, snapshot_record_of

_MAX_SNAPSHOTS: Final = 10


def enable_fast_snapshot_restores(call: Call) -> str:
    """Enable each snapshot in each zone; enabled ones stay as they are."""
    snapshot_ids, zones = _asked(call)
    done: list[str] = []
    refused: list[str] = []
    for snapshot_id, zone in product(snapshot_ids, zones):
        try:
            done.append(render(_enable(call, snapshot_id, zone)))
        except Ec2Error as error:
            refused.append(fast_restore_refusal(snapshot_id, zone.name, error))
    return _answer("EnableFastSnapshotRestores", done, refused)


def disable_fast_snapshot_restores(call: Call) -> str:
    """Disable each snapshot in each zone; what is not enabled fails alone."""
    snapshot_ids, zones = _asked(call)
    done: list[str] = []
    refused: list[str] = []
    for snapshot_id, zone in product(snapshot_ids, zones):
        snapshot = call.backend.snapshots.get(snapshot_id)
        restores = {} if snapshot is None else snapshot_record_of(snapshot).fast_restores
        restore = restores.pop(zone.name, None)
        if restore is None:
            error = invalid("Fast snapshot restores are not enabled for the snapshot in the zone.")
            refused.append(fast_restore_refusal(snapshot_id, zone.name, error))
        else:
            done.append(render(restore, "disabling"))
    return _answer("DisableFastSnapshotRestores", done, refused)


def _answer(action: str, done: list[str], refused: list[str]) -> str:
    listed = "".join(f"<item>{each}</item>" for each in done)
    failed = "".join(f"<item>{each}</item>" for each in refused)
    content = f"<successful>{listed}</successful><unsuccessful>{failed}</unsuccessful>"
    return reply(action, content)


def _asked(call: Call) -> tuple[list[str], list[Any]]:
    """Return the snapshot ids and the zones of a request.

    Raises: Ec2Error for a request that cannot be carried out for any pair.
    """
    params = call.params
    snapshot_ids = params.values("SourceSnapshotId")
    names, zone_ids = params.values("AvailabilityZone"), params.values("AvailabilityZoneId")
    if not snapshot_ids:
        raise missing("sourceSnapshotId")
    if len(snapshot_ids) > _MAX_SNAPSHOTS:
        raise Ec2Error(
            "InvalidRequest",
            "Number of values of parameter SourceSnapshotIds must be less than or equal to "
            f"{_MAX_SNAPSHOTS}.",
        )
    if names and zone_ids:
        raise combination("Specify one of AvailabilityZone and AvailabilityZoneId, not both.")
    if not names and not zone_ids:
        raise missing("availabilityZone")
    known = call.backend.zones.get(call.backend.region_name, [])
    zones = [each for each in known if each.name in names or each.zone_id in zone_ids]
    strangers = {*names, *zone_ids} - {name for z in zones for name in (z.name, z.zone_id)}
    if strangers:
        raise invalid(f"Invalid availability zone: [{', '.join(sorted(strangers))}]")
    if params.boolean("DryRun"):
        raise dry_run()
    return snapshot_ids, zones


def _enable(call: Call, snapshot_id: str, zone: Any) -> FastRestore:
    now_s, settings = call.world.now_s(), call.world.settings
    snapshot = call.backend.snapshots.get(snapshot_id)
    if snapshot is None or snapshot_record_of(snapshot).visible_at_s > now_s:
        raise snapshots_not_found([snapshot_id])
    record = snapshot_record_of(snapshot)
    known = record.fast_restores.get(zone.name)
    if known is not None:
        return known
    others = sum(
        bool(snapshot_record_of(each).fast_restores)
        for each in call.backend.snapshots.values()
        if each is not snapshot
    )
    if others >= settings.fast_restore_snapshots:
        raise Ec2Error(
            "FastSnapshotRestoreLimitExceeded",
            f"The maximum of {settings.fast_restore_snapshots} snapshots with fast snapshot "
            "restore in this Region is reached.",
        )
    made = FastRestore(
        snapshot=snapshot,
        zone=zone.name,
        zone_id=zone.zone_id,
        clock=call.world.now_s,
        asked_s=now_s,
        optimizing_for_s=settings.delays.fast_restore_s,
    )
    record.fast_restores[zone.name] = made
    return made


def describe_fast_snapshot_restores(call: Call) -> str:
    """Answer with every pair of snapshot and zone that is not disabled."""
    page, more = list_page(call, _LISTING)
    items = "".join(f"<item>{render(each)}</item>" for each in page)
    content = f"<fastSnapshotRestoreSet>{items}</fastSnapshotRestoreSet>{more}"
    return reply("DescribeFastSnapshotRestores", content)


def _everything(call: Call) -> list[FastRestore]:
    return [
        restore
        for snapshot in call.backend.snapshots.values()
        for restore in snapshot_record_of(snapshot).fast_restores.values()
    ]


def _find(call: Call, key: str) -> FastRestore | None:
    snapshot_id, _, zone = key.partition(" ")
    snapshot = call.backend.snapshots.get(snapshot_id)
    return None if snapshot is None else snapshot_record_of(snapshot).fast_restores.get(zone)


_FIELDS: Final[dict[str, Field]] = {
    "availability-zone": lambda r: [r.zone],
    "availability-zone-id": lambda r: [r.zone_id],
    "owner-id": lambda r: [str(r.snapshot.owner_id)],
    "snapshot-id": lambda r: [r.snapshot.id],
    "state": lambda r: [r.state],
}
_LISTING: Final = Listing(
    ids=None,
    id_set="",
    fields=_FIELDS,
    by_id=lambda _, ids: ids,
    find=_find,
    everything=_everything,
    key_of=lambda restore: f"{restore.snapshot.id} {restore.zone}",
)
