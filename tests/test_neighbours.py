"""What other programs of a cluster rely on, held over our manifests and constants.

docs/neighbours.md names the versions, and the files in which each of it was read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from provisioner.controller.nodes import startup_taint_rules
from provisioner.controller.provisioning import persistent_volume_rules
from provisioner.model.driver import EBS_DRIVER
from provisioner.model.zone import EBS_ZONE_LABEL, ZONE_LABEL
from tests.builders import a_volume
from tests.documents import yaml_documents

ROOT = Path(__file__).parents[1]
MANIFESTS = ROOT / "manifests"
PAGE = (ROOT / "docs" / "neighbours.md").read_text()

Json = dict[str, Any]

# Argo CD 3 applies none of these unless its ``resource.exclusions`` are changed: v3.5.1
# manifests/base/config/argocd-cm.yaml (read 2026-11-23). Of Kubernetes' own kinds only.
NOT_APPLIED_BY_ARGO_CD = {
    *("Endpoints", "EndpointSlice", "Lease", "CertificateSigningRequest"),
    *("TokenReview", "SelfSubjectReview", "SelfSubjectRulesReview"),
    *("SubjectAccessReview", "LocalSubjectAccessReview", "SelfSubjectAccessReview"),
}
# What a node group without nodes is taken to have: Cluster Autoscaler 1.36.1
# cloudprovider/aws/aws_manager.go, buildGenericLabels (read 2026-11-23).
LABELS_OF_A_TEMPLATE = {
    *("kubernetes.io/arch", "kubernetes.io/os", "kubernetes.io/hostname"),
    *("node.kubernetes.io/instance-type", "topology.kubernetes.io/region"),
    *("topology.kubernetes.io/zone", "topology.ebs.csi.aws.com/zone"),
}


def objects(*kinds: str) -> Iterator[tuple[str, Json]]:
    for path in sorted(MANIFESTS.rglob("*.yaml")):
        if "templates" in path.parts:  # of the chart: no YAML yet
            continue
        for each in yaml_documents(path.read_text()):
            if isinstance(each, dict) and (not kinds or each.get("kind") in kinds):
                yield str(path.relative_to(MANIFESTS)), each


def workloads(kind: str) -> list[Json]:
    """Those that are whole, not patches of a component."""
    return [each for _, each in objects(kind) if "selector" in each["spec"]]


# -- Argo CD


def test_argo_cd_applies_every_kind_of_our_manifests():
    assert {(path, each.get("kind")) for path, each in objects(*NOT_APPLIED_BY_ARGO_CD)} == set()


def test_what_argo_cd_must_not_prune_or_empty_is_marked():
    [secret] = [each for _, each in objects("Secret")]

    assert secret["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert "data" not in secret
    assert "stringData" not in secret


# -- Cluster Autoscaler and Karpenter


@pytest.mark.parametrize("deployment", workloads("Deployment"), ids=lambda d: d["metadata"]["name"])
def test_our_pods_do_not_keep_a_node_from_being_scaled_down(deployment: Json):
    pod = deployment["spec"]["template"]
    budgets = [
        each
        for _, each in objects("PodDisruptionBudget")
        if each["spec"]["selector"] == deployment["spec"]["selector"]
    ]

    # Pods of kube-system, and pods with a local volume, keep their node.
    assert deployment["metadata"]["namespace"] != "kube-system"
    assert [
        volume
        for volume in pod["spec"].get("volumes", ())
        if {"emptyDir", "hostPath"} & volume.keys()
    ] == []
    assert "safe-to-evict" not in str(pod["metadata"])
    assert "do-not-disrupt" not in str(pod["metadata"])
    assert [budget["spec"]["maxUnavailable"] for budget in budgets] == [1]
    assert deployment["spec"]["replicas"] > 1


@pytest.mark.parametrize(
    "workload",
    [*workloads("Deployment"), *workloads("DaemonSet")],
    ids=lambda each: each["metadata"]["name"],
)
def test_our_pods_fit_on_the_node_that_is_imagined_before_it_exists(workload: Json):
    pod = workload["spec"]["template"]["spec"]
    required = (
        pod.get("affinity", {})
        .get("nodeAffinity", {})
        .get("requiredDuringSchedulingIgnoredDuringExecution", {})
        .get("nodeSelectorTerms", [])
    )

    assert pod.get("nodeSelector", {}).keys() <= LABELS_OF_A_TEMPLATE
    for expression in (each for term in required for each in term["matchExpressions"]):
        # A label that the imagined node lacks may only be one that keeps away.
        assert expression["key"] in LABELS_OF_A_TEMPLATE or expression["operator"] == "NotIn"
    key = startup_taint_rules.taint_key(EBS_DRIVER)
    assert any(
        each.get("operator") == "Exists" and each.get("key", key) == key and "effect" not in each
        for each in pod["tolerations"]
    )


def test_a_volume_is_pinned_by_one_term_of_one_label_that_both_autoscalers_know():
    affinity = persistent_volume_rules.zone_affinity(a_volume())
    [term] = affinity["required"]["nodeSelectorTerms"]  # Karpenter before 1.13 read the first only
    [expression] = term["matchExpressions"]

    assert term.keys() == {"matchExpressions"}
    assert (expression["key"], expression["operator"]) == (ZONE_LABEL, "In")
    assert {ZONE_LABEL, EBS_ZONE_LABEL} <= LABELS_OF_A_TEMPLATE


# -- the page


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(test_[a-z0-9_]+)`", PAGE))))
def test_each_test_that_the_page_names_exists(name: str):
    files = (ROOT / "tests").rglob("test_*.py")

    assert any(f"def {name}(" in path.read_text() for path in files)
