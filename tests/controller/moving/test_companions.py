"""When the other claims of the same pods are read, and when what a cache has of them is enough."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from provisioner.controller.moving.phase_rules import Await, Undo
from provisioner.controller.moving.together.companions import Companions
from provisioner.kube.resources import CLAIMS, PLACED_VOLUMES, VOLUME_MOVES
from provisioner.model.claim import Claim
from provisioner.model.persistent_volume import PlacedVolume
from provisioner.model.volume_move import VolumeMove, VolumeMoveStatus


def a_move(claim: str, phase: str, *others: str) -> VolumeMove:
    body = {
        "metadata": {"name": claim, "namespace": "shop", "uid": f"uid-{claim}"},
        "spec": {"claimName": claim, "to": {"zone": "b"}, "movedWith": others},
        "status": {"phase": phase},
    }
    return msgspec.convert(body, VolumeMove)


class FakeApi:
    """The API server and a cache, which may be behind it; ``asked``: how often it was read."""

    def __init__(self, cached: list[VolumeMove], now: list[VolumeMove]) -> None:
        self.now, self.asked = now, 0
        moves = SimpleNamespace(
            keyed=lambda _, key: [each for each in cached if each.claim_key == key]
        )
        self.caches = SimpleNamespace(moves=moves)
        self.client = self

    async def list(self, kind: Any, *, namespace: str) -> Any:
        assert (kind, namespace) == (VOLUME_MOVES, "shop")
        self.asked += 1
        return SimpleNamespace(items=self.now)

    async def get(self, kind: Any, name: str, namespace: str = "") -> Any:
        self.asked += 1
        if kind is CLAIMS:
            body = {"metadata": {"name": name}, "spec": {"volumeName": "pv"}}
            return msgspec.convert(body, Claim)
        assert kind is PLACED_VOLUMES
        return PlacedVolume()


MINE = a_move("data", "Snapshotting", "logs")
GOING, FAILED = a_move("logs", "Held", "data"), a_move("logs", "Aborting", "data")


@pytest.mark.parametrize(
    ("cached", "now", "is_read", "is_undone"),
    [
        ([GOING], [GOING], False, False),
        ([GOING], [FAILED], False, False),  # the next look finds it
        ([FAILED], [GOING], True, False),
        ([], [GOING], True, False),
        ([FAILED], [FAILED], True, True),
        ([], [], True, True),
    ],
    ids=["goes on", "not known yet", "another one by now", "new", "failed", "deleted"],
)
async def test_what_a_cache_says_has_failed_is_read_before_it_is_believed(
    cached: list[VolumeMove], now: list[VolumeMove], *, is_read: bool, is_undone: bool
):
    api = FakeApi(cached, [MINE, *now])
    companions = Companions(cast("Any", api))

    found = await companions.undone(MINE)

    assert isinstance(found, Undo) is is_undone
    assert (api.asked > 0) is is_read


async def test_a_move_alone_reads_nothing():
    api = FakeApi([], [])

    assert await Companions(cast("Any", api)).undone(a_move("data", "Held")) is None
    assert api.asked == 0


@pytest.mark.parametrize("ask", ["before_begin", "before_stop", "before_swap", "before_return"])
async def test_of_a_hundred_that_wait_for_one_nobody_reads_the_others_again_and_again(ask: str):
    names = [f"data-{number:03}" for number in range(100)]
    phases = {"before_begin": "", "before_stop": "Warming", "before_swap": "Creating"}

    def one(name: str, phase: str) -> VolumeMove:
        return a_move(name, phase, *(each for each in names if each != name))

    moves = [one(each, phases.get(ask, "Swapping")) for each in names]
    api = FakeApi(moves, moves)

    waits = await getattr(Companions(cast("Any", api)), ask)(moves[0])

    assert isinstance(waits, Await)
    assert api.asked == 0


async def test_that_all_can_go_on_is_read_but_not_the_claims_of_those_that_do():
    ready = msgspec.structs.replace(GOING, status=VolumeMoveStatus(phase="Creating", ready=True))
    api = FakeApi([ready], [MINE, ready])

    assert await Companions(cast("Any", api)).before_swap(MINE) is None
    assert api.asked == 1
