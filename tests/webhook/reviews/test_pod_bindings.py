"""Reviews of bindings: a node was chosen, the volumes may be elsewhere."""

import asyncio
from typing import Any

import pytest

from provisioner.model.errors import KubeError, Reason
from tests.webhook.edges import Kube, a_claim, a_node, a_persistent_volume, failing
from tests.webhook.world import BUDGET_S, World
from webhook.model.review import Answer, Json

A, B = "us-east-1a", "us-east-1b"
BROKEN = KubeError(Reason.UNREACHABLE, "connection refused")


def a_binding(node: str = "node-b") -> Json:
    return {
        "metadata": {"name": "web-0", "namespace": "shop"},
        "target": {"kind": "Node", "name": node},
    }


def a_world(**more: Any) -> World:
    """A pod whose claim is bound in zone a; a node in each zone."""
    kube = Kube()
    kube.put("nodes", a_node("node-a", zone=A), a_node("node-b", zone=B))
    kube.put("persistentvolumes", a_persistent_volume("pv", zone=A))
    kube.put("persistentvolumeclaims", a_claim("data", bound="pv"))
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    kube.put(
        "pods", {"metadata": {"name": "web-0", "namespace": "shop"}, "spec": {"volumes": volumes}}
    )
    return World(kube, **more)


def test_a_pod_is_not_bound_to_a_node_away_from_its_volume():
    world = a_world()

    answer = world.answer("binding", a_binding())

    assert (answer.allowed, answer.code) == (False, 403)
    assert A in answer.message
    assert B in answer.message
    assert sorted(world.kube.read) == [
        "nodes node-b",
        "persistentvolumeclaims shop/data",
        "persistentvolumes pv",
        "pods shop/web-0",
    ]
    assert world.live_reads() == {"confirmed": 1}


def test_a_pod_that_is_bound_beside_its_volume_costs_one_read():
    world = a_world()

    assert world.answer("binding", a_binding("node-a")).allowed
    assert world.kube.read == ["pods shop/web-0"]
    assert world.live_reads() == {}


def test_a_late_cache_refuses_no_binding():
    world = a_world()

    async def story() -> Answer:
        world.kube.put("nodes", a_node("node-b", zone=A), unseen=True)
        return await world.review("binding", a_binding())

    assert world.tell(story).allowed
    assert world.live_reads() == {"overturned": 1}


@pytest.mark.parametrize("late", ["nodes", "persistentvolumes", "persistentvolumeclaims"])
def test_what_is_too_new_for_the_caches_is_read(late: str):
    world = a_world()
    kept = {key: obj for key, obj in world.kube.objects.items() if key[0] == late}
    for key in kept:
        del world.kube.objects[key]

    async def story() -> Answer:
        world.kube.put(late, *kept.values(), unseen=True)
        return await world.review("binding", a_binding())

    assert not world.tell(story).allowed


def test_a_claim_of_an_ephemeral_volume_counts_once_the_pod_is_there():
    world = a_world()
    pod = world.kube.objects["pods", "shop/web-0"]
    pod["spec"]["volumes"] = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}]
    world.kube.put(
        "persistentvolumes", a_persistent_volume("pv", zone=A, claim="shop/web-0-scratch")
    )
    world.kube.put("persistentvolumeclaims", a_claim("web-0-scratch", bound="pv"))

    assert not world.answer("binding", a_binding()).allowed


def test_a_pod_or_a_node_that_is_not_there_is_for_the_api_server_to_refuse():
    world = a_world()

    assert world.answer("binding", a_binding("node-z")).allowed
    world.kube.remove("pods", "shop/web-0")
    assert world.answer("binding", a_binding()).allowed


def test_a_binding_to_nothing_is_not_looked_at():
    world = a_world()

    assert world.answer("binding", a_binding("")).allowed
    assert world.kube.read == []


@pytest.mark.parametrize("node", ["node-a", "node-b"])
def test_a_binding_whose_pod_cannot_be_read_is_let_through_with_a_warning(node: str):
    lenient, strict = a_world(), a_world(strict=True)
    lenient.kube.first = strict.kube.first = failing(BROKEN)

    let_through = lenient.answer("binding", a_binding(node))
    refused = strict.answer("binding", a_binding(node))

    assert let_through.allowed
    assert "Unreachable" in let_through.warnings[0]
    assert (refused.allowed, refused.code, refused.retry_after_s) == (False, 503, 1)


def test_an_api_server_that_falls_silent_holds_no_binding_up():
    world = a_world()

    async def story() -> Answer:
        async def only_the_pod() -> None:
            if len(world.kube.read) > 1:
                await asyncio.sleep(60)

        world.kube.first = only_the_pod
        return await world.review("binding", a_binding())

    answer = world.tell(story)

    assert answer.allowed
    assert A in answer.warnings[0]  # what it would have been refused for
    assert world.took_s == BUDGET_S
