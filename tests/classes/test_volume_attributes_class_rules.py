"""The parameters of VolumeAttributesClasses, and the annotations from before there were any."""

import re

import pytest

from provisioner.classes.volume_attributes_class_rules import (
    Attributes,
    legacy,
    of_annotations,
    parse,
)
from provisioner.model.tag_template import Names

DRIVER = "ebs.csi.aws.com"


@pytest.mark.parametrize(
    ("raw", "read"),
    [
        ({}, Attributes()),
        ({"type": "io2", "iops": "100"}, Attributes(volume_type="io2", iops=100)),
        ({"volumeType": "gp3"}, Attributes(volume_type="gp3")),
        ({"volumeType": "gp2", "type": "gp3"}, Attributes(volume_type="gp3")),
        ({"type": "", "volumeType": "GP3"}, Attributes(volume_type="gp3")),
        ({"TYPE": "gp3", "Iops": "4000"}, Attributes(volume_type="gp3", iops=4000)),
        ({"throughput": "200"}, Attributes(throughput_mibps=200)),
        ({"iopspergb": "10"}, Attributes(iops_per_gib=10)),
        ({"iopsPerGB": "10"}, Attributes(iops_per_gib=10)),
        ({"allowautoiopsincreaseonmodify": "true"}, Attributes(iops_follow_growth=True)),
        ({"allowAutoIOPSIncreaseOnModify": "false"}, Attributes(iops_follow_growth=False)),
        (
            {"tagDeletion_1": "team", "tagDeletion_2": "cost"},
            Attributes(deleted_tags=("team", "cost")),
        ),
        ({"csi.storage.k8s.io/pvc/name": "x"}, Attributes()),
    ],
)
def test_parameters_are_read_in_either_case(raw, read):
    assert parse(raw) == read


def test_tags_are_templates():
    (template,) = parse(
        {"tagSpecification_1": "for={{ .PVCNamespace }}/{{ .PVCName }}"}
    ).tag_templates

    assert template.key == "for"
    assert template.render(Names("web", "data", "pvc-1")) == "web/data"


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        ({"size": "20"}, "unknown parameter 'size'"),
        ({"encrypted": "true"}, "unknown parameter 'encrypted'"),
        ({"type": "gp9"}, "'type': 'gp9' is not an EBS volume type"),
        ({"iops": "fast"}, "'iops': 'fast' is not a whole number"),
        ({"iops": "4000", "iopsPerGB": "5"}, "iops and iopsPerGB are both given"),
        ({"iops": "4000", "IOPS": "5000"}, "given twice in different spellings"),
        ({"tagSpecification_1": "CSIVolumeName=x"}, "is reserved"),
        ({"tagDeletion_1": "CSIVolumeName"}, "is reserved"),
        ({"tagDeletion_1": "ebs.csi.aws.com/cluster"}, "is reserved"),
        ({"tagDeletion_1": "a=b"}, "cannot contain ="),
        ({"tagSpecification_1": "team"}, "not of the form key=value"),
        ({"tagSpecification_1": "team=a", "tagSpecification_2": "team=b"}, "is given twice"),
        ({"tagSpecification_1": "team=a", "tagDeletion_1": "team"}, "keep one"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_sentence(raw, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        parse(raw)


def test_annotations_ask_for_the_same():
    annotations = {
        f"{DRIVER}/volumeType": "gp3",
        f"{DRIVER}/iops": "4000",
        f"{DRIVER}/throughput": "",
        f"{DRIVER}/other": "x",
        "other.driver/throughput": "200",
    }

    assert legacy(annotations, DRIVER) == {"volumeType": "gp3", "iops": "4000"}
    assert of_annotations(annotations, DRIVER) == Attributes(volume_type="gp3", iops=4000)
    assert of_annotations({}, DRIVER) is None
