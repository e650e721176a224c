"""DescribeInstances and DescribeInstanceTypes of the strict EC2: filters, pages, what is unknown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.sandbox.lab import Lab, refusal

ABSENT, ABSENT_TOO = "i-00000000000000000", "i-00000000000000001"
ALL_TYPES = 1395  # of moto 5.2.5


def pages(call: Callable[..., Any], key: str, **asked: Any) -> Iterator[list[Any]]:
    reply = call(**asked)
    yield reply[key]
    while reply.get("NextToken"):
        reply = call(**asked, NextToken=reply["NextToken"])
        yield reply[key]


def found(lab: Lab, **filters: list[str]) -> set[str]:
    given = [
        {"Name": name.replace("__", ".").replace("_", "-"), "Values": values}
        for name, values in filters.items()
    ]
    reply = lab.ec2.describe_instances(Filters=given)
    return {each["InstanceId"] for part in reply["Reservations"] for each in part["Instances"]}


def described(lab: Lab, instance_id: str) -> Any:
    reply = lab.ec2.describe_instances(InstanceIds=[instance_id])
    return reply["Reservations"][0]["Instances"][0]


def test_an_instance_is_found_by_any_address_of_any_interface(lab: Lab) -> None:
    one, two = lab.instances(2)
    shown = described(lab, one)
    interface = shown["NetworkInterfaces"][0]
    lab.ec2.assign_private_ip_addresses(
        NetworkInterfaceId=interface["NetworkInterfaceId"], SecondaryPrivateIpAddressCount=1
    )
    more = described(lab, one)["NetworkInterfaces"][0]["PrivateIpAddresses"]
    [secondary] = [each["PrivateIpAddress"] for each in more if not each["Primary"]]

    for address in (shown["PrivateIpAddress"], secondary):
        assert found(lab, network_interface__addresses__private_ip_address=[address]) == {one}
    assert found(lab, private_ip_address=[secondary]) == set()
    everyone = [described(lab, each)["PrivateIpAddress"] for each in (one, two)]
    assert found(lab, network_interface__addresses__private_ip_address=everyone) == {one, two}


def test_names_states_and_tags_select_instances(strict_lab: Lab) -> None:
    one, two = strict_lab.instances(2)
    key = "kubernetes.io/cluster/c"
    strict_lab.ec2.create_tags(Resources=[one], Tags=[{"Key": key, "Value": "owned"}])
    name = described(strict_lab, one)["PrivateDnsName"]
    of_cluster = [{"Name": f"tag:{key}", "Values": ["owned", "shared"]}]

    def asked(*filters: Any) -> list[str]:
        reply = strict_lab.ec2.describe_instances(Filters=[*of_cluster, *filters])
        return [each["InstanceId"] for part in reply["Reservations"] for each in part["Instances"]]

    running = {"Name": "instance-state-name", "Values": ["running"]}
    by_name = {
        "Name": "private-dns-name",
        "Values": [name, described(strict_lab, two)["PrivateDnsName"]],
    }
    assert asked(running, by_name) == [one]
    strict_lab.ec2.stop_instances(InstanceIds=[one])
    assert asked(running, by_name) == []
    assert asked(by_name) == [one]


def test_instances_come_in_pages_each_once(lab: Lab) -> None:
    made = set(lab.instances(7))

    seen = list(pages(lab.ec2.describe_instances, "Reservations", MaxResults=5))

    ids = [[each["InstanceId"] for part in page for each in part["Instances"]] for page in seen]
    assert [len(page) for page in ids] == [5, 2]
    assert sorted(each for page in ids for each in page) == sorted(made)


def test_a_bad_token_of_instances_is_refused(lab: Lab) -> None:
    code, _ = refusal(lab.ec2.describe_instances, MaxResults=5, NextToken="nonsense")

    assert code == "InvalidNextToken"


@pytest.mark.parametrize("size", [4, 1001])
def test_a_page_of_instances_has_its_limits(lab: Lab, size: int) -> None:
    assert refusal(lab.ec2.describe_instances, MaxResults=size)[0] == "InvalidParameterValue"


def test_a_filter_that_instances_do_not_have_is_refused(lab: Lab) -> None:
    wrong = [{"Name": "private-name", "Values": ["x"]}]

    assert refusal(lab.ec2.describe_instances, Filters=wrong)[0] == "InvalidParameterValue"


def test_a_call_has_at_most_200_filter_values(lab: Lab) -> None:
    many = [{"Name": "private-dns-name", "Values": [f"ip-{n}" for n in range(200)]}]
    more = [*many, {"Name": "instance-state-name", "Values": ["running"]}]

    assert lab.ec2.describe_instances(Filters=many)["Reservations"] == []
    assert refusal(lab.ec2.describe_instances, Filters=more)[0] == "FilterLimitExceeded"


def test_every_missing_instance_is_named(lab: Lab) -> None:
    one = lab.instance()

    code, text = refusal(lab.ec2.describe_instances, InstanceIds=[ABSENT, one, ABSENT_TOO])

    assert code == "InvalidInstanceID.NotFound"
    assert text == f"The instance IDs '{ABSENT}, {ABSENT_TOO}' do not exist"


def test_types_come_in_pages_of_at_most_a_hundred(lab: Lab) -> None:
    seen = list(pages(lab.ec2.describe_instance_types, "InstanceTypes"))

    assert {len(page) for page in seen[:-1]} == {100}
    assert len({each["InstanceType"] for page in seen for each in page}) == ALL_TYPES


@pytest.mark.parametrize("size", [4, 101])
def test_a_page_of_types_has_its_limits(lab: Lab, size: int) -> None:
    assert refusal(lab.ec2.describe_instance_types, MaxResults=size)[0] == "InvalidParameterValue"


def test_a_family_is_found_by_a_pattern_over_pages(strict_lab: Lab) -> None:
    family = [{"Name": "instance-type", "Values": ["m5.*", "z9new.*"]}]

    seen = list(
        pages(strict_lab.ec2.describe_instance_types, "InstanceTypes", Filters=family, MaxResults=5)
    )

    names = [each["InstanceType"] for page in seen for each in page]
    assert "m5.large" in names
    assert {name.partition(".")[0] for name in names} == {"m5"}
    assert len(seen) > 1


def test_a_type_that_is_named_and_unknown_is_refused(strict_lab: Lab) -> None:
    code, text = refusal(
        strict_lab.ec2.describe_instance_types, InstanceTypes=["m5.large", "z9new.large"]
    )

    assert code == "InvalidInstanceType"
    assert text == "The following supplied instance types do not exist: [z9new.large]"


def test_a_type_that_has_come_since_is_like_another(strict_lab: Lab) -> None:
    strict_lab.control(instance_types={"z9new.large": "m7i.large"})

    [found] = strict_lab.ec2.describe_instance_types(InstanceTypes=["z9new.large"])["InstanceTypes"]
    [like] = strict_lab.ec2.describe_instance_types(InstanceTypes=["m7i.large"])["InstanceTypes"]

    assert found | {"InstanceType": "m7i.large"} == like
