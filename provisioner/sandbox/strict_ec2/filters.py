"""Filters of the Describe calls: any value of a filter, every filter of a call.

Filter names as botocore 1.44.5's model lists them; ``*`` stands for any characters and ``?`` for
none or one (EC2 user guide, Filter output: Using_Filtering, read 2026-11-23).
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from provisioner.sandbox.strict_ec2.errors import Ec2Error
from provisioner.sandbox.strict_ec2.records import is_fast_restored, record_of, status_of

Field = Callable[[Any], list[str]]
"""What a filter compares of a thing."""


def text_of(value: object) -> str:
    """Return a value as a filter compares it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _attachment(field: Callable[[Any], object]) -> Field:
    return lambda volume: [text_of(field(each)) for each in record_of(volume).attachments.values()]


def _tags(item: Any) -> Mapping[str, str]:
    return item.ec2_backend.tags.get(item.id) or {}


def _tag(key: str) -> Field:
    def field(item: Any) -> list[str]:
        tags = _tags(item)
        return [tags[key]] if key in tags else []

    return field


#: Of everything that has tags: moto's objects, which know their backend.
TAG_FIELDS: Final[dict[str, Field]] = {
    "tag-key": lambda item: list(_tags(item)),
    "tag-value": lambda item: list(_tags(item).values()),
}
VOLUME_FIELDS: Final[dict[str, Field]] = {
    **TAG_FIELDS,
    "attachment.attach-time": _attachment(lambda a: a.attach_time.isoformat()),
    "attachment.delete-on-termination": _attachment(lambda a: bool(a.delete_on_termination)),
    "attachment.device": _attachment(lambda a: a.device),
    "attachment.instance-id": _attachment(lambda a: a.instance.id),
    "attachment.status": _attachment(lambda a: a.status),
    "availability-zone": lambda v: [v.zone.name if v.zone else ""],
    "availability-zone-id": lambda v: [v.zone.zone_id if v.zone else ""],
    "create-time": lambda v: [v.create_time.isoformat()],
    "encrypted": lambda v: [text_of(bool(v.encrypted))],
    "fast-restored": lambda v: [text_of(is_fast_restored(v))],
    "multi-attach-enabled": lambda v: [text_of(bool(v.multi_attach_enabled))],
    "size": lambda v: [text_of(v.size)],
    "snapshot-id": lambda v: [v.snapshot_id or ""],
    "status": lambda v: [status_of(v)],
    "volume-id": lambda v: [v.id],
    "volume-type": lambda v: [v.volume_type],
}


def matcher_of(name: str, values: list[str], fields: Mapping[str, Field]) -> Callable[[Any], bool]:
    """Return the test that one filter makes of a thing.

    Raises: ``InvalidParameterValue`` for a filter that EC2 does not have for such things.
    """
    if name.startswith("tag:") and "tag-key" in fields:
        field = _tag(name.removeprefix("tag:"))
    elif name in fields:
        field = fields[name]
    else:
        raise Ec2Error("InvalidParameterValue", f"The filter '{name}' is invalid")
    accepts = _acceptor(values)
    return lambda item: accepts(field(item))


def _acceptor(values: list[str]) -> Callable[[Iterable[str]], bool]:
    exact = {value for value in values if not re.search(r"[*?]", value)}
    patterns = [
        re.compile(re.escape(value).replace(r"\*", ".*").replace(r"\?", ".?"), re.DOTALL)
        for value in values
        if value not in exact
    ]
    return lambda found: any(
        each in exact or any(pattern.fullmatch(each) for pattern in patterns) for each in found
    )
