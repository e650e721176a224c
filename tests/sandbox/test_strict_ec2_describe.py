"""DescribeVolumes and tags of the strict EC2."""

from typing import Any

import pytest

from tests.sandbox.lab import OTHER_ZONE, Lab, refusal

_ABSENT, _ABSENT_TOO = "vol-00000000000000000", "vol-00000000000000001"


def _tagged(lab: Lab, **tags: str) -> str:
    pairs = [{"Key": key, "Value": value} for key, value in tags.items()]
    return lab.volume(TagSpecifications=[{"ResourceType": "volume", "Tags": pairs}])


def test_only_the_missing_id_is_named(lab: Lab) -> None:
    expected = ("InvalidVolume.NotFound", f"The volume '{_ABSENT}' does not exist.")

    assert refusal(lab.ec2.describe_volumes, VolumeIds=[lab.volume(), _ABSENT]) == expected


def test_every_missing_id_is_named(lab: Lab) -> None:
    volume = lab.volume()

    code, message = refusal(lab.ec2.describe_volumes, VolumeIds=[_ABSENT, volume, _ABSENT_TOO])

    assert code == "InvalidVolume.NotFound"
    assert message == f"The volumes '{_ABSENT}, {_ABSENT_TOO}' do not exist."


def test_an_id_may_come_twice(lab: Lab) -> None:
    volume = lab.volume()

    assert len(lab.ec2.describe_volumes(VolumeIds=[volume, volume])["Volumes"]) == 1


def test_a_call_names_at_most_a_thousand_ids(lab: Lab) -> None:
    code, _ = refusal(lab.ec2.describe_volumes, VolumeIds=[_ABSENT] * 1001)

    assert code == "InvalidParameterValue"


def test_pages_hold_every_volume_once(lab: Lab) -> None:
    volumes = {lab.volume() for _ in range(12)}

    seen: list[list[str]] = []
    reply: dict[str, Any] = {"NextToken": None}
    while "NextToken" in reply:
        token = {"NextToken": reply["NextToken"]} if seen else {}
        reply = lab.ec2.describe_volumes(MaxResults=5, **token)
        seen.append([each["VolumeId"] for each in reply["Volumes"]])

    assert [len(page) for page in seen] == [5, 5, 2]
    assert sorted(volumes) == sorted(each for page in seen for each in page)


@pytest.mark.parametrize("size", [4, 1001])
def test_a_page_has_5_to_1000_volumes(lab: Lab, size: int) -> None:
    assert refusal(lab.ec2.describe_volumes, MaxResults=size)[0] == "InvalidParameterValue"


def test_pages_and_ids_exclude_each_other(lab: Lab) -> None:
    code, message = refusal(lab.ec2.describe_volumes, VolumeIds=[lab.volume()], MaxResults=5)

    assert code == "InvalidParameterCombination"
    assert message == "The parameter volumeSet cannot be used with the parameter maxResults"


def test_a_page_token_must_be_one(lab: Lab) -> None:
    assert refusal(lab.ec2.describe_volumes, NextToken="made up")[0] == "InvalidNextToken"


def test_there_is_no_order(lab: Lab) -> None:
    volumes = [lab.volume() for _ in range(20)]

    listed = [each["VolumeId"] for each in lab.ec2.describe_volumes()["Volumes"]]
    by_id = [each["VolumeId"] for each in lab.ec2.describe_volumes(VolumeIds=volumes)["Volumes"]]

    assert sorted(listed) == sorted(by_id) == sorted(volumes)
    assert volumes not in (listed, by_id)


def test_one_of_several_tag_keys_is_enough(lab: Lab) -> None:
    first, second = _tagged(lab, a="1", other="1"), _tagged(lab, b="1", other="1")
    _tagged(lab, c="1")

    assert lab.listed(("tag-key", ["a", "b"])) == {first, second}


def test_every_filter_must_match_also_two_of_one_name(lab: Lab) -> None:
    both = _tagged(lab, a="1", b="1")
    _tagged(lab, b="1")

    assert lab.listed(("tag-key", ["a"]), ("tag-key", ["b"])) == {both}


def test_filters_know_wildcards_values_and_each_other(strict_lab: Lab) -> None:
    wanted = _tagged(strict_lab, cluster="blue-1")
    _tagged(strict_lab, cluster="red-1")
    strict_lab.volume(AvailabilityZone=OTHER_ZONE)

    found = strict_lab.listed(
        ("tag:cluster", ["blue-*", "green-?"]),
        ("availability-zone", ["us-east-1a"]),
        ("status", ["available"]),
    )

    assert found == {wanted}


def test_a_question_mark_stands_for_none_or_one(strict_lab: Lab) -> None:
    wanted = _tagged(strict_lab, cluster="blue")

    assert strict_lab.listed(("tag:cluster", ["blu?"])) == {wanted}
    assert strict_lab.listed(("tag:cluster", ["blue?"])) == {wanted}
    assert strict_lab.listed(("tag:cluster", ["bl?"])) == set()


def test_filters_may_be_about_attachments(lab: Lab) -> None:
    volume, instance = lab.volume(), lab.instance()
    lab.attach(volume, instance)

    kept = ("attachment.delete-on-termination", ["false"])

    assert lab.listed(("attachment.instance-id", [instance]), kept) == {volume}


