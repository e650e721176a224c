"""Where a CNI enforces NetworkPolicies, the webhook reaches what its values name."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.helm import MANIFESTS, built, kustomized, one, rendered

Json = dict[str, Any]
pytestmark = built

USUAL = {53, 443, 6443}


def ports(objects: list[Json]) -> set[int]:
    """Those of TCP that the webhook may connect to at any address."""
    policy = one(objects, "NetworkPolicy", "ebs-webhook")["spec"]
    return {
        each["port"]
        for rule in policy["egress"]
        for each in rule["ports"]
        if "to" not in rule and each["protocol"] == "TCP"
    }


def of_values(proxy: str, *more: int) -> set[int]:
    webhook = {"enabled": True, "egressPorts": [*more]}
    return ports(rendered({"webhook": webhook, "proxy": {"http_proxy": proxy}}))


@pytest.mark.parametrize(
    ("proxy", "port"),
    [
        ("http://proxy.example:3128", 3128),
        ("http://user:secret@proxy.example:3128/", 3128),
        ("http://[fd00::1]:3128", 3128),
        ("http://[fd00::1]", 80),
        ("proxy.example:3128", 3128),
        ("http://proxy.example", 80),
        ("https://proxy.example", 443),
    ],
)
def test_a_proxy_is_reached_on_its_port(proxy: str, port: int):
    assert of_values(proxy) == USUAL | {port}


def test_an_api_server_on_another_port_is_reached_if_it_is_named():
    assert of_values("") == USUAL
    assert of_values("http://proxy.example:3128", 16443, 3128) == USUAL | {3128, 16443}


def test_the_patch_in_the_kustomization_adds_a_port(tmp_path: Path):
    text = (MANIFESTS / "webhook" / "kustomization.yaml").read_text()
    _, _, after = text.partition("#   patches:\n")
    patches, _, _ = after.partition("#\n")
    lines = [line.removeprefix("# ") for line in patches.splitlines()]
    kustomization: Json = {
        "resources": [os.path.relpath(MANIFESTS / "webhook", tmp_path)],
        "patches": yaml.safe_load("\n".join(lines)),
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))

    assert ports(kustomized(tmp_path)) == USUAL | {16443}
