from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from provisioner.sandbox.real_node import configs
from provisioner.sandbox.real_node.image import PAUSE

CRI = "io.containerd.grpc.v1.cri"


def kubelet() -> dict[str, Any]:
    files = {name: Path("/keys", name) for name in ("authority", "certificate", "key")}
    return configs.kubelet(port=20250, cgroup="ebs-sandbox-1-2", **files)


def containerd(folder: Path) -> dict[str, Any]:
    return tomllib.loads(configs.write_containerd(folder / "containerd.toml").read_text())


def test_a_kubelet_serves_only_who_has_a_certificate_of_ours() -> None:
    # It runs as root, and every user of the machine can reach the loopback.
    authentication = kubelet()["authentication"]

    assert kubelet()["address"] == "127.0.0.1"
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
    snapshotter = plugin["containerd"]["snapshotter"]
    disabled = containerd(tmp_path)["disabled_plugins"]
    assert f"io.containerd.snapshotter.v1.{snapshotter}" not in disabled


def test_the_network_that_is_none_lies_where_containerd_looks(tmp_path: Path) -> None:
    configs.write_cni(tmp_path)

    folder = Path(containerd(tmp_path)["plugins"][CRI]["cni"]["conf_dir"])
    (file,) = (tmp_path / folder.relative_to("/var/lib")).iterdir()
    assert file.suffix == ".conflist"
    assert json.loads(file.read_text())["plugins"]
