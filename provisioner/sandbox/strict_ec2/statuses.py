"""DescribeVolumeStatus: above all, how far a restored or copied volume is initialized.

What is told of the initialization may be minutes old; of a volume that was made empty nothing is.
Source: EBS user guide "Monitor the status of Amazon EBS volume initialization", read 2026-11-22.
"""

from typing import Any, Final

from provisioner.sandbox.strict_ec2.call import Call
from provisioner.sandbox.strict_ec2.describe import visible_volumes, volumes_by_id
from provisioner.sandbox.strict_ec2.filters import Field
from provisioner.sandbox.strict_ec2.listing import Listing, list_page
from provisioner.sandbox.strict_ec2.records import Initialization, record_of
from provisioner.sandbox.strict_ec2.render import reply


def describe_volume_status(call: Call) -> str:
    """Answer with the status of the volumes that are named and match every filter."""
    page, more = list_page(call, _LISTING)
    seen_s = call.world.now_s() - call.world.settings.delays.initialization_known_after_s
    items = "".join(f"<item>{_status(volume, seen_s)}</item>" for volume in page)
    return reply("DescribeVolumeStatus", f"<volumeStatusSet>{items}</volumeStatusSet>{more}")


def _status(volume: Any, seen_s: float) -> str:
    record = record_of(volume)
    initialization = record.initialization
    if initialization is not None and seen_s < initialization.begun_s:
        initialization = None  # not told yet
    details = [("io-enabled", "passed"), ("io-performance", "not-applicable")]
    if initialization is not None:
        running = record.state == "creating" or initialization.is_running(seen_s)
        details.append(("initialization-state", "initializing" if running else "completed"))
    listed = "".join(
        f"<item><name>{name}</name><status>{status}</status></item>" for name, status in details
    )
    return (
        f"<volumeId>{volume.id}</volumeId>"
        f"<availabilityZone>{volume.zone.name if volume.zone else ''}</availabilityZone>"
        f"<volumeStatus><status>{_overall(volume)}</status><details>{listed}</details>"
        "</volumeStatus><eventsSet/><actionsSet/>"
        + ("" if initialization is None else _details(initialization, seen_s))
    )


def _overall(volume: Any) -> str:
    return "insufficient-data" if record_of(volume).state == "creating" else "ok"


def _details(initialization: Initialization, seen_s: float) -> str:
    left_s = max(0, round(initialization.completed_from_s - seen_s))
    estimated = (
        f"<estimatedTimeToCompleteInSeconds>{left_s}</estimatedTimeToCompleteInSeconds>"
        if initialization.rate_mibps is not None
        else ""
    )
    return (
        "<initializationStatusDetails>"
        f"<initializationType>{initialization.kind}</initializationType>"
        f"<progress>{initialization.progress_percent(seen_s)}</progress>{estimated}"
        "</initializationStatusDetails>"
    )


_FIELDS: Final[dict[str, Field]] = {
    "availability-zone": lambda v: [v.zone.name if v.zone else ""],
    "volume-status.status": lambda v: [_overall(v)],
}
_LISTING: Final = Listing(
    ids="VolumeId",
    id_set="volumeSet",
    fields=_FIELDS,
    by_id=volumes_by_id,
    find=lambda call, volume_id: call.backend.volumes.get(volume_id),
    everything=visible_volumes,
    key_of=lambda volume: str(volume.id),
)
