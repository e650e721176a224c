"""The chart, installed by Helm through a real API server; KWOK pretends to run its pods."""

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from provisioner.model.driver import EBS_DRIVER
from provisioner.sandbox.installation import MANIFESTS
from provisioner.sandbox.up import Sandbox
from tests.chart.helm import CHART_FOLDER, NAMESPACE, built, merged, rendered
from tests.chart.snapshots import EXAMPLES
from tests.chart.stock import BESIDES, besides, keys_that_are, nested, probe
from tests.cluster.background import Background
from tests.cluster.releases import RELEASE, Releases

Json = dict[str, Any]
pytestmark = built

NODES = "ebs-provisioner-node"
WEBHOOKS = "ebs-webhook"
OURS = "--selector=app.kubernetes.io/name=ebs-provisioner"
SERVER_DRY_RUN = "--dry-run=server"


@pytest.fixture(scope="module")
def own() -> Iterator[Sandbox]:
    """A cluster in which nobody has installed anything, without the kinds of snapshots."""
    start = Sandbox.start(
        nodes=3, latency="none", throttle="none", controller=False, snapshots=False
    )
    with Background(start) as running:
        yield running.sandbox


@pytest_asyncio.fixture(loop_scope="module")
async def releases(own: Sandbox, tmp_path: Path) -> AsyncIterator[Releases]:
    """The same with our namespace at the level of Pod Security that it is meant for; no release."""
    running = Releases(own, tmp_path)
    namespace = (MANIFESTS / "namespace.yaml").read_text()
    await running.kubectl("apply", "-f", "-", text=namespace)
    yield running
    await running.helm("uninstall", RELEASE, "-n", NAMESPACE, "--ignore-not-found", "--wait")
    await running.kubectl("delete", "namespaces", NODES, WEBHOOKS, "--ignore-not-found")


VALUES: dict[str, Json] = {
    "default": {},
    "everything": {
        "webhook": {"enabled": True, "zoneGuard": True, "callerTokenSecret": "ebs-webhook-caller"},
        "controller": {
            "k8sTagClusterId": "production",
            "initializeNodes": True,
            "releaseDeadNodes": True,
            "enableMetrics": True,
            "extraVolumeTags": {"team": "storage"},
        },
        "node": {"selinux": True, "enableMetrics": True, "volumeAttachLimit": 20},
        "additionalDaemonSets": {"big": {"nodeSelector": {"size": "big"}}},
        "defaultStorageClass": {"enabled": True},
        "noInlineVolumes": True,
    },
    "host's networks": {
        "webhook": {"enabled": True, "hostNetwork": True},
        "node": {"hostNetwork": True, "kubeletPath": "/data/kubelet"},
    },
    **{
        each.stem: yaml.safe_load(each.read_text())
        for each in sorted(EXAMPLES.glob("*.yaml"))
        # Those need the kinds of others.
        if each.stem not in ("classes", "webhook", "monitoring")
    },
}


async def test_the_api_server_accepts_every_object(releases: Releases):
    there = (NODES, WEBHOOKS)
    made = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": each}} for each in there]
    await releases.kubectl("apply", "-f", "-", text=yaml.safe_dump_all(made))
    version = (await releases.version()).removeprefix("v")
    try:
        for name, values in VALUES.items():
            # Before 1.34 the chart leaves a field out that the API server does not know.
            objects = rendered(values, kubernetes=version)
            answers = await releases.kubectl(
                *("apply", "--server-side", "--validate=strict", SERVER_DRY_RUN),
                *("--output=name", "--filename=-"),
                text=yaml.safe_dump_all(objects),
            )
            assert len(answers.split()) == len(objects) > 20, name
    finally:
        await releases.kubectl("delete", "namespaces", *there)


# What is left out, because of two keys that the chart refuses together.
STOCK_LEFT_OUT = {
    "most": {
        "controller.podDisruptionBudget.minAvailable",
        "node.reservedVolumeAttachments",
    },
    "rest": {
        "controller.podDisruptionBudget.maxUnavailable",
        *("node.volumeAttachLimit", "additionalDaemonSets"),
    },
}
STOCK_ELSEWHERE = {
    # Kinds of others, which this cluster does not know.
    *("volumeSnapshotClasses", "controller.serviceMonitor.forceEnable"),
    "node.serviceMonitor.forceEnable",
    # They leave the most out.
    *("nodeComponentOnly", "node.enableLinux"),
}


