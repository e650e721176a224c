"""Groups of nodes, each with a DaemonSet of its own: which nodes each has, and which are refused."""

from typing import Any

import pytest

from tests.chart.helm import (
    BIG,
    built,
    of_terms,
    one,
    rendered,
    required,
)

Json = dict[str, Any]
pytestmark = built


def test_a_group_says_what_it_has_and_is_not_merged_into_another():
    groups = {"big": {**BIG, "volumeAttachLimit": 100}, "small": {"nodeSelector": {"size": "s"}}}

    objects = rendered({"node": {"volumeAttachLimit": 20}, "additionalDaemonSets": groups})

    limits = {
        each["metadata"]["name"]: each["data"]["EBS_PROVISIONER_NODE_VOLUME_ATTACH_LIMIT"]
        for each in objects
        if each["kind"] == "ConfigMap" and "node" in each["metadata"]["name"]
    }
    assert limits == {
        "ebs-provisioner-node": "20",
        "ebs-provisioner-node-big": "100",
        "ebs-provisioner-node-small": "20",
    }
    for name in limits:
        pods = one(objects, "DaemonSet", name)["spec"]["template"]["spec"]
        [source] = pods["containers"][0]["envFrom"]
        assert source == {"configMapRef": {"name": name}}
        assert pods["serviceAccountName"] == "ebs-provisioner-node"


def expressions(objects: list[Json], name: str) -> list[Json]:
    """By which a DaemonSet chooses nodes."""
    pods = one(objects, "DaemonSet", name)["spec"]["template"]["spec"]
    asked = pods["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    [term] = asked["nodeSelectorTerms"]
    found: list[Json] = term["matchExpressions"]
    return found


@pytest.mark.parametrize("selector", [{}, {"arch": "arm64"}], ids=["all", "some"])
def test_the_nodes_of_groups_are_left_to_them(selector: Json):
    values = {"node": {"nodeSelector": selector}, "additionalDaemonSets": {"big": BIG}}

    objects = rendered(values)

    apart = {"key": "size", "operator": "NotIn", "values": ["big"]}
    assert expressions(objects, "ebs-provisioner-node")[-1] == apart
    assert apart not in expressions(objects, "ebs-provisioner-node-big")


def test_groups_that_share_no_node_are_left_as_they_are():
    selected = rendered(
        {"node": {"nodeSelector": {"size": "small"}}, "additionalDaemonSets": {"big": BIG}}
    )
    assert [each["key"] for each in expressions(selected, "ebs-provisioner-node")] == [
        "eks.amazonaws.com/compute-type"
    ]

    big, others = required("size", "In", "big"), required("size", "NotIn", "big")
    liked = rendered(
        {"node": {"affinity": others}, "additionalDaemonSets": {"big": {"affinity": big}}}
    )
    assert [each["operator"] for each in expressions(liked, "ebs-provisioner-node")] == ["NotIn"]


@pytest.mark.parametrize(
    ("one_is", "other_is"),
    [
        (required("size", "In", "big", "huge"), required("size", "NotIn", "huge", "big", "small")),
        (required("size", "In", "big"), required("size", "In", "small")),
        (required("size", "In", "big"), required("size", "DoesNotExist")),
        (required("size", "Exists"), required("size", "DoesNotExist")),
    ],
    ids=["in and not in", "in others", "in and absent", "there and absent"],
)
def test_groups_whose_affinities_exclude_each_other_are_accepted(one_is: Json, other_is: Json):
    for mine, theirs in ((one_is, other_is), (other_is, one_is)):
        assert rendered(
            {"node": {"affinity": mine}, "additionalDaemonSets": {"big": {"affinity": theirs}}}
        )


def test_each_of_several_terms_is_compared():
    """Nodes that meet any of them are selected."""
    large = of_terms(
        [{"key": "size", "operator": "In", "values": ["big"]}],
        [
            {"key": "arch", "operator": "Exists"},
            {"key": "size", "operator": "In", "values": ["huge"]},
        ],
    )
    others = {"affinity": required("size", "NotIn", "big", "huge")}

    assert rendered({"node": others, "additionalDaemonSets": {"large": {"affinity": large}}})


def test_the_selectors_of_groups_share_no_pod():
    objects = rendered({"additionalDaemonSets": {"big": BIG}})

    selectors = [
        each["spec"]["selector"]["matchLabels"] for each in objects if each["kind"] == "DaemonSet"
    ]
    assert len({each["app.kubernetes.io/component"] for each in selectors}) == len(selectors) == 2
