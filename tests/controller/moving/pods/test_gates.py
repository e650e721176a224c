"""Pods that wait for a move go on once it has let go of their claim, whatever became of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec import structs

from provisioner.controller.moving.pods import gate_rules as rules
from provisioner.controller.moving.pods.gates import Gates
from provisioner.controller.shared.caches import Caches
from provisioner.controller.shared.services import Services
from provisioner.kube.client import KubeClient, Patch
from provisioner.metrics import Metrics
from provisioner.model.decision import SETTLED, Later
from provisioner.model.errors import KubeError, Reason
from provisioner.model.pod import Pod, using_claims
from provisioner.model.volume_move import VolumeMove
from tests.builders import DRIVER
from tests.controller.moving.pods.test_gate_rules import GATE, a_pod, in_phase

GONE = KubeError(Reason.OBJECT_NOT_FOUND, "there is none", status=404)


class World:
    """The API server's answers, and a flow whose queue nobody works on but the test."""

    def __init__(self, live: VolumeMove | KubeError = GONE) -> None:
        self.live = live
        self.failure: KubeError | None = None
        self.patched: list[Any] = []
        self.version = 0
        client = cast("KubeClient", self)
        self.caches = Caches(client, Metrics(), DRIVER, follows_moves=True)
        services = SimpleNamespace(client=client, caches=self.caches, metrics=Metrics())
        self.flow = Gates(cast("Services", services))
        self.queued: list[str] = []
        cast("Any", self.flow.queue).add = self.queued.append
        self.flow.subscribe()

    async def get(self, resource: Any, name: str, namespace: str = "") -> VolumeMove:
        assert (resource.plural, namespace, name) == ("volumemoves", "shop", "to-b")
        if isinstance(self.live, KubeError):
            raise self.live
        return self.live

    async def patch(self, resource: Any, name: str, body: Any, *, kind: Patch, **_: Any) -> Pod:
        assert (resource.plural, name, kind) == ("pods", "web-0", Patch.STRATEGIC)
        self.patched.append(body)
        if self.failure is not None:
            raise self.failure
        return a_pod()

    def see_pod(self, pod: Pod) -> None:
        kept = using_claims(pod)
        assert kept is not None
        self.caches.pods._store.apply(kept)

    def see_move(self, move: VolumeMove) -> None:
        self.version += 1
        meta = structs.replace(move.metadata, resource_version=str(self.version))
        self.caches.moves._store.apply(structs.replace(move, metadata=meta))


async def test_a_pod_waits_while_a_move_holds_its_claim_and_its_end_wakes_it():
    world = World()
    world.see_move(in_phase("Held"))
    world.see_pod(a_pod(GATE))
    assert world.queued == ["shop/web-0"]
    assert await world.flow.reconcile("shop/web-0") == SETTLED
    assert world.patched == []

    world.see_move(in_phase("Snapshotting"))
    assert world.queued == ["shop/web-0"]
    world.see_move(in_phase("Cleaning"))
    assert world.queued == ["shop/web-0"] * 2
    assert await world.flow.reconcile("shop/web-0") == SETTLED
    assert world.patched == [rules.ungated(a_pod(GATE))]


async def test_the_deletion_of_a_move_wakes_its_pods_too():
    world = World()
    world.see_move(in_phase("Held"))
    world.see_pod(a_pod(GATE))
    world.queued.clear()

    world.caches.moves._store.remove("shop/to-b", "9")

    assert world.queued == ["shop/web-0"]
    assert await world.flow.reconcile("shop/web-0") == SETTLED
    assert len(world.patched) == 1


@pytest.mark.parametrize(
    "live",
    [in_phase("Done"), GONE, KubeError(Reason.REJECTED, "404 page not found", status=404)],
    ids=["ended", "deleted", "the kind is gone"],
)
async def test_a_pod_that_was_gated_late_goes_on_at_once(live: Any):
    world = World(live)
    world.see_pod(a_pod(GATE))

    assert await world.flow.reconcile("shop/web-0") == SETTLED
    assert len(world.patched) == 1


async def test_a_move_that_the_cache_does_not_have_yet_counts():
    world = World(in_phase("Held"))
    world.see_pod(a_pod(GATE))

    assert isinstance(await world.flow.reconcile("shop/web-0"), Later)
    assert world.patched == []


async def test_whether_a_move_has_ended_is_not_guessed():
    world = World(KubeError(Reason.UNREACHABLE, "no answer"))
    world.see_pod(a_pod(GATE))

    with pytest.raises(KubeError):
        await world.flow.reconcile("shop/web-0")
    assert world.patched == []


@pytest.mark.parametrize("note", ["", "lab/to-b"])
async def test_a_pod_that_names_no_move_of_its_namespace_goes_on(note: str):
    world = World(in_phase("Held"))
    world.see_pod(a_pod(GATE, held_for=note))

    assert await world.flow.reconcile("shop/web-0") == SETTLED
    assert len(world.patched) == 1


@pytest.mark.parametrize("reason", [Reason.CONFLICT, Reason.OBJECT_NOT_FOUND])
async def test_a_pod_that_was_replaced_or_deleted_meanwhile_is_no_failure(reason: Reason):
    world = World()
    world.see_pod(a_pod(GATE))
    world.failure = KubeError(reason, "it is another one")

    assert await world.flow.reconcile("shop/web-0") == SETTLED
    assert len(world.patched) == 1


async def test_the_gates_of_others_are_none_of_ours():
    world = World()
    world.see_pod(a_pod("example.com/other"))

    assert world.queued == []
    assert await world.flow.reconcile("shop/web-0") == SETTLED
    assert await world.flow.reconcile("shop/gone") == SETTLED
    assert world.patched == []
