import asyncio
import base64
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from aiohttp import web
from kubernetes.aio.config import incluster_config, kube_config
from structlog.testing import capture_logs

from provisioner.kube import credentials
from provisioner.kube.client import KubeClient
from provisioner.kube.resources import PERSISTENT_VOLUMES
from provisioner.model.errors import KubeError, Reason, StorageError
from provisioner.sandbox import credentials as keys
from tests.kube.apiserver import ApiServer, document, status
from tests.kube.conftest import kubeconfig_for

PV = "/api/v1/persistentvolumes/pv-1"
REFUSED = status(401, "Unauthorized")
PointAt = Callable[[str, dict[str, object]], None]


@pytest.fixture
def plugin(tmp_path: Path) -> Callable[[str], str]:
    """Write an exec plugin that gives a token; its path."""

    def write(token: str) -> str:
        kind = '"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential"'
        path = tmp_path / "plugin"
        path.write_text(f'#!/bin/sh\necho \'{{{kind},"status":{{"token":"{token}"}}}}\'\n')
        path.chmod(0o755)
        return str(path)

    return write


async def test_a_refused_token_is_replaced_by_the_one_in_the_file(
    client: KubeClient, server: ApiServer, tmp_path: Path
) -> None:
    server.on("GET", PV, REFUSED, document({}))
    (tmp_path / "token").write_text("second")

    await client.get(PERSISTENT_VOLUMES, "pv-1")

    assert [seen.headers["Authorization"] for seen in server.requests] == [
        "Bearer first",
        "Bearer second",
    ]


