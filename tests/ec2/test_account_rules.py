"""Which Region the cluster is in, and what of it EC2 must know."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from provisioner.ec2 import account_rules
from provisioner.model.node import Node, NodeSpec
from provisioner.model.node_affinity import REGION_LABEL
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.zone import ZONE_LABEL
from tests.builders import DRIVER, a_csi_node, a_node, a_persistent_volume

BORN = datetime(2026, 11, 22, tzinfo=UTC)


def on(provider_id: str, *, name: str = "n", age_days: int = 0, **labels: str) -> Node:
    node = a_node(name, zone=None, labels=labels)
    born = replace(node.metadata, creation_timestamp=BORN - timedelta(days=age_days))
    return replace(node, metadata=born, spec=NodeSpec(provider_id=provider_id))


def labelled(key: str, value: str) -> Node:
    return a_node("n", zone=None, labels={key: value})


@pytest.mark.parametrize(
    ("node", "region"),
    [
        (on("aws:///eu-west-1a/i-0123"), "eu-west-1"),
        (on("aws:///us-west-2-lax-1a/i-0123"), "us-west-2"),
        (on("aws:///us-east-1-wl1-bos-wlz-1/i-0123"), "us-east-1"),
        (on("aws:///us-gov-east-1b/i-0123"), "us-gov-east-1"),
        (on("aws:///cn-north-1a/i-0123"), "cn-north-1"),
        (labelled(ZONE_LABEL, "eu-west-1a"), "eu-west-1"),
        (labelled(REGION_LABEL, "eu-west-1"), "eu-west-1"),
    ],
)
def test_a_node_tells_its_region(node: Node, region: str):
    assert list(account_rules.regions_of([node])) == [region]


@pytest.mark.parametrize(
    "node",
    [
        on(""),
        on("kind://docker/kind/node"),
        on("gce://project/europe-west1-b/node"),
        labelled(ZONE_LABEL, "rack-1"),
        labelled(REGION_LABEL, "home"),
        labelled(REGION_LABEL, "us-east1"),
    ],
)
def test_another_cloud_and_words_of_ones_own_tell_none(node: Node):
    assert account_rules.regions_of([node]) == {}


def test_where_no_node_tells_it_a_volume_does():
    in_tree = a_persistent_volume(handle="aws://eu-west-1a/vol-0123", in_tree=True)

    assert list(account_rules.regions_of_volumes([in_tree])) == ["eu-west-1"]


def test_a_region_without_any_is_told_with_one_that_is_elsewhere():
    told = account_rules.regions_of([on("aws:///eu-west-1a/i-1", name="node-7")])

    why = account_rules.wrong_region("us-east-1", told)

    assert "asked in us-east-1, but Node node-7 is in eu-west-1a" in why


def test_instances_are_those_of_the_newest_nodes_by_whatever_names_them():
    nodes = [
        *(on(f"aws:///us-east-1a/i-0{age:03}", age_days=age) for age in range(150)),
        on("", name="node-1", age_days=-1),
        on("azure:///vm", name="other", age_days=-1),
    ]
    registered = {"node-1": a_csi_node("node-1", instance="i-0abc")}

    found = account_rules.instance_ids(nodes, registered.get, DRIVER)

    assert found[0] == "i-0abc"
    assert "i-0000" in found
    assert "i-0120" not in found


@pytest.mark.parametrize("odd", ["local-ebs://disk", "vol-*", "vol-data", "snap-0123"])
def test_volumes_are_those_that_have_an_id(odd: str):
    """None that EC2 could refuse the look for, nor one that means every volume of an account."""
    named = [a_persistent_volume(handle=odd), a_persistent_volume()]

    assert account_rules.newest_volumes(named, DRIVER) == named[1:]


def test_the_newest_of_many_are_the_newest_of_the_newest_of_each_part():
    volumes = [
        replace(each, metadata=replace(each.metadata, creation_timestamp=BORN.replace(day=day)))
        for day in (1, 3, 2)
        for each in (a_persistent_volume(f"pvc-{day}-{n}") for n in range(80))
    ]

    newest: list[PersistentVolume] = []
    for at in range(0, len(volumes), 30):
        newest = account_rules.newest_volumes([*newest, *volumes[at : at + 30]], DRIVER)

    assert newest == account_rules.newest_volumes(volumes, DRIVER)
    assert [each.name for each in newest[79:81]] == ["pvc-3-79", "pvc-2-0"]


@pytest.mark.parametrize("odd", ["i-*", "hyperpod-ab12-i-0123", "i-node"])
def test_instances_are_those_that_have_an_id(odd: str):
    assert (
        account_rules.instance_ids([on("")], lambda name: a_csi_node(name, instance=odd), DRIVER)
        == []
    )


def test_newer_objects_of_others_hide_none():
    """Machines elsewhere beside ours, file shares beside our volumes."""
    nodes = [on("mine://x", name=f"n{age}", age_days=age) for age in range(120)]
    shares = [a_persistent_volume(f"s{n}", driver="efs.csi.aws.com") for n in range(120)]
    old = a_persistent_volume()
    old = replace(old, metadata=replace(old.metadata, creation_timestamp=BORN.replace(year=2020)))
    shares = [
        replace(each, metadata=replace(each.metadata, creation_timestamp=BORN)) for each in shares
    ]
    last = on("aws:///us-east-1a/i-0abc", age_days=200)

    assert account_rules.instance_ids([*nodes, last], lambda _: None, DRIVER) == ["i-0abc"]
    assert account_rules.newest_volumes([*shares, old], DRIVER) == [old]
