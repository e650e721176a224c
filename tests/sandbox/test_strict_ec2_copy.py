"""CopyVolumes of the strict EC2."""

from typing import Any

import pytest
from botocore.exceptions import ClientError, HTTPClientError
from botocore.parsers import ResponseParserError

from tests.sandbox.lab import OTHER_ZONE, Lab, client, refusal

_ABSENT = "vol-00000000000000000"


def test_a_copy_is_in_the_zone_of_its_source_and_names_it(lab: Lab) -> None:
    lab.control(delays={"create_s": 10})
    source = lab.volume(AvailabilityZone=OTHER_ZONE)
    lab.control(advance_s=10)

    (made,) = lab.ec2.copy_volumes(SourceVolumeId=source, VolumeType="gp3")["Volumes"]

    assert (made["State"], made["AvailabilityZone"], made["Size"]) == ("creating", OTHER_ZONE, 10)
    assert made["SourceVolumeId"] == source

    lab.control(advance_s=10)

    assert lab.state(made["VolumeId"]) == "available"
    assert lab.look(made["VolumeId"])["SourceVolumeId"] == source


def test_a_copy_has_none_of_the_tags_of_its_source(lab: Lab) -> None:
    def tags(key: str) -> list[dict[str, Any]]:
        return [{"ResourceType": "volume", "Tags": [{"Key": key, "Value": "x"}]}]

    copy = lab.copy(lab.volume(TagSpecifications=tags("old")), TagSpecifications=tags("new"))

    assert lab.look(copy)["Tags"] == [{"Key": "new", "Value": "x"}]


def test_the_type_of_a_copy_is_gp2_unless_it_is_told(lab: Lab) -> None:
    (made,) = lab.ec2.copy_volumes(SourceVolumeId=lab.volume())["Volumes"]

    assert made["VolumeType"] == "gp2"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"Size": 9}, "InvalidParameterValue"),
        ({"VolumeType": "foo"}, "UnknownVolumeType"),
        ({"VolumeType": "io2"}, "InvalidParameterCombination"),
        ({"Iops": 80001}, "InvalidParameterValue"),
        ({"KmsKeyId": "alias/x"}, "InvalidParameterDependency"),
        ({"DryRun": True}, "DryRunOperation"),
    ],
    ids=str,
)
def test_what_a_copy_cannot_be_is_refused(lab: Lab, changes: dict[str, Any], code: str) -> None:
    assert refusal(lab.copy, lab.volume(), **changes)[0] == code


def test_a_copy_may_be_larger_and_faster(lab: Lab) -> None:
    made = lab.look(lab.copy(lab.volume(), Size=20, Iops=4000, Throughput=500))

    assert (made["Size"], made["Iops"], made["Throughput"]) == (20, 4000, 500)


def test_a_repeated_token_returns_the_same_copy(lab: Lab) -> None:
    lab.control(delays={"initialize_s": 100})
    source = lab.volume()
    copy = lab.copy(source, ClientToken="t")

    assert lab.copy(source, ClientToken="t") == copy
    assert lab.listed() == {source, copy}
    assert refusal(lab.copy, source, ClientToken="t", Size=20)[0] == "IdempotentParameterMismatch"


@pytest.mark.parametrize("do", ["reset", "html", "error"])
def test_a_copy_whose_reply_was_lost_is_found_by_its_token(lab: Lab, do: str) -> None:
    lab.control(faults=[{"action": "CopyVolumes", "do": do, "when": "after"}])
    source = lab.volume()
    with pytest.raises((HTTPClientError, ClientError, ResponseParserError)):
        lab.copy(source, ClientToken="t")

    assert lab.listed() == {source, lab.copy(source, ClientToken="t")}


