"""Instances by what their nodes know of themselves, and families of instance types."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from provisioner.ec2.calls import Ec2Calls
from provisioner.ec2.lookups import VALUES_PER_CALL, InstanceLookUps, InstanceTypes
from provisioner.model.errors import Ec2Error, Reason
from provisioner.model.instance_type_limit import known_limit
from provisioner.sandbox.strict_ec2.client import StrictEc2
from tests.sandbox.lab import Lab

TAG = "kubernetes.io/cluster/shop"


@pytest.fixture
async def lookups(calls: Ec2Calls) -> AsyncIterator[InstanceLookUps]:
    made = InstanceLookUps(calls, "shop")
    yield made
    await made.close()


@pytest.fixture
async def types(calls: Ec2Calls) -> AsyncIterator[InstanceTypes]:
    made = InstanceTypes(calls)
    yield made
    await made.close()


def tagged(lab: Lab, *values: str) -> list[Any]:
    """An instance for each value of the cluster's tag, as EC2 describes it."""
    ids = lab.instances(len(values))
    for instance_id, value in zip(ids, values, strict=True):
        lab.ec2.create_tags(Resources=[instance_id], Tags=[{"Key": TAG, "Value": value}])
    reply = lab.ec2.describe_instances(InstanceIds=ids)["Reservations"]
    found = {each["InstanceId"]: each for part in reply for each in part["Instances"]}
    return [found[each] for each in ids]


async def test_all_who_ask_at_once_share_one_call_a_kind(
    lookups: InstanceLookUps, strict_lab: Lab, strict_ec2: StrictEc2
) -> None:
    made = tagged(strict_lab, "owned", "shared", "owned")
    strict_ec2.control(reset_counts=True)

    by_name = [lookups.named(each["PrivateDnsName"]) for each in made]
    by_address = [lookups.addressed(each["PrivateIpAddress"]) for each in made]
    found = await asyncio.gather(*by_name, *by_address, lookups.named("nobody.internal"))

    ids = [each["InstanceId"] for each in made]
    assert [[one.instance_id for one in each] for each in found] == [
        *([each] for each in ids * 2),
        [],
    ]
    assert found[0][0].private_dns_name == made[0]["PrivateDnsName"]
    assert made[0]["PrivateIpAddress"] in found[0][0].private_addresses
    assert strict_ec2.counts()["DescribeInstances"] == 2


async def test_others_and_those_that_do_not_run_are_not_found(
    lookups: InstanceLookUps, strict_lab: Lab
) -> None:
    running, stopped, foreign = tagged(strict_lab, "owned", "owned", "no")
    strict_lab.ec2.stop_instances(InstanceIds=[stopped["InstanceId"]])

    found = await asyncio.gather(
        *(lookups.named(each["PrivateDnsName"]) for each in (running, stopped, foreign))
    )

    assert [len(each) for each in found] == [1, 0, 0]


async def test_a_secondary_address_which_a_pod_may_have_finds_nothing(
    lookups: InstanceLookUps, strict_lab: Lab
) -> None:
    [made] = tagged(strict_lab, "owned")
    [interface] = made["NetworkInterfaces"]
    strict_lab.ec2.assign_private_ip_addresses(
        NetworkInterfaceId=interface["NetworkInterfaceId"], SecondaryPrivateIpAddressCount=1
    )
    reply = strict_lab.ec2.describe_instances(InstanceIds=[made["InstanceId"]])["Reservations"]
    shown = reply[0]["Instances"][0]["NetworkInterfaces"][0]["PrivateIpAddresses"]
    [secondary] = [each["PrivateIpAddress"] for each in shown if not each["Primary"]]

    of_pod, of_host = await asyncio.gather(
        lookups.addressed(secondary), lookups.addressed(made["PrivateIpAddress"])
    )

    assert of_pod == []
    assert [each.private_addresses for each in of_host] == [(made["PrivateIpAddress"],)]


async def test_more_than_a_call_takes_are_asked_for_in_several(
    lookups: InstanceLookUps, strict_lab: Lab, strict_ec2: StrictEc2
) -> None:
    [made] = tagged(strict_lab, "owned")
    names = [f"ip-{number}.ec2.internal" for number in range(VALUES_PER_CALL)]
    strict_ec2.control(reset_counts=True)

    found = await asyncio.gather(*map(lookups.named, [*names, made["PrivateDnsName"]]))

    assert [len(each) for each in found] == [0] * len(names) + [1]
    assert strict_ec2.counts()["DescribeInstances"] == 2


async def test_an_ec2_that_cannot_be_asked_is_no_none(
    lookups: InstanceLookUps, types: InstanceTypes, strict_ec2: StrictEc2
) -> None:
    no = {"do": "error", "code": "UnauthorizedOperation", "http_status": 403}
    strict_ec2.control(faults=[{"action": "DescribeInstance*", **no, "n": 2}])

    for asked in (lookups.named("a.internal"), types.family("m5")):
        with pytest.raises(Ec2Error) as caught:
            await asked
        assert caught.value.reason is Reason.PERMISSION_DENIED


async def test_families_are_read_whole_and_together_and_remembered(
    types: InstanceTypes, strict_ec2: StrictEc2
) -> None:
    strict_ec2.control(reset_counts=True, instance_types={"z9new.metal": "m7i.metal-24xl"})
    families = (
        *(
            "m5",
            "m7i",
            "c5",
            "r5",
            "i3",
            "t3",
            "m6i",
            "c6i",
            "r6i",
            "g5",
            "m7g",
            "c7g",
            "r7g",
            "m5d",
        ),
        *("z9new", "none9"),
    )

    found = dict(zip(families, await asyncio.gather(*map(types.family, families)), strict=True))
    await types.family("m5")

    assert [each.instance_type for each in found["z9new"]] == ["z9new.metal"]
    assert found["z9new"][0].is_metal
    assert found["none9"] == ()
    large = next(each for each in found["m5"] if each.instance_type == "m5.large")
    limit = known_limit("m5.large")
    assert limit is not None
    assert (large.max_attachments, large.is_shared) == (limit.count, limit.is_shared)
    assert {each.family for name in families for each in found[name]} == {*families} - {"none9"}
    assert strict_ec2.counts()["DescribeInstanceTypes"] == 2  # more than 100 types: two pages
