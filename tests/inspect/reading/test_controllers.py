"""Under which cluster id controllers run, as our manifests, the chart, and the stock chart say it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from provisioner.inspect.reading import controller_rules
from provisioner.inspect.reading.cluster import Cluster
from provisioner.inspect.reading.controllers import cluster_id_of
from provisioner.inspect.reading.setup_kind_rules import DataObject, Workload
from provisioner.model.errors import KubeError, Reason
from tests.chart import helm
from tests.chart.helm import MANIFESTS
from tests.documents import yaml_documents

VARIABLE = "EBS_PROVISIONER_CONTROLLER_CLUSTER_ID"
OPTIONS = {"configMapRef": {"name": "options"}}


def workload(name: str = "x", labels: dict[str, str] | None = None, **container: Any) -> Workload:
    raw = {
        "metadata": {"name": name, "namespace": "ebs", "labels": labels or {}},
        "spec": {"template": {"spec": {"containers": [{"name": "liveness"}, container]}}},
    }
    return msgspec.convert(raw, Workload)


def maps(**data: str) -> dict[str, DataObject]:
    return {"options": DataObject(data=data)}


class Api:
    """Answers with these ConfigMaps; the others are forbidden."""

    def __init__(self, **found: DataObject) -> None:
        self._found = found

    async def get(self, _: object, name: str, namespace: str) -> DataObject:
        assert namespace == "ebs-provisioner"
        if name in self._found:
            return self._found[name]
        raise KubeError(Reason.FORBIDDEN, "configmaps is forbidden", status=403)


def cluster(**found: DataObject) -> Cluster:
    return Cluster(Api(**found))  # type: ignore[arg-type]


def ours(objects: list[dict[str, Any]]) -> list[Workload]:
    """The controllers among all Deployments."""
    raw = [each for each in objects if each["kind"] == "Deployment"]
    return controller_rules.controllers(msgspec.convert(raw, list[Workload], strict=False))


async def test_the_manifests_controller_runs_with_the_id_of_its_config_map():
    objects: list[dict[str, Any]] = []
    for path in ("deployment.yaml", "webhook/deployment.yaml"):
        objects += [each for each in yaml_documents((MANIFESTS / path).read_text()) if each]
    (controller,) = ours(objects)
    name = "ebs-provisioner-controller"

    options = DataObject(data={VARIABLE: "prod"})
    assert await cluster_id_of(cluster(**{name: options}), controller) == "prod"
    assert await cluster_id_of(cluster(**{name: DataObject(data={VARIABLE: ""})}), controller) == ""
    assert await cluster_id_of(cluster(), controller) is None


@helm.built
async def test_the_charts_controller_runs_with_the_id_of_its_values():
    objects = helm.rendered({"controller": {"k8sTagClusterId": "prod"}})
    (controller,) = ours(objects)
    found = {
        each["metadata"]["name"]: DataObject(data=each["data"])
        for each in objects
        if each["kind"] == "ConfigMap"
    }

    assert await cluster_id_of(cluster(**found), controller) == "prod"
    assert await cluster_id_of(cluster(), controller) is None


@pytest.mark.parametrize(
    ("container", "found", "cluster_id"),
    [
        ({"args": ["controller", "--cluster-id=a"]}, {}, "a"),
        ({"args": ["--cluster-id", "a"]}, {}, "a"),
        ({"command": ["x", "--k8s-tag-cluster-id=a"]}, {}, "a"),
        ({"args": ["--cluster-id=a", "--cluster-id=b"]}, {}, "b"),
        ({"args": ["--cluster-id", "--x"]}, {}, ""),
        ({"args": ["controller"]}, {}, ""),
        ({"args": ["--cluster-id=$(C)-1"], "env": [{"name": "C", "value": "a"}]}, {}, "a-1"),
        ({"args": ["--cluster-id=$(C)"]}, {}, None),
        ({"env": [{"name": VARIABLE, "value": "a"}], "envFrom": [OPTIONS]}, {VARIABLE: "b"}, "a"),
        ({"envFrom": [OPTIONS]}, {VARIABLE: "b"}, "b"),
        ({"envFrom": [OPTIONS | {"prefix": "EBS_"}]}, {VARIABLE.removeprefix("EBS_"): "b"}, "b"),
        ({"envFrom": [OPTIONS]}, {}, ""),
        ({"envFrom": [{"configMapRef": {"name": "unread"}}, OPTIONS]}, {VARIABLE: "b"}, "b"),
        ({"envFrom": [{"configMapRef": {"name": "unread"}}, OPTIONS]}, {}, None),
        ({"envFrom": [{"secretRef": {"name": "s"}}]}, {}, None),
        (
            {
                "env": [
                    {
                        "name": VARIABLE,
                        "valueFrom": {"configMapKeyRef": {"name": "options", "key": "id"}},
                    }
                ]
            },
            {"id": "c"},
            "c",
        ),
        (
            {
                "env": [
                    {"name": VARIABLE, "valueFrom": {"secretKeyRef": {"name": "s", "key": "id"}}}
                ]
            },
            {},
            None,
        ),
    ],
)
def test_an_id_comes_from_an_argument_a_variable_or_a_config_map(
    container: dict[str, Any], found: dict[str, str], cluster_id: str | None
):
    assert controller_rules.cluster_id_of(workload(**container), maps(**found)) == cluster_id


@pytest.mark.parametrize(
    ("container", "found", "region"),
    [
        ({"args": ["controller", "--region=eu-west-1"]}, {}, "eu-west-1"),
        ({"env": [{"name": "AWS_REGION", "value": "eu-west-1"}]}, {}, "eu-west-1"),
        (
            {"env": [{"name": "AWS_REGION", "value": "eu-west-1"}], "envFrom": [OPTIONS]},
            {"EBS_PROVISIONER_CONTROLLER_REGION": "us-east-1"},
            "us-east-1",
        ),
        ({"env": [{"name": "AWS_REGION"}, {"name": "AWS_DEFAULT_REGION", "value": "a"}]}, {}, "a"),
        ({}, {}, ""),
        ({"envFrom": [{"secretRef": {"name": "s"}}]}, {}, None),
    ],
)
def test_a_region_comes_from_an_argument_our_variable_or_one_of_awss(
    container: dict[str, Any], found: dict[str, str], region: str | None
):
    assert controller_rules.region_of(workload(**container), maps(**found)) == region


@pytest.mark.parametrize(
    "controller",
    [
        workload("ebs-provisioner-controller"),
        workload("ebs-provisioner"),
        workload(
            labels={
                "app.kubernetes.io/name": "ebs-provisioner",
                "app.kubernetes.io/component": "controller",
            }
        ),
        workload("ebs-csi-controller"),
        workload("my-ebs", {"app.kubernetes.io/name": "aws-ebs-csi-driver"}),
        workload("aws-ebs-csi-driver-controller", args=["--k8s-tag-cluster-id=a"]),
        workload(env=[{"name": VARIABLE, "value": "a"}]),
    ],
)
def test_a_controller_is_known_by_its_labels_its_name_or_its_options(controller: Workload):
    others = [
        workload("autoscaler", args=["--cluster-id=a"]),
        workload(
            "ebs-provisioner-webhook",
            {
                "app.kubernetes.io/name": "ebs-provisioner",
                "app.kubernetes.io/component": "webhook",
            },
        ),
    ]

    assert controller_rules.controllers([*others, controller]) == [controller]


OURS = {"app.kubernetes.io/name": "ebs-provisioner", "app.kubernetes.io/component": "controller"}
STOCK = {"app.kubernetes.io/name": "aws-ebs-csi-driver"}


def off(found: Workload) -> Workload:
    return msgspec.structs.replace(found, spec=msgspec.structs.replace(found.spec, replicas=0))


@pytest.mark.parametrize(
    ("workloads", "holders", "name"),
    [
        ([], ["ebs-provisioner_x-1_2"], None),
        ([workload("shop")], [], None),
        ([workload("shop"), workload("storage")], ["ebs-provisioner_storage-7d9-x2x_1"], "storage"),
        ([workload("a"), workload("a-b")], ["ebs-provisioner_a-b-7d9-x2x_1"], "a-b"),
        ([workload("ours", OURS), workload("stock", STOCK)], ["stock-7d9-x2x"], "stock"),
        ([workload("stock", STOCK), workload("ours", OURS)], [""], "ours"),
        ([workload("stock", STOCK), off(workload("ours", OURS))], [], "stock"),
    ],
)
def test_the_controller_at_work_holds_the_lease_or_is_switched_on(
    workloads: list[Workload], holders: list[str], name: str | None
):
    found = controller_rules.at_work(workloads, holders)

    assert (found.name if found is not None else None) == name