def of_the_stock_chart(without: set[str]) -> Json:
    """All keys of the stock chart that are taken, each with a value that is not the default."""
    keys = [key for key in keys_that_are("taken") if key not in STOCK_ELSEWHERE | without]
    assert len(keys) > 100
    return merged(
        *(BESIDES.get(besides(key), {}) for key in keys), *(nested(k, probe(k)) for k in keys)
    )


@pytest.mark.parametrize("name", STOCK_LEFT_OUT)
async def test_the_api_server_accepts_what_the_stock_charts_values_make(
    releases: Releases, name: str
):
    await releases.kubectl("create", "namespace", "probe")
    version = (await releases.version()).removeprefix("v")
    objects = rendered(of_the_stock_chart(STOCK_LEFT_OUT[name]), kubernetes=version)
    try:
        answers = await releases.kubectl(
            *("apply", "--server-side", "--validate=strict", SERVER_DRY_RUN),
            *("--output=name", "--filename=-"),
            text=yaml.safe_dump_all(objects),
        )
    finally:
        await releases.kubectl("delete", "namespace", "probe")
    assert len(answers.split()) == len(objects) > 20


async def test_it_is_installed_upgraded_rolled_back_and_uninstalled(releases: Releases):
    values = {"controller": {"k8sTagClusterId": "production"}}

    notes = await releases.run("install", values, "--wait", "--timeout=100s")

    # The workloads' pods are let in by the levels of both namespaces.
    for kind, namespace in (("deployment", NAMESPACE), ("daemonset", NODES)):
        [workload] = (await releases.get(kind, "-n", namespace))["items"]
        status = workload["status"]
        assert (
            status.get("readyReplicas", status.get("numberReady"))
            == {
                "deployment": 2,
                "daemonset": 3,
            }[kind]
        )
    level = (await releases.get("namespace", NAMESPACE))["metadata"]["labels"]
    assert level["pod-security.kubernetes.io/enforce"] == "restricted"
    assert "rollout status deployment/ebs-provisioner-controller" in notes
    assert f"helm test {RELEASE} -n {NAMESPACE}" in notes
    assert "kubectl label namespace" not in notes

    before = await releases.get("deployment,configmap,clusterrole,csidriver", "-n", NAMESPACE)
    await releases.run("upgrade", values)
    again = await releases.get("deployment,configmap,clusterrole,csidriver", "-n", NAMESPACE)
    assert specs(again) == specs(before)

    with_webhook = {**values, "webhook": {"enabled": True}}
    await releases.run("upgrade", with_webhook, "--wait", "--timeout=100s")
    assert (await releases.get("deployment", "ebs-webhook", "-n", NAMESPACE))["status"]
    code, _, errors = await releases.helm("rollback", RELEASE, "1", "-n", NAMESPACE, "--wait")
    assert code == 0, errors
    left = await releases.get("deployment", "-n", NAMESPACE)
    assert [each["metadata"]["name"] for each in left["items"]] == ["ebs-provisioner-controller"]

    # The webhook's keys are never deleted with it: others trust them.
    secret = await releases.get("secret", "ebs-webhook-tls", "-n", NAMESPACE)
    assert secret["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def specs(listed: Json) -> list[Json]:
    return [
        {key: value for key, value in each.items() if key not in ("metadata", "status")}
        for each in listed["items"]
    ]


async def test_what_the_webhook_is_trusted_by_survives_an_upgrade(releases: Releases):
    values = {"webhook": {"enabled": True}}
    await releases.run("install", values)
    # As the webhook writes it: its own field, by server-side apply.
    entry = {
        "name": "label.persistentvolumes.ebs-provisioner.io",
        "clientConfig": {"caBundle": "Q0E="},
    }
    written = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "ebs-webhook"},
        "webhooks": [entry],
    }
    apply = ("apply", "--server-side", "--field-manager=ebs-webhook", "--validate=ignore")
    await releases.kubectl(*apply, "-f", "-", text=yaml.safe_dump(written))

    await releases.run("upgrade", {**values, "customLabels": {"probe": "1"}})

    found = await releases.get("mutatingwebhookconfiguration", "ebs-webhook")
    assert found["metadata"]["labels"]["probe"] == "1"
    assert found["webhooks"][0]["clientConfig"]["caBundle"] == "Q0E="


async def test_a_cluster_has_one_release(releases: Releases):
    await releases.run("install")

    said = await releases.refused("install", release="other", namespace="default")

    assert (
        "- this cluster has ebs-provisioner already, as the release ebs-provisioner in namespace "
        "ebs-provisioner: a cluster has one; run helm upgrade for that release" in said
    )


