import pytest

from tests.builders import a_class

EBS, OTHER = "ebs.csi.aws.com", "other.csi.example.com"


@pytest.mark.parametrize(
    ("provisioner", "driver", "is_of"),
    [
        (EBS, EBS, True),
        ("kubernetes.io/aws-ebs", EBS, True),
        (OTHER, OTHER, True),
        # Kubernetes translates in-tree classes to the driver under its own name only.
        ("kubernetes.io/aws-ebs", OTHER, False),
        ("efs.csi.aws.com", EBS, False),
        ("", EBS, False),
    ],
)
def test_a_class_is_of_the_driver_that_it_names_or_that_took_over_from_in_tree(
    provisioner, driver, is_of
):
    assert a_class(provisioner=provisioner).is_of(driver) is is_of
