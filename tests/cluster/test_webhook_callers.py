"""Only the API server may ask: by a token, and by a client certificate, as docs say to set up."""

from __future__ import annotations

import asyncio
import re
import ssl
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import pytest
import yaml

from provisioner.sandbox import api_server
from provisioner.sandbox.control_plane import free_port
from provisioner.sandbox.up import Sandbox
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


@pytest.mark.parametrize("by", ["token", "certificate"])
async def test_only_who_shows_what_it_was_told_to_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    kubeconfig, admission = tmp_path / "webhooks.kubeconfig", tmp_path / "admission.yaml"
    pair = self_signed(Names(dns=("kube-apiserver",)), datetime.now(UTC), authority=True)
    for name, pem in (("client.crt", pair.certificate), ("client.key", pair.key)):
        (tmp_path / name).write_bytes(pem)
    (tmp_path / "token").write_text(TOKEN)
    admission.write_text(
        from_docs("admission.yaml").replace(
            "/etc/kubernetes/admission/webhooks.kubeconfig", str(kubeconfig)
        )
    )
    flag = [f"--admission-control-config-file={admission}"]
    plain = api_server.without_kubelets
    monkeypatch.setattr(api_server, "without_kubelets", lambda: plain() + flag)
    options = {
        "token": ["--caller-token-file", str(tmp_path / "token")],
        "certificate": [
            *("--client-ca-file", str(tmp_path / "client.crt")),
            *("--client-name", "kube-apiserver"),
        ],
    }[by]
    shown = {
        "token": {"token": TOKEN},
        "certificate": {
            "client-certificate": str(tmp_path / "client.crt"),
            "client-key": str(tmp_path / "client.key"),
        },
    }[by]
    address = f"127.0.0.1:{free_port()}"
    config = yaml.safe_load(from_docs("webhooks.kubeconfig"))
    config["users"] = [{"name": address, "user": shown}]  # where a Service would be named
    kubeconfig.write_text(yaml.safe_dump(config))
    async with Sandbox.start(nodes=1, zones=1, controller=False) as sandbox:
        await sandbox.install_webhook()
        async with WebhookReplica(sandbox, *options, address=address):
            volume = {
                "metadata": {"name": "theirs"},
                "spec": {
                    "capacity": {"storage": "1Gi"},
                    "accessModes": ["ReadWriteOnce"],
                    "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-0123456789abcdef0"},
                },
            }
            with pytest.raises(Exception, match="vol-0123456789abcdef0"):
                await sandbox.plane.api.request("POST", PERSISTENT_VOLUMES, volume, dryRun="All")
            assert await stranger(address) == {"token": 401, "certificate": 0}[by]


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
