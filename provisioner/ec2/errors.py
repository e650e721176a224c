"""Foreign errors become ours, in one place: EC2's codes, botocore's exceptions, STS's refusals."""

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

from provisioner.ec2.credentials import NoUsableCredentialsError
from provisioner.ec2.error_codes import THROTTLES, ToldTime, classify, told_time
from provisioner.model.errors import Ec2Error, Outcome, Reason
from provisioner.model.key_rights import RIGHTS_ON_KEY

R = Reason
SLOWLY_S = 60.0  # a human has to act; asking more often only fills the audit log
_SOON_S = 1.0
_LOCALLY_S = 5.0  # nobody but us is asked again
_SNAPSHOT_EVERY_S = 15.0  # of one volume
_COPY_AGAIN_S = 30.0  # a copy is in progress until all of its blocks are there: minutes to hours
_TOO_MANY = 429

_WHERE = ("VolumeId", "InstanceId", "AvailabilityZone")
_SECRET_TAIL = re.compile(r"\s*Encoded authorization failure message:.*", re.DOTALL)
_IAM_ACTION = re.compile(r"to perform: ([\w-]+:\w+)")

_ADVICE: Mapping[Reason, Callable[[str, str, str], str]] = {
    R.ZONE_OUT_OF_CAPACITY: lambda *_: (
        "the zone has no capacity left for this volume type; try again later, or use another zone "
        "or type"
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
    R.INITIALIZATION_RATE: lambda *_: (
        "it becomes free as other volumes of this Region finish their initialization; a lower "
        "volumeInitializationRate in the class waits less"
    ),
    R.KEY_UNUSABLE: lambda *_: (
        "check that the KMS key exists, is enabled and allows the controller's IAM role "
        f"{RIGHTS_ON_KEY}"
    ),
    R.INSTANCE_FULL: lambda *_: "no more volumes can be attached to the instance",
    R.VOLUME_IN_USE: lambda action, *_: (
        "detach it from that instance" if action == "DeleteVolume" else ""
    ),
}
_RETRY_AFTER_S: Mapping[Reason, float] = {
    R.PERMISSION_DENIED: SLOWLY_S,
    R.CREDENTIALS_INVALID: SLOWLY_S / 2,  # tokens are renewed by themselves
    R.QUOTA_EXCEEDED: SLOWLY_S,
    R.KEY_UNUSABLE: SLOWLY_S,
    R.SNAPSHOT_IN_USE: SLOWLY_S,
    R.SNAPSHOT_LOCKED: SLOWLY_S,
    R.SNAPSHOT_RATE: _SNAPSHOT_EVERY_S,
    R.COPY_RATE: _COPY_AGAIN_S,
    R.INITIALIZATION_RATE: SLOWLY_S,
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


def refusal(action: str, what: str, code: str, text: str) -> Ec2Error:
    """The error for one thing of several that EC2 refused in an answer of a good status."""
    return _explained((code, text), classify(code, text, 0), action=action, what=what)


def translate(failure: Exception, action: str, params: Mapping[str, Any]) -> Ec2Error | None:
    """Our error for an exception of a boto3 call; None for a bug of ours.

    A read changes nothing, so its outcome is always NOTHING.
    """
    what = f"{action} {_object_of(params)}".rstrip()
    lost = Outcome.NOTHING if is_read(action) else Outcome.UNKNOWN
    match failure:
        case Ec2Error():  # ours already: it was not sent
            return failure
        case ClientError():
            return _refused(failure, action, what, lost)
        case ResponseParserError():
            return _unanswered(R.REPLY_LOST, action, what, "EC2's answer cannot be read", lost)
        case SSLError() if _HANDSHAKE.search(str(failure)):
            return _unanswered(R.UNREACHABLE, action, what, str(failure), Outcome.NOTHING)
    if isinstance(failure, _NO_CREDENTIALS):
        error = _no_credentials(action, what, str(failure))
        if isinstance(failure, NoUsableCredentialsError):
            error.retry_after_s = _LOCALLY_S
        return error
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
    outcome = lost if outcome is Outcome.UNKNOWN else outcome
    return _explained((code, text), (reason, outcome), action=action, what=what)


def _explained(
    said: tuple[str, str], meaning: tuple[Reason, Outcome], *, action: str, what: str
) -> Ec2Error:
    (code, text), (reason, outcome) = said, meaning
    advice = _ADVICE.get(reason)
    shown = _SECRET_TAIL.sub("", text).rstrip(" .")
    message = f"{what}: EC2 answered {code}" + (f": {shown}" if shown else "")
    if advice is not None and (helps := advice(action, code, text)):
        message = f"{message}; {helps}"
    again_s = _SOON_S if code == "ConcurrentTagAccess" else _RETRY_AFTER_S.get(reason)
    told = ToldTime()
    if reason is R.MODIFICATION_LIMIT:
        told = told_time(text)
        again_s = told.after_s
    return Ec2Error(
        reason,
        message,
        action=action,
        code=code,
        outcome=outcome,
        retry_after_s=again_s,
        retry_at=told.at,
        between_s=told.between_s,
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


def _object_of(params: Mapping[str, Any]) -> str:
    """The object of a call, for its message."""
    volume, instance, zone = (params.get(key) for key in _WHERE)
    if volume and instance:
        return f"{volume} on {instance}"
    if zone:
        made_of = f" of {source}" if (source := params.get("SnapshotId")) else ""
        key = f", encrypted with {named}" if (named := params.get("KmsKeyId")) else ""
        return f"({params.get('Size')} GiB {params.get('VolumeType')} in {zone}{made_of}{key})"
    for key in ("VolumeId", "InstanceId", "SnapshotId", "SourceVolumeId"):
        if one := params.get(key):
            return str(one)
    for key in ("VolumeIds", "InstanceIds", "SnapshotIds", "SourceSnapshotIds", "Resources"):
        if many := params.get(key):
            return str(many[0]) if len(many) == 1 else f"of {len(many)} {key}"
    return ""


def _said(failure: ClientError, key: str) -> str:
    return str(failure.response.get("Error", {}).get(key) or "")


def _metadata(failure: ClientError) -> Mapping[str, Any]:
    return failure.response.get("ResponseMetadata") or {}


def _status(failure: ClientError) -> int:
    return int(_metadata(failure).get("HTTPStatusCode") or 0)
