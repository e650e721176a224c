"""Filters of DescribeVolumes: any value of a filter, every filter of a call.

Filter names as botocore 1.44.5's model lists them; ``*`` and ``?`` match as EC2 documents.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from provisioner.sandbox.strict_ec2.errors import Ec2Error
from provisioner.sandbox.strict_ec2.records import record_of, status_of


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _attachment(field: Callable[[Any], object]) -> Callable[[Any], list[str]]:
    return lambda volume: [_text(field(each)) for each in record_of(volume).attachments.values()]


def _tag(key: str) -> Callable[[Any], list[str]]:
    def field(volume: Any) -> list[str]:
        tags = volume.ec2_backend.tags.get(volume.id) or {}
        return [tags[key]] if key in tags else []

    return field


_FIELDS: Final[dict[str, Callable[[Any], list[str]]]] = {
    "attachment.attach-time": _attachment(lambda a: a.attach_time.isoformat()),
    "attachment.delete-on-termination": _attachment(lambda a: bool(a.delete_on_termination)),
    "attachment.device": _attachment(lambda a: a.device),
    "attachment.instance-id": _attachment(lambda a: a.instance.id),
    "attachment.status": _attachment(lambda a: a.status),
    "availability-zone": lambda v: [v.zone.name if v.zone else ""],
    "availability-zone-id": lambda v: [v.zone.zone_id if v.zone else ""],
    "create-time": lambda v: [v.create_time.isoformat()],
    "encrypted": lambda v: [_text(bool(v.encrypted))],
    "fast-restored": lambda _: ["false"],
    "multi-attach-enabled": lambda v: [_text(bool(v.multi_attach_enabled))],
    "size": lambda v: [_text(v.size)],
    "snapshot-id": lambda v: [v.snapshot_id or ""],
    "status": lambda v: [status_of(v)],
    "tag-key": lambda v: list(v.ec2_backend.tags.get(v.id) or ()),
    "tag-value": lambda v: list((v.ec2_backend.tags.get(v.id) or {}).values()),
    "volume-id": lambda v: [v.id],
    "volume-type": lambda v: [v.volume_type],
}


def matcher_of(name: str, values: list[str]) -> Callable[[Any], bool]:
    """Return the test that one filter makes of a volume.

    Raises: ``InvalidParameterValue`` for a filter that EC2 does not have.
    """
    if name.startswith("tag:"):
        field = _tag(name.removeprefix("tag:"))
    elif name in _FIELDS:
        field = _FIELDS[name]
    else:
        raise Ec2Error("InvalidParameterValue", f"The filter '{name}' is invalid")
    accepts = _acceptor(values)
    return lambda volume: accepts(field(volume))


def _acceptor(values: list[str]) -> Callable[[Iterable[str]], bool]:
    exact = {value for value in values if not re.search(r"[*?]", value)}
    patterns = [
        re.compile(re.escape(value).replace(r"\*", ".*").replace(r"\?", "."), re.DOTALL)
        for value in values
        if value not in exact
    ]
    return lambda found: any(
        each in exact or any(pattern.fullmatch(each) for pattern in patterns) for each in found
    )
