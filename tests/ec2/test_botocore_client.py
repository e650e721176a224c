import subprocess
import sys

import pytest
from botocore import xform_name

from provisioner.ec2 import botocore_client
from provisioner.ec2.limiter import DOCUMENTED
from provisioner.model.errors import Reason, StorageError

LOCAL = "http://127.0.0.1:1"


def test_knows_every_action_that_has_a_rate() -> None:
    client = botocore_client.connect(region="us-east-1", endpoint=LOCAL, at_once=1)

    missing = [action for action in DOCUMENTED if not hasattr(client, xform_name(action))]

    assert not missing
    client.close()


def test_an_unknown_profile_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "missing")

    with pytest.raises(StorageError) as caught:
        botocore_client.connect(region="us-east-1", endpoint=None, at_once=1)

    assert caught.value.reason is Reason.INVALID_REQUEST
    assert caught.value.message == "AWS settings: The config profile (missing) could not be found"


def test_without_a_region_there_is_one_clear_line() -> None:
    with pytest.raises(StorageError) as caught:
        botocore_client.connect(region=None, endpoint=LOCAL, at_once=1)

    assert caught.value.message == "no AWS region: give --region or set AWS_REGION"


@pytest.mark.parametrize("name", ["AWS_REGION", "AWS_DEFAULT_REGION"])
def test_takes_the_region_from_the_environment(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "eu-central-1")

    client = botocore_client.connect(region=None, endpoint=None, at_once=1)

    assert client.meta.endpoint_url == "https://ec2.eu-central-1.amazonaws.com"
    client.close()


@pytest.mark.parametrize(
    ("region", "endpoint"),
    [
        ("us-east-1", "https://ec2.us-east-1.amazonaws.com"),
        ("cn-north-1", "https://ec2.cn-north-1.amazonaws.com.cn"),
        ("us-gov-west-1", "https://ec2.us-gov-west-1.amazonaws.com"),
        ("eusc-de-east-1", "https://ec2.eusc-de-east-1.amazonaws.eu"),
    ],
)
def test_every_partition_has_its_endpoint(region: str, endpoint: str) -> None:
    client = botocore_client.connect(region=region, endpoint=None, at_once=1)

    assert client.meta.endpoint_url == endpoint
    client.close()


@pytest.mark.parametrize("name", ["AWS_EC2_ENDPOINT", "AWS_ENDPOINT_URL_EC2", "AWS_ENDPOINT_URL"])
def test_takes_the_endpoint_from_the_environment(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "http://127.0.0.1:9")

    client = botocore_client.connect(region="us-east-1", endpoint=None, at_once=1)

    assert client.meta.endpoint_url == "http://127.0.0.1:9"
    client.close()


@pytest.mark.parametrize(
    ("region", "endpoint", "quoted"),
    [("us-east-1", "nonsense", "nonsense"), ("not a region!", None, "not a region!")],
)
def test_settings_that_boto3_refuses_are_one_line(
    region: str, endpoint: str | None, quoted: str
) -> None:
    with pytest.raises(StorageError) as caught:
        botocore_client.connect(region=region, endpoint=endpoint, at_once=1)

    assert caught.value.reason is Reason.INVALID_REQUEST
    assert quoted in caught.value.message
    assert "\n" not in caught.value.message


def test_there_is_no_fips_endpoint_in_china(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_USE_FIPS_ENDPOINT", "true")

    with pytest.raises(StorageError, match="no FIPS endpoint"):
        botocore_client.connect(region="cn-north-1", endpoint=None, at_once=1)


def test_the_model_is_imported_without_boto3() -> None:
    code = (
        "import sys, provisioner.model.errors, provisioner.model.volume, provisioner.model.zone;"
        "sys.exit(any(m.split('.')[0] in {'boto3', 'botocore'} for m in sys.modules))"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_second_client_reads_none_of_botocores_files(monkeypatch: pytest.MonkeyPatch):
    botocore_client.connect(region="us-east-1", endpoint=LOCAL, at_once=1).close()

    def read(_: object, path: str) -> object:
        raise AssertionError(path)

    monkeypatch.setattr(botocore_client._OurPartOnly, "load_file", read)
    second = botocore_client.connect(region="eu-west-1", endpoint=LOCAL, at_once=1)

    assert second.meta.region_name == "eu-west-1"
    second.close()
