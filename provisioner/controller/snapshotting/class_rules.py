"""The parameters of a VolumeSnapshotClass: read once, into a frozen record.

Keys ignore case as aws-ebs-csi-driver's do, but for the prefix ``tagSpecification``. What can never
work is refused before a snapshot is taken: the stock driver takes it and deletes it again.
A class can be deleted or changed between CreateSnapshot and the lock. So its settings for
a snapshot that is taken are written to the content in the same request that says that EC2 is about
to be asked, and removed once EC2 has applied them.
Source: aws-ebs-csi-driver v1.64 docs/snapshot.md, docs/fast-snapshot-restores.md,
docs/snapshot-lock.md and pkg/driver/controller.go ``CreateSnapshot``; EC2 API LockSnapshot;
external-snapshotter 8.6 pkg/utils/util.go for the secrets (read 2026-11-21).
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from provisioner.model import tags
from provisioner.model.ebs_snapshot import LockRequest
from provisioner.model.names import PENDING_SETTINGS
from provisioner.model.tag_template import OF_SNAPSHOT, TagTemplate
from provisioner.model.volume_snapshot import VolumeSnapshotClass, VolumeSnapshotContent

LOCK_MODES = ("governance", "compliance")
# Source: EC2 API LockSnapshot (read 2026-11-21).
_DAYS, _HOURS = (1, 36_500), (1, 72)
# Source: EC2 API LockSnapshot (read 2026-11-22): from a day to 36,500 days ahead.
_LOCK_AHEAD = (timedelta(days=1), timedelta(days=36_500))
_SETTINGS_BEGIN = ("lock", "fastsnapshot")
_ARN = re.compile(r"arn:aws[a-z-]*:outposts:[a-z0-9-]+:[0-9]{12}:outpost/op-[0-9a-f]+")
_ZONE = re.compile(r"[a-z]{2}[a-z-]*-[0-9]+[a-z0-9-]*")
_SECRETS = frozenset(
    f"csi.storage.k8s.io/{of}-secret-{part}"
    for of in ("snapshotter", "snapshotter-list")
    for part in ("name", "namespace")
)


@dataclass(frozen=True, slots=True)
class SnapshotParameters:
    """What a class asks of its snapshots.

    Attributes:
        fast_zones: where volumes made of the snapshot are fast from the start.
        lock: how it is kept from deletion.
        outpost_arn: where it is stored, instead of in the Region.
        tag_templates: they name the VolumeSnapshot.
    """

    fast_zones: tuple[str, ...] = ()
    lock: LockRequest | None = None
    outpost_arn: str | None = None
    tag_templates: tuple[TagTemplate, ...] = ()


def parse(raw: Mapping[str, str]) -> SnapshotParameters:
    """Read a class's parameters.

    Raises:
        ValueError: one sentence that names the parameter, its value and what would help.
    """
    given: dict[str, Any] = {}
    for name, text in sorted(raw.items()):
        # EBS needs no secret, so none is read.
        if not name.startswith(tags.TAG_PREFIX) and name not in _SECRETS:
            _read(given, name, text)
    return SnapshotParameters(
        fast_zones=given.pop("fastsnapshotrestoreavailabilityzones", ()),
        outpost_arn=given.pop("outpostarn", None),
        lock=_lock(given),
        tag_templates=tags.of_parameters(raw, OF_SNAPSHOT),
    )


def unknown_zones(parameters: SnapshotParameters, known: frozenset[str]) -> str | None:
    """Why EC2 will refuse fast restores in these zones, in one sentence; None if it need not."""
    unknown = [zone for zone in parameters.fast_zones if zone not in known]
    if not unknown:
        return None
    return (
        f"fastSnapshotRestoreAvailabilityZones names {', '.join(unknown)}, but this Region has "
        f"only {', '.join(sorted(known))}"
    )


def settings_of(read_class: VolumeSnapshotClass | None) -> dict[str, str | None]:
    """What is written to a content whose snapshot is taken by this class.

    None takes away what an earlier request noted, which was refused.
    """
    given = (read_class.parameters if read_class else None) or {}
    kept = {name: text for name, text in given.items() if name.lower().startswith(_SETTINGS_BEGIN)}
    return {PENDING_SETTINGS: json.dumps(kept, sort_keys=True) if kept else None}


def pending_settings(content: VolumeSnapshotContent) -> SnapshotParameters:
    """What was asked for when its snapshot was begun.

    Raises:
        ValueError: one sentence; somebody else has written it, such as a newer version.
    """
    try:
        given = json.loads(content.annotations.get(PENDING_SETTINGS, "{}"))
        if not isinstance(given, Mapping) or not all(isinstance(v, str) for v in given.values()):
            raise ValueError("it is not a JSON object of texts")
        return parse(given)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"annotation {PENDING_SETTINGS} of VolumeSnapshotContent {content.name} cannot be "
            f"read: {error}; it says how to lock the snapshot and where to make it fast: correct "
            "it, or remove it if the snapshot needs neither"
        ) from error


def untimely_lock(parameters: SnapshotParameters, now: datetime) -> str | None:
    """Why EC2 will refuse the lock at this time, in one sentence; None if it need not."""
    at = parameters.lock.expires_at if parameters.lock else None
    least, most = _LOCK_AHEAD
    if at is None or least <= at - now <= most:
        return None
    return (
        f"lockExpirationDate is {at.isoformat()}, but EC2 accepts only times from 1 to {most.days} "
        "days ahead; use lockDuration to lock each snapshot for the same time"
    )


def slow_zones(zones: Iterable[str], states: Mapping[str, str]) -> tuple[str, ...]:
    """The zones in which fast restore is neither on nor on its way; ``states`` by zone."""
    off = ("", "disabling", "disabled")
    return tuple(zone for zone in zones if states.get(zone, "") in off)


def _read(given: dict[str, Any], name: str, text: str) -> None:
    key = name.lower()
    reader = _READERS.get(key)
    if reader is None:
        known = ", ".join((*_NAMES, f"{tags.TAG_PREFIX}_N"))
        raise ValueError(f"unknown parameter {name[:100]!r}; known are {known}")
    if key in given:
        raise ValueError(f"parameter {name!r} is given twice in different spellings")
    try:
        given[key] = reader(text)
    except ValueError as error:
        raise ValueError(f"parameter {name!r}: {text[:100]!r} {error}") from error


def _lock(given: Mapping[str, Any]) -> LockRequest | None:
    if not given:
        return None
    mode = given.get("lockmode")
    days, expires_at = given.get("lockduration"), given.get("lockexpirationdate")
    hours = given.get("lockcooloffperiod")
    if mode is None:
        raise ValueError("a lock needs lockMode, either governance or compliance")
    if (days is None) is (expires_at is None):
        raise ValueError("a lock needs exactly one of lockDuration and lockExpirationDate")
    if hours is not None and mode != "compliance":
        raise ValueError("lockCoolOffPeriod is allowed only with lockMode compliance")
    return LockRequest(mode, days, expires_at, hours)


def _zones(text: str) -> tuple[str, ...]:
    zones = tuple(dict.fromkeys(zone for zone in text.replace(" ", "").split(",") if zone))
    if not zones:
        raise ValueError("names no zone")
    for zone in zones:
        if not _ZONE.fullmatch(zone):
            raise ValueError("is not a list of zones such as us-east-1a, us-east-1b")
    return zones


def _outpost(text: str) -> str:
    if not _ARN.fullmatch(text.strip()):
        raise ValueError("is not the ARN of an Outpost")
    return text.strip()


def _mode(text: str) -> str:
    lowered = text.strip().lower()
    if lowered not in LOCK_MODES:
        raise ValueError(f"is not one of {', '.join(LOCK_MODES)}")
    return lowered


def _between(least: int, most: int, unit: str) -> Callable[[str], int]:
    def read(text: str) -> int:
        found = re.fullmatch(r"\+?0*([0-9]{1,9})", text.strip(), re.ASCII)
        if found is None or not least <= int(found[1]) <= most:
            raise ValueError(f"is not a number of {unit} from {least} to {most}")
        return int(found[1])

    return read


def _time(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise ValueError("is not a time such as 2030-01-31T00:00:00Z") from error
    if found.tzinfo is None:
        raise ValueError("has no time zone; write, for example, 2030-01-31T00:00:00Z")
    return found


_NAMES = (
    "fastSnapshotRestoreAvailabilityZones",
    "outpostArn",
    "lockMode",
    "lockDuration",
    "lockExpirationDate",
    "lockCoolOffPeriod",
)
_READERS: Mapping[str, Callable[[str], object]] = dict(
    zip(
        (name.lower() for name in _NAMES),
        (_zones, _outpost, _mode, _between(*_DAYS, "days"), _time, _between(*_HOURS, "hours")),
        strict=True,
    )
)
