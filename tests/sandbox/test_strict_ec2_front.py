"""What surrounds the calls of the strict EC2: throttling, latency, faults, counts, its process."""

import http.client
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import boto3
import pytest
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError, HTTPClientError, ReadTimeoutError
from botocore.parsers import ResponseParserError

from provisioner.sandbox.strict_ec2.client import CREDENTIALS, StrictEc2, ask
from provisioner.sandbox.strict_ec2.instances import make_instances
from tests.sandbox.lab import Lab, client, refusal, wait_until


def test_an_empty_bucket_throttles_until_it_refills(lab: Lab) -> None:
    lab.control(throttle={"CreateVolume": [2, 1]})
    lab.volume()
    lab.volume()

    with pytest.raises(ClientError, match="Request limit exceeded") as refused:
        lab.create()
    lab.control(advance_s=1)

    assert refused.value.response["Error"]["Code"] == "RequestLimitExceeded"
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 503
    assert lab.volume()


def test_documented_rates_hold_by_action_and_can_be_raised(
    strict_ec2: StrictEc2, strict_lab: Lab
) -> None:
    strict_ec2.control(throttle="documented")
    began_s, passed = time.monotonic(), 0
    with pytest.raises(ClientError, match="RequestLimitExceeded"):  # noqa: PT012 -- which call depends on the machine
        while time.monotonic() - began_s < 60:
            strict_lab.ec2.describe_volumes()
            passed += 1

    # On a busy machine some of the 10 a second come back while the 50 are used up.
    assert 50 <= passed <= 51 + 10 * (time.monotonic() - began_s)
    assert strict_lab.listed(("status", ["available"])) == set()  # filtered: a bucket of 100

    strict_ec2.control(throttle="documentedx20")
    strict_lab.ec2.describe_volumes()

    assert strict_ec2.throttled() == {"DescribeVolumes": 1}
    assert strict_ec2.counts() == {"DescribeVolumes": passed + 3}


def test_calls_are_counted_and_logged(strict_ec2: StrictEc2, strict_lab: Lab) -> None:
    strict_ec2.control(log=True)
    strict_lab.volume(Size=7)
    refusal(strict_lab.create, Size=0)

    assert [
        (each["action"], each["params"]["Size"], each["outcome"]) for each in strict_ec2.log()
    ] == [("CreateVolume", "7", "ok"), ("CreateVolume", "0", "InvalidParameterValue")]
    assert strict_ec2.counts() == {"CreateVolume": 2}
    assert strict_ec2.report()["errors"] == {"CreateVolume:InvalidParameterValue": 1}


def test_of_the_log_calls_of_some_actions_or_with_a_text_can_be_asked_for(
    strict_ec2: StrictEc2, strict_lab: Lab
) -> None:
    strict_ec2.control(log=True)
    one, other = strict_lab.volume(), strict_lab.volume()
    strict_lab.ec2.create_tags(Resources=[one], Tags=[{"Key": "k", "Value": f"not-{other}"}])
    strict_lab.ec2.delete_volume(VolumeId=other)

    def actions(*of: str, about: str = "") -> list[str]:
        return [each["action"] for each in strict_ec2.log(*of, about=about)]

    assert actions("CreateTags", "DeleteVolume") == ["CreateTags", "DeleteVolume"]
    assert actions(about=one) == ["CreateTags"]
    assert actions(about=other) == ["CreateTags", "DeleteVolume"]
    assert actions("DeleteVolume", about=one) == []


def test_a_fault_can_be_one_access_keys_alone(strict_ec2: StrictEc2, strict_lab: Lab) -> None:
    refused = {"action": "CreateVolume", "do": "error", "code": "UnauthorizedOperation", "n": 9}
    strict_ec2.control(log=True, faults=[refused | {"key": "AKIASOMEBODYELSE"}])
    strict_lab.volume()
    [call] = strict_ec2.log()

    strict_ec2.control(faults=[refused | {"key": call["key"]}])

    assert refusal(strict_lab.create)[0] == "UnauthorizedOperation"
    assert call["key"] == CREDENTIALS["AWS_ACCESS_KEY_ID"]


