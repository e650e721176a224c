"""What the strict EC2 answers for services beside EC2: Service Quotas, and roles of STS."""

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from provisioner.sandbox.strict_ec2.client import StrictEc2

GP3 = "L-7A658B76"
POLICY = "{}"


@pytest.fixture
def service(strict_ec2: StrictEc2) -> Iterator[Any]:
    made = []

    def client(name: str) -> Any:
        made.append(
            boto3.client(
                name,
                endpoint_url=strict_ec2.endpoint,
                region_name="us-east-1",
                aws_access_key_id="AKIAIOSFODNN7EXAMPLE",
                aws_secret_access_key="secret",
            )
        )
        return made[-1]

    yield client
    for each in made:
        each.close()


def value(quotas: Any, action: str, code: str) -> float:
    found = getattr(quotas, action)(ServiceCode="ebs")["Quotas"]
    return next(float(each["Value"]) for each in found if each["QuotaCode"] == code)


def test_quotas_are_aws_defaults_until_they_are_set(strict_ec2: StrictEc2, service: Any):
    quotas = service("service-quotas")
    assert value(quotas, "list_service_quotas", GP3) == 50

    strict_ec2.control(quotas={"gib": {"gp3": 2048}})

    assert value(quotas, "list_service_quotas", GP3) == 2
    assert value(quotas, "list_aws_default_service_quotas", GP3) == 50


def test_names_of_quotas_are_those_of_the_catalogue(service: Any):
    found = service("service-quotas").list_service_quotas(ServiceCode="ebs")["Quotas"]

    names = {each["QuotaCode"]: each["QuotaName"] for each in found}
    assert names[GP3] == "Storage for General Purpose SSD (gp3) volumes, in TiB"


def test_a_service_without_quotas_is_refused(service: Any):
    with pytest.raises(ClientError) as refused:
        service("service-quotas").list_service_quotas(ServiceCode="nothing")

    assert refused.value.response["Error"]["Code"] == "NoSuchResourceException"


def test_only_a_role_that_exists_can_be_assumed(service: Any):
    sts, iam = service("sts"), service("iam")
    arn = "arn:aws:iam::123456789012:role/reader"
    with pytest.raises(ClientError) as refused:
        sts.assume_role(RoleArn=arn, RoleSessionName="doctor")
    assert refused.value.response["Error"]["Code"] == "AccessDenied"
    assert arn in refused.value.response["Error"]["Message"]

    iam.create_role(RoleName="reader", AssumeRolePolicyDocument=POLICY)

    answer = sts.assume_role(RoleArn=arn, RoleSessionName="doctor")
    assert "assumed-role/reader/doctor" in answer["AssumedRoleUser"]["Arn"]


def test_a_token_gets_only_a_role_that_exists(service: Any):
    with pytest.raises(ClientError) as refused:
        service("sts").assume_role_with_web_identity(
            RoleArn="arn:aws:iam::123456789012:role/none",
            RoleSessionName="doctor",
            WebIdentityToken="token",
        )

    assert refused.value.response["Error"]["Code"] == "AccessDenied"
