"""What pods have on real nodes: a network, Services and their names, and controllers of workloads."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from provisioner.sandbox import kubectl as kubectl_tool
from provisioner.sandbox.control_plane import until
from provisioner.sandbox.kubectl import kubectl
from provisioner.sandbox.network.addresses import DNS, KUBERNETES, ROUTER
from provisioner.sandbox.real_node.file_pods import pod
from provisioner.sandbox.real_node.image import POD_IMAGE
from provisioner.sandbox.up import Sandbox
from tests.cluster.background import Background
from tests.cluster.page_pods import SERVE, page, pods, server
from tests.cluster.real_nodes import NEEDS_A_REAL_NODE, until_within, within

pytestmark = NEEDS_A_REAL_NODE

SOON_S = 60.0

UNTRUSTING = """\
import ssl, sys, urllib.request
urllib.request.urlopen(sys.argv[1], context=ssl._create_unverified_context())
"""

DENIES = """\
import json, os, ssl
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Webhook(BaseHTTPRequestHandler):
    def do_POST(self):
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = review["request"]["name"]
        said = {"message": os.environ["HOSTNAME"] + " refuses " + name}
        answer = {"uid": review["request"]["uid"], "allowed": False, "status": said}
        body = json.dumps({key: review[key] for key in ("apiVersion", "kind")} | {"response": answer})
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body.encode())

for name in ("crt", "key"):
    with open("/tmp/" + name, "w") as file:
        file.write(os.environ[name])
context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
context.load_cert_chain("/tmp/crt", "/tmp/key")
listening = ThreadingHTTPServer(("", 8443), Webhook)
listening.socket = context.wrap_socket(listening.socket, server_side=True)
listening.serve_forever()
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


def labelled(document: dict[str, Any], app: str) -> dict[str, Any]:
    document["metadata"]["labels"] = {"app": app}
    return document


@asynccontextmanager
async def a_service(box: Sandbox, app: str, port: int = 8080, **spec: Any) -> AsyncIterator[str]:
    """A Service of the pods with a label; its address."""
    document = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": app},
        "spec": {"selector": {"app": app}, "ports": [{"port": port}]} | spec,
    }
    created = await kubectl(box.plane, "create", "-o", "json", "-f", "-", text=json.dumps(document))
    try:
        yield json.loads(created)["spec"]["clusterIP"]
    finally:
        await kubectl(box.plane, "delete", "service", app)


async def found_by_name(box: Sandbox, seen_from: str, name: str) -> set[str]:
    """The addresses that a pod finds by a name."""
    code, said, errors = await kubectl_tool.run(
        box.plane, "exec", seen_from, "--", "nslookup", "-type=a", name
    )
    _, _, answer = said.partition("\n\n")  # first, who answers
    addresses = {line.split()[-1] for line in answer.splitlines() if line.startswith("Address")}
    assert code == 0 or not addresses, errors
    return addresses


async def until_found(box: Sandbox, seen_from: str, name: str, addresses: set[str]) -> None:
    async def found() -> bool:
        return await found_by_name(box, seen_from, name) == addresses

    async with asyncio.timeout(SOON_S):
        await until(found)


async def test_a_pod_finds_the_api_server_by_its_name(box: Sandbox) -> None:
    async with pods(box, server("one", box.real_nodes[0].name)):
        for name in (
            "kubernetes.default.svc",
            "kubernetes",
            "kubernetes.default.svc.cluster.local",
        ):
            # By the resolver of the C library, with the search list that the kubelet writes. (It
            # is only asked for the address: no Service answers a ping.)
            said = await within(box, "one", "sh", "-c", f"ping -c 1 -W 1 {name}; true")
            assert f"({KUBERNETES})" in said
        found = await found_by_name(box, "one", "kubernetes.default.svc.cluster.local")
        assert found == {KUBERNETES}
        config = await within(box, "one", "cat", "/etc/resolv.conf")
        assert f"nameserver {DNS}" in config.splitlines()
        assert "search default.svc.cluster.local svc.cluster.local cluster.local" in config


