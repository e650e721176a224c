from typing import Any

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    NoCredentialsError,
    ReadTimeoutError,
    SSLError,
)
from botocore.parsers import ResponseParserError, create_parser
from botocore.session import get_session

from provisioner.ec2.errors import is_throttle, translate
from provisioner.model.errors import Ec2Error, Outcome, Reason

R = Reason
URL = "https://ec2.us-east-1.amazonaws.com/"
NOT_ALLOWED = (
    "You are not authorized to perform this operation. User: arn:aws:sts::123456789012:assumed-"
    "role/ebs/x is not authorized to perform: ec2:CreateTags on resource: arn:aws:ec2:us-east-1:"
    "123456789012:volume/* because no identity-based policy allows the ec2:CreateTags action. "
    "Encoded authorization failure message: dGhpcyBpcyBsb25n"
)


def refused(code: str, text: str | None = "", status: int = 400, by: str = "X") -> ClientError:
    response: Any = {
        "Error": {"Code": code, "Message": text},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return ClientError(response, by)


def translated(failure: Exception, action: str, **params: Any) -> Ec2Error:
    found = translate(failure, action, params)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("action", "code", "text", "reason"),
    [
        ("CreateVolume", "UnauthorizedOperation", NOT_ALLOWED, R.PERMISSION_DENIED),
        ("CreateVolume", "AccessDenied", "no", R.PERMISSION_DENIED),
        ("CreateVolume", "OptInRequired", "no", R.PERMISSION_DENIED),
        ("CreateVolume", "AuthFailure", "no", R.CREDENTIALS_INVALID),
        ("DeleteSnapshot", "AuthFailure", "Not authorized for snapshot", R.PERMISSION_DENIED),
        ("CreateVolume", "ExpiredTokenException", "expired", R.CREDENTIALS_INVALID),
        ("CreateVolume", "RequestExpired", "Request has expired.", R.CREDENTIALS_INVALID),
        ("CreateVolume", "SignatureDoesNotMatch", "no", R.CREDENTIALS_INVALID),
        ("CreateVolume", "VolumeLimitExceeded", "Maximum", R.QUOTA_EXCEEDED),
        ("CreateVolume", "MaxIOPSLimitExceeded", "Maximum", R.QUOTA_EXCEEDED),
        ("CreateVolume", "SomeNewLimitExceeded", "Maximum", R.QUOTA_EXCEEDED),
        ("CreateVolume", "IdempotentParameterMismatch", "differs", R.TOKEN_MISMATCH),
        ("CreateVolume", "InvalidZone.NotFound", "The zone 'x' does not exist.", R.ZONE_NOT_FOUND),
        (
            "CreateVolume",
            "InvalidParameterValue",
            "Invalid availability zone: [us-east-1z]",
            R.ZONE_NOT_FOUND,
        ),
        ("CreateVolume", "VolumeTypeNotAvailableInZone", "not here", R.TYPE_NOT_IN_ZONE),
        (
            "CreateVolume",
            "UnsupportedOperation",
            "The volume type io2 is not supported in this Availability Zone.",
            R.TYPE_NOT_IN_ZONE,
        ),
        ("CreateVolume", "UnknownVolumeType", "Unsupported volume type 'gp3'.", R.TYPE_NOT_IN_ZONE),
        ("CreateVolume", "InsufficientCapacityOnOutpost", "full", R.ZONE_OUT_OF_CAPACITY),
        (
            "CreateVolume",
            "InvalidParameterValue",
            "Volume type gp3 is not supported on this outpost",
            R.TYPE_NOT_IN_ZONE,
        ),
        (
            "CreateVolume",
            "InvalidParameterValue",
            "gp3 volumes are not supported in this Local Zone.",
            R.TYPE_NOT_IN_ZONE,
        ),
        ("CreateVolume", "InvalidParameterValue", "Volume iops of 2 is too low", R.INVALID_REQUEST),
        ("CreateVolume", "UnauthorizedOperation.Policy", "no", R.PERMISSION_DENIED),
        ("CreateVolume", "KMSKeyNotFound", "no such key", R.KEY_UNUSABLE),
        ("CreateVolume", "InvalidKmsKey.InvalidState", "disabled", R.KEY_UNUSABLE),
        (
            "CreateVolume",
            "InvalidParameterValue",
            "The KMS key arn:aws:kms:us-east-1:1:key/2 is disabled",
            R.KEY_UNUSABLE,
        ),
        ("DeleteVolume", "VolumeInUse", "vol-1 is attached", R.VOLUME_IN_USE),
        ("DeleteVolume", "InvalidVolume.NotFound", "gone", R.VOLUME_NOT_FOUND),
        ("DeleteTags", "InvalidID", "The ID 'vol-1' is not valid", R.VOLUME_NOT_FOUND),
        ("AttachVolume", "InvalidVolume.NotFound", "gone", R.VOLUME_NOT_FOUND),
        ("AttachVolume", "InvalidInstanceID.NotFound", "gone", R.INSTANCE_NOT_FOUND),
        ("AttachVolume", "InvalidInstanceID.Malformed", "Invalid id", R.INSTANCE_NOT_FOUND),
        ("AttachVolume", "VolumeInUse", "vol-1 is already attached", R.VOLUME_IN_USE),
        ("AttachVolume", "IncorrectState", "vol-1 is not 'available'.", R.VOLUME_STATE),
        ("AttachVolume", "IncorrectState", "Instance 'i-1' is not 'running'.", R.INSTANCE_STATE),
        ("AttachVolume", "InvalidVolume.ZoneMismatch", "elsewhere", R.ZONE_MISMATCH),
        ("AttachVolume", "AttachmentLimitExceeded", "up to 27", R.INSTANCE_FULL),
        (
            "AttachVolume",
            "InvalidParameterValue",
            "Invalid value '/dev/xvdb' for unixDevice. Attachment point /dev/xvdb is already in use",
            R.DEVICE_IN_USE,
        ),
        (
            "DetachVolume",
            "IncorrectState",
            "Volume 'vol-1' is in the 'available' state.",
            R.NOT_ATTACHED,
        ),
        ("DetachVolume", "InvalidAttachment.NotFound", "not there", R.NOT_ATTACHED),
        ("DetachVolume", "NobodyKnowsThis", "odd", R.INVALID_REQUEST),
    ],
)
def test_a_refusal_is_known_by_its_code_and_changes_nothing(
    action: str, code: str, text: str, reason: Reason
) -> None:
    found = translated(refused(code, text, by=action), action, VolumeId="vol-1")

    assert (found.reason, found.outcome) == (reason, Outcome.NOTHING)
    assert code in found.message
    assert action in found.message
    assert "vol-1" in found.message
    assert found.code == code


