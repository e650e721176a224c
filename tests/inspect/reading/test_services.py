"""Other services of AWS: what cannot be read is one sentence with its reason."""

import pytest
from botocore.exceptions import ClientError

from provisioner.inspect.reading import services
from provisioner.model.errors import Reason, StorageError
from provisioner.sandbox.strict_ec2.client import CREDENTIALS


async def test_an_endpoint_that_nobody_serves_is_one_sentence(monkeypatch: pytest.MonkeyPatch):
    environment = {**CREDENTIALS, "AWS_ENDPOINT_URL_SERVICE_QUOTAS": "http://127.0.0.1:9"}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    with pytest.raises(StorageError) as refused:
        await services.read_all(
            services.QUOTAS, "eu-west-1", "list_service_quotas", "Quotas", ServiceCode="ebs"
        )

    assert refused.value.reason is Reason.UNREACHABLE
    assert "service-quotas list_service_quotas" in refused.value.message


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("AccessDeniedException", Reason.PERMISSION_DENIED),
        ("ExpiredTokenException", Reason.CREDENTIALS_INVALID),
        ("NoSuchResourceException", Reason.OBJECT_NOT_FOUND),
        ("IllegalArgumentException", Reason.INVALID_REQUEST),
    ],
)
async def test_a_refusal_has_its_reason(code: str, reason: Reason, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise ClientError({"Error": {"Code": code, "Message": "no"}}, "GetProducts")

    monkeypatch.setattr(services, "_client", refuse)

    with pytest.raises(StorageError, match=f"pricing get_products: {code}: no") as refused:
        await services.read_one(services.PRICES, services.PRICES_REGION, "get_products")

    assert refused.value.reason is reason
