"""A pod that the webhook holds back for a VolumeMove."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from provisioner.inspect.command_line import Readers
from provisioner.inspect.explain.gathering.gatherer import Gatherer
from provisioner.inspect.explain.scheduling import held_rules
from provisioner.inspect.explain.view_rules import View
from provisioner.inspect.object_name_rules import ObjectName
from provisioner.inspect.reading.cloud import Cloud
from provisioner.inspect.reading.cluster import Cluster
from provisioner.inspect.reading.kinds import WATCHED_PODS
from provisioner.kube.resources import VOLUME_MOVES, Resource
from provisioner.metrics import Metrics
from provisioner.model.errors import KubeError, Reason
from provisioner.model.names import HELD_FOR_MOVE
from provisioner.model.pod import SchedulingGate
from provisioner.model.volume_move import API_VERSION, GATE, VolumeMove
from tests.builders import DRIVER
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
            {"move": None, "serves_moves": False},
            f"VolumeMove {MOVE} does not exist any more; this cluster has no VolumeMoves",
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


def test_without_the_kind_nobody_waits_for_a_controller():
    (found,) = chains(held(move=None, serves_moves=False))

    assert found.links[0].next.startswith("you; ")
    assert "start one" not in found.links[0].remedy


class Api:
    """An API server with one pod that is held back, and perhaps without the kind VolumeMove."""

    def __init__(self, *served: str, tells: bool = True) -> None:
        self._served = served
        self._tells = tells
        self.asked: list[tuple[str, str, str]] = []

    async def version(self) -> tuple[str, str]:
        return "v1.37.2", ""

    async def served(self) -> frozenset[tuple[str, str]]:
        if not self._tells:
            raise KubeError(Reason.FORBIDDEN, "cannot list groups: forbidden")
        return frozenset({("v1", "pods"), *((API_VERSION, each) for each in self._served)})

    async def get(self, resource: Resource[Any], name: str, namespace: str = "") -> Any:
        self.asked.append((resource.plural, namespace, name))
        if resource is WATCHED_PODS:
            return pod_of(**HELD)
        if resource is VOLUME_MOVES and not self._served:
            raise KubeError(Reason.REJECTED, "HTTP 404: 404 page not found", status=404)
        if resource is VOLUME_MOVES:
            return a_move()
        raise KubeError(Reason.OBJECT_NOT_FOUND, f"no {name}")

    async def list(self, _resource: Resource[Any], **_: str) -> Any:
        raise KubeError(Reason.OBJECT_NOT_FOUND, "none")


async def gathered(api: Api) -> View:
    readers = Readers(Cluster(cast("Any", api)), Cloud(None, Metrics()))
    return await Gatherer(readers, DRIVER, "kube-system").view(ObjectName("pod", "shop", "web-0"))


async def test_the_move_that_the_pod_names_is_read():
    api = Api("volumemoves")

    found = await gathered(api)

    assert found.move == a_move()
    assert found.serves_moves
    assert ("volumemoves", "shop", "data-to-b") in api.asked


async def test_a_kind_that_is_not_served_is_not_asked_for():
    """Its 404 is no object's, and would be told as a move that cannot be read."""
    api = Api()

    found = await gathered(api)

    assert found.move is None
    assert not found.serves_moves
    assert found.read("volumemoves")
    assert "volumemoves" not in {plural for plural, _, _ in api.asked}


async def test_a_server_that_does_not_say_what_it_serves_is_asked_for_the_move():
    served, without = Api("volumemoves", tells=False), Api(tells=False)

    assert (await gathered(served)).move == a_move()
    found = await gathered(without)
    assert found.serves_moves
    assert not found.read("volumemoves")


def test_a_gate_of_somebody_else_is_told_in_the_schedulers_words():
    pod = pod_of(**HELD | {"scheduling_gates": [SchedulingGate(name="example.com/quota")]})

    assert held_rules.move_of(pod) == ""
    assert causes(held(pod=pod))[0][0] != "HeldForVolumeMove"