async def test_what_a_kustomization_made_is_taken_over(releases: Releases):
    await releases.kubectl("apply", "-k", str(MANIFESTS))
    await releases.kubectl("apply", "-k", str(MANIFESTS / "node"))
    before = await releases.get("deployment", "ebs-provisioner-controller", "-n", NAMESPACE)

    # Their fields are those of kubectl's client-side apply.
    left = {"node": {"createNamespace": False}}
    await releases.run("install", left, "--take-ownership", "--force-conflicts")

    after = await releases.get("deployment", "ebs-provisioner-controller", "-n", NAMESPACE)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["metadata"]["annotations"]["meta.helm.sh/release-name"] == RELEASE


STOCK = ("ebs-csi-controller", "ebs-csi-node")


def stock(kind: str, namespace: str = "kube-system") -> str:
    """A workload of aws-ebs-csi-driver by its name; nothing of it runs."""
    name = {"Deployment": STOCK[0], "DaemonSet": STOCK[1]}[kind]
    labels = {"app": name}
    pod = {
        "metadata": {"labels": labels},
        "spec": {
            "containers": [{"name": "ebs-plugin", "image": "stock:1"}],
            "nodeSelector": {"none": "has-it"},
        },
    }
    spec = {"selector": {"matchLabels": labels}, "template": pod}
    metadata = {"name": name, "namespace": namespace}
    return yaml.safe_dump(
        {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec}
    )


async def test_beside_the_stock_driver_it_wants_to_be_told_that_this_is_meant(releases: Releases):
    for kind in ("Deployment", "DaemonSet"):
        await releases.kubectl("apply", "-f", "-", text=stock(kind))
    try:
        said = await releases.refused("install", None, SERVER_DRY_RUN)
        assert (
            "- aws-ebs-csi-driver's controller runs here too (Deployment "
            "kube-system/ebs-csi-controller): remove it with nodeComponentOnly=true" in said
        )
        assert (
            "- aws-ebs-csi-driver's node plugin runs here too (DaemonSet kube-system/ebs-csi-node)"
            in said
        )
        said = await releases.refused(
            "install",
            {
                "besideStock": {"controller": True, "node": True},
                "controller": {"leaderElectionNamespace": "elsewhere"},
            },
            SERVER_DRY_RUN,
        )
        assert "aws-ebs-csi-driver keeps its leases in kube-system" in said
        meant = {"besideStock": {"controller": True}, "node": {"enableLinux": False}}
        await releases.run("install", meant, SERVER_DRY_RUN)

        scale = ("scale", "deployment/ebs-csi-controller", "--replicas=0", "-n", "kube-system")
        await releases.kubectl(*scale)
        await releases.run("install", {"node": {"enableLinux": False}}, SERVER_DRY_RUN)
    finally:
        names = (f"deployment/{STOCK[0]}", f"daemonset/{STOCK[1]}")
        await releases.kubectl("delete", *names, "-n", "kube-system")


async def test_the_driver_object_and_classes_outlive_the_stock_chart_and_are_taken_over(
    releases: Releases, tmp_path: Path
):
    """As docs/install-helm.md says it, with a chart that deletes them as the stock one does."""
    other = tmp_path / "stock"
    (other / "templates").mkdir(parents=True)
    (other / "Chart.yaml").write_text("{apiVersion: v2, name: stock, version: 1.0.0}")
    controller = f"{(MANIFESTS / 'csi-driver.yaml').read_text()}---\n{stock('Deployment')}"
    (other / "templates/all.yaml").write_text(
        "{{ if not .Values.nodeComponentOnly }}\n" + controller + "{{ end }}\n"
    )
    classes = (MANIFESTS / "storage-classes.yaml").read_text()
    (other / "templates/classes.yaml").write_text(
        "{{ if .Values.storageClasses }}\n" + classes + "{{ end }}\n"
    )
    beside: Json = {"release": "stock", "namespace": "kube-system", "chart": other}
    await releases.run("install", {"storageClasses": [{"name": "ebs-gp3"}]}, **beside)
    objects = (("csidriver", EBS_DRIVER), ("storageclass", "ebs-gp3"))
    try:
        idle = {
            "besideStock": {"controller": True},
            "csiDriver": {"create": False},
            "node": {"enableLinux": False},
        }
        said = await releases.refused("install", idle)
        assert "StorageClass ebs-gp3 belongs to the release stock in namespace kube-system" in said
        keep = "helm.sh/resource-policy=keep"
        await releases.kubectl("annotate", "csidriver", EBS_DRIVER, keep)
        await releases.kubectl("annotate", "storageclass", "ebs-gp3", "ebs-gp3-retain", keep)
        before = [await releases.get(*each) for each in objects]
        await releases.run("install", idle | {"storageClasses": None})

        await releases.run("upgrade", {"nodeComponentOnly": True}, **beside)
        gone = await releases.get("deployments", "-n", "kube-system")
        assert gone["items"] == []
        # Without any values, Helm would take those of the last time.
        alone = {"node": {"enableLinux": False}}
        await releases.run("upgrade", alone, "--take-ownership", "--force-conflicts")

        for each, was in zip(objects, before, strict=True):
            metadata = (await releases.get(*each))["metadata"]
            assert metadata["uid"] == was["metadata"]["uid"]
            assert metadata["annotations"]["meta.helm.sh/release-name"] == RELEASE
    finally:
        await releases.helm("uninstall", "stock", "-n", "kube-system", "--ignore-not-found")
        await releases.helm("uninstall", RELEASE, "-n", NAMESPACE, "--wait")
        await releases.kubectl("delete", "csidriver", EBS_DRIVER, "--ignore-not-found")


