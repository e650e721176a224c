import asyncio
from dataclasses import replace

import pytest

from provisioner.ec2.batches import PAGE
from provisioner.ec2.calls import Ec2Calls
from provisioner.ec2.rate_option import parse_rates
from provisioner.ec2.volumes import Volumes, create_params
from provisioner.metrics import Metrics
from provisioner.model.errors import Ec2Error, Outcome, Reason
from provisioner.model.volume import CreateRequest, VolumeState
from provisioner.sandbox.strict_ec2.client import StrictEc2
from tests.ec2.builders import ZONE, a_request

GONE = "vol-0123456789abcdef0"


async def test_a_volume_is_made_with_all_that_was_asked_for(
    volumes: Volumes, strict_ec2: StrictEc2
) -> None:
    strict_ec2.control(delays={"create_s": 60.0})
    request = CreateRequest(
        client_token="t",
        zone=ZONE,
        size_gib=20,
        volume_type="gp3",
        iops=4000,
        throughput_mibps=250,
        encrypted=True,
        tags=(("Name", "one"), ("empty", "")),
    )

    made = await volumes.create(request)

    assert made.state is VolumeState.CREATING
    assert (made.zone, made.size_gib, made.volume_type) == (ZONE, 20, "gp3")
    assert (made.iops, made.throughput_mibps, made.encrypted) == (4000, 250, True)
    assert made.tags == {"Name": "one", "empty": ""}
    assert made.created_at is not None


def test_what_few_volumes_have_is_told_only_for_those() -> None:
    outpost = "arn:aws:outposts:us-east-1:123456789012:outpost/op-1"
    plain = create_params(a_request())
    special = replace(
        a_request(), multi_attach=True, initialization_rate_mibps=200, outpost_arn=outpost
    )

    assert create_params(special) == plain | {
        "MultiAttachEnabled": True,
        "VolumeInitializationRate": 200,
        "OutpostArn": outpost,
    }


async def test_the_same_request_again_gives_the_same_volume(volumes: Volumes) -> None:
    first = await volumes.create(a_request())

    assert (await volumes.create(a_request())).volume_id == first.volume_id


async def test_the_same_token_for_another_volume_is_told(volumes: Volumes) -> None:
    await volumes.create(a_request())

    with pytest.raises(Ec2Error) as caught:
        await volumes.create(a_request(size_gib=5))

    assert caught.value.reason is Reason.TOKEN_MISMATCH


async def test_a_zone_without_capacity_is_a_clear_no(
    volumes: Volumes, strict_ec2: StrictEc2
) -> None:
    strict_ec2.control(capacity=[{"zone": ZONE, "type": "gp3"}])

    with pytest.raises(Ec2Error) as caught:
        await volumes.create(a_request())

    assert (caught.value.reason, caught.value.outcome) == (
        Reason.ZONE_OUT_OF_CAPACITY,
        Outcome.NOTHING,
    )


async def test_deleting_what_is_not_there_is_done(volumes: Volumes) -> None:
    made = await volumes.create(a_request())

    await volumes.delete(made.volume_id)
    await volumes.delete(made.volume_id)

    assert await volumes.describe([made.volume_id]) == {}


async def test_what_is_no_volume_is_deleted_without_a_word_to_ec2(
    volumes: Volumes, strict_ec2: StrictEc2
) -> None:
    await volumes.delete("local-ebs://dev/xvdbz")

    assert "DeleteVolume" not in strict_ec2.counts()


async def test_volumes_are_found_by_all_of_their_tags(volumes: Volumes) -> None:
    wanted = await volumes.create(a_request("1", cluster="a", mark="x"))
    await volumes.create(a_request("2", cluster="b", mark="x"))
    await volumes.create(a_request("3", cluster="a"))

    found = await volumes.find(tags={"cluster": "a", "mark": None})

    assert [volume.volume_id for volume in found] == [wanted.volume_id]


@pytest.mark.parametrize("value", ["*", "a?c", "a\\c", "a b", "ä"])
async def test_tag_values_are_taken_literally(volumes: Volumes, value: str) -> None:
    wanted = await volumes.create(a_request("1", cluster=value))
    await volumes.create(a_request("2", cluster="abc"))

    found = await volumes.find(tags={"cluster": value})

    assert [volume.volume_id for volume in found] == [wanted.volume_id]


