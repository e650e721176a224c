"""What the webhook caches and reads again, asked of a real API server; it reviews nothing there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from provisioner.kube.client import KubeClient
from provisioner.model.driver import EBS_DRIVER
from provisioner.sandbox.api import Api
from provisioner.sandbox.up import Sandbox
from tests.cluster.hands import PVS, claims_of, pods_of
from tests.webhook.edges import Ec2, a_claim, a_persistent_volume, running
from tests.webhook.reviews.pods import ZONE, a_pod, claimed
from webhook.metrics import WebhookMetrics
from webhook.model import pod as pods
from webhook.model.cluster_view import ClaimView, VolumeView
from webhook.model.review import Answer, Json, RequestOf
from webhook.reviews.caches import Caches
from webhook.reviews.handlers import Handlers
from webhook.reviews.zone_lookup import ZoneLookup

# Not that of EBS: no controller deletes what it is not asked for, and no webhook asks EC2 for it.
DRIVER = "views.ebs.test"
NODES = "/api/v1/nodes"
BUDGET_S = 10.0


@dataclass
class Views:
    """Handlers over caches that are full; two claims, each bound in a zone of its own."""

    api: Api
    namespace: str
    caches: Caches
    handlers: Handlers
    here: Json
    there: Json

    def pv(self, claim: str) -> str:
        return f"{self.namespace}-{claim}"

    async def review(self, path: str, obj: Json, name: str = "web") -> Answer:
        request = RequestOf[Any](
            uid="u",
            operation="CREATE",
            object=pods.read(obj) if path == "/validate/pods" else obj,
            name=name,
            namespace=self.namespace,
        )
        now = asyncio.get_running_loop().time()
        return await self.handlers.by_path()[path](request, now + BUDGET_S)

    async def bind(self, claim: str, node: Json) -> None:
        """A claim, bound by its name to a persistent volume in the zone of a node.

        The volume comes first: one that comes second binds only at the binder's next round (15 s).
        """
        zone, name = node["metadata"]["labels"][ZONE], self.pv(claim)
        volume = a_persistent_volume(name, volume=f"vol-{claim}", zone=zone, driver=DRIVER)
        room = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
        wanted = a_claim(claim, asks_for=name, storage_class="", namespace=self.namespace)
        wanted["spec"]["accessModes"] = room["accessModes"]
        owner = {"namespace": self.namespace, "name": claim}
        await self.api.create(PVS, {**volume, "spec": volume["spec"] | room | {"claimRef": owner}})
        made = await self.api.create(claims_of(self.namespace), wanted)
        uid = made["metadata"]["uid"]
        await eventually(
            lambda: (
                self.caches.claim(f"{self.namespace}/{claim}") == ClaimView(name, "", uid)
                and (seen := self.caches.volume(name)) is not None
                and seen.claim_uid == uid
            )
        )


async def eventually(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 -- the thing watched has no event
            await asyncio.sleep(0.01)


@pytest.fixture
async def views(sandbox: Sandbox, api: Api, namespace: str) -> AsyncIterator[Views]:
    metrics = WebhookMetrics()
    async with contextlib.AsyncExitStack() as stack:
        kubeconfig = str(sandbox.plane.kubeconfig)
        client = await stack.enter_async_context(await KubeClient.connect(kubeconfig=kubeconfig))
        caches = Caches(client, metrics, DRIVER)
        await stack.enter_async_context(running(caches))
        lookup = ZoneLookup(Ec2().volumes, metrics)
        stack.push_async_callback(lookup.close)
        handlers = Handlers(
            client,
            caches,
            lookup,
            metrics=metrics,
            driver=DRIVER,
            strict=False,
        )
        nodes: list[Json] = (await api.get(NODES))["items"]
        here = nodes[0]
        zone = here["metadata"]["labels"][ZONE]
        there = next(each for each in nodes if each["metadata"]["labels"][ZONE] != zone)
        made = Views(api, namespace, caches, handlers, here, there)
        for claim, node in (("here", here), ("there", there)):
            await made.bind(claim, node)
        yield made
        for claim in ("here", "there"):
            await api.delete(f"{PVS}/{made.pv(claim)}")


async def test_views_are_what_the_objects_of_a_real_server_say(views: Views) -> None:
    zone = views.here["metadata"]["labels"][ZONE]

    claim = views.caches.claim(f"{views.namespace}/here")
    assert claim is not None
    assert claim == ClaimView(views.pv("here"), "", claim.uid)
    volume = VolumeView("vol-here", frozenset({zone}), views.namespace, claim.uid)
    assert views.caches.volume(views.pv("here")) == volume
    assert views.caches.backed_by("vol-here") == (views.pv("here"),)
    node = views.caches.node(views.here["metadata"]["name"])
    assert node is not None
    assert (node.zone, node.has_driver) == (zone, False)


async def test_the_nodes_of_a_driver_are_those_that_registered_it(sandbox: Sandbox) -> None:
    kubeconfig = str(sandbox.plane.kubeconfig)
    async with await KubeClient.connect(kubeconfig=kubeconfig) as client:
        caches = Caches(client, WebhookMetrics(), EBS_DRIVER)
        async with running(caches):
            assert any(node.has_driver and node.zone for node in caches.node_views())


async def test_a_pod_is_refused_for_what_a_live_read_confirms(views: Views) -> None:
    answer = await views.review("/validate/pods", a_pod(*claimed("here", "there")))

    assert (answer.allowed, answer.code) == (False, 403)
    for node in (views.here, views.there):
        assert node["metadata"]["labels"][ZONE] in answer.message


async def test_a_binding_is_judged_by_the_pod_that_it_names(views: Views) -> None:
    pod: dict[str, Any] = a_pod(*claimed("here"))
    pod["spec"]["schedulerName"] = "nobody"
    await views.api.create(pods_of(views.namespace), pod)

    async def to(node: Json) -> Answer:
        name = node["metadata"]["name"]
        target = {"kind": "Node", "name": name}
        return await views.review("/validate/bindings", {"target": target})

    assert (await to(views.here)).allowed
    refused = await to(views.there)

    assert (refused.allowed, refused.code) == (False, 403)
    assert "vol-here" not in refused.message