def test_a_volume_in_use_that_is_to_be_deleted_comes_with_what_helps() -> None:
    text = "Volume vol-1 is currently attached to i-1"

    delete = translated(refused("VolumeInUse", text, by="DeleteVolume"), "DeleteVolume")
    attach = translated(refused("VolumeInUse", text, by="AttachVolume"), "AttachVolume")

    assert delete.message.endswith(f"{text}; detach it from that instance")
    assert attach.message.endswith(text)


def test_no_capacity_is_a_clear_no_although_its_status_is_a_server_error() -> None:
    failure = refused("InsufficientVolumeCapacity", "none left", 500, "CreateVolume")

    found = translated(failure, "CreateVolume", AvailabilityZone="a", Size=4, VolumeType="io2")

    assert (found.reason, found.outcome) == (R.ZONE_OUT_OF_CAPACITY, Outcome.NOTHING)
    assert "4 GiB io2 in a" in found.message


def test_a_volume_under_a_key_of_its_own_is_told_with_the_key():
    failure = refused("KMSKeyAccessDenied", "not authorized", 400, "CreateVolume")
    size = {"AvailabilityZone": "a", "Size": 1, "VolumeType": "gp3"}

    own = translated(failure, "CreateVolume", **size, KmsKeyId="alias/own")
    other = translated(failure, "CreateVolume", **size)

    assert "(1 GiB gp3 in a, encrypted with alias/own)" in own.message
    assert "(1 GiB gp3 in a)" in other.message


@pytest.mark.parametrize(
    ("code", "status"),
    [("InternalError", 500), ("Unavailable", 503), ("500", 500), ("SomethingNew", 502)],
)
def test_a_server_error_may_have_been_carried_out(code: str, status: int) -> None:
    found = translated(refused(code, "oops", status, "CreateVolume"), "CreateVolume")

    assert (found.reason, found.outcome) == (R.REPLY_LOST, Outcome.UNKNOWN)


