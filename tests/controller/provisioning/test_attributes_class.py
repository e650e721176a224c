"""Claims that name a VolumeAttributesClass before they have a volume."""

import pytest

from provisioner.classes import storage_class_rules
from provisioner.classes.storage_class_rules import ReadClass
from provisioner.controller.modifying.class_rules import with_class
from provisioner.controller.provisioning.persistent_volume_rules import manifest
from provisioner.controller.provisioning.plan_rules import plan
from provisioner.model.decision import Refuse
from provisioner.model.errors import Reason
from provisioner.model.meta import ObjectMeta
from provisioner.model.storage_class import VolumeAttributesClass
from provisioner.model.tag_template import Names
from tests.builders import DRIVER, a_claim, a_class, a_plan, a_volume

CLAIM = a_claim(size="20Gi", attributes_class="gold")


def gold(driver: str = DRIVER, **parameters: str) -> VolumeAttributesClass:
    return VolumeAttributesClass(
        metadata=ObjectMeta(name="gold"), driver_name=driver, parameters=parameters
    )


def made(
    found: VolumeAttributesClass | None, *, is_served: bool = True, **of_class: str
) -> ReadClass | Refuse:
    read = storage_class_rules.read(a_class(parameters=of_class))
    return with_class(CLAIM, read, found, is_served=is_served, driver=DRIVER)


def test_what_its_attributes_class_says_counts_more_than_its_class():
    read = made(
        gold(type="io2", iopsPerGB="10", tagSpecification_1="team=a"),
        type="gp3",
        iops="4000",
        tagSpecification_1="team=b",
        tagSpecification_2="cost=c",
    )

    assert isinstance(read, ReadClass)
    parameters = read.parameters
    assert (parameters.volume_type, parameters.iops, parameters.iops_per_gib) == ("io2", None, 10)
    rendered = {each.key: each.render(Names()) for each in parameters.tag_templates}
    assert rendered == {"team": "a", "cost": "c"}


def test_what_its_attributes_class_leaves_open_is_the_class_s():
    read = made(gold(throughput="200"), iops="4000", tagSpecification_1="team=b")

    assert isinstance(read, ReadClass)
    assert (read.parameters.iops, read.parameters.throughput_mibps) == (4000, 200)
    assert len(read.parameters.tag_templates) == 1


def test_a_tag_that_it_deletes_is_not_written():
    read = made(gold(tagDeletion_1="team"), tagSpecification_1="team=b")

    assert isinstance(read, ReadClass)
    assert read.parameters.tag_templates == ()


@pytest.mark.parametrize(
    ("found", "reason", "sentence"),
    [
        (None, Reason.CLASS_NOT_FOUND, "'gold' does not exist; create it"),
        (gold(driver="other"), Reason.INVALID_CLASS, "is for driver 'other'"),
        (gold(iops="many"), Reason.INVALID_CLASS, "'iops': 'many' is not a whole number"),
    ],
)
def test_what_cannot_be_is_said_once(found, reason, sentence):
    refused = made(found)

    assert isinstance(refused, Refuse)
    assert refused.reason is reason
    assert refused.settled
    assert sentence in refused.message


def test_before_1_34_no_volume_is_made_without_the_class_that_it_was_to_have():
    refused = made(None, is_served=False)

    assert isinstance(refused, Refuse)
    assert refused.reason is Reason.INVALID_CLASS
    assert refused.settled
    assert "upgrade, or use a claim without a class" in refused.message


def test_an_in_tree_volume_can_have_no_attributes_class():
    read = storage_class_rules.read(a_class(provisioner="kubernetes.io/aws-ebs"))

    refused = with_class(CLAIM, read, gold(), is_served=True, driver=DRIVER)

    assert isinstance(refused, Refuse)
    assert "uses the in-tree plugin" in refused.message


def test_the_persistent_volume_names_the_class_or_the_two_would_never_be_bound():
    body = manifest(a_plan(CLAIM), a_volume(), driver=DRIVER, identity="me")

    assert body["spec"]["volumeAttributesClassName"] == "gold"
    without = manifest(a_plan(a_claim()), a_volume(), driver=DRIVER, identity="me")
    assert "volumeAttributesClassName" not in without["spec"]


def test_ec2_is_asked_for_what_it_says():
    read = made(gold(iops="5000"))
    assert isinstance(read, ReadClass)

    planned = plan(
        CLAIM,
        read,
        zone="us-east-1a",
        cluster_id="",
        extra_tags=(),
        default_file_system="ext4",
    )

    assert not isinstance(planned, Refuse)
    assert planned.request.iops == 5000
