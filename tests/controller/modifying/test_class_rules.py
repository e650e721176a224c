"""To which VolumeAttributesClass a volume is to be brought."""

import pytest

from provisioner.classes.volume_attributes_class_rules import Attributes, parse
from provisioner.controller.modifying.class_rules import (
    Broken,
    Cancel,
    Change,
    Missing,
    Target,
    annotated,
    following_of,
    outdated_of,
    read,
    tags_of,
    target_of,
)
from provisioner.model import claim as c
from provisioner.model.decision import SETTLED
from provisioner.model.meta import ObjectMeta
from provisioner.model.names import IOPS_FOLLOW_GROWTH, IOPS_PER_GIB
from provisioner.model.storage_class import VolumeAttributesClass

DRIVER = "ebs.csi.aws.com"


def a_claim(
    wanted: str = "", *, has: str = "", begun: str = "", status: str = "", **annotations: str
) -> c.Claim:
    modify = c.ModifyVolumeStatus(target_volume_attributes_class_name=begun, status=status)
    return c.Claim(
        metadata=ObjectMeta(
            name="data",
            namespace="web",
            annotations={f"{DRIVER}/{key}": text for key, text in annotations.items()},
        ),
        spec=c.ClaimSpec(volume_attributes_class_name=wanted or None, volume_name="pvc-1"),
        status=c.ClaimStatus(
            phase="Bound",
            current_volume_attributes_class_name=has or None,
            modify_volume_status=modify if status else None,
        ),
    )


@pytest.mark.parametrize(
    ("claim", "is_free", "target"),
    [
        (a_claim(), True, SETTLED),
        (a_claim("gold"), True, Target("gold")),
        (a_claim("gold", has="gold"), True, SETTLED),
        (a_claim("gold", has="silver"), True, Target("gold")),
        # What is under way may have been sent.
        (a_claim("gold", begun="silver", status="InProgress"), False, Target("silver")),
        (a_claim("gold", begun="silver", status="InProgress"), True, Target("gold")),
        (a_claim("gold", begun="silver", status="Infeasible"), False, Target("gold")),
        (a_claim("gold", begun="silver", status="Pending"), False, Target("gold")),
        # Back to what it has: EC2 is asked for that again, and the status is cleared.
        (a_claim("gold", has="gold", begun="silver", status="Infeasible"), True, Target("gold")),
        (a_claim(begun="silver", status="Infeasible"), True, Cancel()),
        (a_claim(begun="silver", status="Pending"), False, Cancel()),
        (a_claim(begun="silver", status="InProgress"), False, Target("silver")),
    ],
)
def test_the_class(claim, is_free, target):
    assert target_of(claim, is_free=is_free) == target


def a_class(driver: str = DRIVER, **parameters: str) -> VolumeAttributesClass:
    return VolumeAttributesClass(driver_name=driver, parameters=parameters)


@pytest.mark.parametrize(
    ("found", "is_csi", "expected"),
    [
        (None, True, Missing("gold")),
        (a_class(iops="4000"), True, Change("gold", Attributes(iops=4000))),
        (VolumeAttributesClass(driver_name=DRIVER), True, Change("gold", Attributes())),
    ],
)
def test_a_class_is_read(found, is_csi, expected):
    assert read("gold", found, is_served=True, driver=DRIVER, is_csi=is_csi) == expected


@pytest.mark.parametrize(
    ("found", "is_csi", "sentence"),
    [
        (a_class("other"), True, "'gold' is for driver 'other', not ebs.csi.aws.com"),
        (a_class(iops="many"), True, "'gold': parameter 'iops': 'many' is not a whole number"),
        (a_class(), False, "uses the in-tree plugin"),
    ],
)
def test_a_class_that_can_never_be_had_says_why(found, is_csi, sentence):
    broken = read("gold", found, is_served=True, driver=DRIVER, is_csi=is_csi)

    assert isinstance(broken, Broken)
    assert sentence in broken.message


def test_a_class_of_an_api_server_before_1_34_says_what_would_help():
    """Also one that was found: an API server that was upgraded serves it before we know."""
    broken = read("gold", None, is_served=False, driver=DRIVER, is_csi=True)

    assert isinstance(broken, Broken)
    assert "does not serve VolumeAttributesClasses of storage.k8s.io/v1" in broken.message
    found = read("gold", a_class(iops="4000"), is_served=False, driver=DRIVER, is_csi=True)
    assert found == Change("gold", Attributes(iops=4000))


def test_annotations_ask_where_there_is_no_class():
    asks = a_claim(iops="4000")

    assert annotated(asks, {}, driver=DRIVER) == Change("", Attributes(iops=4000))
    assert annotated(asks, {f"{DRIVER}/iops": "4000"}, driver=DRIVER) == SETTLED
    assert annotated(a_claim("gold", iops="4000"), {}, driver=DRIVER) == SETTLED
    assert annotated(a_claim(), {}, driver=DRIVER) == SETTLED
    assert isinstance(annotated(a_claim(iops="many"), {}, driver=DRIVER), Broken)


def test_tags_are_rendered_for_the_claim():
    asks = parse({"tagSpecification_1": "for={{ .PVCName }}", "iopsPerGB": "10"})

    assert tags_of(Change("gold", asks), a_claim()) == {"for": "data"}
    assert tags_of(None, a_claim()) == {}


def test_how_iops_follow_the_size_is_kept_in_tags_of_its_own():
    asks = parse({"iopsPerGB": "10", "allowAutoIOPSIncreaseOnModify": "false"})

    assert following_of(Change("gold", asks)) == {
        "ebs.csi.aws.com/IOPSPerGb": "10",
        "ebs.csi.aws.com/AllowAutoIOPSIncreaseOnModify": "false",
    }
    assert following_of(Change("gold", Attributes(iops=4000))) == following_of(None) == {}


@pytest.mark.parametrize(
    ("asks", "outdated"),
    [
        ({"iops": "4000"}, (IOPS_PER_GIB, IOPS_FOLLOW_GROWTH)),
        ({"iops": "4000", "allowAutoIOPSIncreaseOnModify": "true"}, (IOPS_PER_GIB,)),
        ({"iopsPerGB": "10"}, ()),
        ({"throughput": "250"}, ()),
    ],
    ids=["iops", "iops that would grow", "for each GiB", "no iops"],
)
def test_a_class_of_iops_for_any_size_leaves_no_tag_of_iops_for_each_gib(
    asks: dict[str, str], outdated: tuple[str, ...]
):
    assert outdated_of(Change("gold", parse(asks))) == outdated
    assert outdated_of(None) == ()
