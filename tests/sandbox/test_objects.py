"""What the sandbox writes to the API server, without one."""

from __future__ import annotations

import datetime as dt
import json
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from provisioner.sandbox import api_server, credentials, installation, kwok, nodes
from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.network.addresses import KUBERNETES, ROUTER
from provisioner.sandbox.strict_ec2.instances import Instance

INSTANCE = Instance("i-1", "us-east-1b", "us-east-1", "m5.large", "ip-10-0-0-1.ec2.internal")


def test_a_node_says_which_instance_it_is() -> None:
    node = nodes.node(INSTANCE)

    assert node["metadata"]["name"] == "ip-10-0-0-1.ec2.internal"
    assert node["spec"]["providerID"] == "aws:///us-east-1b/i-1"


def test_a_node_has_the_labels_that_zones_are_read_from() -> None:
    labels = nodes.node(INSTANCE)["metadata"]["labels"]

    assert {key: labels.get(key) for key in nodes.TOPOLOGY_KEYS} == {
        "kubernetes.io/os": "linux",
        "topology.ebs.csi.aws.com/zone": "us-east-1b",
        "topology.kubernetes.io/zone": "us-east-1b",
    }
    assert labels["topology.kubernetes.io/region"] == "us-east-1"
    assert labels["node.kubernetes.io/instance-type"] == "m5.large"


def test_kwok_takes_a_node_for_its_own() -> None:
    key, value = kwok.FAKE_NODE

    assert nodes.node(INSTANCE)["metadata"]["annotations"][key] == value


def test_a_node_lets_the_controller_manager_attach() -> None:
    annotations = nodes.node(INSTANCE)["metadata"]["annotations"]

    assert annotations["volumes.kubernetes.io/controller-managed-attach-detach"] == "true"


def test_a_csi_node_registers_the_driver_for_its_instance() -> None:
    (driver,) = nodes.csi_node(INSTANCE, "uid-1", attachable=7)["spec"]["drivers"]

    assert driver == {
        "name": "ebs.csi.aws.com",
        "nodeID": "i-1",
        "topologyKeys": list(nodes.TOPOLOGY_KEYS),
        "allocatable": {"count": 7},
    }


def test_a_nodes_status_is_ready_from_now_on() -> None:
    now = dt.datetime(2026, 11, 21, 9, 45, tzinfo=dt.UTC)
    ready = nodes.ready_status(INSTANCE, now)["conditions"][0]

    assert (ready["type"], ready["status"]) == ("Ready", "True")
    assert ready["lastTransitionTime"] == "2026-11-21T09:45:00Z"


def test_kwoks_stages_are_one_json_document_each(tmp_path: Path) -> None:
    text = kwok.write_stages(tmp_path / "kwok.yaml").read_text()

    names = [json.loads(each)["metadata"]["name"] for each in text.split("\n---\n")]
    assert names == ["node-is-ready", "pod-runs", "pod-goes"]


RENDERED = """
kind: Deployment
metadata: {name: controller, namespace: storage}
spec: {template: {spec: {serviceAccountName: worker}}}
---
kind: Namespace
metadata: {name: storage}
---
---
kind: PodDisruptionBudget
metadata: {name: controller, namespace: storage}
"""


def test_the_deployment_names_the_account_and_is_not_applied() -> None:
    account, objects = installation.split(RENDERED)

    assert account == installation.Account("storage", "worker")
    assert [each["kind"] for each in objects] == ["Namespace"]


def test_manifests_without_a_deployment_are_refused() -> None:
    with pytest.raises(SandboxError, match="no workload"):
        installation.split("kind: Namespace")


def test_every_user_of_the_control_plane_has_a_token_of_its_own(tmp_path: Path) -> None:
    made = credentials.create(tmp_path / "keys")

    rows = made.token_file.read_text().splitlines()
    assert [row.split(",")[1] for row in rows] == list(credentials.USERS)
    assert len(set(made.tokens.values())) == len(credentials.USERS)


def test_keys_are_readable_by_us_alone(tmp_path: Path) -> None:
    made = credentials.create(tmp_path / "keys")
    config = credentials.write_kubeconfig(
        tmp_path / "kubeconfig", server="https://x", authority=made.authority, token="t"
    )

    assert made.folder.stat().st_mode & 0o077 == 0
    assert config.stat().st_mode & 0o077 == 0


def test_a_kubelet_is_known_by_a_certificate_of_the_authority(tmp_path: Path) -> None:
    made = credentials.create(tmp_path / "keys")
    pair = made.client("system:node:a", "system:nodes")
    config = credentials.write_kubeconfig(
        tmp_path / "kubeconfig", server="https://x", authority=made.authority, pair=pair
    )

    (user,) = json.loads(config.read_text())["users"]
    assert user["user"] == {
        "client-certificate": str(pair.certificate),
        "client-key": str(pair.key),
    }
    certificate = x509.load_pem_x509_certificate(pair.certificate.read_bytes())
    authority = x509.load_pem_x509_certificate(made.authority.read_bytes())
    certificate.verify_directly_issued_by(authority)
    # Kubernetes reads the name of a user from CN and the groups from O.
    assert certificate.subject.rfc4514_string() == "CN=system:node:a,O=system:nodes"
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]


def test_kubelets_are_let_in_only_where_there_are_real_ones(tmp_path: Path) -> None:
    keys = credentials.create(tmp_path / "keys")

    assert "--authorization-mode=RBAC" in api_server.without_kubelets()
    theirs = api_server.with_kubelets(keys, tmp_path / "egress.json")
    assert "--authorization-mode=Node,RBAC" in theirs
    assert "--enable-admission-plugins=NodeRestriction" in theirs


def test_an_api_server_reaches_nodes_by_the_socket_of_their_network(tmp_path: Path) -> None:
    keys, file = credentials.create(tmp_path / "keys"), tmp_path / "egress.json"

    assert f"--egress-selector-config-file={file}" in api_server.with_kubelets(keys, file)
    (selection,) = json.loads(api_server.egress(Path("/proc/1/cwd/s")))["egressSelections"]
    # Not "controlplane": webhooks by URL and etcd are on the machine's loopback.
    assert selection["name"] == "cluster"
    assert selection["connection"]["transport"] == {"uds": {"udsName": "/proc/1/cwd/s"}}


@pytest.mark.parametrize("host", ["127.0.0.1", KUBERNETES, ROUTER, "kubernetes.default.svc"])
def test_the_api_server_has_a_certificate_for_each_of_its_names(tmp_path: Path, host: str) -> None:
    made = credentials.create(tmp_path / "keys")

    assert host in names_of(made.certificate)


def test_a_kubelet_serves_with_a_certificate_for_its_node(tmp_path: Path) -> None:
    made = credentials.create(tmp_path / "keys")
    client = made.client("system:node:a", "system:nodes")
    server = made.server("system:node:a", ["a", "10.1.2.3"])

    assert names_of(server.certificate) == ["a", "10.1.2.3"]
    assert {client.certificate, client.key}.isdisjoint((server.certificate, server.key))


def names_of(file: Path) -> list[str]:
    certificate = x509.load_pem_x509_certificate(file.read_bytes())
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in found]


def test_the_servers_certificate_is_one_that_pythons_tls_can_load(tmp_path: Path) -> None:
    made = credentials.create(tmp_path / "keys")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(made.certificate, made.key)
    context.load_verify_locations(made.authority)

    assert context.cert_store_stats()["x509_ca"] == 1
