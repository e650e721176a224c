"""Outposts, zone ids and many instances, as the strict EC2 has them."""

from typing import Any

import pytest

from tests.sandbox.lab import OTHER_ZONE, ZONE, Lab, client, refusal

ARN = "arn:aws:outposts:us-east-1:111122223333:outpost/op-1"
SHARED = {"VolumeType": "io2", "Iops": 100, "MultiAttachEnabled": True}


def test_a_volume_is_made_on_an_outpost(lab: Lab) -> None:
    lab.control(outposts={ARN: {"zone": ZONE, "instances": []}})

    volume = lab.create(OutpostArn=ARN)

    shown = lab.look(volume["VolumeId"])
    assert (volume.get("OutpostArn"), shown.get("OutpostArn")) == (ARN, ARN)
    assert "OutpostArn" not in lab.create()


def test_an_outpost_that_is_not_there_is_refused(lab: Lab) -> None:
    lab.control(outposts={ARN: {"zone": ZONE, "instances": []}})

    assert refusal(lab.create, OutpostArn=f"{ARN}2")[0] == "InvalidParameterValue"
    code, _ = refusal(lab.create, OutpostArn=ARN, AvailabilityZone=OTHER_ZONE)
    assert code == "InvalidParameterCombination"


def test_a_token_is_held_to_its_outpost(lab: Lab) -> None:
    lab.control(outposts={ARN: {"zone": ZONE, "instances": []}})
    lab.volume(ClientToken="t", OutpostArn=ARN)

    assert refusal(lab.create, ClientToken="t")[0] == "IdempotentParameterMismatch"


def test_a_volume_attaches_on_its_own_side_of_an_outpost(lab: Lab) -> None:
    here, there = lab.instances(2)
    lab.control(outposts={ARN: {"zone": ZONE, "instances": [here]}})
    on_it, beside = lab.volume(OutpostArn=ARN), lab.volume()

    assert refusal(lab.attach, on_it, there)[0] == "UnsupportedOperation"
    assert refusal(lab.attach, beside, here)[0] == "UnsupportedOperation"
    assert lab.attach(on_it, here)["InstanceId"] == here
    assert lab.attach(beside, there)["InstanceId"] == there


def test_every_zone_has_a_name_and_an_id(strict_lab: Lab) -> None:
    zones = strict_lab.ec2.describe_availability_zones(AllAvailabilityZones=True)

    found = {each["ZoneId"]: each["ZoneName"] for each in zones["AvailabilityZones"]}
    assert len(found) == len(set(found.values())) == 6
    for zone_id, name in found.items():
        made = strict_lab.create(AvailabilityZone=None, AvailabilityZoneId=zone_id)
        assert made["AvailabilityZone"] == name


def test_so_many_instances_share_a_volume_and_no_more(lab: Lab) -> None:
    volume, (last, *instances) = lab.volume(**SHARED), lab.instances(17)
    for instance in instances:
        lab.attach(volume, instance)

    assert refusal(lab.attach, volume, last)[0] == "VolumeInUse"

    lab.detach(volume, InstanceId=instances[0])
    lab.attach(volume, last)

    holders = {each["InstanceId"] for each in lab.look(volume)["Attachments"]}
    assert holders == {last, *instances[1:]}


@pytest.mark.parametrize("change", [{"VolumeType": "gp3", "Iops": 3000}, {"VolumeType": "st1"}])
def test_other_types_are_not_shared(strict_lab: Lab, change: dict[str, Any]) -> None:
    code, _ = refusal(strict_lab.create, **SHARED | {"Size": 125, "Iops": None} | change)

    assert code == "InvalidParameterCombination"


def test_io1_is_shared_in_some_regions_only(strict_lab: Lab, strict_ec2: Any) -> None:
    elsewhere = Lab(client(strict_ec2.endpoint, region="eu-central-1"), strict_ec2.control)
    io1 = SHARED | {"VolumeType": "io1"}

    assert strict_lab.create(**io1)["MultiAttachEnabled"] is True
    code, _ = refusal(elsewhere.create, **io1, AvailabilityZone="eu-central-1a")
    assert code == "InvalidParameterCombination"
    assert elsewhere.create(**SHARED, AvailabilityZone="eu-central-1a")["MultiAttachEnabled"]