def test_a_source_is_copied_once_at_a_time(lab: Lab) -> None:
    lab.control(delays={"initialize_s": 100})
    source = lab.volume()
    copy = lab.copy(source)

    assert refusal(lab.copy, source)[0] == "CopyVolumesLimitExceeded"
    assert refusal(lab.copy, copy)[0] == "IncorrectState"

    lab.control(advance_s=100)

    assert lab.copy(source)
    assert lab.copy(copy)


def test_a_region_has_five_copies_in_progress(lab: Lab) -> None:
    lab.control(delays={"initialize_s": 100})
    for _ in range(5):
        lab.copy(lab.volume())

    assert refusal(lab.copy, lab.volume())[0] == "CopyVolumesLimitExceeded"

    lab.control(copies_in_progress=6)

    assert lab.copy(lab.volume())


def test_a_copy_tells_how_far_its_initialization_is(lab: Lab) -> None:
    lab.control(delays={"initialize_s": 100})
    copy = lab.copy(lab.volume())

    assert lab.initialization_state(copy) == "initializing"
    details = lab.status(copy)["InitializationStatusDetails"]
    assert details["InitializationType"] == "volume-copy"
    assert "EstimatedTimeToCompleteInSeconds" not in details


@pytest.mark.parametrize(
    ("advance_s", "refused"), [(0, "IncorrectModificationState"), (10, None)], ids=str
)
def test_a_source_is_copied_while_it_is_optimizing_but_not_modifying(
    lab: Lab, advance_s: int, refused: str | None
) -> None:
    lab.control(delays={"modify_s": 10, "optimize_s": 100})
    source = lab.volume()
    lab.modify(source, Size=20)
    lab.control(advance_s=advance_s)

    if refused is None:
        assert lab.look(lab.copy(source))["Size"] == 20
    else:
        assert refusal(lab.copy, source)[0] == refused


def test_a_source_in_creation_is_not_copied(lab: Lab) -> None:
    lab.control(delays={"create_s": 10})

    assert refusal(lab.copy, lab.volume())[0] == "IncorrectState"


def test_a_missing_source_is_named(lab: Lab) -> None:
    assert refusal(lab.copy, _ABSENT) == (
        "InvalidVolume.NotFound",
        f"The volume '{_ABSENT}' does not exist.",
    )


def test_a_copy_outlives_its_source(lab: Lab) -> None:
    lab.control(delays={"initialize_s": 100})
    source = lab.volume()
    copy = lab.copy(source)
    lab.ec2.delete_volume(VolumeId=source)
    lab.control(advance_s=100)

    assert lab.initialization_state(copy) == "completed"


def test_the_copy_of_an_encrypted_volume_has_its_key_unless_another_is_named(lab: Lab) -> None:
    kms = client(lab.ec2.meta.endpoint_url, service="kms")
    first, second = (kms.create_key()["KeyMetadata"]["Arn"] for _ in range(2))
    source = lab.volume(Encrypted=True, KmsKeyId=first)

    assert lab.look(lab.copy(source))["KmsKeyId"] == first
    assert lab.look(lab.copy(source, Encrypted=True, KmsKeyId=second))["KmsKeyId"] == second
    assert lab.look(lab.copy(lab.volume(), Encrypted=True))["Encrypted"] is True


def test_a_copy_with_an_unknown_key_vanishes(lab: Lab) -> None:
    copy = lab.copy(lab.volume(), Encrypted=True, KmsKeyId="alias/nobody-knows")

    assert refusal(lab.look, copy)[0] == "InvalidVolume.NotFound"


def test_copies_count_against_the_quotas(lab: Lab) -> None:
    source = lab.volume()
    lab.control(quotas={"gib": {"gp3": 15}})

    assert refusal(lab.copy, source)[0] == "VolumeLimitExceeded"


def test_copies_have_a_bucket_of_their_own(lab: Lab) -> None:
    source = lab.volume()
    lab.control(throttle={"CopyVolumes": [1, 0]})
    lab.copy(source)

    assert refusal(lab.copy, source)[0] == "RequestLimitExceeded"
