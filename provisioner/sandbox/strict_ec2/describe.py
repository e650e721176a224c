"""DescribeVolumes: by id, by filter, by page, in no particular order."""

from collections.abc import Callable
from typing import Any, Final
from uuid import uuid4

from provisioner.sandbox.strict_ec2.call import Call
from provisioner.sandbox.strict_ec2.errors import Ec2Error, combination, dry_run, volumes_not_found
from provisioner.sandbox.strict_ec2.filters import matcher_of
from provisioner.sandbox.strict_ec2.params import check_volume_id
from provisioner.sandbox.strict_ec2.records import record_of, visible
from provisioner.sandbox.strict_ec2.render import reply
from provisioner.sandbox.strict_ec2.render import volume as render_volume

MAX_FILTERS: Final = 50
MAX_FILTER_VALUES: Final = 200
MAX_IDS: Final = 1000
MIN_PAGE: Final = 5
MAX_PAGE: Final = 1000


def describe_volumes(call: Call) -> str:
    """Answer with the volumes that are named and match every filter."""
    params = call.params
    volume_ids = params.values("VolumeId")
    page_size = _page_size(call, by_id=bool(volume_ids))
    matches = _matchers(call)
    if params.boolean("DryRun"):
        raise dry_run()
    token = params.get("NextToken")
    if volume_ids:
        candidates = _by_id(call, volume_ids)
    elif token:
        rest = call.world.pages.get(token)
        if rest is None:
            raise Ec2Error("InvalidNextToken", "The specified NextToken is not valid.")
        candidates = [v for each in rest if (v := call.backend.volumes.get(each)) is not None]
    else:
        now_s = call.world.now_s()
        candidates = [v for v in call.backend.volumes.values() if visible(v, now_s)]
    found = [v for v in candidates if all(match(v) for match in matches)]
    if not token:
        call.world.random.shuffle(found)
    page, next_token = _cut(call, found, page_size)
    items = "".join(f"<item>{render_volume(volume)}</item>" for volume in page)
    more = f"<nextToken>{next_token}</nextToken>" if next_token else ""
    return reply("DescribeVolumes", f"<volumeSet>{items}</volumeSet>{more}")


def _page_size(call: Call, *, by_id: bool) -> int | None:
    size = call.params.integer("MaxResults")
    if size is None:
        return None
    if by_id:
        raise combination("The parameter volumeSet cannot be used with the parameter maxResults")
    if not MIN_PAGE <= size <= MAX_PAGE:
        raise Ec2Error(
            "InvalidParameterValue",
            f"Value ( {size} ) for parameter maxResults is invalid. "
            f"Expecting a value between {MIN_PAGE} and {MAX_PAGE}.",
        )
    return size


def _matchers(call: Call) -> list[Callable[[Any], bool]]:
    filters = call.params.filters()
    values = sum(len(values) for _, values in filters)
    if len(filters) > MAX_FILTERS or values > MAX_FILTER_VALUES:
        raise Ec2Error(
            "FilterLimitExceeded",
            "The maximum number of filter values specified on a single call is "
            f"{MAX_FILTER_VALUES}",
        )
    return [matcher_of(name, values) for name, values in filters]


def _by_id(call: Call, volume_ids: list[str]) -> list[Any]:
    if len(volume_ids) > MAX_IDS:
        raise Ec2Error("InvalidParameterValue", f"A call may name up to {MAX_IDS} volumes")
    now_s = call.world.now_s()
    unique = dict.fromkeys(volume_ids)
    known = call.backend.volumes
    found = [known.get(check_volume_id(each)) for each in unique]
    absent = [
        volume_id
        for volume_id, volume in zip(unique, found, strict=True)
        if volume is None or not visible(volume, now_s)
    ]
    if absent:
        raise volumes_not_found(absent)
    return found


def _cut(call: Call, found: list[Any], page_size: int | None) -> tuple[list[Any], str | None]:
    if page_size is None or len(found) <= page_size:
        return found, None
    token = uuid4().hex
    call.world.keep_page(token, [volume.id for volume in found[page_size:]])
    return found[:page_size], token


def state_counts(backend: Any) -> dict[str, int]:
    """Count volumes by state, attachments by theirs: for the control endpoint."""
    counts: dict[str, int] = {}
    for volume in backend.volumes.values():
        record = record_of(volume)
        for state in [a.status for a in record.attachments.values()] or [record.state]:
            counts[state] = counts.get(state, 0) + 1
    return counts
