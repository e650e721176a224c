"""Whether the oracle sees what it is there for, each fault alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.day.api_server import ApiServer
from tests.day.clocks import NOW
from tests.day.cluster import Cluster, Life
from tests.day.oracle import LEAK_GRACE_S, Oracle, Shown
from tests.day.story import COMPARE_EVERY_S

PLURALS = ("persistentvolumes", "persistentvolumeclaims", "volumeattachments")


class World:
    """One claim with its volume, attached to one node: nothing is wrong."""

    def __init__(self) -> None:
        self.api = ApiServer([("v1", each, each) for each in PLURALS])
        self.made = {"pvc-1": {"vol-1"}}
        self.there = {"vol-1": Shown(is_going=False, attached_to=("i-1",))}
        life = Life("shop/data", "uid-1", "us-east-1a", wants_pod=True)
        node = SimpleNamespace(instance_id="i-1")
        self.cluster = SimpleNamespace(lives={"uid-1": life}, nodes={"node-1": node})
        self.api.load(PLURALS[0], self.a_volume("pvc-1", "vol-1", "uid-1"))
        claim = {"namespace": "shop", "name": "data", "uid": "uid-1"}
        bound = {"spec": {"volumeName": "pvc-1"}, "status": {"phase": "Bound"}}
        self.api.load(PLURALS[1], {"metadata": claim, **bound})
        source = {"persistentVolumeName": "pvc-1"}
        self.api.load(
            PLURALS[2],
            {
                "metadata": {"name": "csi-1"},
                "spec": {"nodeName": "node-1", "source": source},
                "status": {"attached": True},
            },
        )
        self.oracle = Oracle(self.api, self, cast("Cluster", self.cluster))

    @staticmethod
    def a_volume(name: str, handle: str, uid: str) -> dict[str, Any]:
        spec = {"csi": {"volumeHandle": handle}, "claimRef": {"uid": uid}}
        return {"metadata": {"name": name}, "spec": spec, "status": {"phase": "Bound"}}

    def shown(self) -> dict[str, Shown]:
        return self.there


def _no_volume(world: World) -> None:
    world.there = {}


def _another_volume(world: World) -> None:
    world.there["vol-2"] = Shown(is_going=False, attached_to=())


def _second_volume(world: World) -> None:
    world.made["pvc-1"].add("vol-2")


def _left_behind(world: World) -> None:
    world.there["vol-2"] = Shown(is_going=False, attached_to=())
    world.api.load(PLURALS[0], world.a_volume("pvc-2", "vol-2", "uid-2"))


def _elsewhere(world: World) -> None:
    world.there["vol-1"] = Shown(is_going=False, attached_to=("i-2",))


def _not_attached(world: World) -> None:
    world.there["vol-1"] = Shown(is_going=False, attached_to=())


def _no_persistent_volume(world: World) -> None:
    del world.api.kinds[PLURALS[0]].objects["pvc-1"]


def _no_claim(world: World) -> None:
    del world.api.kinds[PLURALS[1]].objects["shop/data"]


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (_no_volume, "lost: pvc-1 names vol-1, which EC2 does not have"),
        (_no_persistent_volume, "lost: shop/data is Bound to pvc-1, which is not there"),
        (_no_claim, "lost: claim shop/data itself"),
        (_second_volume, "doubled: pvc-1 had ['vol-1', 'vol-2']"),
        (_another_volume, "leaked: vol-2, which no persistent volume names"),
        (_left_behind, "leaked: pvc-2, whose claim is gone"),
        (_elsewhere, "misplaced: vol-1 is on i-2, and nobody wants it there"),
        (_not_attached, "misplaced: vol-1 is said to be on i-1, and is not"),
    ],
    ids=lambda each: each.__name__ if callable(each) else "",
)
def test_it_sees(fault: Callable[[World], None], says: str) -> None:
    world = World()
    assert world.oracle.wrong(at_rest=True) == []

    fault(world)

    assert says in world.oracle.wrong(at_rest=True)


def _told_at_s(world: World, monkeypatch: pytest.MonkeyPatch, *, rights_itself_s: float) -> float:
    """When it tells of a volume that is away until then; 0 if never."""
    # Whole seconds, so that a difference of two times is exact.
    began_s, there = math.ceil(NOW.s), world.there
    world.there = {}
    for look in range(8):
        passed_s = look * COMPARE_EVERY_S
        monkeypatch.setattr(NOW, "s", began_s + passed_s)
        if passed_s >= rights_itself_s:
            world.there = there
        if world.oracle.wrong(at_rest=False):
            return passed_s
    return 0.0


@pytest.mark.parametrize(("lasts_s", "told_s"), [(2_700.0, 0.0), (2_701.0, 2_700.0)])
def test_what_is_wrong_for_45_minutes_counts_and_passes_unseen_before(
    lasts_s: float, told_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _told_at_s(World(), monkeypatch, rights_itself_s=lasts_s) == told_s


def test_what_was_right_at_one_look_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    assert _told_at_s(world, monkeypatch, rights_itself_s=1_800.0) == 0.0

    world.there = {}

    assert world.oracle.wrong(at_rest=False) == []


def test_a_second_volume_counts_at_once() -> None:
    world = World()
    _second_volume(world)

    assert world.oracle.wrong(at_rest=False) == ["doubled: pvc-1 had ['vol-1', 'vol-2']"]


def test_what_is_under_way_has_time_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    _another_volume(world)
    began_s = math.ceil(NOW.s)

    found = []
    for passed_s in (0.0, LEAK_GRACE_S - 1, LEAK_GRACE_S + 1):
        monkeypatch.setattr(NOW, "s", began_s + passed_s)
        found.append(len(world.oracle.wrong(at_rest=False)))

    assert found == [0, 0, 1]
