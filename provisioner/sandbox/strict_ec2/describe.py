"""DescribeVolumes: by id, by filter, by page, in no particular order."""

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from provisioner.sandbox.strict_ec2.call import Call
from provisioner.sandbox.strict_ec2.errors import volumes_not_found
from provisioner.sandbox.strict_ec2.filters import VOLUME_FIELDS
from provisioner.sandbox.strict_ec2.listing import Listing, list_page
from provisioner.sandbox.strict_ec2.records import record_of, visible
from provisioner.sandbox.strict_ec2.render import reply
from provisioner.sandbox.strict_ec2.render import volume as render_volume
from provisioner.sandbox.strict_ec2.snapshot_records import snapshot_record_of

_WILD: Final = frozenset("*?")


def describe_volumes(call: Call) -> str:
    """Answer with the volumes that are named and match every filter."""
    page, more = list_page(call, _LISTING)
    items = "".join(f"<item>{render_volume(volume)}</item>" for volume in page)
    return reply("DescribeVolumes", f"<volumeSet>{items}</volumeSet>{more}")


def volumes_by_id(call: Call, volume_ids: list[str]) -> list[Any]:
    """Return the volumes of ids.

    Raises: ``InvalidVolume.NotFound`` that names those that are not there, or not yet visible.
    """
    now_s = call.world.now_s()
    known = call.backend.volumes
    found = [known.get(each) for each in volume_ids]
    absent = [
        volume_id
        for volume_id, volume in zip(volume_ids, found, strict=True)
        if volume is None or not visible(volume, now_s)
    ]
    if absent:
        raise volumes_not_found(absent)
    return found


def visible_volumes(call: Call) -> list[Any]:
    """Return every volume that EC2's readers know and that a filter by id does not exclude."""
    now_s = call.world.now_s()
    return [each for each in _asked_for(call) if visible(each, now_s)]


def _asked_for(call: Call) -> Iterable[Any]:
    """Those of a filter by id alone: a look at a few would go through ten thousands."""
    known = call.backend.volumes
    for name, values in call.params.filters():
        if name == "volume-id" and not any(set(each) & _WILD for each in values):
            found = (known.get(each) for each in dict.fromkeys(values))
            return [each for each in found if each is not None]
    everything: Iterable[Any] = known.values()
    return everything


_LISTING: Final = Listing(
    ids="VolumeId",
    id_set="volumeSet",
    fields=VOLUME_FIELDS,
    by_id=volumes_by_id,
    find=lambda call, volume_id: call.backend.volumes.get(volume_id),
    everything=visible_volumes,
    key_of=lambda volume: str(volume.id),
)


def modification_counts(backend: Any) -> dict[str, int]:
    """Count the latest modifications by state: for the control endpoint."""
    latest = (record_of(each).modification for each in backend.volumes.values())
    return dict(Counter(each.state for each in latest if each is not None))


def snapshot_counts(backend: Any) -> dict[str, int]:
    """Count snapshots by state: for the control endpoint."""
    return dict(Counter(snapshot_record_of(each).state for each in backend.snapshots.values()))


def state_counts(backend: Any) -> dict[str, int]:
    """Count volumes by state, attachments by theirs: for the control endpoint."""
    counts: dict[str, int] = {}
    for volume in backend.volumes.values():
        record = record_of(volume)
        for state in [a.status for a in record.attachments.values()] or [record.state]:
            counts[state] = counts.get(state, 0) + 1
    return counts
