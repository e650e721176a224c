"""Foreign errors become ours, in one table: EC2's codes, botocore's exceptions, STS's refusals.

The code decides, never the HTTP status alone: InsufficientVolumeCapacity is a 5xx and a clear no,
while an InternalError may have been carried out.
Source of codes: AWSEC2/APIReference/errors-overview.html (read 2026-11-21), texts as quoted in
public issues; see the strict EC2 of the sandbox.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    MetadataRetrievalError,
    NoAuthTokenError,
    NoCredentialsError,
    PartialCredentialsError,
    ProxyConnectionError,
    SSLError,
    TokenRetrievalError,
)
from botocore.parsers import ResponseParserError

from provisioner.model.errors import Ec2Error, Outcome, Reason

R = Reason
_Table = tuple[tuple[re.Pattern[str], re.Pattern[str], Reason], ...]
SLOWLY_S = 60.0  # a human has to act; asking more often only fills the audit log
_SOON_S = 1.0
_TOO_MANY = 429
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
    "VolumeTypeNotAvailableInZone": R.TYPE_NOT_IN_ZONE,
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
    "IncorrectModificationState": R.VOLUME_STATE,
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
        (r"IncorrectState", r"is in the '?available'? state", R.NOT_ATTACHED),
        (r"IncorrectState", r"\binstance\b.*is not 'running'", R.INSTANCE_STATE),
        (r"InvalidParameterValue|InvalidParameter", r"already in use", R.DEVICE_IN_USE),
        (r"InvalidParameter.*", r"availability zone: \[", R.ZONE_NOT_FOUND),
        (
            r"Unsupported.*|InvalidParameter.*|UnknownVolumeType",
            r"not (supported|available|offered) in .*\bzone\b",
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
        (r"(?i:.*kms.*)", r"", R.KEY_UNUSABLE),
        (r".*", r"\bkms[: ]", R.KEY_UNUSABLE),
        (r".*LimitExceeded", r"", R.QUOTA_EXCEEDED),
    )
)
_SECRET_TAIL = re.compile(r"\s*Encoded authorization failure message:.*", re.DOTALL)
_IAM_ACTION = re.compile(r"to perform: ([\w-]+:\w+)")

_ADVICE: Mapping[Reason, Callable[[str, str, str], str]] = {
    R.ZONE_OUT_OF_CAPACITY: lambda *_: (
        "the zone has none left of this volume type; try later, another zone or another type"
    ),
    R.TYPE_NOT_IN_ZONE: lambda *_: "choose another volume type or another zone",
    R.ZONE_NOT_FOUND: lambda *_: "check the StorageClass's allowedTopologies and the node labels",
    R.PERMISSION_DENIED: lambda action, _, text: (
        "allow "
        + (found.group(1) if (found := _IAM_ACTION.search(text)) else f"ec2:{action}")
        + " to the controller's IAM role"
    ),
    R.CREDENTIALS_INVALID: lambda _, code, __: (
        "check the clock of this machine"
        if code in {"RequestExpired", "SignatureDoesNotMatch"}
        else "check the controller's AWS credentials (IAM role, web identity token)"
    ),
    R.QUOTA_EXCEEDED: lambda _, code, __: (
        f"raise the quota behind {code} in Service Quotas, or delete what is not needed"
    ),
    R.KEY_UNUSABLE: lambda *_: (
        "check that the KMS key exists, is enabled and allows the "
        "controller's IAM role kms:CreateGrant, kms:GenerateDataKey*, kms:Decrypt, kms:DescribeKey"
    ),
    R.INSTANCE_FULL: lambda *_: "the instance takes no further volumes",
    R.VOLUME_IN_USE: lambda action, *_: (
        "detach it from that instance" if action == "DeleteVolume" else ""
    ),
}
_RETRY_AFTER_S: Mapping[Reason, float] = {
    R.PERMISSION_DENIED: SLOWLY_S,
    R.CREDENTIALS_INVALID: SLOWLY_S / 2,  # tokens are renewed by themselves
    R.QUOTA_EXCEEDED: SLOWLY_S,
    R.KEY_UNUSABLE: SLOWLY_S,
}
_NO_CREDENTIALS = (
    NoCredentialsError,
    PartialCredentialsError,
    CredentialRetrievalError,
    TokenRetrievalError,
    NoAuthTokenError,
    MetadataRetrievalError,
)
_NEVER_SENT = (EndpointConnectionError, ConnectTimeoutError, ProxyConnectionError)
_HANDSHAKE = re.compile(r"CERTIFICATE_VERIFY_FAILED|WRONG_VERSION_NUMBER|HANDSHAKE", re.IGNORECASE)


def is_throttle(failure: Exception, action: str) -> bool:
    """Whether EC2 refused a call of ours because there were too many."""
    if not isinstance(failure, ClientError) or failure.operation_name != action:
        return False
    return _said(failure, "Code") in THROTTLES or _status(failure) == _TOO_MANY


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


def translate(failure: Exception, action: str, params: Mapping[str, Any]) -> Ec2Error | None:
    """Our error for whatever a boto3 call raised; None for an exception that is a bug of ours.

    A read changes nothing, so its outcome is always NOTHING.
    """
    what = f"{action} {_object_of(params)}".rstrip()
    lost = Outcome.NOTHING if is_read(action) else Outcome.UNKNOWN
    match failure:
        case ClientError():
            return _refused(failure, action, what, lost)
        case ResponseParserError():
            return _unanswered(R.REPLY_LOST, action, what, "EC2's answer was unreadable", lost)
        case SSLError() if _HANDSHAKE.search(str(failure)):
            return _unanswered(R.UNREACHABLE, action, what, str(failure), Outcome.NOTHING)
    if isinstance(failure, _NO_CREDENTIALS):
        return _no_credentials(action, what, str(failure))
    if isinstance(failure, _NEVER_SENT):
        return _unanswered(R.UNREACHABLE, action, what, str(failure), Outcome.NOTHING)
    if isinstance(failure, BotoCoreError):
        return _unanswered(R.REPLY_LOST, action, what, str(failure), lost)
    if isinstance(failure, OSError):  # a web identity token file that is not there or unreadable
        return _no_credentials(action, what, str(failure))
    return None


def unreadable(action: str, params: Mapping[str, Any]) -> Ec2Error:
    """The error for a good status with a text that EC2 did not write (a proxy, a portal)."""
    found = translate(ResponseParserError("no request id"), action, params)
    assert found is not None  # noqa: S101 -- translate knows this class
    return found


def is_read(action: str) -> bool:
    """Whether an action changes nothing."""
    return action.startswith("Describe")


def _refused(failure: ClientError, action: str, what: str, lost: Outcome) -> Ec2Error:
    code, text = _said(failure, "Code"), _said(failure, "Message")
    if failure.operation_name != action:  # STS, on the way to credentials
        return _no_credentials(action, what, f"{failure.operation_name}: {code}: {text}", code)
    if not code:  # well-formed, but a proxy's or a portal's: it does not tell what EC2 did
        form = _metadata(failure).get("HTTPHeaders", {}).get("content-type", "an unknown type")
        why = f"HTTP {_status(failure)} with {form}, which EC2 did not write"
        return _unanswered(R.REPLY_LOST, action, what, why, lost)
    reason, outcome = classify(code, text, _status(failure))
    advice = _ADVICE.get(reason)
    shown = _SECRET_TAIL.sub("", text).rstrip(" .")
    message = f"{what}: EC2 answered {code}" + (f": {shown}" if shown else "")
    if advice is not None and (helps := advice(action, code, text)):
        message = f"{message}; {helps}"
    return Ec2Error(
        reason,
        message,
        action=action,
        code=code,
        outcome=lost if outcome is Outcome.UNKNOWN else outcome,
        retry_after_s=_SOON_S if code == "ConcurrentTagAccess" else _RETRY_AFTER_S.get(reason),
    )


def _no_credentials(action: str, what: str, text: str, code: str = "") -> Ec2Error:
    reason = R.CREDENTIALS_INVALID
    return Ec2Error(
        reason,
        f"{what}: no usable AWS credentials: {text}; {_ADVICE[reason](action, code, text)}",
        action=action,
        code=code,
        retry_after_s=_RETRY_AFTER_S[reason],
    )


def _unanswered(reason: Reason, action: str, what: str, why: str, outcome: Outcome) -> Ec2Error:
    missing = "could not be reached" if reason is R.UNREACHABLE else "gave no usable answer"
    return Ec2Error(reason, f"{what}: EC2 {missing}: {why}", action=action, outcome=outcome)


def _matching(table: _Table, code: str, text: str) -> Reason | None:
    for code_pattern, pattern, reason in table:
        if code_pattern.fullmatch(code) and pattern.search(text):
            return reason
    return None


def _object_of(params: Mapping[str, Any]) -> str:
    """The object of a call, for its message."""
    volume, instance = params.get("VolumeId"), params.get("InstanceId")
    if volume and instance:
        return f"{volume} on {instance}"
    for key in ("VolumeId", "InstanceId", "SnapshotId"):
        if one := params.get(key):
            return str(one)
    for key in ("VolumeIds", "InstanceIds", "Resources"):
        if many := params.get(key):
            return str(many[0]) if len(many) == 1 else f"of {len(many)} {key}"
    if zone := params.get("AvailabilityZone"):
        return f"({params.get('Size')} GiB {params.get('VolumeType')} in {zone})"
    return ""


def _said(failure: ClientError, key: str) -> str:
    return str(failure.response.get("Error", {}).get(key) or "")


def _metadata(failure: ClientError) -> Mapping[str, Any]:
    return failure.response.get("ResponseMetadata") or {}


def _status(failure: ClientError) -> int:
    return int(_metadata(failure).get("HTTPStatusCode") or 0)
