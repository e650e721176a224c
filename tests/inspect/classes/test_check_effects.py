"""What a class does: parameter by parameter, and for claims of several sizes."""

from provisioner.classes.storage_class_rules import ReadClass, read
from provisioner.inspect.classes import check_rules as rules
from tests.builders import a_class


def of(**parameters: str) -> ReadClass:
    return read(a_class(parameters=parameters))


def told(read_class: ReadClass) -> dict[str, str]:
    return dict(rules.effects(read_class, default_file_system="xfs"))


def test_what_goes_without_saying_is_told_too():
    effects = told(of())

    assert effects.keys() == {"type", "encrypted", "csi.storage.k8s.io/fstype"}
    assert effects["type"].startswith("gp3")
    assert effects["encrypted"] == "only if that is the account's default"
    assert effects["csi.storage.k8s.io/fstype"].startswith("xfs (the controller's")


def test_what_is_said_is_told():
    arn = "arn:aws:kms:us-east-1:123456789012:key/k"
    effects = told(of(type="io2", iops="5000", kmsKeyId=arn))

    assert effects["type"] == "io2, from 4 to 65,536 GiB"
    assert effects["iops"] == "5,000 IOPS for every volume"
    assert effects["encrypted"] == f"yes, with {arn}"


def test_encryption_without_a_key_takes_the_accounts():
    assert told(of(encrypted="true"))["encrypted"] == "yes, with the account's default key"


def test_some_sizes_are_told_from_the_smallest_of_the_type_to_its_largest():
    assert dict(rules.speeds(of(type="io2", iopsPerGB="50"))) == {
        "4 GiB": "200 IOPS",
        "100 GiB": "5,000 IOPS",
        "1,000 GiB": "50,000 IOPS",
        # What AWS documents at most; the region's own ceiling only EC2 can tell.
        "65,536 GiB": "256,000 IOPS",
    }


def test_why_a_size_gets_no_volume_is_told():
    told = dict(rules.speeds(of(iops="60000", throughput="250")))

    assert "60" in told["1 GiB"]
    assert told["1,000 GiB"] == "60,000 IOPS, 250 MiB/s"
    assert "iops" in (rules.refusal(of(type="io1")) or "")


def test_what_ec2_chooses_is_left_open():
    assert ("1 GiB", "EC2's default speed for its type and size") in rules.speeds(of(type="gp2"))


def test_options_of_file_systems_are_told_by_their_names():
    effects = told(of(blockSize="4096", ext4BigAlloc="true"))

    assert effects["blockSize"] == "4096, when the file system is created"
    assert effects["ext4BigAlloc"] == "true, when the file system is created"


def test_what_only_restored_volumes_have_is_told_so():
    effects = told(of(blockAttachUntilInitialized="true", volumeInitializationRate="200"))

    assert effects["blockAttachUntilInitialized"].startswith("pods wait until all data is loaded")
    rate = effects["volumeInitializationRate"]
    assert rate == "200 MiB/s, for volumes created from snapshots"
