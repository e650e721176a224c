"""What a Node lacks, whether its instance is certain, and what is then written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.controller.nodes import initialize_rules as rules
from provisioner.controller.nodes.initialize_rules import LABELS, TAINT, Question, Refusal
from provisioner.model.node import Node
from provisioner.model.volume import Instance
from tests.json_patch import applied

REGION = "us-east-1"
ID, OTHER = "i-0aaaaaaaaaaaaaaa1", "i-0bbbbbbbbbbbbbbb2"
FACTS = dict(zip(LABELS, ("us-east-1a", REGION, "m5.large"), strict=True))
PROVIDER_ID = f"aws:///us-east-1a/{ID}"
WAITING = {"key": TAINT, "value": "true", "effect": "NoSchedule"}
BORN = datetime(2026, 11, 22, 5, 0, tzinfo=UTC)


def a_document(**parts: Any) -> dict[str, Any]:
    metadata = {"name": "ip-10-0-0-1.ec2.internal", "labels": parts.pop("labels", None)}
    created = {"creationTimestamp": "2026-11-22T05:00:00Z"}
    return {"metadata": metadata | created, "spec": parts, "status": {}}


def a_node(**parts: Any) -> Node:
    return msgspec.convert(a_document(**parts), Node)


def addressed(name: str, *addresses: tuple[str, str]) -> Node:
    given = [{"type": kind, "address": address} for kind, address in addresses]
    return msgspec.convert({"metadata": {"name": name}, "status": {"addresses": given}}, Node)


def an_instance(instance_id: str = ID, **changed: Any) -> Instance:
    return Instance(
        **{
            "instance_id": instance_id,
            "zone": "us-east-1a",
            "state": "running",
            "instance_type": "m5.large",
            **changed,
        }
    )


@pytest.mark.parametrize(
    ("node", "lacks"),
    [
        (a_node(labels=FACTS, providerID=PROVIDER_ID), False),
        (a_node(labels=FACTS, providerID=PROVIDER_ID, taints=[{"key": "other"}]), False),
        (a_node(labels=FACTS, providerID=PROVIDER_ID, taints=[WAITING]), True),
        (a_node(labels=FACTS), True),
        (a_node(providerID=PROVIDER_ID), True),
        *((a_node(labels=FACTS | {key: ""}, providerID=PROVIDER_ID), True) for key in LABELS),
    ],
)
def test_a_node_lacks_what_a_cloud_controller_writes(node: Node, lacks: object):
    assert rules.is_lacking(node) is lacks


@pytest.mark.parametrize(
    ("added", "age_s", "wait_s"),
    [
        (None, 10, 50),
        (None, 60, 0),
        ("2026-11-22T05:02:00Z", 150, 30),
        ("2026-11-22T05:02:00Z", 60, 120),
        ("nonsense", 10, 50),
    ],
)
def test_a_node_waits_a_minute_from_its_taint_on_or_from_its_birth(
    added: str | None, age_s: int, wait_s: int
):
    node = a_node(taints=[WAITING | ({"timeAdded": added} if added else {})])

    assert rules.wait_s(node, BORN + timedelta(seconds=age_s)) == wait_s


def test_a_node_of_no_age_at_all_waits():
    assert rules.wait_s(Node(), BORN) == 60


@pytest.mark.parametrize(
    ("node", "asked"),
    [
        (a_node(providerID=PROVIDER_ID), Question(instance_id=ID)),
        (a_node(providerID=f"aws://us-east-1a/{ID}"), Question(instance_id=ID)),
        (a_node(providerID=f"aws:///{ID}"), Question(instance_id=ID)),
        (
            addressed("IP-10-0-0-1.ec2.internal", ("InternalIP", "10.0.0.1"), ("Hostname", "ip-1")),
            Question(names=("ip-10-0-0-1.ec2.internal",), addresses=("10.0.0.1",)),
        ),
        (
            addressed(
                "worker-1",
                ("InternalDNS", "ip-10-0-0-1.ec2.internal"),
                ("InternalIP", "10.0.0.1"),
                ("InternalIP", "10.0.0.1"),
                ("InternalIP", "fd00::1"),
                ("ExternalIP", "1.2.3.4"),
            ),
            Question(names=("ip-10-0-0-1.ec2.internal",), addresses=("10.0.0.1",)),
        ),
    ],
)
def test_an_instance_is_asked_for_by_its_id_or_by_private_names_and_addresses(
    node: Node, asked: Question
):
    assert rules.question(node) == asked


@pytest.mark.parametrize(
    ("node", "says"),
    [
        (a_node(providerID="k3s://worker-1"), "k3s://worker-1, which names no EC2 instance"),
        (a_node(providerID=f"gce://p/z/{ID}"), "names no EC2 instance"),
        (a_node(providerID="aws:///us-east-1a/fargate-1"), "names no EC2 instance"),
        (addressed("worker-1", ("ExternalIP", "1.2.3.4")), "neither a private DNS name nor"),
        (addressed("worker-1", ("InternalIP", "fd00::1")), "--provider-id="),
    ],
)
def test_what_cannot_be_asked_for_is_refused(node: Node, says: str):
    refused = rules.question(node)

    assert isinstance(refused, Refusal)
    assert says in refused.message


def test_exactly_one_instance_will_do():
    asked, one = Question(names=("a.internal",), addresses=("10.0.0.1",)), an_instance()

    assert rules.the_only([one, one], asked, "shop") == one
    none = rules.the_only([], asked, "shop")
    two = rules.the_only([one, an_instance(OTHER)], asked, "shop")
    assert isinstance(none, Refusal)
    assert "kubernetes.io/cluster/shop" in none.message
    assert "a.internal, 10.0.0.1" in none.message
    assert isinstance(two, Refusal)
    assert f"{ID}, {OTHER}" in two.message


@pytest.mark.parametrize(
    ("node", "instance", "says"),
    [
        *(
            (a_node(labels={key: "other"}), an_instance(), f"the label {key} is other")
            for key in LABELS
        ),
        (a_node(providerID=f"aws:///us-east-1b/{ID}"), an_instance(), "in us-east-1a"),
        (a_node(providerID=PROVIDER_ID), an_instance(OTHER), f"EC2 has instance {OTHER}"),
        (a_node(), an_instance(state="stopped"), "is stopped"),
        (a_node(), an_instance(zone=""), "does not report the zone"),
    ],
)
def test_what_contradicts_is_told_and_stops_everything(node: Node, instance: Instance, says: str):
    refused = rules.contradiction(node, instance, REGION, [node], {})

    assert refused is not None
    assert says in refused.message


def test_an_instance_is_one_node():
    node = a_node()
    other = msgspec.convert({"metadata": {"name": "o"}, "spec": {"providerID": PROVIDER_ID}}, Node)

    refused = rules.contradiction(node, an_instance(), REGION, [node, other], {})

    assert refused == Refusal(f"instance {ID} is already node o, by its spec.providerID")
    assert rules.contradiction(node, an_instance(OTHER), REGION, [node, other], {}) is None


@given(
    has=st.sets(st.sampled_from(LABELS)),
    provider_id=st.sampled_from([None, PROVIDER_ID, f"aws://us-east-1a/{ID}", f"aws:///{ID}"]),
    taints=st.lists(st.sampled_from([WAITING, {"key": "other", "effect": "NoExecute"}])),
    more=st.sampled_from([None, {}, {"a": "b"}]),
)
def test_whatever_was_there_nothing_is_missing_afterwards_and_nothing_overwritten(
    has: set[str],
    provider_id: str | None,
    taints: list[dict[str, str]],
    more: dict[str, str] | None,
):
    labels = None if more is None and not has else {**(more or {}), **{k: FACTS[k] for k in has}}
    given_id = {} if provider_id is None else {"providerID": provider_id}
    document = a_document(labels=labels, taints=taints, **given_id)
    node = msgspec.convert(document, Node)

    assert rules.contradiction(node, an_instance(), REGION, [node], {}) is None
    operations = rules.operations(node, an_instance(), REGION)
    changed = applied(document, operations)

    assert changed["metadata"]["labels"] == {**(more or {}), **FACTS}
    assert changed["spec"]["providerID"] == (provider_id or PROVIDER_ID)
    assert changed["spec"]["taints"] == [each for each in taints if each != WAITING]
    after = msgspec.convert(changed, Node)
    assert not rules.is_lacking(after)
    assert rules.operations(after, an_instance(), REGION) == []
    assert bool(operations) is rules.is_lacking(node)


def test_the_types_of_hyperpod_are_ec2s():
    node = a_node(labels=FACTS | {LABELS[2]: "ml.m5.large"}, providerID=PROVIDER_ID)

    assert rules.contradiction(node, an_instance(), REGION, [node], {}) is None
