"""What is answered about a new StorageClass."""

from typing import Any

import pytest

from provisioner.inspect.classes import check_rules as class_check_rules
from provisioner.model.storage_class import StorageClass
from webhook.model.cluster_view import NodeView
from webhook.model.review import Answer, Json
from webhook.reviews import storage_class_rules as rule

DRIVER = "ebs.csi.aws.com"
ZONE = "topology.kubernetes.io/zone"
A, B = "us-east-1a", "us-east-1b"
WAITS = "WaitForFirstConsumer"
REGION = "topology.kubernetes.io/region"
IN_REGION = [{"matchLabelExpressions": [{"key": REGION, "values": ["us-east-1"]}]}]


def a_class(
    *, provisioner: str = DRIVER, zones: list[list[str]] | None = None, **more: Any
) -> Json:
    """``zones``: one term, of so many expressions about zones under two keys in turn."""
    keys = (ZONE, "topology.ebs.csi.aws.com/zone")
    expressions = [
        {"key": key, "values": values} for key, values in zip(keys, zones or [], strict=False)
    ]
    written: Json = {
        "metadata": {"name": "fast"},
        "provisioner": provisioner,
        "volumeBindingMode": WAITS,
        **more,
    }
    return written | (
        {"allowedTopologies": [{"matchLabelExpressions": expressions}]} if zones else {}
    )


def in_zones(*zones: str) -> list[NodeView]:
    return [
        NodeView(labels=((ZONE, zone),), zone=zone, schedulable=True, has_driver=True)
        for zone in zones
    ]


def judged(document: Json, nodes: list[NodeView] | None = None) -> Answer:
    return rule.judge(document, nodes, driver=DRIVER)


def test_a_sound_class_passes_without_a_word():
    answer = judged(a_class(parameters={"type": "gp3"}), in_zones(A, B))

    assert (answer.allowed, answer.why, answer.warnings) == (True, "ClassSound", ())


@pytest.mark.parametrize(
    ("document", "says"),
    [
        (a_class(parameters={"typ": "gp3"}), "'typ'"),
        (a_class(parameters={"type": "gp2", "iops": "3000"}), "iops"),
        (a_class(zones=[[A], [B]]), "allow no zone"),
        (a_class(parameters={f"tagSpecification_{i}": f"k{i}=v" for i in range(46)}), "51 tags"),
        (a_class(parameters={"csi.storage.k8s.io/secret-key": "x"}), "unknown parameter"),
    ],
)
@pytest.mark.parametrize("nodes", [None, [], in_zones(A, B)], ids=["unknown", "none", "two"])
def test_a_class_that_can_never_work_is_refused_wherever_nodes_are(document, says, nodes):
    answer = judged(document, nodes)

    assert (answer.allowed, answer.why, answer.code) == (False, "ImpossibleClass", 422)
    assert answer.message.startswith('storageclass "fast" can never work: ')
    assert says in answer.message


@pytest.mark.parametrize(
    ("document", "says"),
    [
        (a_class(parameters={"kmsKeyId": "alias/x", "encrypted": "false"}), "encrypted is false"),
        (a_class(parameters={"tagSpecification_1": "a={{1.5}}"}), "cannot be read"),
        (a_class(parameters={"tagSpecification_1": "a=b", "tagSpecification_2": "a=b"}), "twice"),
        (a_class(volumeBindingMode="Immediate", allowedTopologies=IN_REGION), REGION),
        (a_class(volumeBindingMode="Immediate", zones=[[A], [B]]), "allow no zone"),
    ],
)
def test_what_only_our_controller_refuses_passes_with_a_warning(document, says):
    answer = judged(document, in_zones(A))

    assert (answer.allowed, answer.why) == (True, "ClassInDoubt")
    warning = answer.warnings[0]
    assert warning.startswith('storageclass "fast": this controller refuses it')
    assert says in warning


@pytest.mark.parametrize(
    "parameters",
    [
        {"csi.storage.k8s.io/node-stage-secret-name": "s"},
        {"iops": "100000", "throughput": "25000"},
    ],
)
def test_what_works_with_the_stock_driver_is_never_denied(parameters):
    answer = judged(a_class(parameters=parameters))

    assert (answer.allowed, answer.why) == (True, "ClassInDoubt")
    assert not any("makes no volume" in warning for warning in answer.warnings)


def test_a_doubtful_class_passes_with_a_warning():
    answer = judged(a_class(volumeBindingMode="Immediate"), in_zones(A, B))

    assert (answer.allowed, answer.why) == (True, "ClassInDoubt")
    [warning] = answer.warnings
    assert warning.startswith('storageclass "fast": it binds immediately')
    assert f"{A} or {B}" in warning


def test_nodes_whose_labels_disagree_are_in_no_zone():
    lost = NodeView(labels=((ZONE, B),), zone=None, schedulable=True, has_driver=True)

    assert judged(a_class(volumeBindingMode="Immediate"), [*in_zones(A), lost]).warnings == ()


def test_in_tree_classes_are_judged_too():
    document = a_class(provisioner="kubernetes.io/aws-ebs", parameters={"type": "gp5"})

    assert not judged(document).allowed


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(a_class(provisioner="efs.csi.aws.com", parameters={"x": "y"}), id="others'"),
        pytest.param({}, id="empty"),
        pytest.param({"provisioner": DRIVER, "parameters": {"type": 3}}, id="of other types"),
    ],
)
def test_what_is_not_ours_passes_without_a_word(document):
    answer = judged(document)

    assert (answer.allowed, answer.why, answer.warnings) == (True, "NothingToDo", ())


def test_the_sentences_are_those_of_the_command_line():
    storage_class = StorageClass(provisioner=DRIVER, parameters={"typ": "gp3"})
    [text] = class_check_rules.findings(storage_class).impossible

    assert judged(a_class(parameters={"typ": "gp3"})).message.endswith(text)
