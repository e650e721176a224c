"""Pods of claims that are moved, as the webhook answers by its cache of VolumeMoves."""

import asyncio
from typing import Any

import pytest

from provisioner.model.volume_move import HOLDING, Phase
from tests.webhook.edges import Kube, a_claim, a_node, a_persistent_volume, settled
from tests.webhook.reviews.pods import ZONE, A, B, a_pod, claimed
from tests.webhook.world import World
from webhook.model.review import Json

KIND = ("ebs-provisioner.io/v1alpha1", "volumemoves")
HELD = "HeldForMove"


def a_move(phase: str = "Held", *, name: str = "to-b", claim: str = "data", **spec: Any) -> Json:
    return {
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"claimName": claim, "to": {"zone": B}, **spec},
        "status": {"phase": phase},
    }


def a_world(*moves: Json, **more: Any) -> World:
    kube = Kube(kinds={KIND})
    kube.put("volumemoves", *moves)
    kube.put("nodes", a_node("node-a", zone=A), a_node("node-b", zone=B))
    return World(kube, follows_moves=True, **more)


def test_a_pod_is_held_back_from_the_phase_held_until_the_exchange_is_done():
    found = {
        phase: a_world(a_move(phase)).answer("new pod", a_pod(*claimed("data"))).why
        for phase in Phase
    }

    assert {phase for phase, why in found.items() if why == HELD} == HOLDING
    assert {"Held", "Snapshotting", "Creating", "Checking", "Copying", "Swapping"} == HOLDING


def test_a_dry_run_and_a_phase_of_a_newer_controller_hold_nobody_back():
    for move in (a_move(dryRun=True), a_move("Painting")):
        assert a_world(move).answer("new pod", a_pod(*claimed("data"))).patch == ()


def test_the_end_of_a_move_and_the_move_of_another_claim_are_noticed():
    world = a_world(a_move())

    async def story() -> list[str]:
        said = []
        for _ in range(2):
            for claim in ("data", "logs"):
                answer = await world.review("new pod", a_pod(*claimed(claim)))
                said.append(f"{claim} {answer.why}")
            world.kube.put("volumemoves", a_move("Cleaning"), a_move(name="logs", claim="logs"))
            await settled()
        return said

    assert world.tell(story) == [
        f"data {HELD}",
        "logs NothingToDo",
        "data NothingToDo",
        f"logs {HELD}",
    ]


def test_moves_that_the_api_server_serves_later_are_followed_then():
    world = a_world()
    world.kube.kinds.clear()

    async def story() -> list[str]:
        world.kube.put("volumemoves", a_move(), unseen=True)
        before = (await world.review("new pod", a_pod(*claimed("data")))).why
        world.kube.kinds.add(KIND)
        await asyncio.sleep(30)
        return [before, (await world.review("new pod", a_pod(*claimed("data")))).why]

    assert world.tell(story) == ["NothingToDo", HELD]


def test_moves_that_cannot_be_listed_do_not_keep_the_webhook_from_answering(
    monkeypatch: pytest.MonkeyPatch,
):
    world, listed = a_world(a_move()), Kube.list

    async def hanging(self: Kube, resource: Any, **how: Any) -> Any:
        if resource.plural == "volumemoves":
            await asyncio.sleep(1e6)
        return await listed(self, resource, **how)

    monkeypatch.setattr(Kube, "list", hanging)

    assert world.answer("new pod", a_pod(*claimed("data"))).why == "NothingToDo"


def test_without_the_option_no_move_is_looked_at():
    world = a_world(a_move())
    world.follows_moves = False

    assert world.answer("new pod", a_pod(*claimed("data"))).why == "NothingToDo"


@pytest.mark.parametrize(("phase", "is_refused"), [("Held", False), ("Done", True)])
def test_in_which_zone_a_claim_is_does_not_count_while_it_is_moved(phase: str, is_refused: bool):  # noqa: FBT001 -- parameter of a test
    world = a_world(a_move(phase))
    world.kube.put("persistentvolumes", a_persistent_volume("pv-1", zone=A))
    world.kube.put("persistentvolumeclaims", a_claim("data", bound="pv-1"))

    answer = world.answer("pod", a_pod(*claimed("data"), selector={ZONE: B}))

    assert answer.allowed is not is_refused
