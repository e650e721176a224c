from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from provisioner.ec2.batches import whole
from provisioner.ec2.modifications import Modifications
from provisioner.ec2.volumes import Volumes
from provisioner.model.errors import Ec2Error, Outcome, Reason
from provisioner.model.modification import (
    ModificationState,
    ModifyRequest,
    Shape,
    shape_of,
)
from provisioner.sandbox.strict_ec2.client import StrictEc2
from tests.ec2.builders import a_request

GONE = "vol-0123456789abcdef0"
NEW = Shape(4, "gp3", 3000, 125)


async def a_new(volumes: Volumes, name: str = "one") -> str:
    return (await volumes.create(a_request(name))).volume_id


async def test_all_that_can_change_changes_by_one_call(
    modifications: Modifications, volumes: Volumes, strict_ec2: StrictEc2
) -> None:
    strict_ec2.control(delays={"modify_s": 3.0, "optimize_s": 20.0})
    one = await a_new(volumes)

    begun = await modifications.modify(
        ModifyRequest(one, size_gib=160, volume_type="io2", iops=5000)
    )

    assert begun.state is ModificationState.MODIFYING
    assert begun.target == Shape(160, "io2", 5000, None)
    assert begun.original == NEW
    assert begun.started_at is not None
    assert shape_of(whole(await volumes.describe([one]))[one]) == NEW

    strict_ec2.control(advance_s=4.0)
    latest = whole(await modifications.latest([one]))[one]
    assert latest.state is ModificationState.OPTIMIZING
    assert 0 <= latest.progress_percent < 100
    assert shape_of(whole(await volumes.describe([one]))[one]) == begun.target

    strict_ec2.control(advance_s=20.0)
    latest = whole(await modifications.latest([one]))[one]
    assert (latest.state, latest.progress_percent) == (ModificationState.COMPLETED, 100)


async def test_what_is_not_asked_for_stays(modifications: Modifications, volumes: Volumes) -> None:
    one = await a_new(volumes)

    await modifications.modify(ModifyRequest(one, throughput_mibps=250))

    assert whole(await modifications.latest([one]))[one].target == Shape(4, "gp3", 3000, 250)


async def test_a_failed_modification_tells_why(
    modifications: Modifications, volumes: Volumes, strict_ec2: StrictEc2
) -> None:
    strict_ec2.control(failing_modifications=1)
    one = await a_new(volumes)
    await modifications.modify(ModifyRequest(one, size_gib=8))

    failed = whole(await modifications.latest([one]))[one]

    assert failed.state is ModificationState.FAILED
    assert failed.message


@pytest.mark.parametrize(
    "impossible",
    [
        ModifyRequest("", size_gib=2),
        ModifyRequest("", size_gib=100_000),
        ModifyRequest("", volume_type="gp2", iops=3000),
        ModifyRequest("", throughput_mibps=2000),
    ],
)
async def test_the_impossible_is_refused_for_certain(
    modifications: Modifications, volumes: Volumes, impossible: ModifyRequest
) -> None:
    one = await a_new(volumes)

    with pytest.raises(Ec2Error) as caught:
        await modifications.modify(replace(impossible, volume_id=one))

    assert caught.value.reason is Reason.INVALID_REQUEST
    assert caught.value.outcome is Outcome.NOTHING
    assert one in caught.value.message


async def test_a_volume_that_is_gone_is_told(modifications: Modifications) -> None:
    with pytest.raises(Ec2Error) as caught:
        await modifications.modify(ModifyRequest(GONE, size_gib=8))

    assert caught.value.reason is Reason.VOLUME_NOT_FOUND


@pytest.mark.parametrize("state", ["modifying", "optimizing"])
async def test_a_second_one_waits_for_the_first(
    modifications: Modifications, volumes: Volumes, strict_ec2: StrictEc2, state: str
) -> None:
    seconds = {"modify_s": 60.0} if state == "modifying" else {"optimize_s": 60.0}
    strict_ec2.control(delays=seconds)
    one = await a_new(volumes)
    await modifications.modify(ModifyRequest(one, size_gib=8))
    assert whole(await modifications.latest([one]))[one].state == state

    with pytest.raises(Ec2Error) as caught:
        await modifications.modify(ModifyRequest(one, size_gib=9))

    assert caught.value.reason is Reason.MODIFICATION_RUNNING


async def test_the_fifth_of_a_day_says_from_when_on_it_is_possible(
    modifications: Modifications, volumes: Volumes, strict_ec2: StrictEc2
) -> None:
    one = await a_new(volumes)
    strict_ec2.control(modification_refusal="You can modify {volume_id} again after {next_at}.")
    for size_gib in (5, 6, 7, 8):
        await modifications.modify(ModifyRequest(one, size_gib=size_gib))

    with pytest.raises(Ec2Error) as caught:
        await modifications.modify(ModifyRequest(one, size_gib=9))

    assert caught.value.reason is Reason.MODIFICATION_LIMIT
    assert caught.value.outcome is Outcome.NOTHING
    assert caught.value.retry_at is not None
    left = caught.value.retry_at - datetime.now(UTC)
    assert timedelta(hours=23, minutes=50) < left <= timedelta(hours=24)


async def test_aws_s_own_words_name_the_time_between_two_and_no_moment(
    modifications: Modifications, volumes: Volumes, strict_ec2: StrictEc2
) -> None:
    one = await a_new(volumes)
    strict_ec2.control(modification_budget=1)
    await modifications.modify(ModifyRequest(one, size_gib=8))

    with pytest.raises(Ec2Error) as caught:
        await modifications.modify(ModifyRequest(one, size_gib=9))

    found = caught.value
    assert found.reason is Reason.MODIFICATION_LIMIT
    assert (found.retry_at, found.retry_after_s, found.between_s) == (None, None, 21_600.0)


async def test_a_lost_reply_is_not_a_refusal_and_the_latest_one_tells(
    modifications: Modifications, volumes: Volumes, strict_ec2: StrictEc2
) -> None:
    one = await a_new(volumes)
    strict_ec2.control(faults=[{"action": "ModifyVolume", "when": "after", "do": "reset"}])

    with pytest.raises(Ec2Error) as caught:
        await modifications.modify(ModifyRequest(one, size_gib=8))

    assert caught.value.outcome is Outcome.UNKNOWN
    assert whole(await modifications.latest([one]))[one].target.size_gib == 8
    assert strict_ec2.counts()["ModifyVolume"] == 1


async def test_one_that_was_never_modified_does_not_fail_its_neighbours(
    modifications: Modifications, volumes: Volumes, strict_ec2: StrictEc2
) -> None:
    one, never = await a_new(volumes), await a_new(volumes, "two")
    await modifications.modify(ModifyRequest(one, size_gib=8))

    assert whole(await modifications.latest([never, one, GONE])).keys() == {one}
    assert strict_ec2.counts()["DescribeVolumesModifications"] == 1
    assert whole(await modifications.describe([never, one])).keys() == {one}
    assert whole(await modifications.describe([one, GONE, never])).keys() == {one}
    assert await modifications.describe([never]) == {}
    assert await modifications.latest([]) == {}


async def test_many_are_asked_for_200_a_call(
    modifications: Modifications, volumes: Volumes, strict_ec2: StrictEc2
) -> None:
    one = await a_new(volumes)
    await modifications.modify(ModifyRequest(one, size_gib=8))
    many = [f"vol-{number:017x}" for number in range(400)]

    assert whole(await modifications.latest([*many, one])).keys() == {one}
    assert strict_ec2.counts()["DescribeVolumesModifications"] == 3
