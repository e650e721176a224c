"""Nodes whose instance is not certain: silent, twice there, told otherwise, oddly named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.controller.nodes import initialize_rules as rules
from provisioner.controller.nodes.initialize_rules import (
    MOST_ADDRESSES,
    MOST_NAMES,
    Question,
    Refusal,
)
from provisioner.model.node import Node
from provisioner.model.volume import Instance

ID, OTHER_ID = "i-0aaaaaaaaaaaaaaa1", "i-0bbbbbbbbbbbbbbb2"
ADDRESS, ON_ANOTHER_INTERFACE = ("InternalIP", "10.0.0.1"), ("InternalIP", "10.0.1.1")
INSTANCE = Instance(
    instance_id=ID,
    zone="us-east-1a",
    state="running",
    instance_type="m5.large",
    private_dns_name="A.internal",
    private_addresses=(ADDRESS[1], ON_ANOTHER_INTERFACE[1]),
)


def a_node(
    name: str, *addresses: tuple[str, str], ready: str = "True", provider_id: str = ""
) -> Node:
    document: dict[str, Any] = {
        "metadata": {"name": name},
        "spec": {"providerID": provider_id},
        "status": {
            "conditions": [{"type": "Ready", "status": ready}],
            "addresses": [{"type": kind, "address": address} for kind, address in addresses],
        },
    }
    return msgspec.convert(document, Node)


def refusal(node: Node, *others: Node, registered: Mapping[str, str] | None = None) -> str:
    found = rules.contradiction(
        node, INSTANCE, "us-east-1", [node, *others], dict(registered or {})
    )
    return found.message if found is not None else ""


@pytest.mark.parametrize("provider_id", ["", f"aws:///us-east-1a/{ID}"])
def test_a_node_that_is_silent_is_not_even_asked_for(provider_id: str):
    silent = a_node("worker-1", ADDRESS, ready="Unknown", provider_id=provider_id)

    asked = rules.question(silent)

    assert isinstance(asked, Refusal)
    assert "delete the Node" in asked.message
    assert refusal(silent) == asked.message


@pytest.mark.parametrize("ready", ["True", "False", ""])
def test_a_node_that_speaks_is_filled_in_ready_or_not(ready: str):
    """What its network needs to become ready may wait for this."""
    assert refusal(a_node("worker-1", ADDRESS, ready=ready)) == ""


@pytest.mark.parametrize("ready", ["True", "Unknown"])
@pytest.mark.parametrize("shown", [ADDRESS, ("Hostname", "A.internal")])
def test_of_two_nodes_with_one_address_or_name_none_is_certain(shown: tuple[str, str], ready: str):
    one = a_node("worker-1", ADDRESS, ("InternalDNS", "a.internal"))
    two = a_node("worker-2", shown, ready=ready)

    assert f"node worker-2 may be instance {ID} too (it has {shown[1].lower()})" in refusal(
        one, two
    )


@pytest.mark.parametrize("shown", [ON_ANOTHER_INTERFACE, ("InternalDNS", "a.internal")])
def test_of_two_nodes_whose_different_addresses_lead_to_one_instance_none_is_certain(
    shown: tuple[str, str],
):
    one, two = a_node("worker-1", ADDRESS), a_node("worker-2", shown)

    assert f"node worker-2 may be instance {ID} too" in refusal(one, two)
    assert f"node worker-1 may be instance {ID} too" in refusal(two, one)
    assert refusal(one, a_node("worker-3", ("InternalIP", "10.0.0.3"))) == ""


def test_a_name_does_not_do_where_the_address_is_another_machines():
    named = ("InternalDNS", "a.internal")
    moved = ("InternalIP", "10.0.77.7")

    refused = refusal(a_node("worker-1", named, moved))

    assert "InternalIP 10.0.77.7" in refused
    assert f"instance {ID} has 10.0.0.1, 10.0.1.1" in refused
    assert "--provider-id=" in refused
    assert refusal(a_node("worker-1", named)) == ""
    assert refusal(a_node("worker-1", named, ("InternalIP", "fd00::1"))) == ""
    assert refusal(a_node("worker-1", named, moved, ON_ANOTHER_INTERFACE)) == ""


def test_a_node_that_names_its_instance_may_have_addresses_of_an_overlay():
    provider_id = f"aws:///us-east-1a/{ID}"

    assert refusal(a_node("worker-1", ("InternalIP", "100.64.0.1"), provider_id=provider_id)) == ""


def test_an_old_address_of_a_node_that_is_another_instance_is_no_doubt():
    old = a_node("worker-2", ADDRESS, ready="Unknown", provider_id=f"aws:///a/{OTHER_ID}")

    assert refusal(a_node("worker-1", ADDRESS), old) == ""


def test_a_node_that_names_its_instance_may_share_an_address():
    named = a_node("worker-1", ADDRESS, provider_id=f"aws:///us-east-1a/{ID}")

    assert refusal(named, a_node("worker-2", ADDRESS)) == ""


def test_what_node_plugins_say_is_heeded():
    node, other = a_node("worker-1", ADDRESS), a_node("worker-2")

    assert refusal(node, other, registered={"worker-1": ID, "worker-2": OTHER_ID}) == ""
    assert f"is registered as {OTHER_ID}" in refusal(node, other, registered={"worker-1": OTHER_ID})
    assert "is already node worker-2" in refusal(node, other, registered={"worker-2": ID})


@pytest.mark.parametrize(
    "name",
    ["*.*", "ip-?.internal", "a." * 300 + "a", f"{'a' * 64}.b", "a b.c", "-a.b", "a..b", "a.b\\"],
)
def test_what_is_no_dns_name_is_not_asked_for(name: str):
    node = a_node("worker-1", ("InternalDNS", name), ADDRESS)

    assert rules.question(node) == Question(addresses=(ADDRESS[1],))


def test_a_node_of_many_names_or_addresses_is_not_asked_for():
    names = [("Hostname", f"a{number}.internal") for number in range(MOST_NAMES + 1)]
    addresses = [("InternalIP", f"10.0.0.{number}") for number in range(MOST_ADDRESSES + 1)]

    for many in (names, addresses):
        refused = rules.question(a_node("worker-1", *many))
        assert isinstance(refused, Refusal)
        assert "--provider-id=" in refused.message
        assert isinstance(rules.question(a_node("worker-1", *many[:-1])), Question)


def test_an_instance_id_without_end_is_none():
    refused = rules.question(a_node("worker-1", provider_id="aws:///a/i-" + "0" * 1000))

    assert isinstance(refused, Refusal)


@given(st.lists(st.text(max_size=300), max_size=6), st.text(max_size=300))
def test_whatever_a_node_claims_a_filter_can_have_it(names: list[str], node_name: str):
    asked = rules.question(a_node(node_name, *(("InternalDNS", name) for name in names)))

    if isinstance(asked, Question):
        assert all(len(each) <= 255 and each.isascii() for each in asked.names)
        assert not any(set(each) & set("*?\\ ") for each in asked.names)
