"""CreateVolume and DeleteVolume of the strict EC2."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.sandbox.lab import OTHER_ZONE, Lab, client, refusal


def _tags(*keys: str) -> list[dict[str, Any]]:
    return [
        {"ResourceType": "volume", "Tags": [{"Key": key, "Value": f"of {key}"} for key in keys]}
    ]


def test_a_repeated_token_returns_the_same_volume(lab: Lab) -> None:
    first, again = lab.volume(ClientToken="t"), lab.volume(ClientToken="t")

    assert (again, lab.listed()) == (first, {first})


def test_many_requests_at_once_with_one_token_make_one_volume(lab: Lab) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = set(pool.map(lambda _: lab.volume(ClientToken="t"), range(16)))

    assert made == lab.listed()
    assert len(made) == 1


def test_the_order_of_tags_makes_no_other_request(lab: Lab) -> None:
    first = lab.volume(ClientToken="t", TagSpecifications=_tags("a", "b"))

    assert lab.volume(ClientToken="t", TagSpecifications=_tags("b", "a")) == first


@pytest.mark.parametrize(
    "change",
    [{"Size": 11}, {"VolumeType": "gp2"}, {"TagSpecifications": _tags("a")}, {"Iops": 4000}],
    ids=lambda change: next(iter(change)),
)
def test_a_token_with_other_parameters_is_a_mismatch(lab: Lab, change: dict[str, Any]) -> None:
    lab.volume(ClientToken="t")

    code, message = refusal(lab.create, ClientToken="t", **change)

    assert code == "IdempotentParameterMismatch"
    assert "inconsistent with parameters used in previous request(s)" in message


def test_the_token_of_a_deleted_volume_is_burned(lab: Lab) -> None:
    lab.ec2.delete_volume(VolumeId=lab.volume(ClientToken="t"))

    code, message = refusal(lab.create, ClientToken="t")

    assert code == "IdempotentParameterMismatch"
    assert "associated with a resource that is already deleted" in message


def test_the_same_token_in_another_zone_makes_a_second_volume(strict_lab: Lab) -> None:
    first = strict_lab.volume(ClientToken="t")

    assert strict_lab.volume(ClientToken="t", AvailabilityZone=OTHER_ZONE) != first


def test_a_token_may_be_held_to_its_zone(lab: Lab) -> None:
    lab.control(token_per_zone=False)
    lab.volume(ClientToken="t")

    code, _ = refusal(lab.create, ClientToken="t", AvailabilityZone=OTHER_ZONE)

    assert code == "IdempotentParameterMismatch"


def test_a_token_is_at_most_64_characters(lab: Lab) -> None:
    assert refusal(lab.create, ClientToken="t" * 65)[0] == "InvalidParameterValue"


def test_at_the_quota_even_a_repeated_request_is_refused(lab: Lab) -> None:
    lab.volume(ClientToken="t")
    lab.control(quotas={"volumes": 1})

    assert refusal(lab.create, ClientToken="t")[0] == "VolumeLimitExceeded"


def test_storage_and_iops_have_quotas_by_type(lab: Lab) -> None:
    lab.control(quotas={"gib": {"gp3": 15}, "iops": {"io2": 500}})
    lab.volume()

    assert refusal(lab.create)[0] == "VolumeLimitExceeded"
    assert refusal(lab.create, VolumeType="io2", Iops=501)[0] == "MaxIOPSLimitExceeded"
    assert lab.volume(VolumeType="io2", Iops=500)


@pytest.mark.parametrize("zone", ["us-east-1z", "eu-west-1a", "nowhere"])
def test_a_zone_that_does_not_exist_is_refused(lab: Lab, zone: str) -> None:
    expected = ("InvalidZone.NotFound", f"The zone '{zone}' does not exist.")

    assert refusal(lab.create, AvailabilityZone=zone) == expected


def test_a_zone_is_required(lab: Lab) -> None:
    expected = ("MissingParameter", "The request must contain the parameter zone")

    assert refusal(lab.create, AvailabilityZone=None) == expected


def test_a_zone_may_be_named_by_its_id(lab: Lab) -> None:
    volume = lab.create(AvailabilityZone=None, AvailabilityZoneId="use1-az6")

    names = {"AvailabilityZone": "us-east-1a", "AvailabilityZoneId": "use1-az6"}
    assert {key: volume.get(key) for key in names} == names


def test_a_zone_is_not_named_twice(lab: Lab) -> None:
    code, _ = refusal(lab.create, AvailabilityZoneId="use1-az6")

    assert code == "InvalidParameterCombination"


def test_a_volume_is_creating_before_it_is_available(lab: Lab) -> None:
    lab.control(delays={"create_s": 10})
    volume = lab.create()

    assert (volume["State"], lab.state(volume["VolumeId"])) == ("creating", "creating")

    lab.control(advance_s=11)

    assert lab.state(volume["VolumeId"]) == "available"


def test_creation_may_end_in_error(lab: Lab) -> None:
    lab.control(failing_creates=1)

    assert [lab.state(lab.volume()), lab.state(lab.volume())] == ["error", "available"]


def test_a_new_volume_is_invisible_for_a_moment(lab: Lab) -> None:
    lab.control(delays={"visible_after_s": 10})
    volume = lab.volume(ClientToken="t")

    assert refusal(lab.look, volume)[0] == "InvalidVolume.NotFound"
    assert lab.listed() == set()
    assert lab.volume(ClientToken="t") == volume

    lab.control(advance_s=11)

    assert lab.listed() == {volume}


def test_a_dry_run_is_validated_first(lab: Lab) -> None:
    assert refusal(lab.create, Iops=2**31 - 1, DryRun=True)[0] == "InvalidParameterValue"


def test_a_valid_dry_run_makes_nothing(strict_lab: Lab) -> None:
    code, _ = refusal(strict_lab.create, DryRun=True, ClientToken="t")

    assert (code, strict_lab.listed()) == ("DryRunOperation", set())


def test_a_volume_with_an_unknown_key_vanishes_and_burns_its_token(lab: Lab) -> None:
    lab.control(delays={"create_s": 10})
    request = {"Encrypted": True, "KmsKeyId": "11111111-2222-3333-4444-555555555555"}
    volume = lab.create(ClientToken="t", **request)

    assert (volume["State"], lab.state(volume["VolumeId"])) == ("creating", "creating")

    lab.control(advance_s=11)

    assert refusal(lab.look, volume["VolumeId"])[0] == "InvalidVolume.NotFound"
    assert refusal(lab.create, ClientToken="t", **request)[0] == "IdempotentParameterMismatch"


def test_a_volume_with_a_known_key_stays(strict_lab: Lab) -> None:
    kms = client(strict_lab.ec2.meta.endpoint_url, service="kms")
    key = kms.create_key()["KeyMetadata"]
    volume = strict_lab.volume(Encrypted=True, KmsKeyId=key["KeyId"])

    assert strict_lab.look(volume)["KmsKeyId"] == key["Arn"]
    assert strict_lab.state(volume) == "available"


def test_a_key_needs_encryption(strict_lab: Lab) -> None:
    assert refusal(strict_lab.create, KmsKeyId="k")[0] == "InvalidParameterDependency"


def test_encryption_by_default_encrypts(lab: Lab) -> None:
    lab.ec2.enable_ebs_encryption_by_default()

    assert lab.create()["Encrypted"] is True


def test_a_snapshot_is_not_larger_than_its_volume(lab: Lab) -> None:
    snapshot = lab.ec2.create_snapshot(VolumeId=lab.volume(Size=20))["SnapshotId"]

    code, _ = refusal(lab.create, Size=10, SnapshotId=snapshot)

    assert code == "InvalidParameterValue"


def test_a_snapshot_that_does_not_exist_is_named(lab: Lab) -> None:
    expected = ("InvalidSnapshot.NotFound", "The snapshot 'snap-01234567' does not exist.")

    assert refusal(lab.create, SnapshotId="snap-01234567") == expected


_TOO_MANY = [f"k{number}" for number in range(51)]


@pytest.mark.parametrize(
    ("keys", "code"),
    [
        (["aws:mine"], "InvalidParameterValue"),
        (["twice", "twice"], "InvalidParameterValue"),
        (["k" * 129], "InvalidParameterValue"),
        (_TOO_MANY, "TagLimitExceeded"),
    ],
    ids=["reserved", "twice", "long", "many"],
)
def test_refused_tags_leave_no_volume_behind(lab: Lab, keys: list[str], code: str) -> None:
    refused, _ = refusal(lab.create, TagSpecifications=_tags(*keys))

    assert (refused, lab.listed()) == (code, set())


def test_a_zone_without_capacity_for_a_type_makes_nothing(lab: Lab) -> None:
    lab.control(capacity=[{"zone": "us-east-1a", "type": "gp3"}])

    assert refusal(lab.create)[0] == "InsufficientVolumeCapacity"
    assert len({lab.volume(VolumeType="gp2"), lab.volume(AvailabilityZone=OTHER_ZONE)}) == 2


def test_a_volume_in_use_is_not_deleted(strict_lab: Lab) -> None:
    volume, instance = strict_lab.volume(), strict_lab.instance()
    strict_lab.attach(volume, instance)

    assert refusal(strict_lab.ec2.delete_volume, VolumeId=volume)[0] == "VolumeInUse"


def test_a_deleted_volume_is_deleting_for_a_while(lab: Lab) -> None:
    lab.control(delays={"delete_s": 10})
    volume = lab.volume()
    lab.ec2.delete_volume(VolumeId=volume)

    assert lab.state(volume) == "deleting"

    lab.control(advance_s=11)

    assert refusal(lab.look, volume)[0] == "InvalidVolume.NotFound"


def test_a_second_delete_finds_nothing(strict_lab: Lab) -> None:
    volume = strict_lab.volume()
    strict_lab.ec2.delete_volume(VolumeId=volume)

    code, message = refusal(strict_lab.ec2.delete_volume, VolumeId=volume)

    assert code == "InvalidVolume.NotFound"
    assert message == f"The volume '{volume}' does not exist."


def test_a_creating_volume_is_not_deleted(lab: Lab) -> None:
    lab.control(delays={"create_s": 10})

    with pytest.raises(ClientError, match="IncorrectState"):
        lab.ec2.delete_volume(VolumeId=lab.volume())