async def test_a_headless_service_is_the_addresses_of_its_pods(box: Sandbox) -> None:
    first, second = box.real_nodes
    there = [
        labelled(server("one", first.name, hostname="one", subdomain="pages"), "pages"),
        labelled(server("two", second.name, hostname="two", subdomain="pages"), "pages"),
    ]
    async with a_service(box, "pages", clusterIP="None"), pods(box, *there) as (one, two):
        await until_found(box, "one", "pages.default.svc.cluster.local", {one, two})
        # As members of a StatefulSet find each other.
        await until_found(box, "one", "two.pages.default.svc.cluster.local", {two})
        assert await within(box, "one", *page("two.pages")) == "two"


async def test_a_name_that_is_none_is_refused_at_once(box: Sandbox) -> None:
    async with pods(box, server("one", box.real_nodes[0].name)):
        for name in ("nobody.default.svc.cluster.local", "example.org"):
            asked = ("exec", "one", "--", "timeout", "3", "nslookup", "-type=a", name)
            _, said, errors = await kubectl_tool.run(box.plane, *asked)
            assert "NXDOMAIN" in said + errors


async def test_a_service_leads_to_a_pod_from_wherever_it_is_asked(box: Sandbox) -> None:
    first, second = box.real_nodes
    there = [
        labelled(server("there", second.name), "there"),
        server("away", first.name),
        server("beside", second.name),
        server("on-the-node", first.name, hostNetwork=True),
    ]
    async with a_service(box, "there") as address, pods(box, *there):
        for seen_from in ("away", "beside", "there", "on-the-node"):
            await until_within(box, seen_from, *page(address))
            assert await within(box, seen_from, *page(address)) == "there"
        assert await within(box, "away", *page("there.default.svc")) == "there"
        # And the programs that run in the network as the router does.
        assert box.plane.network is not None
        command = box.plane.network.command("busybox", *page(address))
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert (await process.communicate())[0] == b"there\n"


async def test_a_service_without_pods_refuses_connections(box: Sandbox) -> None:
    async with (
        a_service(box, "nobody") as address,
        pods(box, server("one", box.real_nodes[0].name)),
    ):

        async def refused() -> bool:
            asked = ("exec", "one", "--", *page(address))
            _, _, errors = await kubectl_tool.run(box.plane, *asked)
            return "Connection refused" in errors

        async with asyncio.timeout(SOON_S):
            await until(refused)


async def test_pods_have_dns_and_no_event_says_otherwise(box: Sandbox) -> None:
    async with pods(box, server("one", box.real_nodes[0].name)):
        events = json.loads(await kubectl(box.plane, "get", "events", "-A", "-o", "json"))["items"]
        assert {"Scheduled", "Started"} <= {each["reason"] for each in events}
        assert "MissingClusterDNS" not in {each["reason"] for each in events}


async def test_the_dns_server_is_a_service_as_in_other_clusters(box: Sandbox) -> None:
    asked = ("get", "service,endpointslice", "-n", "kube-system", "-o", "json")
    found = {
        each["kind"]: each
        for each in json.loads(await kubectl(box.plane, *asked))["items"]
        if each["metadata"]["name"] == "kube-dns"
    }
    assert found["Service"]["spec"]["clusterIP"] == DNS
    assert found["EndpointSlice"]["endpoints"][0]["addresses"] == [ROUTER]


def python_of_the_machine(document: dict[str, Any], script: str) -> dict[str, Any]:
    """Have a pod run a script by the Python that runs this test, which the image lacks."""
    roots = {"/usr", "/lib", "/lib64", sys.prefix, sys.base_prefix}
    below = {path for path in roots if path.startswith("/usr/")}
    shown = [path for path in sorted(roots - below) if Path(path).is_dir()]
    [container] = document["spec"]["containers"]
    container["command"] = [sys.executable, "-I", "-c", script]
    container["volumeMounts"] = [
        {"name": f"root-{number}", "mountPath": path, "readOnly": True}
        for number, path in enumerate(shown)
    ]
    document["spec"]["volumes"] = [
        {"name": f"root-{number}", "hostPath": {"path": path}} for number, path in enumerate(shown)
    ]
    return document