@pytest.fixture
async def many(strict_ec2: StrictEc2, metrics: Metrics) -> list[str]:
    """More volumes than a page."""
    calls = Ec2Calls.connect(
        region="us-east-1",
        endpoint=strict_ec2.endpoint,
        metrics=metrics,
        rates=parse_rates("*=x20"),
    )
    async with asyncio.TaskGroup() as group:
        made = [
            group.create_task(Volumes(calls).create(a_request(f"n-{number}", mark="y")))
            for number in range(PAGE + 20)
        ]
    await calls.close()
    strict_ec2.control(reset_counts=True)
    return [task.result().volume_id for task in made]


async def test_finds_to_the_last_page(
    volumes: Volumes, many: list[str], strict_ec2: StrictEc2
) -> None:
    found = await volumes.find(tags={"mark": "y"})

    assert sorted(many) == sorted(volume.volume_id for volume in found)
    assert strict_ec2.counts()["DescribeVolumes"] == 2


async def test_a_failed_page_fails_all(
    volumes: Volumes, many: list[str], strict_ec2: StrictEc2
) -> None:
    no = {"code": "UnauthorizedOperation", "http_status": 403}
    strict_ec2.control(
        faults=[{"action": "DescribeVolumes", "do": "error", "match": {"NextToken": "*"}, **no}]
    )

    with pytest.raises(Ec2Error):
        await volumes.find(tags={"mark": "y"})


async def test_describes_500_a_call(
    volumes: Volumes, many: list[str], strict_ec2: StrictEc2
) -> None:
    assert set(many) == (await volumes.describe(many)).keys()
    assert strict_ec2.counts()["DescribeVolumes"] == 2


async def test_one_unknown_id_does_not_fail_its_neighbours(
    volumes: Volumes, many: list[str], strict_ec2: StrictEc2
) -> None:
    some = [*many[:200], GONE, *many[200:400]]

    assert set(many[:400]) == (await volumes.describe(some)).keys()
    assert strict_ec2.counts()["DescribeVolumes"] == 2


async def test_an_id_that_the_text_does_not_name_costs_few_calls(
    volumes: Volumes, many: list[str], strict_ec2: StrictEc2
) -> None:
    no = {"code": "InvalidVolume.NotFound", "http_status": 400, "message": "One is not there."}
    by_id = {"match": {"VolumeId": GONE}, "n": 99}
    strict_ec2.control(faults=[{"action": "DescribeVolumes", "do": "error", **no, **by_id}])

    assert set(many[:400]) == (await volumes.describe([*many[:400], GONE])).keys()
    assert strict_ec2.counts()["DescribeVolumes"] <= 2 * 9 + 1  # 401 are halved nine times


async def test_an_unknown_id_alone_is_simply_absent(volumes: Volumes) -> None:
    assert await volumes.describe([GONE]) == {}
    assert await volumes.describe([]) == {}


async def test_looks_for_volumes_that_may_not_be_there_in_one_call(
    volumes: Volumes, many: list[str], strict_ec2: StrictEc2
) -> None:
    gone = [f"vol-{number:017x}" for number in range(100)]

    assert set(many[:100]) == (await volumes.look_for([*gone, *many[:100]])).keys()
    assert strict_ec2.counts()["DescribeVolumes"] == 1


async def test_a_mark_is_removed_from_many_volumes_in_few_calls(
    volumes: Volumes, many: list[str], strict_ec2: StrictEc2
) -> None:
    await volumes.untag(many, "mark")

    assert strict_ec2.counts()["DeleteTags"] == 2
    assert await volumes.find(tags={"mark": None}) == []
    assert len(await volumes.find(tags={"Name": None})) == len(many)


async def test_untagging_does_not_mind_volumes_that_are_gone(volumes: Volumes) -> None:
    made = [await volumes.create(a_request(f"n-{number}", mark="y")) for number in range(3)]
    ids = [volume.volume_id for volume in made]
    await volumes.delete(ids[1])

    await volumes.untag([*ids, GONE], "mark")

    assert await volumes.find(tags={"mark": None}) == []


async def test_untagging_finds_a_missing_volume_that_the_text_does_not_name(
    volumes: Volumes, strict_ec2: StrictEc2
) -> None:
    made = [await volumes.create(a_request(f"n-{number}", mark="y")) for number in range(3)]
    strict_ec2.control(
        faults=[
            {
                "action": "DeleteTags",
                "do": "error",
                "n": 99,
                "match": {"ResourceId": GONE},
                "code": "InvalidVolume.NotFound",
                "message": "One is not there.",
                "http_status": 400,
            }
        ]
    )

    await volumes.untag([GONE, *(volume.volume_id for volume in made)], "mark")

    assert await volumes.find(tags={"mark": None}) == []
