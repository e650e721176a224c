"""A pod that the webhook holds back for a VolumeMove."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from provisioner.inspect.explain.gathering.gatherer import Gatherer
from provisioner.inspect.explain.scheduling import held_rules
from provisioner.inspect.explain.view_rules import View
from provisioner.kube.resources import VOLUME_MOVES, Resource
from provisioner.model.names import HELD_FOR_MOVE
from provisioner.model.pod import SchedulingGate
from provisioner.model.volume_move import GATE, VolumeMove
from tests.inspect.explain.views import causes, chains, claim_of, claim_view, pod_of, view

MOVE = "shop/data-to-b"
HELD: dict[str, Any] = {
    "node": "",
    "scheduling_gates": [SchedulingGate(name=GATE)],
    "annotations": {HELD_FOR_MOVE: MOVE},
}


def a_move(phase: str = "Held", message: str = "waiting for pods web-1 to end") -> VolumeMove:
    body = {
        "metadata": {"name": "data-to-b", "namespace": "shop"},
        "spec": {"claimName": "data", "to": {"zone": "us-east-1b"}},
        "status": {"phase": phase, "message": message},
    }
    return msgspec.convert(body, VolumeMove)


def held(**changes: Any) -> View:
    usual: dict[str, Any] = {"pod": pod_of(**HELD), "node": None, "move": a_move()}
    return view("pod", **usual | changes)


def test_the_move_its_phase_and_what_it_waits_for_are_named():
    (found,) = chains(held())

    first, last = found.links
    assert causes(held()) == [["HeldForVolumeMove", "NoNodeFits"]]
    assert f"VolumeMove {MOVE} is giving claim shop/data another volume" in first.sentence
    assert "in the phase Held" in first.sentence
    assert first.proof.seen == "phase Held: waiting for pods web-1 to end"
    assert first.remedy.endswith("or abort it.")
    assert first.command == f"kubectl ebs move --resume {MOVE}"
    assert "So pod shop/web-0 is held back" in last.sentence
    assert found.waits


def test_in_the_swap_nobody_is_told_to_abort():
    (found,) = chains(held(move=a_move("Swapping", "")))

    assert found.links[0].proof.seen == "phase Swapping"
    assert "abort" not in found.links[0].remedy


def test_a_claim_that_comes_and_goes_in_the_swap_is_not_the_cause():
    gone = claim_view(claim=claim_of("Lost"))

    assert causes(held(claims=(gone,)))[0][0] == "HeldForVolumeMove"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"move": None}, f"VolumeMove {MOVE} does not exist any more"),
        ({"move": a_move("Done", "")}, f"VolumeMove {MOVE} holds its claims no more (phase Done)"),
        (
            {"move": None, "unread": frozenset({"get volumemoves"})},
            f"VolumeMove {MOVE} cannot be read",
        ),
        (
            {"move": None, "pod": pod_of(**HELD | {"annotations": {}})},
            "no VolumeMove is named on it",
        ),
    ],
)
def test_a_gate_that_stays_is_to_be_removed(changes: Any, said: str):
    (found,) = chains(held(**changes))

    (link,) = found.links
    assert said in link.sentence
    assert not found.waits
    assert link.command == (
        "kubectl -n shop patch pod web-0 --type=strategic -p "
        '\'{"spec": {"schedulingGates": [{"name": "ebs-provisioner.io/volume-move", '
        '"$patch": "delete"}]}}\''
    )


def test_a_gate_of_somebody_else_is_told_in_the_schedulers_words():
    pod = pod_of(**HELD | {"scheduling_gates": [SchedulingGate(name="example.com/quota")]})

    assert held_rules.move_of(pod) == ""
    assert causes(held(pod=pod))[0][0] != "HeldForVolumeMove"


async def test_the_move_that_the_pod_names_is_read():
    asked: list[tuple[str, str, str]] = []

    async def one(resource: Resource[Any], name: str, namespace: str = "") -> Any:
        asked.append((resource.plural, namespace, name))
        kinds = {"pods": pod_of(**HELD), VOLUME_MOVES.plural: a_move()}
        return kinds.get(resource.plural)

    async def nothing(*_: Any, **__: Any) -> Any:
        return ()

    gatherer = object.__new__(Gatherer)
    gatherer._cluster = SimpleNamespace(one=one, every=nothing)  # type: ignore[assignment]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("provisioner.inspect.explain.gathering.told.about", nothing)
        start = view("pod", pod=None, claims=(), node=None)
        patched.setattr(gatherer, "_claim", lambda *_, **__: _claim_view())
        found = await gatherer._of_pod(start)

    assert found.move == a_move()
    assert ("volumemoves", "shop", "data-to-b") in asked


async def _claim_view() -> Any:
    return claim_view("Bound")
