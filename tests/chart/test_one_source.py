"""The chart installs what the kustomizations do, object by object and field by field.

What Helm adds, or names otherwise, is listed in ``plain``; nothing else may differ.
"""

import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.helm import MANIFESTS, built, kustomized, rendered

Json = dict[str, Any]
pytestmark = built

ADDED_LABELS = (
    *("app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by"),
    "helm.sh/chart",
)
NAME = "app.kubernetes.io/name"
HASHED = re.compile(r"-[bcdfghkmt2456789]{10}$")
"""What kustomize appends to the name of a generated ConfigMap."""

# Values, and the folders of resources and components that they stand for.
SAME: dict[str, tuple[Json, list[str], list[str]]] = {
    "default": ({}, [".", "node"], []),
    "controller alone": ({"node": {"enableLinux": False}}, ["."], []),
    "node plugin alone": ({"nodeComponentOnly": True}, ["node"], []),
    "classes of your own": (
        {"storageClasses": None},
        [".", "node"],
        ["no-storage-classes"],
    ),
    "webhook": ({"webhook": {"enabled": True}}, [".", "node", "webhook"], []),
    "zone guard": (
        {"webhook": {"enabled": True, "zoneGuard": True}},
        [".", "node", "webhook-zone-guard"],
        [],
    ),
    "caller token": (
        {"webhook": {"enabled": True, "callerTokenSecret": "ebs-webhook-caller"}},
        [".", "node", "webhook"],
        ["webhook-caller-token"],
    ),
    "webhook on the host's network": (
        {"webhook": {"enabled": True, "hostNetwork": True}},
        [".", "node", "webhook"],
        ["webhook-host-network"],
    ),
    "allocatable": (
        {"nodeAllocatableUpdatePeriodSeconds": 60},
        [".", "node"],
        ["driver-allocatable"],
    ),
    "SELinux": ({"node": {"selinux": True}}, [".", "node"], ["driver-selinux-mount"]),
    "host's network": ({"node": {"hostNetwork": True}}, [".", "node"], ["node-host-network"]),
    "microk8s": (
        {"node": {"kubeletPath": "/var/snap/microk8s/common/var/lib/kubelet"}},
        [".", "node"],
        ["node-kubelet-root"],
    ),
    "nodes without a cloud controller": (
        {
            "controller": {"initializeNodes": True, "k8sTagClusterId": "production"},
            "webhook": {"enabled": True},
        },
        [".", "node", "webhook"],
        ["initialize-nodes"],
    ),
    "dead nodes": (
        {"controller": {"releaseDeadNodes": True}},
        [".", "node"],
        ["release-dead-nodes"],
    ),
    "moves": ({"controller": {"volumeMoves": True}}, [".", "node"], ["volume-moves"]),
    "moves with the webhook": (
        {"controller": {"volumeMoves": True}, "webhook": {"enabled": True, "hostNetwork": True}},
        [".", "node", "webhook"],
        ["volume-moves", "webhook-volume-moves", "webhook-host-network"],
    ),
    "alerts and dashboard": (
        {
            "prometheusRule": {"enabled": True},
            "grafanaDashboard": {"enabled": True},
            **{name: {"enableMetrics": True} for name in ("controller", "node")},
            "webhook": {"enabled": True, "enableMetrics": True},
        },
        [".", "node", "webhook", "monitoring"],
        [],
    ),
    "no inline volumes": ({"noInlineVolumes": True}, [".", "node", "no-inline-volumes"], []),
}


def plain(each: Json) -> Json:
    """The object without what Helm or kustomize adds to it by themselves."""
    metadata = dict(each["metadata"])
    labels = {k: v for k, v in metadata.pop("labels", {}).items() if k not in ADDED_LABELS}
    # The kustomizations label workloads only.
    labels.pop(NAME, None)
    if each["kind"] == "Namespace":
        # Only Helm deletes by itself what it no longer finds in a chart.
        annotations = dict(metadata.pop("annotations", {}))
        assert annotations.pop("helm.sh/resource-policy", "keep") == "keep"
        metadata |= {"annotations": annotations} if annotations else {}
    if each["kind"] == "ConfigMap":
        metadata["name"] = HASHED.sub("", metadata["name"])
    if "webhooks" in each:  # kustomize puts one that it has patched first
        each = {**each, "webhooks": {one["name"]: one for one in each["webhooks"]}}
    found = {**each, "metadata": metadata | ({"labels": labels} if labels else {})}
    template = found.get("spec", {}).get("template")
    return (
        {**found, "spec": {**found["spec"], "template": plain_pod(template)}} if template else found
    )


def plain_pod(template: Json) -> Json:
    """The pod without the hash of its options; variables and volumes have names, and no order."""
    metadata = dict(template["metadata"])
    annotations = dict(metadata.pop("annotations", {}))
    annotations.pop("checksum/config", None)
    [container] = template["spec"]["containers"]
    own = dict(container)
    own["env"] = {each["name"]: each for each in own["env"]}
    own["volumeMounts"] = {each["mountPath"]: each for each in own.get("volumeMounts", ())}
    own["envFrom"] = [HASHED.sub("", each["configMapRef"]["name"]) for each in own["envFrom"]]
    spec = {**template["spec"], "containers": [own]}
    spec["volumes"] = {each["name"]: each for each in spec.get("volumes", ())}
    return {
        "metadata": metadata | ({"annotations": annotations} if annotations else {}),
        "spec": spec,
    }


def by_name(objects: list[Json]) -> dict[tuple[str, str, str], Json]:
    found = [plain(each) for each in objects]
    keys = [
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"])
        for each in found
    ]
    assert len(set(keys)) == len(keys), "two objects of one name"
    return dict(zip(keys, found, strict=True))


def of_kustomizations(objects: list[Json]) -> list[Json]:
    """Without what only the chart has: its test, and the headless Services for Prometheus."""
    return [
        each
        for each in objects
        if "helm.sh/hook" not in each["metadata"].get("annotations", {})
        and (each["kind"] != "Service" or each["spec"].get("clusterIP") != "None")
    ]


@pytest.mark.parametrize("name", SAME)
def test_values_install_what_the_kustomization_does(name: str, tmp_path: Path):
    values, resources, components = SAME[name]
    folder = tmp_path / "mine"
    folder.mkdir()
    mine: Json = {
        "resources": [os.path.relpath(MANIFESTS / each, folder) for each in resources],
        "components": [os.path.relpath(MANIFESTS / each, folder) for each in components],
    }
    if "k8sTagClusterId" in values.get("controller", {}):
        mine["configMapGenerator"] = [
            {
                "name": "ebs-provisioner-controller",
                "namespace": "ebs-provisioner",
                "behavior": "merge",
                "literals": ["EBS_PROVISIONER_CONTROLLER_CLUSTER_ID=production"],
            }
        ]
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(mine))
    wanted = by_name(kustomized(folder))
    # Helm's own command makes it: --create-namespace.
    wanted.pop(("Namespace", "", "ebs-provisioner"), None)

    ours = by_name(of_kustomizations(rendered(values)))

    assert ours.keys() == wanted.keys()
    for key, each in wanted.items():
        assert ours[key] == each, key
