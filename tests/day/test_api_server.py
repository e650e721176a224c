"""The API server in memory: what the real one is asked too, and what only its watches show."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from provisioner.kube.client import KubeClient
from provisioner.kube.informer import Informer
from provisioner.kube.resources import ATTACHMENTS, CLAIMS, PERSISTENT_VOLUMES, Resource
from provisioner.metrics import Metrics
from provisioner.model.attachment import Attachment
from tests.day import contract
from tests.day.api_server import ApiServer
from tests.day.clocks import DayLoop
from tests.day.transport import Transport

KINDS: tuple[Resource[Any], ...] = (ATTACHMENTS, CLAIMS, PERSISTENT_VOLUMES)


def told(story: Callable[[ApiServer, KubeClient], Coroutine[Any, Any, Any]]) -> Any:
    """Run a story in virtual time."""
    loop = DayLoop()
    api = ApiServer([(each.api_version, each.plural, each.kind) for each in KINDS])
    try:
        return loop.run_until_complete(story(api, KubeClient(Transport(api))))  # type: ignore[arg-type]
    finally:
        loop.close()


def an_attachment(name: str) -> dict[str, Any]:
    source = {"persistentVolumeName": name}
    return {
        "metadata": {"name": name},
        "spec": {"attacher": "nobody.example.com", "nodeName": "node-1", "source": source},
    }


def test_it_answers_as_a_real_one_does() -> None:
    async def story(_: ApiServer, client: KubeClient) -> dict[str, str]:
        return await contract.answers(client, "csi-1")

    assert told(story) == contract.EXPECTED


def test_an_informer_follows_it_through_a_restart_that_forgets_what_it_missed() -> None:
    async def story(api: ApiServer, client: KubeClient) -> tuple[list[str], list[str], int]:
        api.create("volumeattachments", an_attachment("before"))
        informer: Informer[Attachment] = Informer(client, ATTACHMENTS, Metrics())
        following = asyncio.create_task(informer.run())
        await informer.synced.wait()
        api.create("volumeattachments", an_attachment("after"))
        await asyncio.sleep(1)
        before = sorted(each.name for each in informer.values())
        api.stop()
        api.delete("volumeattachments", "before")
        await asyncio.sleep(5)
        api.start()
        api.create("volumeattachments", an_attachment("since"))
        await asyncio.sleep(30)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        return before, sorted(e.name for e in informer.values()), api.gone["volumeattachments"]

    assert told(story) == (["after", "before"], ["after", "since"], 1)


def test_a_watch_tells_how_far_it_is_before_it_ends() -> None:
    async def story(api: ApiServer, client: KubeClient) -> list[str]:
        api.create("persistentvolumes", {"metadata": {"name": "pv"}, "spec": {}})
        version = (await client.list(ATTACHMENTS)).resource_version
        api.create("persistentvolumes", {"metadata": {"name": "pv-2"}, "spec": {}})
        await client.list(ATTACHMENTS, most=1)  # has it ask etcd
        lines = client.watch(ATTACHMENTS, resource_version=version, timeout_s=4)
        return [line.type async for line in lines]

    assert told(story) == ["BOOKMARK"]


def test_a_list_is_of_one_moment_however_many_pages_it_has() -> None:
    async def story(api: ApiServer, client: KubeClient) -> tuple[int, bool]:
        for n in range(1100):
            api.create("volumeattachments", an_attachment(f"csi-{n}"))
        version = api.version
        listing = asyncio.create_task(client.list(ATTACHMENTS))
        await asyncio.sleep(0.02)
        api.delete("volumeattachments", "csi-1099")
        found = await listing
        return len(found.items), found.resource_version == str(version)

    assert told(story) == (1100, True)
