"""What values that are not plain make of the objects: names, numbers, labels, versions."""

from typing import Any

import pytest

from tests.chart.helm import (
    built,
    merged,
    one,
    rendered,
)

Json = dict[str, Any]
pytestmark = built


def test_numbers_in_tags_are_written_as_they_were():
    tags = {"account": 111122223333, "cost-center": 1234567, "share": 0.5, "kept": True}

    objects = rendered({"controller": {"extraVolumeTags": tags}})

    options = one(objects, "ConfigMap", "ebs-provisioner-controller")["data"]
    assert options["EBS_PROVISIONER_CONTROLLER_EXTRA_TAGS"] == (
        "account=111122223333,cost-center=1234567,kept=true,share=0.5"
    )


def test_names_that_yaml_reads_as_numbers_stay_names():
    account = {"serviceAccount": {"name": "789"}}
    values = {
        "controller": {**account, "enableMetrics": True, "leaderElectionNamespace": "12"},
        "node": {**account, "namespaceOverride": "456", "kubeletPath": "/a, b: {c}"},
        "webhook": {"serviceAccount": {"name": "790"}, "enabled": True},
        "awsAccessSecret": {"name": "77", "keyId": "1", "accessKey": "2"},
        "storageClasses": [{"name": "1"}],
    }

    objects = rendered(values, namespace="123", kinds=("monitoring.coreos.com/v1/ServiceMonitor",))

    assert {each["metadata"].get("namespace", "") for each in objects} >= {"123", "456", "12"}
    assert no_text(objects, "name", "namespace", "serviceAccountName", "key", "path") == []
    assert "/a, b: {c}" in repr(one(objects, "DaemonSet", "ebs-provisioner-node"))


def no_text(value: Any, *keys: str) -> list[Any]:
    """What these keys hold anywhere and is no text."""
    if isinstance(value, list):
        return [found for each in value for found in no_text(each, *keys)]
    if not isinstance(value, dict):
        return []
    own = [value[key] for key in keys if not isinstance(value.get(key, ""), str)]
    return own + [found for each in value.values() for found in no_text(each, *keys)]


def test_a_pods_own_label_is_put_over_that_of_all():
    labels = {"customLabels": {"team": "a"}, "node": {"podLabels": {"team": "b"}}}

    pods = one(rendered(labels), "DaemonSet", "ebs-provisioner-node")["spec"]["template"]

    assert pods["metadata"]["labels"]["team"] == "b"


def test_helms_test_uses_a_class_that_leaves_no_volume():
    kept = {"name": "kept", "reclaimPolicy": "Retain"}

    def used(*classes: Json) -> str | None:
        objects = rendered({"storageClasses": [*classes]})
        claim = one(objects, "PersistentVolumeClaim", "ebs-provisioner-test")
        found: str | None = claim["spec"].get("storageClassName")
        return found

    assert used(kept, {"name": "fast"}) == "fast"
    assert used(kept) is None


@pytest.mark.parametrize("created", [True, False], ids=["created", "left"])
def test_a_namespace_is_kept_when_helm_no_longer_renders_it(*, created: bool):
    """It may hold what others have put there since; Helm would delete all of it."""
    values = {
        "node": {"createNamespace": created},
        "webhook": {
            "enabled": True,
            "hostNetwork": True,
            "namespaceOverride": "" if created else "ebs-webhook",
        },
    }

    namespaces = [each["metadata"] for each in rendered(values) if each["kind"] == "Namespace"]

    names = {each["name"] for each in namespaces}
    assert names == ({"ebs-provisioner-node", "ebs-webhook"} if created else set())
    for each in namespaces:
        assert each["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_another_strategy_has_no_steps_of_a_rolling_update():
    objects = rendered(
        {
            "controller": {"updateStrategy": {"type": "Recreate"}},
            "node": {"updateStrategy": {"type": "OnDelete"}},
        }
    )

    controllers = one(objects, "Deployment", "ebs-provisioner-controller")["spec"]
    nodes = one(objects, "DaemonSet", "ebs-provisioner-node")["spec"]
    assert controllers["strategy"] == {"type": "Recreate"}
    assert nodes["updateStrategy"] == {"type": "OnDelete"}


def test_no_alert_is_about_a_component_that_is_not_installed():
    def groups(values: Json) -> set[str]:
        metrics = {name: {"enableMetrics": True} for name in ("controller", "node", "webhook")}
        values = merged(metrics, {"prometheusRule": {"enabled": True}}, values)
        rules = one(rendered(values), "PrometheusRule", "ebs-provisioner")["spec"]["groups"]
        return {each["name"].removeprefix("ebs-provisioner-") for each in rules}

    names = {"stock-names", "sidecar-names"}
    assert groups({}) == {"controller", "node", *names}
    assert groups({"nodeComponentOnly": True}) == {"node", *names}
    assert groups({"node": {"enableLinux": False}, "webhook": {"enabled": True}}) == {
        *("controller", "webhook"),
        *names,
    }


def test_the_nodes_metadata_are_left_alone_if_only_kubernetes_is_asked():
    objects = rendered({"node": {"metadataSources": "kubernetes"}})

    options = one(objects, "ConfigMap", "ebs-provisioner-node")["data"]
    assert options["AWS_EC2_METADATA_DISABLED"] == "true"


def test_the_period_is_left_to_kubernetes_that_know_it():
    def period(version: str, wanted: int = -1) -> int | None:
        values = {"nodeAllocatableUpdatePeriodSeconds": wanted}
        driver = one(rendered(values, kubernetes=version), "CSIDriver", "ebs.csi.aws.com")
        found: int | None = driver["spec"].get("nodeAllocatableUpdatePeriodSeconds")
        return found

    assert [period("1.33.0"), period("1.34.0"), period("1.36.3")] == [None, 60, 60]
    assert period("1.36.3", 0) is None
