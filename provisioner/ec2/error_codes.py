"""What EC2's error codes mean, and what their texts tell besides.

The code decides, never the HTTP status alone: InsufficientVolumeCapacity is a 5xx and a clear no,
while an InternalError may have been carried out.
Source of codes: AWSEC2/APIReference/errors-overview.html (read 2026-11-21), texts as quoted in
public issues; see the strict EC2 of the sandbox.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from provisioner.model.errors import Outcome, Reason

R = Reason
_Table = tuple[tuple[re.Pattern[str], re.Pattern[str], Reason], ...]
_SERVER_ERROR = 500

THROTTLES = frozenset(
    {
        "RequestLimitExceeded",
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "RequestThrottled",
        "RequestThrottledException",
        "EC2ThrottledException",
        "TooManyRequestsException",
        "SlowDown",
        "BandwidthLimitExceeded",
        "PriorRequestNotComplete",
    }
)

CODES: Mapping[str, Reason] = {
    "InsufficientVolumeCapacity": R.ZONE_OUT_OF_CAPACITY,
    "InsufficientCapacity": R.ZONE_OUT_OF_CAPACITY,
    "InsufficientCapacityOnOutpost": R.ZONE_OUT_OF_CAPACITY,
    "VolumeTypeNotAvailableInZone": R.TYPE_NOT_IN_ZONE,
    # The types that exist are known here, so this one is only missing where it was asked for: in
    # most Local Zones there is no gp3 (aws-ebs-csi-driver #662).
    "UnknownVolumeType": R.TYPE_NOT_IN_ZONE,
    "InvalidZone.NotFound": R.ZONE_NOT_FOUND,
    "InvalidAvailabilityZone": R.ZONE_NOT_FOUND,
    "UnauthorizedOperation": R.PERMISSION_DENIED,
    "AccessDenied": R.PERMISSION_DENIED,
    "AccessDeniedException": R.PERMISSION_DENIED,
    "OptInRequired": R.PERMISSION_DENIED,
    "PendingVerification": R.PERMISSION_DENIED,
    "Blocked": R.PERMISSION_DENIED,
    "AuthFailure": R.CREDENTIALS_INVALID,
    "ExpiredToken": R.CREDENTIALS_INVALID,
    "ExpiredTokenException": R.CREDENTIALS_INVALID,
    "IncompleteSignature": R.CREDENTIALS_INVALID,
    "InvalidClientTokenId": R.CREDENTIALS_INVALID,
    "InvalidSecurity": R.CREDENTIALS_INVALID,
    "MissingAuthenticationToken": R.CREDENTIALS_INVALID,
    "RequestExpired": R.CREDENTIALS_INVALID,
    "SignatureDoesNotMatch": R.CREDENTIALS_INVALID,
    "UnrecognizedClientException": R.CREDENTIALS_INVALID,
    "IdempotentParameterMismatch": R.TOKEN_MISMATCH,
    "InvalidVolume.NotFound": R.VOLUME_NOT_FOUND,
    "InvalidVolumeID.Malformed": R.VOLUME_NOT_FOUND,  # what has no valid id exists nowhere
    "InvalidVolumeID.NotFound": R.VOLUME_NOT_FOUND,
    "InvalidInstanceID.NotFound": R.INSTANCE_NOT_FOUND,
    "InvalidInstanceID.Malformed": R.INSTANCE_NOT_FOUND,
    "VolumeInUse": R.VOLUME_IN_USE,
    "InvalidVolume.ZoneMismatch": R.ZONE_MISMATCH,
    "InvalidAttachment.NotFound": R.NOT_ATTACHED,
    "IncorrectState": R.VOLUME_STATE,
    "IncorrectInstanceState": R.INSTANCE_STATE,
    "IncorrectModificationState": R.MODIFICATION_RUNNING,
    "InvalidVolumeModification.NotFound": R.NEVER_MODIFIED,
    "VolumeModificationRateExceeded": R.MODIFICATION_LIMIT,
    "InvalidSnapshot.NotFound": R.SNAPSHOT_NOT_FOUND,
    "InvalidSnapshotID.Malformed": R.SNAPSHOT_NOT_FOUND,
    "InvalidSnapshot.InUse": R.SNAPSHOT_IN_USE,
    "SnapshotCreationPerVolumeRateExceeded": R.SNAPSHOT_RATE,
    "ConcurrentSnapshotLimitExceeded": R.SNAPSHOT_RATE,
    "PendingSnapshotLimitExceeded": R.SNAPSHOT_RATE,
    "CopyVolumesLimitExceeded": R.COPY_RATE,
    "AttachmentLimitExceeded": R.INSTANCE_FULL,
    "ConcurrentTagAccess": R.VOLUME_STATE,
    "InternalError": R.REPLY_LOST,
    "InternalFailure": R.REPLY_LOST,
    "ServerInternal": R.REPLY_LOST,
    "ServiceUnavailable": R.REPLY_LOST,
    "Unavailable": R.REPLY_LOST,
}

# Codes that mean several things, told apart by their text: before the table.
_TEXTS: _Table = tuple(
    (re.compile(code), re.compile(pattern, re.IGNORECASE), reason)
    for code, pattern, reason in (
        # Of one thing, with credentials that are valid: EC2 API "Error codes", AuthFailure; text as
        # in StreisandEffect/streisand #82.
        (r"AuthFailure", r"\bnot authorized for\b", R.PERMISSION_DENIED),
        (r"IncorrectState", r"is in the '?available'? state", R.NOT_ATTACHED),
        (r"IncorrectState.*", r"\bsnap-|\bsnapshot is\b", R.SNAPSHOT_STATE),
        (r"IncorrectState", r"\binstance\b.*is not 'running'", R.INSTANCE_STATE),
        (r"InvalidParameterValue|InvalidParameter", r"already in use", R.DEVICE_IN_USE),
        (r"InvalidParameter.*", r"availability zone: \[", R.ZONE_NOT_FOUND),
        (
            r"Unsupported.*|InvalidParameter.*",
            r"not (supported|available|offered) (in|on) .*\b(zone|outpost)\b",
            R.TYPE_NOT_IN_ZONE,
        ),
        (r"InvalidID|InvalidID\.NotFound", r"\bvol-", R.VOLUME_NOT_FOUND),
    )
)
# What a code that is not in the table looks like.
_FAMILIES: _Table = tuple(
    (re.compile(code), re.compile(pattern, re.IGNORECASE), reason)
    for code, pattern, reason in (
        (r"UnauthorizedOperation\..*", r"", R.PERMISSION_DENIED),
        # The code for a snapshot that is locked is documented nowhere.
        (r"(?i:.*snapshot.*lock.*)", r"", R.SNAPSHOT_LOCKED),
        (r".*", r"\bsnapshot\b.*\bis locked\b", R.SNAPSHOT_LOCKED),
        (r"(?!.*Size).*", r"\bmodification (rate|limit)\b", R.MODIFICATION_LIMIT),
        (r"(?i:.*kms.*)", r"", R.KEY_UNUSABLE),
        (r".*", r"\bkms[: ]", R.KEY_UNUSABLE),
        # EC2 documents that it refuses, and no code for it.
        (r"(?i:.*initialization.*limit.*)", r"", R.INITIALIZATION_RATE),
        (r".*Limit.*", r"\binitialization rate\b", R.INITIALIZATION_RATE),
        (r".*LimitExceeded", r"", R.QUOTA_EXCEEDED),
    )
)
_MOMENT = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?)\d*\s*(Z|UTC|GMT|[+-]\d\d:?\d\d)?",
    re.IGNORECASE,
)
_SPAN = r"(\d+)\s*(second|minute|hour)s?\b"
_PROMISE = re.compile(
    rf"\b(?:again|retry|wait)\b[^.]{{0,20}}?\b(?:in|after)\s+{_SPAN}", re.IGNORECASE
)
_BETWEEN = re.compile(rf"\bwait (?:for )?(?:at least )?{_SPAN}", re.IGNORECASE)
_UNITS_S = {"second": 1.0, "minute": 60.0, "hour": 3600.0}


def classify(code: str, text: str, status: int) -> tuple[Reason, Outcome]:
    """What an error code means; the status counts only for codes that nobody knows."""
    reason = _matching(_TEXTS, code, text) or CODES.get(code)
    if reason is None and code in THROTTLES:
        reason = R.THROTTLED
    if reason is None and status < _SERVER_ERROR:
        reason = _matching(_FAMILIES, code, text) or R.INVALID_REQUEST
    if reason is None or reason is R.REPLY_LOST:
        return R.REPLY_LOST, Outcome.UNKNOWN
    return reason, Outcome.NOTHING


@dataclass(frozen=True, slots=True)
class ToldTime:
    """What a refusal's text tells about time; all None where it tells nothing.

    Attributes:
        at: from when on EC2 would do it.
        after_s: after so many seconds, counted from now.
        between_s: so long EC2 wants between two of them.
    """

    at: datetime | None = None
    after_s: float | None = None
    between_s: float | None = None


def told_time(text: str) -> ToldTime:
    """When EC2 would do what it refuses, if the text says so.

    Only a date with a time (UTC if it does not say), or "again in 3 hours", is a promise. AWS's own
    "Wait at least 6 hours between modifications per EBS volume." names the rule, not what is left
    of it, and any other number of hours may be the length of a window. Read leniently, since AWS
    documents that a text comes, and not which.
    Source: that text is quoted in sodafoundation/strato #1094; EBS user guide "Modify a volume",
    "Limitations" (read 2026-11-22).
    """
    for found in _MOMENT.finditer(text):
        day, time, zone = found.groups()
        zone = "+00:00" if zone is None or zone.isalpha() else zone
        try:
            return ToldTime(at=datetime.fromisoformat(f"{day}T{time}{zone}").astimezone(UTC))
        except ValueError:
            continue  # such as the 31st of a month of 30 days
    if (promise := _PROMISE.search(text)) is not None:
        return ToldTime(after_s=_seconds(promise))
    if (between := _BETWEEN.search(text)) is not None:
        return ToldTime(between_s=_seconds(between))
    return ToldTime()


def _seconds(span: re.Match[str]) -> float:
    return float(span.group(1)) * _UNITS_S[span.group(2).lower()]


def _matching(table: _Table, code: str, text: str) -> Reason | None:
    for code_pattern, pattern, reason in table:
        if code_pattern.fullmatch(code) and pattern.search(text):
            return reason
    return None
