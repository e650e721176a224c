"""Classes of others are left to them: uninstalling what has a class deletes it."""

import re
from typing import Any

import pytest
import yaml

from tests.chart.api_server import refused
from tests.chart.helm import CHART_FOLDER, NAMESPACE, built, helm, rendered
from tests.documents import section

Json = dict[str, Any]
pytestmark = built

CLASSES: Json = {
    "storageClasses": [{"name": "fast"}],
    "defaultStorageClass": {"enabled": True},
    "volumeSnapshotClasses": [{"name": "ebs", "deletionPolicy": "Delete"}],
}
NONE = (
    *("--set", "storageClasses=null,volumeSnapshotClasses=null"),
    *("--set", "defaultStorageClass.enabled=false"),
)
"""As docs/install-helm.md has it."""


def of(release: str, namespace: str, kind: str, name: str, **annotations: str) -> Json:
    """A class that this release has made."""
    group = "snapshot.storage.k8s.io" if kind == "VolumeSnapshotClass" else "storage.k8s.io"
    owner = {
        "meta.helm.sh/release-name": release,
        "meta.helm.sh/release-namespace": namespace,
    }
    metadata = {"name": name, "annotations": owner | annotations}
    return {"apiVersion": f"{group}/v1", "kind": kind, "metadata": metadata}


def of_stock(kind: str, name: str, **annotations: str) -> Json:
    return of("stock", "kube-system", kind, name, **annotations)


@pytest.mark.parametrize(
    ("kind", "name", "instead"),
    [
        ("StorageClass", "fast", "leave it out of storageClasses"),
        ("StorageClass", "ebs-csi-default-sc", "set defaultStorageClass.enabled=false"),
        ("VolumeSnapshotClass", "ebs", "leave it out of volumeSnapshotClasses"),
    ],
)
def test_a_class_of_another_release_is_kept_first_since_leaving_it_out_may_delete_it(
    kind: str, name: str, instead: str
):
    [sentence] = refused(CLASSES, of_stock(kind, name))

    assert sentence == (
        f"{kind} {name} belongs to the release stock in namespace kube-system: have it kept "
        f"(kubectl annotate {kind.lower()} {name} helm.sh/resource-policy=keep), then {instead}, "
        "or hand it over (docs/install-helm.md)"
    )


def test_the_driver_object_of_another_release_is_kept_first_too():
    stock = {
        "meta.helm.sh/release-name": "stock",
        "meta.helm.sh/release-namespace": "kube-system",
    }
    driver = {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver"}
    [sentence] = refused(
        {}, driver | {"metadata": {"name": "ebs.csi.aws.com", "annotations": stock}}
    )

    assert sentence == (
        "the CSIDriver ebs.csi.aws.com belongs to the release stock in namespace kube-system: have "
        "it kept (kubectl annotate csidriver ebs.csi.aws.com helm.sh/resource-policy=keep), then "
        "set csiDriver.create=false, or hand it over (docs/install-helm.md)"
    )


def test_what_was_handed_over_is_no_longer_kept_and_can_be_taken_out_again():
    """Helm looks at the annotation of the object itself, whoever has written it."""
    steps = section("install-helm", "Change over from aws-ebs-csi-driver")
    (step,) = re.findall(r"^4\. .*--take-ownership.*$", steps, re.MULTILINE)

    assert "helm.sh/resource-policy-`, and the same for each class" in step


def test_a_class_that_is_to_be_taken_over_is_accepted():
    kept = of_stock("StorageClass", "fast", **{"helm.sh/resource-policy": "keep"})

    assert refused(CLASSES, kept) == []


def test_other_classes_of_that_release_and_our_own_are_accepted():
    ours = of("ebs-provisioner", NAMESPACE, "StorageClass", "fast")

    assert refused(CLASSES, ours, of_stock("StorageClass", "slow")) == []


def test_a_release_without_classes_asks_for_none():
    assert refused(CLASSES | {"nodeComponentOnly": True}, of_stock("StorageClass", "fast")) == []


def test_where_there_are_no_snapshot_classes_none_is_looked_for():
    [sentence] = refused(CLASSES, without="snapshot.storage.k8s.io/v1")

    assert sentence.startswith("volumeSnapshotClasses: this cluster has no VolumeSnapshotClass")


def test_a_values_file_may_take_back_that_only_the_node_plugin_is_installed():
    values = CLASSES | {"nodeComponentOnly": None}

    [sentence] = refused(values, of_stock("StorageClass", "fast"))

    assert sentence.startswith("StorageClass fast belongs to the release stock")


def test_all_classes_of_a_values_file_can_be_left_out_for_a_time():
    code, output, errors = helm(
        *("template", "ebs-provisioner", str(CHART_FOLDER), "--namespace", NAMESPACE),
        *("--api-versions=snapshot.storage.k8s.io/v1", "--values", "-", *NONE),
        text=yaml.safe_dump(CLASSES),
    )

    assert code == 0, errors
    kinds = {each["kind"] for each in yaml.safe_load_all(output) if each}
    assert "Deployment" in kinds
    assert kinds & {"StorageClass", "VolumeSnapshotClass"} == set()


def test_the_stock_charts_default_class_may_be_the_only_one():
    objects = rendered({"storageClasses": None, "defaultStorageClass": {"enabled": True}})

    classes = [each["metadata"]["name"] for each in objects if each["kind"] == "StorageClass"]
    assert classes == ["ebs-csi-default-sc"]
