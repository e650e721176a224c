"""The network of real nodes and their pods, as a cluster has one."""

from __future__ import annotations

import json
import sys

import pytest

from provisioner.sandbox.kubectl import kubectl
from provisioner.sandbox.network.addresses import KUBERNETES
from provisioner.sandbox.up import Sandbox
from tests.cluster.background import Background
from tests.cluster.page_pods import page, pods, server
from tests.cluster.real_nodes import NEEDS_A_REAL_NODE, within

pytestmark = NEEDS_A_REAL_NODE

UNTRUSTING = """\
import ssl, sys, urllib.request
urllib.request.urlopen(sys.argv[1], context=ssl._create_unverified_context())
"""


@pytest.fixture
def box(real: Background) -> Sandbox:
    real.sandbox.crew.check()
    return real.sandbox


async def test_each_node_has_the_address_of_its_instance(box: Sandbox) -> None:
    for node in box.real_nodes:
        found = json.loads(await kubectl(box.plane, "get", "node", node.name, "-o", "json"))
        addresses = {each["type"]: each["address"] for each in found["status"]["addresses"]}
        assert addresses["InternalIP"] == node.instance.private_ip_address
        # As EC2 names instances by their addresses.
        assert node.name.startswith(f"ip-{addresses['InternalIP'].replace('.', '-')}.")


async def test_pods_of_two_nodes_reach_each_other_and_are_reached_by_the_api_server(
    box: Sandbox,
) -> None:
    first, second = box.real_nodes
    there = (server("one", first.name), server("two", second.name), server("three", first.name))
    async with pods(box, *there) as (one, two, three):
        assert len({one, two, three}) == 3
        for seen_from, address, name in (
            *(("one", two, "two"), ("two", one, "one")),
            *(("three", one, "one"), ("three", two, "two")),
        ):
            assert await within(box, seen_from, *page(address)) == name
        path = "/api/v1/namespaces/default/pods/two:8080/proxy/"
        assert await kubectl(box.plane, "get", "--raw", path) == "two\n"


async def test_a_pod_on_its_nodes_network_reaches_the_other_nodes_pods(box: Sandbox) -> None:
    first, second = box.real_nodes
    there = (server("one", first.name, hostNetwork=True), server("two", second.name))
    async with pods(box, *there) as (one, two):
        assert one == first.instance.private_ip_address
        assert await within(box, "one", *page(two)) == "two"
        assert await within(box, "two", *page(one)) == "one"


async def test_a_client_in_a_pod_reads_its_own_pod_by_its_account(box: Sandbox) -> None:
    """With no settings but those that every pod has: variables, a token, an authority."""
    node = box.real_nodes[0]
    # A static program of the machine, which the node sees; the image has no client.
    document = server("client", node.name, automountServiceAccountToken=True)
    program = {"path": str(box.plane.binaries / "kubectl"), "type": "File"}
    document["spec"]["volumes"] = [{"name": "kubectl", "hostPath": program}]
    [container] = document["spec"]["containers"]
    container["volumeMounts"] = [{"name": "kubectl", "mountPath": "/kubectl"}]
    binding = ("clusterrolebinding", "pods-may-look")
    grant = ("--clusterrole=view", "--serviceaccount=default:default")
    await kubectl(box.plane, "create", *binding, *grant)
    try:
        async with pods(box, document):
            told = await within(box, "client", "/kubectl", "get", "pod", "client", "-o", "json")
            assert json.loads(told)["spec"]["nodeName"] == node.name
            host = await within(box, "client", "sh", "-c", 'echo "$KUBERNETES_SERVICE_HOST"')
            assert host == KUBERNETES
    finally:
        await kubectl(box.plane, "delete", *binding)


async def test_the_api_server_is_a_way_to_a_node(box: Sandbox) -> None:
    node = box.real_nodes[1]

    path = f"/api/v1/nodes/{node.name}/proxy"
    assert await kubectl(box.plane, "get", "--raw", f"{path}/healthz") == "ok"
    seen = json.loads(await kubectl(box.plane, "get", "--raw", f"{path}/pods"))
    assert seen["kind"] == "PodList"


async def test_a_pod_cannot_use_a_kubelet(box: Sandbox) -> None:
    node = box.real_nodes[0]
    async with pods(box, server("one", node.name)):
        address = node.instance.private_ip_address
        asked = f"printf 'GET /pods HTTP/1.0\\r\\n\\r\\n' | nc -w 5 {address} 10250"
        # By HTTP it is told that this is HTTPS; by HTTPS, that it needs a certificate.
        assert "400 Bad Request" in await within(box, "one", "sh", "-c", asked)
        _, _, errors = await node.host.run(
            sys.executable, "-c", UNTRUSTING, f"https://{address}:10250/pods"
        )
        assert "HTTP Error 401: Unauthorized" in errors
