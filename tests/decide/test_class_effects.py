"""What a class does: parameter by parameter, and for claims of several sizes."""

import pytest

from provisioner.decide import class_effects as rules
from provisioner.decide.class_effects import SizeEffect
from provisioner.decide.storage_class import ReadClass, read
from provisioner.model.volume_type import VOLUME_TYPES
from tests.builders import a_class


def of(**parameters: str) -> ReadClass:
    return read(a_class(parameters=parameters))


def told(read_class: ReadClass) -> dict[str, str]:
    effects = rules.effects(read_class, default_file_system="xfs")
    return {each.name: each.does for each in effects}


def test_what_goes_without_saying_is_told_too():
    effects = told(of())

    assert effects.keys() == {"type", "encrypted", "csi.storage.k8s.io/fstype"}
    assert effects["type"].startswith("gp3")
    assert effects["encrypted"] == "only where that is the account's default"
    assert effects["csi.storage.k8s.io/fstype"].startswith("xfs (the controller's")


def test_what_is_said_is_told():
    arn = "arn:aws:kms:us-east-1:123456789012:key/k"
    effects = told(of(type="io2", iops="5000", kmsKeyId=arn))

    assert effects["type"] == "io2, which has 4 to 65,536 GiB"
    assert effects["iops"] == "5,000 IOPS for every volume"
    assert effects["encrypted"] == f"yes, with {arn}"


def test_encryption_without_a_key_takes_the_accounts():
    assert told(of(encrypted="true"))["encrypted"] == "yes, with the account's default key"


@pytest.mark.parametrize("volume_type", VOLUME_TYPES)
def test_the_smallest_claim_is_the_smallest_that_is_not_refused(volume_type: str):
    needs_iops = VOLUME_TYPES[volume_type].iops_required
    read_class = of(type=volume_type, **({"iops": "1000"} if needs_iops else {}))

    smallest = rules.smallest_gib(read_class)

    assert smallest is not None
    assert not isinstance(rules.planned(read_class, smallest), str)
    if smallest > 1:
        assert isinstance(rules.planned(read_class, smallest - 1), str)


def test_a_class_that_refuses_every_size_has_no_smallest():
    read_class = of(type="io1")

    assert rules.smallest_gib(read_class) is None
    assert rules.size_effects(read_class) == ()
    assert "iops" in (rules.refusal(read_class) or "")


def test_sizes_are_told_from_the_smallest_to_the_largest():
    sizes = rules.size_effects(of(type="io2", iopsPerGB="50"))

    assert sizes == (
        SizeEffect(4, 200, None),
        SizeEffect(100, 5_000, None),
        SizeEffect(1_000, 50_000, None),
        # What AWS documents at most; the region's own ceiling only EC2 can tell.
        SizeEffect(65_536, 256_000, None),
    )


def test_sizes_at_which_nothing_changes_are_left_out():
    sizes = rules.size_effects(of(type="io2", iops="4000"))

    assert [(each.size_gib, each.iops) for each in sizes] == [(4, 4_000), (65_536, 4_000)]


def test_what_ec2_chooses_is_left_open():
    assert rules.size_effects(of(type="gp2"))[0] == SizeEffect(1, None, None)


def test_what_only_restored_volumes_have_is_told_so():
    effects = told(of(blockAttachUntilInitialized="true", volumeInitializationRate="200"))

    assert effects["blockAttachUntilInitialized"].startswith("pods wait until all data of a volume")
    rate = effects["volumeInitializationRate"]
    assert rate == "200 MiB/s for the data of volumes made of snapshots"
