import pytest

from provisioner.ec2.limiter import Rate, documented
from provisioner.ec2.rate_option import parse_rates
from provisioner.model.errors import Reason, StorageError


def test_starts_from_what_aws_documents() -> None:
    rates = parse_rates("")

    assert Rate(100, 5) == rates.of("CreateVolume")
    assert Rate(50, 5) == rates.of("AttachVolume")
    assert Rate(50, 10) == rates.of("DescribeVolumes")


def test_an_action_that_is_not_listed_has_the_rate_of_its_class() -> None:
    assert Rate(100, 20) == documented("DescribeAddresses")
    assert Rate(50, 5) == documented("ModifyInstanceAttribute")


def test_reads_a_quota_for_one_action_and_a_factor_for_all_others() -> None:
    rates = parse_rates("CreateVolume=300:15, *=x20")

    assert Rate(300, 15) == rates.of("CreateVolume")
    assert Rate(1000, 100) == rates.of("DetachVolume")


def test_a_factor_for_an_action_goes_before_the_factor_for_all() -> None:
    rates = parse_rates(["*=x2", "DeleteVolume=x3"])

    assert Rate(300, 15) == rates.of("DeleteVolume")
    assert Rate(200, 10) == rates.of("CreateVolume")


@pytest.mark.parametrize(
    "text",
    [
        "CreateVolume",
        "CreateVolume=",
        "CreateVolume=5",
        "CreateVolume=a:b",
        "CreateVolume=0:5",
        "CreateVolume=0.5:5",
        "CreateVolume=5:-1",
        "CreateVolume=5:nan",
        "CreateVolume=5:inf",
        "CreateVolume=x0",
        "CreateVolum=5:5",
        "*=5:5",
        "*=x",
        "=x2",
    ],
)
def test_refuses_what_it_cannot_read_in_one_sentence_that_quotes_it(text: str) -> None:
    with pytest.raises(StorageError) as caught:
        parse_rates(text)

    assert caught.value.reason is Reason.INVALID_REQUEST
    assert repr(text) in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    "texts", [["*=x2", "*=x3"], ["CreateVolume=200:10,CreateVolume=x2"], ["*=x2,*=x2"]]
)
def test_refuses_two_quotas_for_one_action(texts: list[str]) -> None:
    with pytest.raises(StorageError, match="is given twice"):
        parse_rates(texts)
