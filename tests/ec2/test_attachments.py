import asyncio

import pytest

from provisioner.ec2.attachments import Attachments
from provisioner.ec2.batches import whole
from provisioner.ec2.volumes import Volumes
from provisioner.model.errors import Ec2Error, Reason
from provisioner.model.volume import AttachmentState, VolumeState
from provisioner.sandbox.strict_ec2.client import StrictEc2
from tests.ec2.builders import a_request
from tests.sandbox.lab import OTHER_ZONE, ZONE, Lab

GONE_INSTANCE = "i-0123456789abcdef0"
GONE_VOLUME = "vol-0123456789abcdef0"
NAME = "/dev/xvdaa"


async def a_volume(volumes: Volumes, name: str = "one") -> str:
    return (await volumes.create(a_request(name))).volume_id


async def test_shows_an_instance_with_its_devices(
    attachments: Attachments, strict_lab: Lab
) -> None:
    instance_id = strict_lab.instance()

    instance = await attachments.instance(instance_id)

    assert (instance.instance_id, instance.zone, instance.state) == (instance_id, ZONE, "running")
    assert instance.instance_type == "m5.large"
    assert len(instance.devices) == 1
    assert all(volume.startswith("vol-") for volume in instance.devices.values())


async def test_many_who_ask_share_a_call_and_only_the_unknown_is_refused(
    attachments: Attachments, strict_lab: Lab, strict_ec2: StrictEc2
) -> None:
    instances = strict_lab.instances(5)
    strict_ec2.control(reset_counts=True)

    answers = await asyncio.gather(
        *(attachments.instance(each) for each in [*instances, *instances, GONE_INSTANCE]),
        return_exceptions=True,
    )

    assert [each.instance_id for each in answers[:10] if not isinstance(each, BaseException)] == [
        *instances,
        *instances,
    ]
    assert isinstance(answers[10], Ec2Error)
    assert answers[10].reason is Reason.INSTANCE_NOT_FOUND
    assert GONE_INSTANCE in answers[10].message
    assert strict_ec2.counts()["DescribeInstances"] == 2


async def test_an_instance_just_seen_is_not_asked_for_again(
    attachments: Attachments, strict_lab: Lab, strict_ec2: StrictEc2
) -> None:
    instance_id = strict_lab.instance()
    await attachments.instance(instance_id)
    await attachments.instance(instance_id)

    assert strict_ec2.counts()["DescribeInstances"] == 1


async def test_attaches_and_detaches(
    attachments: Attachments, volumes: Volumes, strict_lab: Lab, strict_ec2: StrictEc2
) -> None:
    instance_id, volume_id = strict_lab.instance(), await a_volume(volumes)
    strict_ec2.control(delays={"attach_s": 60.0, "detach_s": 60.0})

    attaching = await attachments.attach(volume_id, instance_id, device=NAME)

    assert attaching.state is AttachmentState.ATTACHING
    assert (attaching.instance_id, attaching.device) == (instance_id, NAME)

    strict_ec2.control(advance_s=61)
    seen = whole(await volumes.describe([volume_id]))[volume_id]
    assert seen.state is VolumeState.IN_USE
    attached = seen.on(instance_id)
    assert attached is not None
    assert attached.state is AttachmentState.ATTACHED

    detaching = await attachments.detach(volume_id, instance_id)
    assert detaching is not None
    assert detaching.state is AttachmentState.DETACHING

    strict_ec2.control(advance_s=61)
    assert whole(await volumes.describe([volume_id]))[volume_id].on(instance_id) is None


async def test_a_name_in_use_is_told_from_other_bad_values(
    attachments: Attachments, volumes: Volumes, strict_lab: Lab
) -> None:
    instance_id = strict_lab.instance()
    await attachments.attach(await a_volume(volumes, "1"), instance_id, device=NAME)

    with pytest.raises(Ec2Error) as caught:
        await attachments.attach(await a_volume(volumes, "2"), instance_id, device=NAME)

    assert caught.value.reason is Reason.DEVICE_IN_USE