async def test_the_stock_charts_driver_object_is_left_to_it(releases: Releases):
    owned = yaml.safe_load((MANIFESTS / "csi-driver.yaml").read_text())
    owned["metadata"]["annotations"] = {
        "meta.helm.sh/release-name": "aws-ebs-csi-driver",
        "meta.helm.sh/release-namespace": "storage",
    }
    await releases.kubectl("create", "namespace", "storage")
    await releases.kubectl("apply", "-f", "-", text=yaml.safe_dump(owned))
    await releases.kubectl("apply", "-f", "-", text=stock("Deployment", "storage"))
    try:
        said = await releases.refused("install", None, SERVER_DRY_RUN)
        assert "the CSIDriver ebs.csi.aws.com belongs to the release aws-ebs-csi-driver" in said
        assert "Deployment storage/ebs-csi-controller" in said
        meant = {
            "besideStock": {"controller": True},
            "csiDriver": {"create": False},
            "controller": {"leaderElectionNamespace": "storage"},
        }
        await releases.run("install", meant, SERVER_DRY_RUN)

        # Once the object is ours, the leases still say where the stock chart is.
        await releases.kubectl("delete", "csidriver", EBS_DRIVER)
        await releases.kubectl("apply", "-f", "-", text=stock("DaemonSet", "storage"))
        said = await releases.refused(
            "install", {**meant, "csiDriver": {"create": True}}, SERVER_DRY_RUN
        )
        assert "node plugin runs here too (DaemonSet storage/ebs-csi-node)" in said
    finally:
        await releases.kubectl("delete", "csidriver", EBS_DRIVER, "--ignore-not-found")
        await releases.kubectl("delete", "namespace", "storage")


async def test_nodes_of_several_architectures_are_told_of(releases: Releases):
    assert "architectures" not in await releases.run("install", None, SERVER_DRY_RUN)
    arm = {"name": "arm", "labels": {"kubernetes.io/arch": "arm64"}}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": arm}
    await releases.kubectl("apply", "-f", "-", text=yaml.safe_dump(node))
    try:
        notes = await releases.run("install", None, SERVER_DRY_RUN)
    finally:
        await releases.kubectl("delete", "node", "arm")

    assert "The nodes are of several architectures (amd64, arm64): the image must be" in notes


async def test_kinds_that_the_cluster_does_not_know_are_named_with_what_brings_them(
    releases: Releases,
):
    said = await releases.refused(
        "install",
        {
            "volumeSnapshotClasses": [{"name": "ebs", "deletionPolicy": "Delete"}],
            "webhook": {"enabled": True, "certificates": "cert-manager"},
            "node": {"enableMetrics": True, "serviceMonitor": {"forceEnable": True}},
            "prometheusRule": {"enabled": True},
        },
        SERVER_DRY_RUN,
    )

    assert "- volumeSnapshotClasses: this cluster has no VolumeSnapshotClass" in said
    assert "- webhook.certificates=cert-manager: this cluster has no cert-manager" in said
    assert "- serviceMonitor.forceEnable: this cluster has no ServiceMonitor" in said
    assert "- prometheusRule.enabled: this cluster has no PrometheusRule" in said