def refusing(box: Sandbox, name: str, node: str) -> dict[str, Any]:
    """A webhook that refuses everything, with a certificate for its Service."""
    keys = box.plane.credentials.server("refuses", ["refuses.default.svc"])
    environment = {"crt": keys.certificate.read_text(), "key": keys.key.read_text()}
    document = pod(
        name, "", {}, image=POD_IMAGE, node=node, environment=environment, hostNetwork=False
    )
    [container] = document["spec"]["containers"]
    container["readinessProbe"] = {"tcpSocket": {"port": 8443}, "periodSeconds": 1}
    return labelled(python_of_the_machine(document, DENIES), "refuses")


def registration(box: Sandbox, client: Mapping[str, Any]) -> dict[str, Any]:
    authority = base64.b64encode(box.plane.credentials.authority.read_bytes()).decode()
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "refuses"},
        "webhooks": [
            {
                "name": "refuses.example.org",
                "clientConfig": {"caBundle": authority, **client},
                "rules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["configmaps"],
                    }
                ],
                "objectSelector": {"matchLabels": {"refused": "yes"}},
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
                "timeoutSeconds": 5,
            }
        ],
    }


async def test_a_webhook_in_a_pod_is_called_by_its_service(box: Sandbox) -> None:
    where = {"service": {"namespace": "default", "name": "refuses"}}
    wanted = {"metadata": {"name": "wanted", "labels": {"refused": "yes"}}}
    config_map = json.dumps({"apiVersion": "v1", "kind": "ConfigMap"} | wanted)

    async def answer() -> str:
        _, _, errors = await kubectl_tool.run(box.plane, "create", "-f", "-", text=config_map)
        return errors

    ports = [{"port": 443, "targetPort": 8443}]
    first, second = box.real_nodes
    there = [refusing(box, "refusing", second.name)]
    async with a_service(box, "refuses", ports=ports), pods(box, *there):
        registered = json.dumps(registration(box, where))
        await kubectl(box.plane, "create", "-f", "-", text=registered)
        try:

            async def refuses() -> bool:
                return "refusing refuses wanted" in await answer()

            async with asyncio.timeout(SOON_S):
                await until(refuses)
            # Another pod of the same Service, on the other node, takes over.
            async with pods(box, refusing(box, "stand-in", first.name)):
                await kubectl(box.plane, "delete", "pod", "refusing", "--timeout=50s")

                async def stood_in() -> bool:
                    return "stand-in refuses wanted" in await answer()

                async with asyncio.timeout(SOON_S):
                    await until(stood_in)
        finally:
            kind = "validatingwebhookconfiguration"
            await kubectl(box.plane, "delete", kind, "refuses")
            await kubectl(box.plane, "delete", "configmap", "wanted", "--ignore-not-found")


def workload(kind: str, name: str, pod_spec: dict[str, Any], **spec: Any) -> dict[str, Any]:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": pod_spec | {"restartPolicy": "Always"}}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": labels}, "template": template} | spec,
    }


def spec_of(script: str, container: dict[str, Any], **spec: Any) -> dict[str, Any]:
    document = pod("unnamed", script, {}, image=POD_IMAGE, **spec)
    document["spec"]["containers"][0] |= container
    return dict(document["spec"])


async def names_of(box: Sandbox, app: str) -> list[str]:
    asked = ("get", "pods", f"--selector=app={app}", "-o", "name")
    return [each.removeprefix("pod/") for each in (await kubectl(box.plane, *asked)).split()]


