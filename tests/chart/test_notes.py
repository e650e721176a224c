"""What Helm says after an install: the next commands, and what is missing."""

from typing import Any

import pytest
import yaml

from tests.chart.helm import CHART_FOLDER, NAMESPACE, built, helm

Json = dict[str, Any]
pytestmark = built

COMPLETE: Json = {
    "controller": {"k8sTagClusterId": "production", "region": "eu-central-1"},
    "image": {"repository": "registry.example/ebs-provisioner"},
}
MISSING: dict[str, tuple[Json, str]] = {
    "a cluster's id": (
        {"image": COMPLETE["image"], "controller": {"region": "eu-central-1"}},
        "controller.k8sTagClusterId is empty: volumes are not tagged as this cluster's, and orphans are not looked for.",
    ),
    "a region": (
        {"image": COMPLETE["image"], "controller": {"k8sTagClusterId": "production"}},
        "controller.region is empty: the region is found from the Nodes, then from the instance's metadata.",
    ),
    "a registry": (
        {"controller": COMPLETE["controller"], "image": {"tag": "1.2.3"}},
        "The image ebs-provisioner:1.2.3 names no registry: it must be on every node already, or set image.repository.",
    ),
    "a node plugin for Windows": (
        {**COMPLETE, "node": {"enableWindows": True}},
        "node.enableWindows means nothing here: there is no node plugin for Windows.",
    ),
}


def notes(values: Json) -> str:
    """What Helm says after an install."""
    code, output, errors = helm(
        *("install", "ebs-provisioner", str(CHART_FOLDER), "--namespace", NAMESPACE),
        *("--dry-run=client", "--values", "-"),
        text=yaml.safe_dump(values),
    )
    assert code == 0, errors
    return output.partition("NOTES:")[2]


@pytest.mark.parametrize("name", MISSING)
def test_what_is_missing_is_one_sentence(name: str):
    values, sentence = MISSING[name]

    assert sentence in notes(values)


def test_where_nothing_is_missing_nothing_is_said_of_it():
    said = notes(COMPLETE)

    assert "rollout status" in said
    for _, sentence in MISSING.values():
        assert sentence.partition(":")[0] not in said


def test_the_notes_have_no_namespace_restricted_that_privileged_pods_are_in():
    assert "pod-security.kubernetes.io/enforce=restricted" in notes({})

    said = notes({"node": {"namespaceOverride": ""}})

    assert "enforce=restricted" not in said
    assert (
        f"kubectl label namespace {NAMESPACE} pod-security.kubernetes.io/enforce=privileged" in said
    )