@pytest.mark.parametrize(
    ("failure", "reason", "outcome"),
    [
        (ConnectTimeoutError(endpoint_url=URL), R.UNREACHABLE, Outcome.NOTHING),
        (EndpointConnectionError(endpoint_url=URL), R.UNREACHABLE, Outcome.NOTHING),
        (
            SSLError(endpoint_url=URL, error=OSError("CERTIFICATE_VERIFY_FAILED")),
            R.UNREACHABLE,
            Outcome.NOTHING,
        ),
        (
            SSLError(endpoint_url=URL, error=OSError("bad record mac")),
            R.REPLY_LOST,
            Outcome.UNKNOWN,
        ),
        (ReadTimeoutError(endpoint_url=URL), R.REPLY_LOST, Outcome.UNKNOWN),
        (ConnectionClosedError(endpoint_url=URL), R.REPLY_LOST, Outcome.UNKNOWN),
        (HTTPClientError(error=OSError("broken")), R.REPLY_LOST, Outcome.UNKNOWN),
        (ResponseParserError("not XML"), R.REPLY_LOST, Outcome.UNKNOWN),
        (NoCredentialsError(), R.CREDENTIALS_INVALID, Outcome.NOTHING),
        (FileNotFoundError(2, "no", "/token"), R.CREDENTIALS_INVALID, Outcome.NOTHING),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_a_change_without_an_answer_is_unknown_unless_it_was_never_sent(
    failure: Exception, reason: Reason, outcome: Outcome
) -> None:
    found = translated(failure, "AttachVolume", VolumeId="vol-1", InstanceId="i-1")

    assert (found.reason, found.outcome) == (reason, outcome)
    assert "vol-1 on i-1" in found.message


@pytest.mark.parametrize("status", [302, 403, 404, 408, 413])
@pytest.mark.parametrize(
    ("action", "outcome"), [("CreateVolume", Outcome.UNKNOWN), ("DescribeVolumes", Outcome.NOTHING)]
)
def test_a_page_that_ec2_did_not_write_does_not_tell_what_became_of_a_change(
    status: int, action: str, outcome: Outcome
) -> None:
    page = b"<html><body><h1>Sign in</h1></body></html>"
    answer = {"status_code": status, "headers": {"content-type": "text/html"}, "body": page}
    shape: Any = get_session().get_service_model("ec2").operation_model(action).output_shape
    parsed: Any = create_parser("ec2").parse(answer, shape)

    found = translated(ClientError(parsed, action), action)

    assert (found.reason, found.outcome) == (R.REPLY_LOST, outcome)
    assert f"HTTP {status} with text/html, which EC2 did not write" in found.message


def test_a_read_without_an_answer_has_changed_nothing() -> None:
    found = translated(ReadTimeoutError(endpoint_url=URL), "DescribeVolumes", VolumeIds=["a", "b"])

    assert found.outcome is Outcome.NOTHING
    assert "2 VolumeIds" in found.message


def test_a_refused_permission_names_the_iam_action_and_not_the_secret() -> None:
    failure = refused("UnauthorizedOperation", NOT_ALLOWED, 403, "CreateVolume")

    found = translated(failure, "CreateVolume")

    assert "allow ec2:CreateTags" in found.message
    assert "dGhpcyBpcyBsb25n" not in found.message
    assert found.retry_after_s is not None


def test_a_refused_permission_without_details_names_the_action_that_was_called() -> None:
    failure = refused("UnauthorizedOperation", "Sorry.", 403, "DeleteVolume")

    assert "allow ec2:DeleteVolume" in translated(failure, "DeleteVolume").message


def test_a_refusal_of_sts_is_about_credentials() -> None:
    failure = refused("InvalidIdentityToken", "no", 400, "AssumeRoleWithWebIdentity")

    found = translated(failure, "CreateVolume")

    assert (found.reason, found.outcome) == (R.CREDENTIALS_INVALID, Outcome.NOTHING)
    assert "AssumeRoleWithWebIdentity" in found.message


def test_an_error_without_a_text_is_understood() -> None:
    found = translated(refused("InvalidSnapshot.NotFound", None, by="CreateVolume"), "CreateVolume")

    assert found.reason is R.SNAPSHOT_NOT_FOUND


def test_a_bug_of_ours_is_not_dressed_up_as_an_answer_of_ec2() -> None:
    assert translate(AttributeError("typo"), "CreateVolume", {}) is None


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (refused("RequestLimitExceeded", "", 503, "CreateVolume"), True),
        (refused("Throttling", "", 400, "CreateVolume"), True),
        (refused("Whatever", "", 429, "CreateVolume"), True),
        (refused("Unavailable", "", 503, "CreateVolume"), False),
        (refused("Throttling", "", 400, "AssumeRoleWithWebIdentity"), False),
        (ResponseParserError(""), False),
    ],
)
def test_a_throttle_is_told_from_other_refusals(failure: Exception, *, expected: bool) -> None:
    assert is_throttle(failure, "CreateVolume") is expected
