"""The table of attachment limits: what EC2 tells today, and known facts against mistakes in it."""

import re

import boto3
import pytest

from provisioner.inspect import limit_table
from provisioner.model.instance_type_limit import TABLE, AttachmentLimit, NotedLimit, known_limit
from provisioner.sandbox.strict_ec2.client import CREDENTIALS

SHARED, DEDICATED = True, False


@pytest.fixture
def ec2(strict_ec2, monkeypatch):
    for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL_EC2": strict_ec2.endpoint}.items():
        monkeypatch.setenv(name, value)
    return strict_ec2


def test_the_table_is_what_its_command_writes(ec2, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(limit_table, "TABLE", tmp_path / "table.txt")

    assert limit_table.main(["us-east-1"]) == 0

    assert (tmp_path / "table.txt").read_text() == TABLE.read_text()
    assert re.match(r"1[0-9]{3} instance types of 1 regions", capsys.readouterr().out)


def test_each_type_of_ec2_is_found_in_the_table(ec2):
    client = boto3.client("ec2", region_name="us-east-1")
    for each in limit_table.described(client):
        found = known_limit(each.instance_type)
        assert found is not None, each
        assert found.count == (39 if each.is_xen else each.max_attachments), each


# As aws-ebs-csi-driver v1.64 and the EC2 user guide have them.
@pytest.mark.parametrize(
    ("instance_type", "count", "is_shared"),
    [
        ("m5.large", 27, SHARED),
        ("m5.metal", 31, SHARED),
        ("t2.micro", 39, DEDICATED),
        ("d3.8xlarge", 3, SHARED),
        ("m7i.large", 32, DEDICATED),
        ("m7i.48xlarge", 128, DEDICATED),
        ("c8g.metal-24xl", 39, DEDICATED),
        ("m8a.metal-48xl", 79, DEDICATED),  # EC2 says shared
        ("i7ie.metal-24xl", 39, DEDICATED),  # EC2 says shared
        ("p4d.24xlarge", 28, DEDICATED),
        ("mac2.metal", 10, SHARED),
    ],
)
def test_known_facts(instance_type, count, is_shared):
    assert known_limit(instance_type) == AttachmentLimit(count, is_shared)


@pytest.mark.parametrize("name", ["m5.mega", "z99.large", "m5", "", "m", "m5.", "# Written", "m5 "])
def test_what_is_no_known_type_is_in_no_table(name):
    assert known_limit(name) is None


def test_where_regions_differ_the_lower_limit_holds():
    low, high = AttachmentLimit(27, is_shared=True), AttachmentLimit(32, is_shared=False)
    even = AttachmentLimit(27, is_shared=False)

    assert limit_table.merged([{"a": low, "b": high, "c": even}, {"a": high, "c": low}]) == {
        "a": low,
        "b": high,
        "c": low,
    }


@pytest.mark.parametrize("text", ["m99.large 28 shared", "u-6tb1.metal 128 dedicated"])
def test_a_noted_limit_is_read_as_it_is_written(text):
    assert str(NotedLimit.parse(text)) == text


@pytest.mark.parametrize("text", ["", "28 shared", "m99.large", "m99.large many", "m99.large  2"])
def test_what_is_no_noted_limit_is_refused(text):
    with pytest.raises(ValueError, match="is not an attachment limit of an instance type"):
        NotedLimit.parse(text)


@pytest.mark.parametrize("text", ["28 shared", "128 dedicated"])
def test_a_limit_is_read_as_it_is_written(text):
    assert str(AttachmentLimit.parse(text)) == text


@pytest.mark.parametrize(
    "text", ["", "28", "shared", "0 shared", "-1 shared", "28 Shared", "28  shared"]
)
def test_what_is_no_limit_is_refused(text):
    with pytest.raises(ValueError, match='such as "28 shared"'):
        AttachmentLimit.parse(text)