async def test_a_refusal_that_is_still_arriving_holds_no_connection(
    client: KubeClient, server: ApiServer, tmp_path: Path
) -> None:
    async def drips(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(status=401)
        await answer.prepare(request)
        await answer.write(b"{")
        await asyncio.Event().wait()
        return answer

    server.on("GET", PV, drips, document({}))
    (tmp_path / "token").write_text("second")

    await client.get(PERSISTENT_VOLUMES, "pv-1")

    assert not client._transport._api.rest_client.pool_manager.connector._acquired


async def test_passwords_of_the_users_netrc_are_not_sent_to_the_api_server(
    server: ApiServer, kubeconfig: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    kubeconfig.write_text(kubeconfig_for(server.url, {}))
    server.on("GET", PV, document({}))

    async with await KubeClient.connect(kubeconfig=str(kubeconfig)) as client:
        await client.get(PERSISTENT_VOLUMES, "pv-1")

    assert "Authorization" not in server.requests[0].headers


async def test_a_token_that_expired_is_one_log_line_and_work_goes_on_with_a_new_one(
    client: KubeClient, server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "RENEW_EVERY_S", 0.0)
    server.on("GET", PV, REFUSED)

    with capture_logs() as logs:
        for _ in range(3):
            with pytest.raises(KubeError) as caught:
                await client.get(PERSISTENT_VOLUMES, "pv-1")
        server.on("GET", PV, document({}))
        (tmp_path / "token").write_text("second")
        await client.get(PERSISTENT_VOLUMES, "pv-1")

    assert (caught.value.reason, caught.value.retry_after_s) == (Reason.UNAUTHORIZED, 5.0)
    assert [line["event"] for line in logs] == [
        "the API server rejects our credentials; waiting for new ones",
        "the API server accepts our credentials again",
    ]


async def test_many_refusals_read_the_credentials_once(
    client: KubeClient, server: ApiServer, tmp_path: Path
) -> None:
    server.on("GET", PV, REFUSED)
    for _ in range(2):
        with pytest.raises(KubeError):
            await client.get(PERSISTENT_VOLUMES, "pv-1")
    (tmp_path / "token").write_text("second")

    with pytest.raises(KubeError):
        await client.get(PERSISTENT_VOLUMES, "pv-1")

    assert {seen.headers["Authorization"] for seen in server.requests} == {"Bearer first"}


async def test_the_token_is_read_again_before_it_expires(
    client: KubeClient, server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.on("GET", PV, document({}))
    (tmp_path / "token").write_text("second")
    await client.get(PERSISTENT_VOLUMES, "pv-1")
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + credentials.REFRESH_S)

    await client.get(PERSISTENT_VOLUMES, "pv-1")

    assert [seen.headers["Authorization"] for seen in server.requests] == [
        "Bearer first",
        "Bearer second",
    ]


async def test_a_token_file_that_vanished_leaves_the_old_token(
    client: KubeClient, server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.on("GET", PV, document({}))
    (tmp_path / "token").unlink()
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + credentials.REFRESH_S)

    await client.get(PERSISTENT_VOLUMES, "pv-1")

    assert server.requests[0].headers["Authorization"] == "Bearer first"


async def test_an_exec_plugin_is_asked_again_when_its_token_is_refused(
    server: ApiServer, kubeconfig: Path, point_at: PointAt, plugin: Callable[[str], str]
) -> None:
    run = {"command": plugin("one"), "apiVersion": "client.authentication.k8s.io/v1"}
    point_at(server.url, {"exec": run})
    server.on("GET", PV, document({}), REFUSED, document({}))

    async with await KubeClient.connect(kubeconfig=str(kubeconfig)) as client:
        await client.get(PERSISTENT_VOLUMES, "pv-1")
        plugin("two")
        await client.get(PERSISTENT_VOLUMES, "pv-1")

    sent = [seen.headers["Authorization"] for seen in server.requests]
    assert sent == ["Bearer one", "Bearer one", "Bearer two"]


async def test_in_a_pod_the_mounted_token_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("one\n")
    keys.create(tmp_path / "keys").authority.rename(tmp_path / "ca.crt")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    found = credentials.Credentials(None)
    await found.load()
    (tmp_path / "token").write_text("two")

    renewed = await found.renew(found.generation)

    assert renewed
    assert found.configuration.host == "https://10.96.0.1:443"
    assert found.configuration.api_key["BearerToken"].lower() == "bearer two"


async def test_the_environment_names_the_kubeconfig(
    kubeconfig: Path, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    server.on("GET", PV, document({"metadata": {"name": "pv-1"}}))

    async with await KubeClient.connect() as client:
        assert (await client.get(PERSISTENT_VOLUMES, "pv-1")).name == "pv-1"


async def test_without_any_configuration_there_is_one_clear_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    with pytest.raises(
        StorageError, match=r"^no Kubernetes API server is configured: .*run in a pod$"
    ):
        await KubeClient.connect()


JUNK = base64.b64encode(b"junk").decode()
EXEC = {"apiVersion": "client.authentication.k8s.io/v1"}


def a_kubeconfig(user: object = None, **cluster: object) -> str:
    """For a server that is never asked."""
    document = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        "clusters": [{"name": "here", "cluster": {"server": "https://127.0.0.1:9", **cluster}}],
        "users": [{"name": "me", "user": user or {"token": "none"}}],
    }
    return json.dumps(document)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "it is empty, or not a mapping of clusters, contexts and users"),
        ("hello", "it is empty, or not a mapping"),
        ("[]", "it is empty, or not a mapping"),
        ("5", "it is empty, or not a mapping"),
        ("{", r"expected the node content.* line 1, column 2$"),
        ("a: b: c\nd: [", r"mapping values are not allowed here.* line 1, column 5$"),
        ("a:\n\tb: 1", r"cannot start any token.* line 2, column 1$"),
        ("\0", "unacceptable character"),
        ("current-context: nowhere", "object with name nowhere"),
        (a_kubeconfig(server="rubbish"), "its server 'rubbish' is not a URL such as https://"),
        (a_kubeconfig(server=""), "its server '' is not a URL"),
        (a_kubeconfig(server="host:6443"), "its server 'host:6443' is not a URL"),
        (a_kubeconfig(server="https://a b"), "is not a URL"),
        (a_kubeconfig(server="https://host:99999"), "is not a URL"),
        (a_kubeconfig(server="https://[half"), "is not a URL"),
        (a_kubeconfig(**{"certificate-authority": "/none"}), "File does not exists: /none"),
        (
            a_kubeconfig(**{"certificate-authority-data": JUNK}),
            "its certificate authority cannot be read as PEM",
        ),
        (
            a_kubeconfig(**{"certificate-authority-data": "a"}),
            "its certificate data is not base64",
        ),
        (
            a_kubeconfig({"client-certificate-data": JUNK, "client-key-data": JUNK}),
            "its client certificate and key cannot be read as PEM",
        ),
        (
            a_kubeconfig({"exec": {"command": "no-such-plugin", **EXEC}}),
            "its exec plugin returned no credentials: No such file or directory: 'no-such-plugin'$",
        ),
        (
            a_kubeconfig({"exec": {"command": "false", **EXEC}}),
            "its exec plugin returned no credentials: exec: process returned 1$",
        ),
        (
            a_kubeconfig({"exec": {"command": "pwd", **EXEC}}),
            "its exec plugin returned no credentials: exec: failed to decode",
        ),
        (a_kubeconfig({"exec": {"command": "pwd"}}), "missing key 'apiVersion'$"),
    ],
)
async def test_a_kubeconfig_that_cannot_be_used_is_one_line_that_names_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], content: str, says: str
) -> None:
    path = tmp_path / "broken"
    path.write_text(content)

    with pytest.raises(StorageError, match=f"^cannot use {path}: .*{says}") as caught:
        await KubeClient.connect(kubeconfig=str(path))

    assert "\n" not in caught.value.message
    assert capfd.readouterr() == ("", "")


