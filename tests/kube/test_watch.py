import json
from contextlib import aclosing

import aiohttp
import pytest

from provisioner.kube import client as client_module
from provisioner.kube.client import KubeClient
from provisioner.kube.resources import PERSISTENT_VOLUMES
from provisioner.model.errors import KubeError, Reason
from tests.kube.apiserver import ApiServer, Hang, Watch

PVS = "/api/v1/persistentvolumes"


def an_object(name: str, **more: object) -> dict[str, object]:
    return {"metadata": {"name": name}, **more}


async def test_a_watch_gives_each_line_however_it_is_cut(
    client: KubeClient, server: ApiServer
) -> None:
    watch = Watch()
    big = json.dumps({"type": "ADDED", "object": an_object("big", padding="x" * 2**21)}).encode()
    for piece in (
        big[:70_000],
        big[70_000:],
        b"\n",
        b'{"type":"ADDED","object":{"metadata":{"name":"b"}}}\n\n{"typ',
    ):
        watch.send_raw(piece)
    server.on("WATCH", PVS, watch.end())

    async with aclosing(
        client.watch(PERSISTENT_VOLUMES, resource_version="4", timeout_s=300)
    ) as lines:
        sizes = [(line.type, len(bytes(line.object))) async for line in lines]

    assert [kind for kind, _ in sizes] == ["ADDED", "ADDED"]
    assert sizes[0][1] > 2**21
    assert server.requests[0].query == {
        "watch": "true", "allowWatchBookmarks": "true", "resourceVersion": "4", "timeoutSeconds": "300",
    }  # fmt: skip


async def test_an_error_line_ends_a_watch(client: KubeClient, server: ApiServer) -> None:
    server.on("WATCH", PVS, Watch(("ERROR", {"kind": "Status", "code": 410, "message": "too old"})))

    lines = client.watch(PERSISTENT_VOLUMES, resource_version="4", timeout_s=9)
    async with aclosing(lines):
        with pytest.raises(KubeError) as caught:
            await anext(lines)

    assert caught.value.reason is Reason.EXPIRED


async def test_a_silent_watch_ends_without_an_error(
    client: KubeClient, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = aiohttp.ClientTimeout(total=None, sock_read=0.05)
    monkeypatch.setattr(client_module, "WATCH_TIMEOUT", short)
    server.on("WATCH", PVS, Watch(("ADDED", an_object("a"))), Hang())

    for expected in (["ADDED"], Reason.TIMED_OUT):
        lines = client.watch(PERSISTENT_VOLUMES, resource_version="4", timeout_s=9)
        async with aclosing(lines):
            try:
                found: object = [line.type async for line in lines]
            except KubeError as exc:  # not even headers came
                found = exc.reason
        assert found == expected
