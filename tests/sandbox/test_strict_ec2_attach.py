"""AttachVolume of the strict EC2."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from botocore.exceptions import ClientError

from tests.sandbox.lab import OTHER_ZONE, Lab, refusal


def test_a_volume_attaches_only_in_its_zone(lab: Lab) -> None:
    volume, instance = lab.volume(), lab.instance(OTHER_ZONE)

    code, message = refusal(lab.attach, volume, instance)

    assert code == "InvalidVolume.ZoneMismatch"
    assert message == (
        f"The volume '{volume}' is not in the same availability zone as instance '{instance}'"
    )


def test_an_attached_volume_is_not_taken_away(lab: Lab) -> None:
    volume, (first, second) = lab.volume(), lab.instances(2)
    lab.attach(volume, first)

    expected = ("VolumeInUse", f"{volume} is already attached to an instance")

    assert refusal(lab.attach, volume, second) == expected
    assert [each["InstanceId"] for each in lab.look(volume)["Attachments"]] == [first]


def test_of_many_attaches_at_once_one_wins(lab: Lab) -> None:
    volume, instances = lab.volume(), lab.instances(8)

    def attach(instance: str) -> bool:
        try:
            lab.attach(volume, instance)
        except ClientError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = [each for each, ok in zip(instances, pool.map(attach, instances), strict=True) if ok]

    assert won == [each["InstanceId"] for each in lab.look(volume)["Attachments"]]


def test_attaching_again_to_the_same_instance_is_refused(lab: Lab) -> None:
    volume, instance = lab.volume(), lab.instance()
    lab.attach(volume, instance)

    assert refusal(lab.attach, volume, instance)[0] == "VolumeInUse"


@pytest.mark.parametrize("device", ["/dev/xvdf", "/dev/sdf"])
def test_a_device_in_use_is_refused_under_either_name(lab: Lab, device: str) -> None:
    instance = lab.instance()
    lab.attach(lab.volume(), instance, "/dev/xvdf")

    code, message = refusal(lab.attach, lab.volume(), instance, device)

    assert code == "InvalidParameterValue"
    assert message == (
        f"Invalid value '{device}' for unixDevice. Attachment point {device} is already in use"
    )


@pytest.mark.parametrize("device", ["xvdba", "/dev/xvdea", "/dev/xvddy", "/dev/nvme1n1", "/dev/sd"])
def test_a_device_name_that_ebs_does_not_have_is_refused(lab: Lab, device: str) -> None:
    code, message = refusal(lab.attach, lab.volume(), lab.instance(), device)

    assert (code, "is not a valid EBS device name." in message) == ("InvalidParameterValue", True)


@pytest.mark.parametrize("device", ["/dev/xvdaa", "/dev/xvddx", "/dev/xvdb", "/dev/sdz"])
def test_every_device_name_of_ebs_is_accepted(strict_lab: Lab, device: str) -> None:
    volume = strict_lab.volume()
    strict_lab.attach(volume, strict_lab.instance(), device)

    assert strict_lab.look(volume)["Attachments"][0]["Device"] == device


def test_a_device_is_required(lab: Lab) -> None:
    expected = ("MissingParameter", "The request must contain the parameter device")

    assert refusal(lab.attach, lab.volume(), lab.instance(), None) == expected


def test_a_creating_volume_does_not_attach(lab: Lab) -> None:
    lab.control(delays={"create_s": 10})
    volume = lab.volume()

    expected = ("IncorrectState", f"{volume} is not 'available'.")

    assert refusal(lab.attach, volume, lab.instance()) == expected


def test_a_terminated_instance_takes_no_volume(lab: Lab) -> None:
    instance = lab.instance()
    lab.ec2.terminate_instances(InstanceIds=[instance])

    expected = ("IncorrectState", f"Instance '{instance}' is not 'running'.")

    assert refusal(lab.attach, lab.volume(), instance) == expected


def test_a_stopped_instance_takes_a_volume(strict_lab: Lab) -> None:
    volume, instance = strict_lab.volume(), strict_lab.instance()
    strict_lab.ec2.stop_instances(InstanceIds=[instance])
    strict_lab.attach(volume, instance)

    assert strict_lab.state(volume) == "in-use"


def test_an_instance_that_does_not_exist_is_named(strict_lab: Lab) -> None:
    code, message = refusal(strict_lab.attach, strict_lab.volume(), "i-00000000000000000")

    assert code == "InvalidInstanceID.NotFound"
    assert message == "The instance ID 'i-00000000000000000' does not exist"


def test_an_instance_type_has_room_for_so_many_volumes(lab: Lab) -> None:
    instance = lab.instance()
    devices = [f"/dev/xvdb{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]
    for device in devices:  # 26, and the root volume: an m5.large has room for 27
        lab.attach(lab.volume(), instance, device)

    code, message = refusal(lab.attach, lab.volume(), instance, "/dev/xvdaa")

    assert (code, "You may attach up to 27 devices" in message) == ("AttachmentLimitExceeded", True)


def test_a_limit_can_be_set_by_instance_type(lab: Lab) -> None:
    lab.control(attach_limits={"m5.large": 2})
    instance = lab.instance()
    lab.attach(lab.volume(), instance)

    code, _ = refusal(lab.attach, lab.volume(), instance, "/dev/xvdbb")

    assert code == "AttachmentLimitExceeded"


def test_a_volume_is_attaching_before_it_is_attached(lab: Lab) -> None:
    lab.control(delays={"attach_s": 10})
    volume = lab.volume()

    assert lab.attach(volume, lab.instance())["State"] == "attaching"
    assert (lab.state(volume), lab.attachment_state(volume)) == ("in-use", "attaching")

    lab.control(advance_s=11)

    assert lab.attachment_state(volume) == "attached"


def test_the_instance_shows_the_state_of_its_attachments(lab: Lab) -> None:
    lab.control(delays={"attach_s": 10})
    volume, instance = lab.volume(), lab.instance()
    lab.attach(volume, instance)

    (reservation,) = lab.ec2.describe_instances(InstanceIds=[instance])["Reservations"]
    devices = {
        each["DeviceName"]: each["Ebs"]["Status"]
        for each in reservation["Instances"][0]["BlockDeviceMappings"]
    }

    assert devices == {"/dev/sda1": "attached", "/dev/xvdba": "attaching"}


def test_a_stuck_attachment_stays_attaching_until_it_is_detached(lab: Lab) -> None:
    lab.control(stuck_attaching=1)
    volume, instance = lab.volume(), lab.instance()
    lab.attach(volume, instance)
    lab.control(advance_s=1000)

    assert lab.attachment_state(volume) == "attaching"

    lab.detach(volume)
    lab.attach(volume, instance)

    assert lab.attachment_state(volume) == "attached"


def test_an_attachment_says_whether_it_dies_with_its_instance(lab: Lab) -> None:
    volume = lab.volume()
    lab.attach(volume, lab.instance())

    assert lab.look(volume)["Attachments"][0].get("DeleteOnTermination") is False


def test_a_multi_attach_volume_attaches_to_many_instances(lab: Lab) -> None:
    volume = lab.volume(VolumeType="io2", Iops=100, MultiAttachEnabled=True)
    first, second = lab.instances(2)
    lab.attach(volume, first)
    lab.attach(volume, second)

    holders = {each["InstanceId"] for each in lab.look(volume)["Attachments"]}

    assert holders == {first, second}
    assert refusal(lab.attach, volume, second, "/dev/xvdbb")[0] == "VolumeInUse"
    assert refusal(lab.detach, volume)[0] == "MissingParameter"


def test_a_dry_run_of_an_attach_is_validated_first(lab: Lab) -> None:
    volume, instance = lab.volume(), lab.instance(OTHER_ZONE)

    code, _ = refusal(
        lab.ec2.attach_volume,
        VolumeId=volume,
        InstanceId=instance,
        Device="/dev/xvdba",
        DryRun=True,
    )

    assert code == "InvalidVolume.ZoneMismatch"
