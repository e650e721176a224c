"""Whether a node of the new zone could run the pods of a claim that is moved."""

from typing import Any

import msgspec
import pytest

from provisioner.controller.moving.together import place_rules
from provisioner.model.node import Node
from provisioner.model.pod import Pod
from tests.builders import DRIVER, ZONE, a_csi_node, a_node

THERE = "us-east-1b"
GPU: dict[str, Any] = {"nodeSelector": {"disk": "gpu"}}


def a_pod(name: str = "web-0", **spec: Any) -> Pod:
    return msgspec.convert({"metadata": {"name": name, "namespace": "shop"}, "spec": spec}, Pod)


def tainted(name: str, *taints: dict[str, str]) -> Node:
    body = msgspec.to_builtins(a_node(name, zone=THERE)) | {"spec": {"taints": list(taints)}}
    return msgspec.convert(body, Node)


def notes(pods: list[Pod], *nodes: Node) -> list[str]:
    found = [(each, a_csi_node(each.name)) for each in nodes]
    return place_rules.notes(pods, found, THERE, DRIVER)


def test_a_pod_that_a_node_there_could_run_is_not_named_wherever_it_runs_now():
    running = a_pod(nodeName="here")

    assert notes([running], a_node("here", zone=ZONE), a_node("there", zone=THERE)) == []


def test_a_node_selector_that_no_node_there_has_is_named():
    (note,) = notes(
        [a_pod(**GPU)],
        a_node("here", zone=ZONE, labels={"disk": "gpu"}),
        a_node("there", zone=THERE),
    )

    assert note == (
        f"no node in zone {THERE} could run pod web-0 now: nodeSelector or required affinity of "
        "pod shop/web-0 excludes node there"
    )


def test_one_node_of_many_is_enough():
    nodes = a_node("a", zone=THERE), a_node("b", zone=THERE, labels={"disk": "gpu"})

    assert notes([a_pod(**GPU)], *nodes) == []


def test_a_taint_that_pods_do_not_tolerate_is_named_once_for_all_of_them():
    node = tainted("there", {"key": "dedicated", "effect": "NoSchedule"})
    tolerant = a_pod("web-2", tolerations=[{"key": "dedicated", "operator": "Exists"}])

    (note,) = notes([a_pod(), a_pod("web-1"), tolerant], node)

    assert "could run pods web-0 and web-1 now: node there has taint dedicated" in note


@pytest.mark.parametrize("pods", [[], [a_pod()]])
def test_without_pods_nothing_is_said_and_without_the_driver_that_it_runs_nowhere(pods: list[Pod]):
    said = place_rules.notes(pods, [(a_node("a", zone=THERE), None)], THERE, DRIVER)

    assert len(said) == len(pods)
    assert all(f"driver {DRIVER} runs on none" in each for each in said)
