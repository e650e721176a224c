"""AWS beside the product's own calls: what cannot be read is one sentence with its reason."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from botocore.exceptions import ClientError

from provisioner.inspect.reading.aws import PRICES, PRICES_REGION, QUOTAS, Aws
from provisioner.model.errors import Ec2Error, Reason
from provisioner.sandbox.strict_ec2.client import CREDENTIALS


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with closing(Aws.of_caller(PRICES_REGION)) as made:
        yield made


async def test_all_pages_are_read_and_counted(aws: Aws, monkeypatch: pytest.MonkeyPatch):
    pages = {"": ("a", "b"), "more": ("c",)}

    def answer(_: Any, operation: str, params: Any) -> Any:
        assert operation == "ListServiceQuotas"
        token = params.get("NextToken", "")
        following = {} if token else {"NextToken": "more"}
        return {"Quotas": [{"QuotaCode": each} for each in pages[token]], **following}

    monkeypatch.setattr("botocore.client.BaseClient._make_api_call", answer)

    found = await aws.read_all(QUOTAS, "ListServiceQuotas", "Quotas", ServiceCode="ebs")

    assert [each["QuotaCode"] for each in found] == ["a", "b", "c"]
    assert aws.sent == {"ListServiceQuotas": 2}


async def test_an_endpoint_that_nobody_serves_is_one_sentence(
    aws: Aws, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("AWS_ENDPOINT_URL_SERVICE_QUOTAS", "http://127.0.0.1:9")

    with pytest.raises(Ec2Error) as refused:
        await aws.read_all(QUOTAS, "ListServiceQuotas", "Quotas", ServiceCode="ebs")

    assert refused.value.reason is Reason.UNREACHABLE
    assert "http://127.0.0.1:9" in refused.value.message
    assert "\n" not in refused.value.message


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("AccessDeniedException", Reason.PERMISSION_DENIED),
        ("ExpiredTokenException", Reason.CREDENTIALS_INVALID),
        ("IllegalArgumentException", Reason.INVALID_REQUEST),
    ],
)
async def test_a_refusal_has_its_reason(
    code: str, reason: Reason, aws: Aws, monkeypatch: pytest.MonkeyPatch
):
    def refuse(*_: Any, **__: Any) -> Any:
        raise ClientError({"Error": {"Code": code, "Message": "no"}}, "GetProducts")

    monkeypatch.setattr("botocore.client.BaseClient._make_api_call", refuse)

    with pytest.raises(Ec2Error, match=f"^{code}: no$") as refused:
        await aws.read_all(PRICES, "GetProducts", "PriceList", ServiceCode="AmazonEC2")

    assert (refused.value.reason, refused.value.code) == (reason, code)


async def test_no_credentials_are_one_sentence(aws: Aws, monkeypatch: pytest.MonkeyPatch):
    for name in CREDENTIALS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    with (
        closing(Aws.of_caller(PRICES_REGION)) as nobody,
        pytest.raises(Ec2Error, match=r"^no AWS credentials$") as refused,
    ):
        await nobody.call(QUOTAS, "ListServiceQuotas", ServiceCode="ebs")

    assert refused.value.reason is Reason.CREDENTIALS_INVALID