async def test_a_server_that_became_rubbish_is_not_taken_over(
    kubeconfig: Path, server: ApiServer, point_at: PointAt
) -> None:
    found = credentials.Credentials(str(kubeconfig))
    await found.load()
    point_at("rubbish", {"token": "second"})

    with capture_logs() as logs:
        await found.renew(found.generation)

    assert found.configuration.host == server.url
    assert [line["event"] for line in logs] == ["cannot read the Kubernetes credentials again"]


async def test_a_plugin_that_vanished_leaves_the_old_token(
    server: ApiServer,
    kubeconfig: Path,
    point_at: PointAt,
    plugin: Callable[[str], str],
    tmp_path: Path,
) -> None:
    point_at(server.url, {"exec": {"command": plugin("one"), **EXEC}})
    found = credentials.Credentials(str(kubeconfig))
    await found.load()
    (tmp_path / "plugin").unlink()

    with capture_logs() as logs:
        assert not await found.renew(found.generation)

    assert found.configuration.api_key["BearerToken"] == "Bearer one"
    assert ["its exec plugin returned no credentials" in line["error"] for line in logs] == [True]


async def test_the_failure_of_a_plugin_is_told_to_the_task_that_ran_it() -> None:
    both = asyncio.Barrier(2)

    async def loads(*failures: str) -> list[str]:
        with credentials._plugin_failures() as said:
            await both.wait()
            for failure in failures:
                kube_config.logger.error(failure)
            await both.wait()
        return said

    first, second = await asyncio.gather(loads("no such plugin"), loads())

    assert (first, second) == (["no such plugin"], [])


@pytest.mark.parametrize(
    ("no_proxy", "expected"),
    [("", "http://proxy:3128"), ("api.example", None)],
    ids=["proxied", "exempt"],
)
def test_honours_the_proxy_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, no_proxy: str, expected: str | None
) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", no_proxy)

    assert credentials.proxy_for("https://api.example:6443") == expected


async def test_a_kubeconfig_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=f"^there is no kubeconfig {tmp_path}/none$"):
        await KubeClient.connect(kubeconfig=f"{tmp_path}/none")