def test_what_there_is_is_counted_by_state(strict_ec2: StrictEc2, strict_lab: Lab) -> None:
    strict_ec2.control(delays={"snapshot_s": 60, "modify_s": 60})
    volume = strict_lab.volume()
    strict_lab.modify(volume, Size=20)
    strict_lab.snapshot(volume)
    report = strict_ec2.report()

    assert [report[kind] for kind in ("states", "modifications", "snapshots")] == [
        {"available": 1},
        {"modifying": 1},
        {"pending": 1},
    ]


def test_a_call_takes_as_long_as_it_is_told(strict_ec2: StrictEc2, strict_lab: Lab) -> None:
    strict_ec2.control(latency=[0.05, 0.06])
    started_s = time.monotonic()
    strict_lab.ec2.describe_volumes()

    assert time.monotonic() - started_s >= 0.05


def test_a_fault_answers_instead_of_the_work(lab: Lab) -> None:
    fault = {"action": "CreateVolume", "do": "error", "code": "Unavailable", "http_status": 503}
    lab.control(faults=[fault])

    assert refusal(lab.create)[0] == "Unavailable"
    assert lab.listed() == set()
    assert lab.volume()


def test_a_fault_hits_only_the_calls_it_matches(lab: Lab) -> None:
    first, second = lab.volume(), lab.volume()
    lab.control(
        faults=[{"action": "Describe*", "do": "error", "match": {"VolumeId": second}, "n": 2}]
    )

    assert lab.state(first) == "available"
    assert refusal(lab.ec2.describe_volumes, VolumeIds=[first, second])[0] == "InternalError"
    assert refusal(lab.look, second)[0] == "InternalError"
    assert lab.state(second) == "available"


@pytest.mark.parametrize("do", ["reset", "html", "error"])
def test_a_call_may_be_carried_out_and_its_reply_lost(lab: Lab, do: str) -> None:
    lab.control(faults=[{"action": "CreateVolume", "do": do, "when": "after"}])

    with pytest.raises((HTTPClientError, ClientError, ResponseParserError)):
        lab.create(ClientToken="t")

    assert lab.listed() == {lab.volume(ClientToken="t")}


@pytest.fixture(scope="module")
def impatient(strict_ec2_server: StrictEc2) -> Any:
    return client(strict_ec2_server.endpoint, read_timeout_s=0.3)


@pytest.mark.parametrize(("when", "made"), [("before", 0), ("after", 1)])
def test_a_hanging_call_is_released_by_a_reset(
    strict_ec2: StrictEc2, strict_lab: Lab, impatient: Any, when: str, made: int
) -> None:
    strict_ec2.control(faults=[{"action": "CreateVolume", "do": "hang", "when": when}])
    with pytest.raises(ReadTimeoutError):
        Lab(impatient, strict_ec2.control).create()

    assert len(strict_lab.listed()) == made

    strict_ec2.control(faults=[{"action": "CreateVolume", "do": "hang", "when": when}])
    with ThreadPoolExecutor(1) as pool:
        hanging = pool.submit(strict_lab.create)
        wait_until(lambda: strict_ec2.report()["faulted"].get("CreateVolume") == 2)
        strict_ec2.reset()

        with pytest.raises(HTTPClientError):
            hanging.result()


def test_a_call_of_the_time_before_a_reset_changes_nothing(
    strict_ec2: StrictEc2, strict_lab: Lab
) -> None:
    strict_ec2.control(latency=[0.2, 0.2])
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(strict_lab.create)
        wait_until(lambda: bool(strict_ec2.counts()))
        strict_ec2.reset()

        with pytest.raises(HTTPClientError):
            late.result()

    assert strict_lab.listed() == set()


def test_a_delayed_reply_comes_late_and_complete(strict_ec2: StrictEc2, strict_lab: Lab) -> None:
    strict_ec2.control(
        faults=[{"action": "CreateVolume", "do": "delay", "when": "after", "delay_s": 0.05}]
    )
    started_s = time.monotonic()

    assert strict_lab.volume()
    assert time.monotonic() - started_s >= 0.05


