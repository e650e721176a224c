"""DetachVolume of the strict EC2, and termination."""

from tests.sandbox.lab import Lab, refusal


def test_detaching_an_available_volume_is_refused(lab: Lab) -> None:
    volume = lab.volume()

    expected = ("IncorrectState", f"Volume '{volume}' is in the 'available' state.")

    assert refusal(lab.detach, volume, InstanceId=lab.instance()) == expected


def test_detaching_from_another_instance_is_refused(strict_lab: Lab) -> None:
    volume, (first, second) = strict_lab.volume(), strict_lab.instances(2)
    strict_lab.attach(volume, first)

    code, _ = refusal(strict_lab.detach, volume, InstanceId=second)

    assert (code, strict_lab.state(volume)) == ("InvalidAttachment.NotFound", "in-use")


def test_detaching_another_device_is_refused(strict_lab: Lab) -> None:
    volume, instance = strict_lab.volume(), strict_lab.instance()
    strict_lab.attach(volume, instance)

    code, _ = refusal(strict_lab.detach, volume, InstanceId=instance, Device="/dev/xvdbb")

    assert code == "InvalidAttachment.NotFound"


def test_a_volume_detaches_without_naming_its_instance(lab: Lab) -> None:
    volume = lab.volume()
    lab.attach(volume, lab.instance())
    lab.detach(volume)

    assert lab.state(volume) == "available"


def test_a_volume_is_detaching_before_it_is_available(lab: Lab) -> None:
    lab.control(delays={"detach_s": 10})
    volume, (first, second) = lab.volume(), lab.instances(2)
    lab.attach(volume, first)
    lab.detach(volume, InstanceId=first)

    assert (lab.state(volume), lab.attachment_state(volume)) == ("in-use", "detaching")
    assert refusal(lab.attach, volume, second)[0] == "VolumeInUse"

    lab.control(advance_s=11)

    assert lab.look(volume)["Attachments"] == []
    assert lab.attach(volume, second)["InstanceId"] == second


def test_a_detach_may_be_repeated_while_it_lasts(lab: Lab) -> None:
    lab.control(delays={"detach_s": 10})
    volume, instance = lab.volume(), lab.instance()
    lab.attach(volume, instance)
    lab.detach(volume, InstanceId=instance)

    assert lab.detach(volume, InstanceId=instance)["State"] == "detaching"

    lab.control(advance_s=11)

    assert lab.state(volume) == "available"


def test_a_device_stays_taken_while_it_detaches(lab: Lab) -> None:
    lab.control(delays={"detach_s": 10})
    instance, volume = lab.instance(), lab.volume()
    lab.attach(volume, instance)
    lab.detach(volume)

    assert refusal(lab.attach, lab.volume(), instance)[0] == "InvalidParameterValue"

    lab.control(advance_s=11)

    assert lab.attach(lab.volume(), instance)["Device"] == "/dev/xvdba"


def test_an_attach_interrupted_by_a_detach_never_completes(lab: Lab) -> None:
    lab.control(delays={"attach_s": 10, "detach_s": 20})
    volume = lab.volume()
    lab.attach(volume, lab.instance())
    lab.detach(volume)
    lab.control(advance_s=11)

    assert lab.attachment_state(volume) == "detaching"


def test_a_busy_volume_detaches_only_by_force(lab: Lab) -> None:
    lab.control(stuck_detaching=1)
    volume, instance = lab.volume(), lab.instance()
    lab.attach(volume, instance)
    lab.detach(volume, InstanceId=instance)
    lab.detach(volume, InstanceId=instance)

    assert lab.attachment_state(volume) == "busy"

    lab.detach(volume, InstanceId=instance, Force=True)

    assert lab.state(volume) == "available"


def test_the_root_volume_of_a_running_instance_stays(lab: Lab) -> None:
    instance = lab.instance()
    (root,) = lab.listed(("attachment.instance-id", [instance]))

    assert refusal(lab.detach, root, InstanceId=instance)[0] == "OperationNotPermitted"


def test_termination_detaches_even_while_attaching(strict_lab: Lab) -> None:
    strict_lab.control(stuck_attaching=1)
    volume, instance = strict_lab.volume(), strict_lab.instance()
    strict_lab.attach(volume, instance)
    strict_lab.ec2.terminate_instances(InstanceIds=[instance])

    assert strict_lab.state(volume) == "available"
    assert strict_lab.listed() == {volume}  # the root volume went with its instance
