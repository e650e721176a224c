from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from provisioner.sandbox.real_node import cluster_dns, configs
from provisioner.sandbox.real_node.image import PAUSE
from provisioner.sandbox.real_node.layers import COPIES, SNAPSHOTTERS
from provisioner.sandbox.real_node.requirements import CNI_PLUGINS

CRI = "io.containerd.grpc.v1.cri"


def kubelet() -> dict[str, Any]:
    files = {name: Path("/keys", name) for name in ("authority", "certificate", "key")}
    return configs.kubelet(cgroup="ebs-sandbox-1-2", **files)


def containerd(folder: Path, snapshotter: str = COPIES) -> dict[str, Any]:
    file = configs.write_containerd(folder / "containerd.toml", "/plugins", snapshotter)
    return tomllib.loads(file.read_text())


def test_a_kubelet_serves_only_who_has_a_certificate_of_ours() -> None:
    # It runs as root, and every pod can reach it.
    authentication = kubelet()["authentication"]

    assert authentication["anonymous"] == authentication["webhook"] == {"enabled": False}
    assert authentication["x509"] == {"clientCAFile": "/keys/authority"}
    assert "readOnlyPort" not in kubelet()


def test_a_kubelet_makes_its_groups_below_the_nodes_own() -> None:
    assert kubelet()["cgroupRoot"] == "/ebs-sandbox-1-2"
    assert kubelet()["cgroupDriver"] == "cgroupfs"


def test_kubelet_and_containerd_meet_at_one_socket(tmp_path: Path) -> None:
    address = containerd(tmp_path)["grpc"]["address"]

    assert kubelet()["containerRuntimeEndpoint"] == f"unix://{address}"


def test_containerd_takes_the_image_for_pods_that_is_imported(tmp_path: Path) -> None:
    plugin = containerd(tmp_path)["plugins"][CRI]

    assert plugin["sandbox_image"] == PAUSE
    assert plugin["disable_tcp_service"] is True


@pytest.mark.parametrize("snapshotter", SNAPSHOTTERS)
def test_containerd_runs_the_snapshotter_that_works_there_and_no_other(
    tmp_path: Path, snapshotter: str
) -> None:
    config = containerd(tmp_path, snapshotter)

    assert config["plugins"][CRI]["containerd"]["snapshotter"] == snapshotter
    disabled = config["disabled_plugins"]
    ours = [each for each in SNAPSHOTTERS if f"io.containerd.snapshotter.v1.{each}" in disabled]
    assert ours == [each for each in SNAPSHOTTERS if each != snapshotter]


def test_the_pods_network_lies_where_containerd_looks(tmp_path: Path) -> None:
    configs.write_cni(tmp_path, "100.64.3.0/24")

    cni = containerd(tmp_path)["plugins"][CRI]["cni"]
    assert cni["bin_dir"] == "/plugins"
    (file,) = (tmp_path / Path(cni["conf_dir"]).relative_to("/var/lib")).iterdir()
    assert file.suffix == ".conflist"
    (plugin,) = json.loads(file.read_text())["plugins"]
    assert plugin["type"] in CNI_PLUGINS
    assert plugin["ipam"]["type"] in CNI_PLUGINS
    assert plugin["ipam"]["ranges"] == [[{"subnet": "100.64.3.0/24"}]]
    # Beside what a node that is switched off loses: then none of its pods has one.
    assert plugin["ipam"]["dataDir"].startswith("/run/")


def test_pods_ask_the_dns_server_of_the_cluster() -> None:
    assert kubelet()["clusterDNS"] == [cluster_dns.service()["spec"]["clusterIP"]]
    assert kubelet()["clusterDomain"] in cluster_dns.corefile(Path("/kubeconfig"))


def test_a_service_proxy_leaves_the_machines_settings_alone() -> None:
    """Of connection tracking: they are those of all network namespaces."""
    settings = configs.kube_proxy("node-1", Path("/kubeconfig"))["conntrack"]

    # By Kubernetes' own reference, 0 leaves each as it is; an absent one would be written.
    assert settings["maxPerCore"] == settings["min"] == 0
    assert settings["tcpEstablishedTimeout"] == settings["tcpCloseWaitTimeout"] == "0s"