@pytest.mark.parametrize(
    "document",
    [
        {"latancy": "real"},
        {"delays": {"create": 1}},
        {"latency": "fast"},
        {"throttle": "often"},
        {"faults": [{"action": "CreateVolume", "do": "nothing"}]},
        {"faults": [{"action": "CreateVolume", "do": "error", "often": 1}]},
    ],
    ids=str,
)
def test_a_misspelt_control_is_refused(strict_ec2: StrictEc2, document: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        strict_ec2.control(**document)


def test_what_moto_does_not_implement_is_an_xml_error(lab: Lab) -> None:
    assert refusal(lab.ec2.describe_volume_attribute, VolumeId="vol-0")[0] == "InternalError"


def test_an_unsigned_call_is_refused(strict_ec2: StrictEc2) -> None:
    body = b"Action=DescribeVolumes&Version=2016-11-15"

    assert ask(strict_ec2.endpoint, "/", body, "application/x-www-form-urlencoded")[0] == 401


def _post(connection: http.client.HTTPConnection, lab: Lab) -> bool:
    """Describe volumes; tell whether the server keeps the connection."""
    del lab
    headers = {
        "Authorization": "AWS4-HMAC-SHA256 Credential=AK/20260101/us-east-1/ec2/aws4_request, x=y",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    body = "Action=DescribeVolumes&Version=2016-11-15"
    connection.request("POST", "/", body=body, headers=headers)
    reply = connection.getresponse()
    reply.read()
    return reply.status == 200 and not reply.will_close


def test_connections_are_kept_alive(lab: Lab) -> None:
    host = lab.ec2.meta.endpoint_url.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=5)
    kept = _post(connection, lab)
    connection.close()

    assert kept


def _as_somebody_without_rights(endpoint: str) -> Any:
    """Return a client of a new IAM user, with IAM enforced from now on."""
    iam = client(endpoint, service="iam")
    iam.create_user(UserName="nobody")
    key = iam.create_access_key(UserName="nobody")["AccessKey"]
    ask(endpoint, "/moto-api/reset-auth", b"0")
    return boto3.client(
        "ec2",
        region_name="us-east-1",
        endpoint_url=endpoint,
        aws_access_key_id=key["AccessKeyId"],
        aws_secret_access_key=key["SecretAccessKey"],
        config=Config(retries={"total_max_attempts": 1}),
    )


def test_a_missing_right_is_an_unauthorized_operation(lab: Lab) -> None:
    endpoint = lab.ec2.meta.endpoint_url
    try:
        code, _ = refusal(
            _as_somebody_without_rights(endpoint).create_volume,
            AvailabilityZone="us-east-1a",
            Size=1,
        )
    finally:
        ask(endpoint, "/moto-api/reset-auth", b"inf")

    assert code == "UnauthorizedOperation"


def test_a_web_identity_gets_credentials_that_ec2_accepts(strict_ec2: StrictEc2) -> None:
    where: Any = {"region_name": "us-east-1", "endpoint_url": strict_ec2.endpoint}
    iam = boto3.client("iam", **where, aws_access_key_id="AKIA0", aws_secret_access_key="secret")
    iam.create_role(RoleName="controller", AssumeRolePolicyDocument="{}")
    sts = boto3.client("sts", **where, config=Config(signature_version=UNSIGNED))
    given = sts.assume_role_with_web_identity(
        RoleArn="arn:aws:iam::123456789012:role/controller",
        RoleSessionName="controller",
        WebIdentityToken="of-a-service-account",
    )["Credentials"]
    ec2 = boto3.client(
        "ec2",
        **where,
        aws_access_key_id=given["AccessKeyId"],
        aws_secret_access_key=given["SecretAccessKey"],
        aws_session_token=given["SessionToken"],
    )

    assert ec2.create_volume(AvailabilityZone="us-east-1a", Size=1)["VolumeType"] == "gp2"


def test_instances_are_spread_over_zones_in_turn(strict_ec2: StrictEc2) -> None:
    zones = ["eu-west-1a", "eu-west-1b", "eu-west-1c"]
    made = make_instances(strict_ec2.endpoint, 5, zones, "m7i.large", tags={"cluster": "c"})

    assert [each.zone for each in made] == [zones[0], zones[1], zones[2], zones[0], zones[1]]
    assert {(each.region, each.instance_type) for each in made} == {("eu-west-1", "m7i.large")}
    assert len({each.instance_id for each in made}) == len({e.private_dns_name for e in made}) == 5