def test_an_id_filter_returns_what_there_is(strict_lab: Lab) -> None:
    volume = strict_lab.volume()

    assert strict_lab.listed(("volume-id", [volume, _ABSENT])) == {volume}


def test_an_id_filter_takes_wildcards_and_leaves_other_filters_their_say(strict_lab: Lab) -> None:
    kept, other = _tagged(strict_lab, team="a"), _tagged(strict_lab, team="b")
    by_id = {"Name": "volume-id", "Values": [kept, other, kept]}

    def found(*filters: dict[str, Any]) -> list[str]:
        reply = strict_lab.ec2.describe_volumes(Filters=list(filters))
        return sorted(each["VolumeId"] for each in reply["Volumes"])

    assert found(by_id) == sorted([kept, other])
    assert found(by_id, {"Name": "tag:team", "Values": ["a"]}) == [kept]
    assert found({"Name": "volume-id", "Values": [f"{kept[:-1]}?"]}, by_id) == [kept]


def test_a_filter_that_ec2_does_not_have_is_refused(lab: Lab) -> None:
    lab.volume()

    expected = ("InvalidParameterValue", "The filter 'client-token' is invalid")

    assert refusal(lab.listed, ("client-token", ["t"])) == expected


def test_a_call_has_at_most_200_filter_values(lab: Lab) -> None:
    halves = [("volume-id", [_ABSENT] * 100), ("tag-key", ["k"] * 101)]

    assert refusal(lab.listed, *halves)[0] == "FilterLimitExceeded"


def test_a_dry_run_shows_nothing(lab: Lab) -> None:
    assert refusal(lab.ec2.describe_volumes, DryRun=True)[0] == "DryRunOperation"


@pytest.mark.parametrize("key", ["aws:mine", "AWS:mine", "k" * 129])
def test_a_tag_key_that_ec2_refuses_changes_nothing(lab: Lab, key: str) -> None:
    volume = lab.volume()
    tags = [{"Key": "fine", "Value": ""}, {"Key": key, "Value": ""}]

    code, _ = refusal(lab.ec2.create_tags, Resources=[volume], Tags=tags)

    assert (code, lab.look(volume).get("Tags", [])) == ("InvalidParameterValue", [])


def test_a_tag_value_has_at_most_256_characters(lab: Lab) -> None:
    tags = [{"Key": "k", "Value": "v" * 257}]

    code, _ = refusal(lab.ec2.create_tags, Resources=[lab.volume()], Tags=tags)

    assert code == "InvalidParameterValue"


def test_the_51st_tag_is_refused(strict_lab: Lab) -> None:
    volume = _tagged(strict_lab, **{f"k{number}": "" for number in range(50)})

    code, _ = refusal(
        strict_lab.ec2.create_tags, Resources=[volume], Tags=[{"Key": "more", "Value": ""}]
    )

    assert code == "TagLimitExceeded"


@pytest.mark.parametrize("call", ["create_tags", "delete_tags"])
def test_tags_of_a_volume_that_is_not_there_are_refused(strict_lab: Lab, call: str) -> None:
    volume = strict_lab.volume()

    code, message = refusal(
        getattr(strict_lab.ec2, call),
        Resources=[volume, _ABSENT],
        Tags=[{"Key": "k", "Value": "v"}],
    )

    assert code == "InvalidVolume.NotFound"
    assert message == f"The volume '{_ABSENT}' does not exist."
    assert strict_lab.look(volume).get("Tags", []) == []


def test_removing_tags_of_a_volume_that_is_not_there_is_refused(lab: Lab) -> None:
    code, _ = refusal(lab.ec2.delete_tags, Resources=[_ABSENT], Tags=[{"Key": "k"}])

    assert code == "InvalidVolume.NotFound"


def test_tags_are_written_on_many_volumes_at_once(strict_lab: Lab) -> None:
    volumes = [strict_lab.volume() for _ in range(3)]
    strict_lab.ec2.create_tags(Resources=volumes, Tags=[{"Key": "k", "Value": "<&>"}])

    assert strict_lab.listed(("tag:k", ["<&>"])) == set(volumes)


def test_tags_without_a_key_list_are_all_removed(lab: Lab) -> None:
    volume = _tagged(lab, a="1", b="2")
    lab.ec2.delete_tags(Resources=[volume])

    assert lab.look(volume).get("Tags", []) == []


def test_a_tag_is_removed_only_with_the_value_that_is_named(strict_lab: Lab) -> None:
    volume = _tagged(strict_lab, a="1", b="2", c="3")
    strict_lab.ec2.delete_tags(
        Resources=[volume],
        Tags=[{"Key": "a", "Value": "other"}, {"Key": "b", "Value": "2"}, {"Key": "c"}],
    )

    assert strict_lab.look(volume)["Tags"] == [{"Key": "a", "Value": "1"}]


def test_the_tags_of_a_deleted_volume_are_gone(lab: Lab) -> None:
    volume = _tagged(lab, a="1")
    lab.ec2.delete_volume(VolumeId=volume)

    assert (
        lab.ec2.describe_tags(Filters=[{"Name": "resource-id", "Values": [volume]}])["Tags"] == []
    )
