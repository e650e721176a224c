"""The node's own client of the API server, against a real server on loopback."""

import asyncio
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from provisioner.model.errors import KubeError, NodeError, Reason
from provisioner.node.instance import kube as kube_module
from provisioner.node.instance.kube import ApiServer, NodeKube
from tests.node.kube_server import status

pytest_plugins = ("tests.node.kube_fixtures",)

PROVIDER_ID = "aws:///us-east-1a/i-0123456789abcdef0"


async def test_a_node_is_read(kube, kube_server):
    attached = [{"name": "kubernetes.io/csi/ebs.csi.aws.com^vol-1", "devicePath": ""}]
    in_use = ["kubernetes.io/csi/ebs.csi.aws.com^vol-2", "kubernetes.io/csi/other^vol-3"]
    kube_server.has_node(
        spec={"providerID": PROVIDER_ID},
        status={"volumesAttached": attached, "volumesInUse": in_use, "phase": "x"},
        metadata={"labels": {"a": "b"}},
    )

    node = await kube.node()

    assert node.instance_id == "i-0123456789abcdef0"
    assert node.volumes() == {"vol-1", "vol-2"}
    assert node.labels == {"a": "b"}


@pytest.mark.parametrize(
    ("provider_id", "instance_id"),
    [
        ("aws:///us-east-1a/i-0a1b", "i-0a1b"),
        ("i-0a1b", "i-0a1b"),
        ("", ""),
        ("gce://project/zone/vm-1", ""),
        ("kind://docker/i-have-no/instance", ""),
    ],
)
async def test_the_instance_of_a_node_is_what_its_provider_id_names(
    kube, kube_server, provider_id, instance_id
):
    kube_server.has_node(spec={"providerID": provider_id})

    assert (await kube.node()).instance_id == instance_id


async def test_a_node_that_is_not_there_is_told_with_its_name(kube):
    with pytest.raises(KubeError, match="cannot get nodes node-1: ") as caught:
        await kube.node()

    assert caught.value.reason is Reason.OBJECT_NOT_FOUND


async def test_an_attachment_and_its_persistent_volume_are_found_by_the_volume(kube, kube_server):
    kube_server.has_volume("vol-1", "pv-1", annotations={"a": "b"})

    found = await kube.attachment("vol-1")
    volume = await kube.persistent_volume(found.persistent_volume)

    assert found.device_path == "/dev/xvdba"
    assert volume.annotations == {"a": "b"}
    assert volume.spec.claim_ref.name == "pv-1-claim"


async def test_an_attachment_tells_the_instance_that_either_controller_has_recorded(
    kube, kube_server
):
    kube_server.has_attachment("vol-1")
    [attachment] = kube_server.objects.values()
    said = [(await kube.attachment("vol-1")).instance_id]

    attachment["metadata"]["annotations"] = {"csi.alpha.kubernetes.io/node-id": "i-0a"}
    said.append((await kube.attachment("vol-1")).instance_id)
    attachment["status"]["attachmentMetadata"]["ebs-provisioner.io/instance-id"] = "i-0b"
    said.append((await kube.attachment("vol-1")).instance_id)

    assert said == ["", "i-0a", "i-0b"]


async def test_an_attachment_or_volume_that_is_not_there_is_none(kube):
    assert await kube.attachment("vol-1") is None
    assert await kube.persistent_volume("pv-1") is None


async def test_a_404_that_names_no_object_is_no_proof_that_it_is_gone(kube, kube_server):
    kube_server.answers = [lambda: web.Response(status=404, text="404 page not found")]

    with pytest.raises(KubeError, match="not from a Kubernetes API server"):
        await kube.attachment("vol-1")


async def test_a_missing_right_is_named(kube, kube_server):
    kube_server.answers = [lambda: status(403, "Forbidden", "no")]

    with pytest.raises(KubeError, match='needs the verb "get" on nodes') as caught:
        await kube.node()

    assert caught.value.reason is Reason.FORBIDDEN


async def test_a_renewed_token_is_used_at_once(kube, kube_server):
    kube_server.has_node()
    await kube.node()
    kube_server.tokens = {"second"}
    kube_server.token_file.write_text("second")

    await kube.node()

    assert [token for _, _, token in kube_server.asked] == ["first", "second"]


async def test_a_token_that_is_renewed_while_it_is_refused_is_tried_once_more(kube, kube_server):
    kube_server.has_node()
    kube_server.tokens = {"second"}

    def refuse():
        kube_server.token_file.write_text("second")
        return status(401, "Unauthorized", "Unauthorized")

    kube_server.answers = [refuse]

    await kube.node()

    assert [token for _, _, token in kube_server.asked] == ["first", "second"]


async def test_a_token_that_stays_refused_is_told(kube, kube_server):
    kube_server.tokens = set()

    with pytest.raises(KubeError) as caught:
        await kube.node()

    assert caught.value.reason is Reason.UNAUTHORIZED
    assert len(kube_server.asked) == 2


async def test_a_token_that_cannot_be_read_is_named(kube, kube_server):
    kube_server.token_file.unlink()

    with pytest.raises(KubeError, match=f"the token {kube_server.token_file} cannot be read: No"):
        await kube.node()


async def test_an_authority_that_cannot_be_used_is_named(kube_server, tmp_path):
    (tmp_path / "ca.crt").write_text("no certificate")
    url = f"https://127.0.0.1:{kube_server.port}"
    server = ApiServer(url, kube_server.token_file, tmp_path / "ca.crt")

    async with NodeKube(server, "node-1") as kube:
        with pytest.raises(KubeError, match=r"certificate authority .*ca\.crt cannot be used"):
            await kube.node()


async def test_a_server_that_is_away_is_unreachable(kube, kube_server):
    kube_server.port = 1
    async with kube_server.client() as away:
        with pytest.raises(KubeError) as caught:
            await away.node()

    assert caught.value.reason is Reason.UNREACHABLE


async def test_a_server_that_says_nothing_is_given_up(kube, kube_server, monkeypatch):
    monkeypatch.setattr(kube_module, "_TIMEOUT", aiohttp.ClientTimeout(total=0.05))
    kube_server.hang = asyncio.Event()

    with pytest.raises(KubeError, match="no answer in time") as caught:
        await kube.node()

    kube_server.hang.set()
    assert caught.value.reason is Reason.TIMED_OUT


async def test_an_odd_answer_is_told(kube, kube_server):
    kube_server.answers = [lambda: web.Response(text='{"spec": []}')]

    with pytest.raises(KubeError, match="cannot read the answer to get nodes node-1") as caught:
        await kube.node()

    assert caught.value.reason is Reason.UNREADABLE


@pytest.mark.parametrize(
    ("environment", "url"),
    [
        ({"KUBERNETES_SERVICE_HOST": "10.96.0.1"}, "https://10.96.0.1:443"),
        (
            {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"},
            "https://[fd00::1]:6443",
        ),
    ],
)
def test_in_a_pod_the_api_server_is_where_kubelet_says(environment, url):
    server = ApiServer.in_cluster(environment)

    assert server.url == url
    assert server.token_file == Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


def test_outside_of_a_pod_it_says_what_to_name():
    with pytest.raises(NodeError, match="--kube-server"):
        ApiServer.in_cluster({})


def test_it_loads_no_kubernetes():
    script = "import sys, provisioner.node.instance.kube; print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )

    loaded = {name.partition(".")[0] for name in run.stdout.split()}
    assert not loaded & {"kubernetes", "boto3", "botocore", "yaml", "cryptography", "rich"}