async def test_a_deployment_has_its_account_and_is_replaced_when_its_probe_fails(
    box: Sandbox,
) -> None:
    # A static program of the machine, which the node sees; the image has no client.
    program = {"path": str(box.plane.binaries / "kubectl"), "type": "File"}
    page = {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1}
    spec = spec_of(
        SERVE,
        {
            "readinessProbe": page,
            "livenessProbe": page | {"failureThreshold": 2},
            "volumeMounts": [{"name": "kubectl", "mountPath": "/kubectl"}],
        },
        volumes=[{"name": "kubectl", "hostPath": program}],
        hostNetwork=False,
        serviceAccountName="worker",
        automountServiceAccountToken=True,
        nodeSelector={"ebs-provisioner.io/sandbox-node": "real"},
    )
    await kubectl(box.plane, "create", "serviceaccount", "worker")
    document = workload("Deployment", "worker", spec, replicas=2)
    await kubectl(box.plane, "create", "-f", "-", text=json.dumps(document))
    try:
        await kubectl(box.plane, "rollout", "status", "deployment/worker", "--timeout=50s")
        name, _ = await names_of(box, "worker")
        said = json.loads(await within(box, name, "/kubectl", "auth", "whoami", "-o", "json"))
        assert said["status"]["userInfo"]["username"] == "system:serviceaccount:default:worker"

        await within(box, name, "rm", "/www/index.html")  # the probe is answered 404 from now on
        back = "{.status.containerStatuses[0].restartCount}"
        wait = ("wait", f"pod/{name}", f"--for=jsonpath={back}=1", "--timeout=50s")
        await kubectl(box.plane, *wait)
        await kubectl(box.plane, "rollout", "status", "deployment/worker", "--timeout=50s")
    finally:
        await kubectl(box.plane, "delete", "deployment", "worker", "--cascade=foreground")
        await kubectl(box.plane, "delete", "serviceaccount", "worker")


async def test_a_daemon_set_sees_its_nodes_network_devices_and_kubelet(box: Sandbox) -> None:
    mounts = [
        {
            "name": "kubelet",
            "mountPath": "/var/lib/kubelet",
            "mountPropagation": "Bidirectional",
        },
        {"name": "dev", "mountPath": "/dev"},
    ]
    volumes = [
        {"name": "kubelet", "hostPath": {"path": "/var/lib/kubelet", "type": "Directory"}},
        {"name": "dev", "hostPath": {"path": "/dev", "type": "Directory"}},
    ]
    healthy = {"exec": {"command": ["test", "-d", "/var/lib/kubelet/pods"]}, "periodSeconds": 1}
    container = {
        "securityContext": {"privileged": True},
        "volumeMounts": mounts,
        "readinessProbe": healthy,
        "livenessProbe": healthy,
    }
    spec = spec_of(
        "exec sleep 100000",
        container,
        volumes=volumes,
        nodeSelector={"ebs-provisioner.io/sandbox-node": "real"},
    )
    document = workload("DaemonSet", "agents", spec)
    await kubectl(box.plane, "create", "-f", "-", text=json.dumps(document))
    try:
        await kubectl(box.plane, "rollout", "status", "daemonset/agents", "--timeout=50s")
        agents = await names_of(box, "agents")
        assert len(agents) == len(box.real_nodes)
        for agent in agents:
            asked = ("get", "pod", agent, "-o", "jsonpath={.spec.nodeName} {.status.podIP}")
            name, address = (await kubectl(box.plane, *asked)).split()
            [node] = [each for each in box.real_nodes if each.name == name]
            assert address == node.instance.private_ip_address
            await within(box, agent, "test", "-b", "/dev/loop0")
            # What it mounts there, its node and with it other pods see.
            place = "/var/lib/kubelet/plugins/shared"
            await within(box, agent, "mkdir", "-p", place)
            await within(box, agent, "mount", "-t", "tmpfs", "tmpfs", place)
            assert any(f" {place} " in line for line in node.mounts())
            await within(box, agent, "umount", place)
            await until_within(box, agent, "rmdir", place)
    finally:
        await kubectl(box.plane, "delete", "daemonset", "agents", "--cascade=foreground")