async def test_a_refused_attach_makes_the_instance_be_looked_at_anew(
    attachments: Attachments, volumes: Volumes, strict_lab: Lab
) -> None:
    instance_id = strict_lab.instance()
    before = await attachments.instance(instance_id)
    other = await a_volume(volumes, "1")
    strict_lab.attach(other, instance_id, NAME)

    with pytest.raises(Ec2Error):
        await attachments.attach(await a_volume(volumes, "2"), instance_id, device=NAME)

    assert NAME not in before.devices
    assert (await attachments.instance(instance_id)).devices[NAME] == other


async def test_a_volume_in_use_elsewhere_is_told(
    attachments: Attachments, volumes: Volumes, strict_lab: Lab
) -> None:
    here, there = strict_lab.instances(2)
    volume_id = await a_volume(volumes)
    await attachments.attach(volume_id, here, device=NAME)

    with pytest.raises(Ec2Error) as caught:
        await attachments.attach(volume_id, there, device=NAME)

    assert caught.value.reason is Reason.VOLUME_IN_USE


@pytest.mark.parametrize(
    ("volume", "instance", "reason"),
    [
        (None, GONE_INSTANCE, Reason.INSTANCE_NOT_FOUND),
        (GONE_VOLUME, None, Reason.VOLUME_NOT_FOUND),
    ],
)
async def test_what_is_not_there_cannot_be_attached_or_detached(  # noqa: PLR0917 -- fixtures
    attachments: Attachments,
    volumes: Volumes,
    strict_lab: Lab,
    volume: str | None,
    instance: str | None,
    reason: Reason,
) -> None:
    volume_id = volume or await a_volume(volumes)
    instance_id = instance or strict_lab.instance()

    with pytest.raises(Ec2Error) as attaching:
        await attachments.attach(volume_id, instance_id, device=NAME)
    with pytest.raises(Ec2Error) as detaching:
        await attachments.detach(volume_id, instance_id)

    assert attaching.value.reason is reason
    assert detaching.value.reason in {reason, Reason.NOT_ATTACHED}


async def test_another_zone_is_told(
    attachments: Attachments, volumes: Volumes, strict_lab: Lab
) -> None:
    instance_id = strict_lab.instance(OTHER_ZONE)

    with pytest.raises(Ec2Error) as caught:
        await attachments.attach(await a_volume(volumes), instance_id, device=NAME)

    assert caught.value.reason is Reason.ZONE_MISMATCH


async def test_a_full_instance_is_told(
    attachments: Attachments, volumes: Volumes, strict_lab: Lab, strict_ec2: StrictEc2
) -> None:
    instance_id = strict_lab.instance()
    strict_ec2.control(attach_limits={"m5.large": 2})
    one, two = await a_volume(volumes, "1"), await a_volume(volumes, "2")
    await attachments.attach(one, instance_id, device=NAME)

    with pytest.raises(Ec2Error) as caught:
        await attachments.attach(two, instance_id, device="/dev/xvdab")

    assert caught.value.reason is Reason.INSTANCE_FULL


async def test_a_volume_still_being_made_cannot_be_attached(
    attachments: Attachments, volumes: Volumes, strict_lab: Lab, strict_ec2: StrictEc2
) -> None:
    instance_id = strict_lab.instance()
    strict_ec2.control(delays={"create_s": 60.0})

    with pytest.raises(Ec2Error) as caught:
        await attachments.attach(await a_volume(volumes), instance_id, device=NAME)

    assert caught.value.reason is Reason.VOLUME_STATE


async def test_detaching_what_is_not_attached_is_told(
    attachments: Attachments, volumes: Volumes, strict_lab: Lab
) -> None:
    here, there = strict_lab.instances(2)
    free, used = await a_volume(volumes, "1"), await a_volume(volumes, "2")
    await attachments.attach(used, here, device=NAME)

    for volume_id in (free, used):
        with pytest.raises(Ec2Error) as caught:
            await attachments.detach(volume_id, there)
        assert caught.value.reason is Reason.NOT_ATTACHED


async def test_the_name_of_a_volume_that_leaves_is_not_given_to_the_next(
    attachments: Attachments, volumes: Volumes, strict_lab: Lab
) -> None:
    instance_id, volume_id = strict_lab.instance(), await a_volume(volumes)
    strict_lab.attach(volume_id, instance_id, NAME)  # by an earlier leader

    await attachments.detach(volume_id, instance_id)
    attachments.release(instance_id, volume_id)

    assert attachments.devices.reserve(instance_id, "vol-2", {}) != NAME
