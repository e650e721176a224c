"""The product as users install it: the chart and the image, as pods on real nodes.

All tests share one sandbox. Each finds the product installed and working, and can run alone; in the
order of the file, nothing is installed or started twice.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from provisioner.sandbox import kubectl as kubectl_tool
from provisioner.sandbox.control_plane import until
from provisioner.sandbox.installed.archive import read
from provisioner.sandbox.installed.release import NAMESPACE, NODE_NAMESPACE
from provisioner.sandbox.real_node import requirements
from provisioner.sandbox.up import Sandbox
from tests.chart.helm import built as needs_helm
from tests.cluster.background import Background
from tests.cluster.installed_pods import (
    COMPONENTS,
    CONTROLLER,
    NODE,
    WEBHOOK,
    Installed,
    Json,
    containers,
    images,
    pod_of,
)
from tests.cluster.real_nodes import NEEDS_A_REAL_NODE
from tests.image import checkout
from tests.image.another import another

pytestmark = [NEEDS_A_REAL_NODE, needs_helm]

ACCOUNTS = {
    CONTROLLER: "ebs-provisioner-controller",
    WEBHOOK: "ebs-webhook",
    NODE: "ebs-provisioner-node",
}
AWAY_S = 60
# The watchdog of pytest ends the whole run 300 s after a test began, its fixtures included.
ROLLED_WITHIN_S = 200
LEASES = (
    *("ebs-csi-aws-com", "external-attacher-leader-ebs-csi-aws-com"),
    *("external-resizer-ebs-csi-aws-com", "external-snapshotter-leader-ebs-csi-aws-com"),
)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The image of this checkout."""
    if why := requirements.missing():
        pytest.skip(why)
    path = tmp_path_factory.mktemp("image") / "image.tar"
    path.write_bytes(checkout.build().archive.data)
    return path


@pytest.fixture(scope="module")
def shared(archive: Path) -> Iterator[Installed]:
    """Installed from the chart, on two real nodes and no others."""
    start = Sandbox.start(
        nodes=0,
        zones=1,
        real_nodes=2,
        latency="none",
        throttle="none",
        webhook=True,
        image=read(archive),
    )
    with Background(start) as running:
        yield Installed(running)


@pytest.fixture
async def product(shared: Installed, archive: Path) -> Installed:
    """The same, installed again if a test has uninstalled it."""
    if not shared.release.image:
        await shared.real.call(shared.release.install(read(archive)))
    return shared


# -- what its pods are, and may do


async def test_one_of_the_controllers_pods_holds_all_leases(product: Installed):
    pods = [each["metadata"]["name"] for each in await product.pods(CONTROLLER)]

    found = await product.get("leases", *LEASES, "--namespace=kube-system")

    [holder] = {each["spec"]["holderIdentity"] for each in found["items"]}
    assert len(found["items"]) == len(LEASES)
    assert [name for name in pods if name in holder]


LOOK = """\
import errno, os
try:
    open("/new", "w")
    print("writable")
except OSError as error:
    print(errno.errorcode[error.errno])
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(os.getuid(), os.getgid(), int(status["CapBnd"], 16), *(status[key].strip() for key in
      ("NoNewPrivs", "Seccomp")))
"""


@pytest.mark.parametrize("component", [CONTROLLER, WEBHOOK])
async def test_its_pods_have_a_read_only_root_file_system_and_no_rights(
    product: Installed, component: str
):
    for each in await product.pods(component):
        written, about = (await product.python(each, LOOK)).splitlines()
        assert written == "EROFS"
        # Seccomp 2 is a filter (proc(5)).
        assert about == "65532 65532 0 1 2"


async def test_the_node_plugin_writes_nowhere_but_where_volumes_are(product: Installed):
    for each in await product.pods(NODE):
        written, about = (await product.python(each, LOOK)).splitlines()
        assert written == "EROFS"
        user, group, capabilities, *_ = about.split()
        assert (user, group) == ("0", "0")
        assert int(capabilities)


async def test_pod_security_of_its_namespaces_is_enforced(product: Installed):
    root = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "root"},
        "spec": {
            "containers": [
                {"name": "root", "image": "busybox:1", "securityContext": {"privileged": True}}
            ]
        },
    }
    create = ("create", "--dry-run=server", "-f", "-")

    said = await product.refused(*create, f"--namespace={NAMESPACE}", text=json.dumps(root))

    assert 'violates PodSecurity "restricted' in said
    await product.kubectl(*create, f"--namespace={NODE_NAMESPACE}", text=json.dumps(root))


async def test_its_pods_listen_on_the_ports_that_are_declared_and_no_others(product: Installed):
    policy = (await product.get("networkpolicy", "ebs-webhook", f"--namespace={NAMESPACE}"))["spec"]
    let_in = {port["port"] for rule in policy["ingress"] for port in rule["ports"]}
    for component in COMPONENTS:
        for each in await product.pods(component):
            [container] = each["spec"]["containers"]
            ports = {port["name"]: port["containerPort"] for port in container["ports"]}
            assert await product.listening(each) == set(ports.values())
            if component == WEBHOOK:
                assert let_in == ports.keys()