ALONE: dict[str, tuple[Json, str]] = {
    "all": ({}, "ebs-provisioner-controller"),
    "webhook alone": (
        {"nodeComponentOnly": True, "node": {"enableLinux": False}, "webhook": {"enabled": True}},
        "ebs-webhook",
    ),
}


@pytest.mark.parametrize("name", ALONE)
async def test_an_upgrade_that_skips_a_version_is_refused_and_changes_nothing(
    releases: Releases, tmp_path: Path, name: str
):
    values, deployment = ALONE[name]
    await releases.run("install", values)
    later = tmp_path / "later"
    shutil.copytree(CHART_FOLDER, later)  # with the files that its links lead to
    chart = yaml.safe_load((later / "Chart.yaml").read_text())
    version = chart["version"]
    major, minor, _ = version.split(".")
    skipping = f"{major}.{int(minor) + 2}.0"
    text = (later / "Chart.yaml").read_text()
    (later / "Chart.yaml").write_text(text.replace(f"ersion: {version}", f"ersion: {skipping}"))
    before = await releases.get("deployment", deployment, "-n", NAMESPACE)

    said = await releases.refused("upgrade", values, chart=later)

    assert (
        f"- version {version} is installed, and this is {skipping}: change by one minor version"
        in said
    )
    after = await releases.get("deployment", deployment, "-n", NAMESPACE)
    # Its status goes on; its specification does not.
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    _, history, _ = await releases.helm("history", RELEASE, "-n", NAMESPACE, "--output=yaml")
    assert [each["revision"] for each in yaml.safe_load(history)] == [1]
    skipped = {**values, "allowSkippedVersions": True}
    await releases.run("upgrade", skipped, SERVER_DRY_RUN, chart=later)


async def test_an_uninstall_leaves_volumes_and_says_what_it_keeps(releases: Releases):
    await releases.run("install", {"webhook": {"enabled": True}})
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "films"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-0123456789abcdef0"},
        },
    }
    await releases.kubectl("apply", "-f", "-", text=yaml.safe_dump(volume))

    code, output, errors = await releases.helm("uninstall", RELEASE, "-n", NAMESPACE, "--wait")

    assert code == 0, errors
    assert "ebs-webhook-tls" in output + errors
    assert await releases.get("pv", "films")
    assert await releases.get("secret", "ebs-webhook-tls", "-n", NAMESPACE)

    # Of the node plugin's namespace, only what is ours is gone.
    assert (await releases.get("daemonsets,configmaps", "-n", NODES, OURS))["items"] == []
    assert "deletionTimestamp" not in (await releases.get("namespace", NODES))["metadata"]
    await releases.kubectl("delete", "pv", "films")


async def test_what_others_put_into_a_namespace_of_the_chart_outlives_it(releases: Releases):
    await releases.run("install")
    await releases.kubectl("create", "configmap", "theirs", "-n", NODES)

    await releases.run("upgrade", {"node": {"createNamespace": False}})

    assert (await releases.get("daemonset", NODES, "-n", NODES))["status"]
    code, _, errors = await releases.helm("uninstall", RELEASE, "-n", NAMESPACE, "--wait")
    assert code == 0, errors
    found = await releases.get("namespace", NODES)
    assert "deletionTimestamp" not in found["metadata"]
    assert await releases.get("configmap", "theirs", "-n", NODES)
    # The same release may have it again.
    await releases.run("install")


async def test_a_namespace_of_somebody_else_is_left_to_them(releases: Releases):
    await releases.kubectl("create", "namespace", "storage-team")
    await releases.kubectl("create", "namespace", WEBHOOKS)
    taken: Json = {"webhook": {"enabled": True, "hostNetwork": True}}
    taken["node"] = {"namespaceOverride": "storage-team"}
    try:
        said = await releases.refused("install", taken, "--take-ownership", SERVER_DRY_RUN)
        for name, instead in (
            ("storage-team", "node.createNamespace=false"),
            (WEBHOOKS, f"webhook.namespaceOverride={WEBHOOKS}"),
        ):
            assert (
                f"- namespace {name} exists, and this release has not created it: set {instead}, "
                "and allow privileged pods there" in said
            )

        taken["node"]["createNamespace"] = False
        taken["webhook"]["namespaceOverride"] = WEBHOOKS
        await releases.run("install", taken, SERVER_DRY_RUN)
    finally:
        await releases.kubectl("delete", "namespace", "storage-team")
