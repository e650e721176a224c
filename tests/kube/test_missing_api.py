from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from structlog.testing import capture_logs

from provisioner.controller.shared.caches import Caches
from provisioner.kube import resources
from provisioner.kube.client import KubeClient
from provisioner.kube.resources import Resource
from provisioner.metrics import Metrics
from tests.builders import DRIVER
from tests.kube.apiserver import ApiServer, Watch, document, listing

CORE: list[Resource[Any]] = [
    resources.CLAIMS,
    resources.PERSISTENT_VOLUMES,
    resources.NODES,
    resources.PODS,
]
STORAGE: list[Resource[Any]] = [
    resources.ATTACHMENTS,
    resources.STORAGE_CLASSES,
    resources.CSI_NODES,
]
MISSING: Resource[Any] = resources.CSI_NODES


def discovery(group: str, *plurals: str) -> dict[str, Any]:
    served = {"version": "v1", "resources": [{"resource": plural} for plural in plurals]}
    item = {"metadata": {"name": group}, "versions": [served]}
    return {"kind": "APIGroupDiscoveryList", "items": [item]}


async def test_a_kind_that_the_api_server_lacks_is_one_log_line_and_never_asked_for(
    client: KubeClient, server: ApiServer, eventually: Callable[[Callable[[], object]], Any]
):
    present = [kind for kind in (*CORE, *STORAGE) if kind is not MISSING]
    server.on("GET", "/api", document(discovery("", *(kind.plural for kind in CORE))))
    storage = [kind.plural for kind in present if kind not in CORE]
    server.on("GET", "/apis", document(discovery("storage.k8s.io", *storage)))
    watches = []
    for kind in present:
        prefix = "/api" if kind in CORE else "/apis"
        path = f"{prefix}/{kind.api_version}/{kind.plural}"
        watches.append(Watch())
        server.on("GET", path, listing())
        server.on("WATCH", path, watches[-1])
    caches = Caches(client, Metrics(), DRIVER)

    with capture_logs() as lines:
        following = asyncio.create_task(caches.run())
        async with asyncio.timeout(30):
            await caches.synced()
        await eventually(lambda: all(watch.opened.is_set() for watch in watches))
        await caches.refresh()

    assert caches.is_synced
    told = [line for line in lines if MISSING.plural in str(line) or line["log_level"] != "info"]
    assert [(line["log_level"], line["kind"]) for line in told] == [("warning", "CSINode")]
    assert "are off until it does" in told[0]["event"]
    assert not [seen for seen in server.requests if MISSING.plural in seen.path]
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