async def test_a_second_pod_is_not_evicted_before_the_first_is_replaced(product: Installed):
    first, second = [each["metadata"]["name"] for each in await product.pods(CONTROLLER)]

    async def evict(name: str) -> tuple[int, str, str]:
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/eviction"
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": NAMESPACE},
        }
        arguments = ("create", "--raw", path, "-f", "-")
        return await kubectl_tool.run(product.sandbox.plane, *arguments, text=json.dumps(body))

    code, _, errors = await evict(first)
    assert code == 0, errors
    code, _, errors = await evict(second)
    assert code != 0
    assert "violate the pod's disruption budget" in errors

    await product.kubectl(
        *("rollout", "status", "deployment/ebs-provisioner-controller"),
        *(f"--namespace={NAMESPACE}", "--timeout=50s"),
    )
    await product.real.call(product.release.works())


async def test_the_charts_own_test_writes_to_a_volume(product: Installed):
    said = await product.real.call(product.release.test())

    assert "Phase:          Succeeded" in said
    assert "wrote and read 1 MiB on a new volume" in said


# -- how it is changed, while a pod writes


async def test_another_build_rolls_out_and_back_under_a_pod_that_writes(
    product: Installed, archive: Path, tmp_path: Path
):
    newer = read(another(archive, "9.9.9", tmp_path / "newer.tar"))
    assert newer.digest != read(archive).digest
    name = await product.writer()
    before = await _all(product)
    writer = containers([await product.get("pod", name)])
    first = await product.written(name)

    async with asyncio.timeout(ROLLED_WITHIN_S):
        await product.real.call(product.release.upgrade(newer))

        upgraded = await _all(product)
        assert not containers(before) & containers(upgraded)
        assert images(upgraded).isdisjoint(images(before))
        assert len(images(upgraded)) == 1
        second = await product.written(name)

        await product.real.call(product.release.rollback())

    rolled_back = await _all(product)
    assert not containers(upgraded) & containers(rolled_back)
    assert images(rolled_back) == images(before)
    assert first < second < await product.written(name)
    # Its container is the same, and was never started again.
    assert containers([await product.get("pod", name)]) == writer


async def test_on_a_node_that_goes_the_plugin_stays_until_its_volumes_have_gone(product: Installed):
    writer = await product.get("pod", await product.writer())
    node = writer["spec"]["nodeName"]
    [plugin] = [each for each in await product.pods(NODE) if each["spec"]["nodeName"] == node]
    where = plugin["metadata"]["name"], f"--namespace={NODE_NAMESPACE}"
    count = await product.written("writer")

    async def hook_runs() -> bool:
        return product.drains(node)

    await product.kubectl("cordon", node)
    try:
        await product.kubectl("delete", "pod", *where, "--wait=false")
        await asyncio.wait_for(until(hook_runs), AWAY_S)
        # While it waits, the plugin unmounts; without it, this would take six minutes.
        await product.kubectl("delete", "pod", "writer", "--wait=false")
        await product.kubectl("wait", "--for=delete", "pod", *where, f"--timeout={AWAY_S}s")

        # The new pod is on the other node, as this one is cordoned.
        await product.reader()
        assert (await product.get("pod", "reader"))["spec"]["nodeName"] != node
        assert await product.written("reader") >= count
        assert [str(each) for each in product.sandbox.disks.torn] == []
        events = await product.get("events", f"--namespace={NODE_NAMESPACE}")
        assert "FailedPreStopHook" not in {each["reason"] for each in events["items"]}
    finally:
        await product.kubectl("uncordon", node)


async def test_all_asked_with_tokens_of_their_pods_and_were_refused_nothing(product: Installed):
    for each in await product.pods(NODE):
        await product.scrape(each)  # for which it has to ask for the names of volumes
    requests = product.requests()

    asking = {(each["user"]["username"].rpartition(":")[2], pod_of(each)) for each in requests}
    for component, account in ACCOUNTS.items():
        pods = await product.pods(component)
        assert {each["spec"]["serviceAccountName"] for each in pods} == {account}
        of_pods = {(account, each["metadata"]["name"]) for each in pods}
        # A node plugin may have had no reason to ask yet; that of the cordoned node had.
        assert of_pods <= asking or component == NODE
    assert {account for account, _ in asking} == set(ACCOUNTS.values())
    assert all(name for _, name in asking)
    assert [each["requestURI"] for each in requests if each["responseStatus"]["code"] == 403] == []


async def test_an_uninstall_leaves_volumes_claims_and_pods_and_says_what_is_left(
    product: Installed,
):
    count = await product.written(await product.reader())

    said = await product.real.call(product.release.uninstall())

    assert "ebs-webhook-tls" in said
    assert (await product.get("pvc", "numbers"))["status"]["phase"] == "Bound"
    assert len((await product.get("pv"))["items"]) == 1
    [attachment] = (await product.get("volumeattachments"))["items"]
    assert attachment["status"]["attached"]
    assert await product.written("reader") == count
    assert [each for component in COMPONENTS for each in await product.all_pods(component)] == []


async def _all(product: Installed) -> list[Json]:
    return [each for component in COMPONENTS for each in await product.pods(component)]
