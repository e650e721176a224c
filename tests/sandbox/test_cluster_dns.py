"""What the DNS server of real nodes is configured by."""

from __future__ import annotations

import re
from pathlib import Path

from provisioner.sandbox.network import addresses
from provisioner.sandbox.programs import COREDNS, DEFAULT_KUBERNETES, program
from provisioner.sandbox.real_node import cluster_dns


def blocks() -> list[str]:
    return re.findall(
        r"^(?!#)\S.*? \{\n.*?^\}$", cluster_dns.corefile(Path("/a b/c")), re.MULTILINE | re.DOTALL
    )


def test_what_it_is_configured_with_is_built_into_it() -> None:
    source = program(COREDNS, DEFAULT_KUBERNETES).main
    assert source is not None
    built = set(re.findall(r'coredns/plugin/(\w+)"', source.read_text()))

    named = {word for each in blocks() for word in re.findall(r"^    (\w+)", each, re.MULTILINE)}
    assert named == built


def test_names_of_the_cluster_and_of_nobody_are_answered_apart() -> None:
    cluster, nobody = blocks()

    assert cluster.startswith("cluster.local in-addr.arpa ip6.arpa {")
    assert "template" not in cluster
    assert nobody.startswith(". {")
    assert "kubernetes" not in nobody


def test_a_path_may_have_blanks() -> None:
    assert 'kubeconfig "/a b/c"' in cluster_dns.corefile(Path("/a b/c"))


def test_it_listens_where_its_service_leads() -> None:
    [endpoint] = cluster_dns.endpoints()["endpoints"]
    listening = f"bind {addresses.ROUTER} {addresses.DNS}"

    assert endpoint["addresses"] == [addresses.ROUTER]
    assert all(listening in each for each in blocks())
    assert cluster_dns.service()["spec"]["ports"] == cluster_dns.endpoints()["ports"]
    slice_of = cluster_dns.endpoints()["metadata"]["labels"]["kubernetes.io/service-name"]
    assert slice_of == cluster_dns.service()["metadata"]["name"]
