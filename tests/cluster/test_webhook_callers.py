"""Only the API server may ask: by a token, and by a client certificate, as docs say to set up."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import aiohttp
import pytest
import yaml

from provisioner.sandbox import api_server
from provisioner.sandbox.api import Api
from provisioner.sandbox.control_plane import free_port
from provisioner.sandbox.up import Sandbox
from tests.cluster.background import Background
from tests.cluster.replicas import WebhookReplica
from tests.documents import page
from tests.webhook.pairs import self_signed
from webhook.certificates.issuing import Names

PERSISTENT_VOLUMES = "/api/v1/persistentvolumes"
TOKEN = "0123456789abcdef"


def from_docs(name: str) -> str:
    """The YAML that the page about the webhook shows under this name."""
    (found,) = re.findall(rf"```yaml\n# {name}.*?\n(.*?)```", page("webhook"), re.DOTALL)
    return str(found)


@dataclass(frozen=True)
class Way:
    """One way in which the API server shows who asks."""

    address: str
    """Of the webhook that asks for it."""
    options: Sequence[str]
    user: Mapping[str, str]
    """In the kubeconfig that the API server reads."""
    stranger: int
    """What one is answered who shows nothing; 0 if not even a handshake."""


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Way]:
    folder = tmp_path_factory.mktemp("callers")
    pair = self_signed(Names(dns=("kube-apiserver",)), datetime.now(UTC), authority=True)
    certificate, key, token = (folder / name for name in ("client.crt", "client.key", "token"))
    certificate.write_bytes(pair.certificate)
    key.write_bytes(pair.key)
    token.write_text(TOKEN)
    return {
        "token": Way(
            address=f"127.0.0.1:{free_port()}",
            options=("--caller-token-file", str(token)),
            user={"token": TOKEN},
            stranger=401,
        ),
        "certificate": Way(
            address=f"127.0.0.1:{free_port()}",
            options=("--client-ca-file", str(certificate), "--client-name", "kube-apiserver"),
            user={"client-certificate": str(certificate), "client-key": str(key)},
            stranger=0,
        ),
    }


@pytest.fixture(scope="module")
def background(
    ways: dict[str, Way], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Background]:
    """A sandbox whose API server was told what to show to whom."""
    folder = tmp_path_factory.mktemp("api-server")
    kubeconfig, admission = folder / "webhooks.kubeconfig", folder / "admission.yaml"
    admission.write_text(
        from_docs("admission.yaml").replace(
            "/etc/kubernetes/admission/webhooks.kubeconfig", str(kubeconfig)
        )
    )
    config = yaml.safe_load(from_docs("webhooks.kubeconfig"))
    # Where a Service would be named.
    config["users"] = [{"name": way.address, "user": way.user} for way in ways.values()]
    kubeconfig.write_text(yaml.safe_dump(config))
    plain = api_server.without_kubelets
    flag = [f"--admission-control-config-file={admission}"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api_server, "without_kubelets", lambda: plain() + flag)
        with Background(Sandbox.start(nodes=1, zones=1, controller=False)) as running:
            asyncio.run(running.call(running.sandbox.install_webhook()))
            yield running


@pytest.mark.parametrize("by", ["token", "certificate"])
async def test_only_who_shows_what_it_was_told_to_is_answered(
    ways: dict[str, Way], sandbox: Sandbox, api: Api, by: str
) -> None:
    way = ways[by]
    volume = {
        "metadata": {"name": "theirs"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-0123456789abcdef0"},
        },
    }
    async with WebhookReplica(sandbox, *way.options, address=way.address):
        with pytest.raises(Exception, match="vol-0123456789abcdef0"):
            await api.request("POST", PERSISTENT_VOLUMES, volume, dryRun="All")
        assert await stranger(way.address) == way.stranger


async def stranger(address: str) -> int:
    """What one is answered who shows nothing; 0 if not even a handshake."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    url = f"https://{address}/validate/pods"
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
        try:
            async with asyncio.timeout(10), session.post(url, json={}) as reply:
                return reply.status
        except aiohttp.ClientError:
            return 0
