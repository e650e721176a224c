"""Claims that several nodes use at once."""

import pytest

from provisioner.classes.storage_class_rules import read
from provisioner.controller.provisioning.plan_rules import Plan, Provision, examine, plan
from provisioner.model.decision import Refuse
from provisioner.model.errors import Reason
from tests.builders import DRIVER, ZONE, a_claim, a_class

MANY = ["ReadWriteMany"]


def planned(volume_type: str, modes: list[str]) -> Plan | Refuse:
    parameters = {"type": volume_type} | ({"iops": "100"} if volume_type[:2] == "io" else {})
    return plan(
        a_claim(modes=modes, volume_mode="Block", size="125Gi"),
        read(a_class(parameters=parameters)),
        zone=ZONE,
        cluster_id="prod",
        extra_tags=(),
        default_file_system="ext4",
    )


@pytest.mark.parametrize("modes", [MANY, ["ReadWriteOnce", "ReadWriteMany"]])
@pytest.mark.parametrize("volume_type", ["io2", "io1"])
def test_a_raw_device_for_many_nodes_is_made_so(volume_type, modes):
    made = planned(volume_type, modes)

    assert isinstance(made, Plan)
    assert made.request.multi_attach
    assert made.file_system is None


@pytest.mark.parametrize("modes", [["ReadWriteOnce"], ["ReadWriteOncePod"], []])
def test_a_raw_device_for_one_node_is_not(modes):
    made = planned("io2", modes)

    assert isinstance(made, Plan)
    assert not made.request.multi_attach


@pytest.mark.parametrize("volume_type", ["gp3", "gp2", "st1", "sc1", "standard"])
def test_other_types_are_refused_with_those_that_can(volume_type):
    answer = planned(volume_type, MANY)

    assert isinstance(answer, Refuse)
    assert answer.reason is Reason.INVALID_CLAIM
    assert answer.message == (
        "a volume of 125Gi with class 'fast' cannot be created: access mode ReadWriteMany "
        f"requires type io2 or io1, which can be attached to several instances, not {volume_type}"
    )


@pytest.mark.parametrize(
    ("modes", "volume_mode", "words"),
    [
        (MANY, None, "requires volumeMode Block and a class of type io2"),
        (MANY, "Filesystem", "a file system on EBS that several nodes mount gets corrupted"),
        (["ReadWriteOnce", *MANY], "Filesystem", "requires volumeMode Block"),
        (["ReadOnlyMany"], "Block", "access mode ReadOnlyMany is not supported"),
        (["ReadOnlyMany", *MANY], "Block", "access mode ReadOnlyMany, ReadWriteMany is not"),
        (["ReadOnlyMany"], None, "always attached read-write"),
    ],
)
def test_what_no_volume_can_be_used_for_is_refused_with_the_reason(modes, volume_mode, words):
    claim = a_claim(modes=modes, volume_mode=volume_mode)

    answer = examine(claim, a_class(), driver=DRIVER, persistent_volume=None)

    assert isinstance(answer, Refuse)
    assert answer.settled
    assert words in answer.message


def test_a_raw_device_for_many_nodes_is_ours_to_provision():
    claim = a_claim(modes=MANY, volume_mode="Block")

    answer = examine(claim, a_class(), driver=DRIVER, persistent_volume=None)

    assert isinstance(answer, Provision)
