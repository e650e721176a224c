"""Several moves that have scaled one owner down give it back together, whichever ends first."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from msgspec import structs

from provisioner.controller.moving.phase_rules import Await
from provisioner.controller.moving.pods import consumer_rules as rules
from provisioner.controller.moving.pods.consumers import Consumers
from provisioner.model.errors import KubeError, Reason
from provisioner.model.volume_move import MoveConsumer, VolumeMove, VolumeMoveStatus
from provisioner.model.workload import Workload

THREE = [*itertools.permutations((2, 1, 0))]
WEB = MoveConsumer(kind="StatefulSet", name="web", uid="w")


class Cluster:
    """An API server with one StatefulSet and the moves of its claims; ``cached``: as of before."""

    def __init__(self, replicas: int = 3) -> None:
        self.replicas, self.generation = replicas, 1
        self.moves: dict[str, VolumeMove] = {}
        self.cached: dict[str, VolumeMove] = {}
        self.dies_before_it_writes = False
        self.before_list = self.after_list = lambda: None  # once
        caches = SimpleNamespace(moves=SimpleNamespace(values=self.cached.values))
        services = SimpleNamespace(client=self, caches=caches)
        self.consumers = Consumers(cast("Any", services), cast("Any", self))

    @property
    def web(self) -> Workload:
        meta = {"name": "web", "namespace": "shop", "uid": "w", "generation": self.generation}
        body = {"metadata": meta, "spec": {"replicas": self.replicas}}
        return msgspec.convert(body, Workload)

    def scale(self, replicas: int) -> None:
        self.replicas, self.generation = replicas, self.generation + 1

    async def get(self, *_: Any) -> Workload:
        return self.web

    async def patch(self, _: Any, __: str, body: Any, **___: Any) -> None:
        self.scale(body["spec"]["replicas"])

    async def list(self, _: Any, *, namespace: str) -> Any:
        assert namespace == "shop"
        before, after = self.before_list, self.after_list
        self.before_list = self.after_list = lambda: None
        before()
        found = [*self.moves.values()]
        after()
        return SimpleNamespace(items=found)

    async def write(self, move: VolumeMove, status: Any) -> VolumeMove:
        if self.dies_before_it_writes:
            self.dies_before_it_writes = False
            raise KubeError(Reason.REPLY_LOST, "the process ends here")
        told = structs.replace(
            move.told, consumers=msgspec.convert(status["consumers"], list[MoveConsumer])
        )
        self.moves[move.name] = structs.replace(move, status=told)
        return self.moves[move.name]

    def stop_for(self, number: int) -> str:
        """Scale down for the claim of one replica; the move's name."""
        name = f"data-web-{number}"
        before = self.moves[name].told.consumers if name in self.moves else []
        known = before or [structs.replace(WEB, scale_to=number)]
        step = rules.next_stop(known[0], self.web)
        consumers = [step.consumer] if isinstance(step, rules.ScaleDown) else before
        meta = {"name": name, "namespace": "shop", "uid": name}
        move = msgspec.convert({"metadata": meta}, VolumeMove)
        status = VolumeMoveStatus(phase="Cleaning", consumers=consumers)
        self.moves[name] = structs.replace(move, status=status)
        if isinstance(step, rules.ScaleDown):
            self.scale(number)
        return name

    async def end(self, name: str) -> Await | None:
        """One look of a move that ends."""
        _, waits = await self.consumers.bring_back(self.moves[name], is_settled=True)
        return waits

    async def end_all(self, *names: str) -> None:
        """They end in this order, and those that wait are looked at again."""
        for _ in names:
            for name in names:
                await self.end(name)
        assert not any(rules.is_owed(each.told.consumers) for each in self.moves.values())


@pytest.mark.parametrize("order", THREE)
@pytest.mark.parametrize("begun", THREE)
async def test_an_owner_has_all_replicas_again_in_whatever_order_its_moves_end(
    begun: tuple[int, ...], order: tuple[int, ...]
):
    cluster = Cluster()
    for number in begun:
        cluster.stop_for(number)
    assert cluster.replicas == 0

    await cluster.end_all(*(f"data-web-{number}" for number in order))

    assert cluster.replicas == 3


async def test_a_move_that_waits_for_another_names_it():
    cluster = Cluster()
    last, first = cluster.stop_for(2), cluster.stop_for(0)

    waits = await cluster.end(last)

    assert waits is not None
    assert waits.message == (
        "waiting until VolumeMove shop/data-web-0 has scaled StatefulSet web back, which it has "
        "scaled further down"
    )
    assert (cluster.replicas, rules.is_owed(cluster.moves[last].told.consumers)) == (0, True)
    assert await cluster.end(first) is None
    assert cluster.replicas == 2


@pytest.mark.parametrize("dies_in", range(3))
async def test_a_process_that_dies_after_it_scaled_back_loses_no_replicas(dies_in: int):
    cluster = Cluster()
    for number in (2, 1, 0):
        cluster.stop_for(number)
    for at, number in enumerate((0, 1, 2)):
        name = f"data-web-{number}"
        cluster.dies_before_it_writes = at == dies_in
        if cluster.dies_before_it_writes:
            with pytest.raises(KubeError):
                await cluster.end(name)
            await cluster.end("data-web-2")  # the next leader looks at another one first
        await cluster.end(name)

    await cluster.end_all("data-web-2", "data-web-1", "data-web-0")
    assert cluster.replicas == 3


async def test_an_old_cache_that_knows_no_other_move_is_not_believed():
    cluster = Cluster()
    last, first = cluster.stop_for(2), cluster.stop_for(0)
    cluster.cached[last] = cluster.moves[last]

    assert await cluster.end(last) is not None
    await cluster.end(first)
    await cluster.end(last)

    assert cluster.replicas == 3


async def test_whoever_waits_by_a_cache_reads_no_moves():
    cluster = Cluster()
    last, first = cluster.stop_for(2), cluster.stop_for(0)
    cluster.cached[first] = cluster.moves[first]
    cluster.before_list = lambda: pytest.fail("the moves were read")

    assert await cluster.end(last) is not None


async def test_another_move_that_scales_the_owner_after_moves_were_read_is_seen():
    cluster = Cluster()
    last = cluster.stop_for(2)
    cluster.scale(1)  # somebody else, for a moment

    def begin() -> None:
        cluster.scale(2)
        cluster.stop_for(0)

    cluster.after_list = begin
    await cluster.end(last)
    await cluster.end_all(last, "data-web-0")

    assert cluster.replicas == 3


async def test_another_move_that_gives_the_owner_back_before_moves_are_read_is_seen():
    cluster = Cluster()
    last, first = cluster.stop_for(2), cluster.stop_for(0)

    def give_back() -> None:
        (web,) = cluster.moves[first].told.consumers
        told = structs.replace(
            cluster.moves[first].told, consumers=[structs.replace(web, is_back=True)]
        )
        cluster.moves[first] = structs.replace(cluster.moves[first], status=told)
        cluster.scale(2)

    cluster.before_list = give_back
    await cluster.end(last)
    await cluster.end_all(last)

    assert cluster.replicas == 3


@pytest.mark.parametrize("order", [(2, 1), (1, 2)])
@pytest.mark.parametrize("asked", [0, 5])
async def test_who_scales_the_owner_in_between_has_the_last_word(
    order: tuple[int, ...], asked: int
):
    """And no two moves wait for each other for ever."""
    cluster = Cluster()
    cluster.stop_for(2)
    cluster.stop_for(1)
    cluster.scale(asked)

    await cluster.end_all(*(f"data-web-{number}" for number in order))

    assert cluster.replicas == asked


@pytest.mark.parametrize("order", THREE)
@pytest.mark.parametrize("again", THREE)
async def test_what_somebody_has_scaled_up_and_moves_have_scaled_down_again_comes_back(
    again: tuple[int, ...], order: tuple[int, ...]
):
    cluster = Cluster()
    for number in (2, 1, 0):
        cluster.stop_for(number)
    cluster.scale(5)
    for number in again:
        cluster.stop_for(number)

    await cluster.end_all(*(f"data-web-{number}" for number in order))

    assert cluster.replicas == 5


async def test_two_that_have_left_an_owner_as_many_replicas_do_not_wait_for_each_other():
    cluster = Cluster()
    first = cluster.stop_for(2)
    cluster.scale(3)
    second = cluster.stop_for(2)
    cluster.moves["logs-web-2"] = structs.replace(
        cluster.moves[second],
        metadata=structs.replace(
            cluster.moves[second].metadata, name="logs-web-2", uid="logs-web-2"
        ),
    )
    cluster.scale(1)  # a user's word

    await cluster.end_all(first, "logs-web-2")

    assert cluster.replicas == 1


async def test_one_that_waits_for_another_reads_the_owner_once_a_look():
    cluster = Cluster()
    first, second = cluster.stop_for(2), cluster.stop_for(1)
    cluster.cached.update(cluster.moves)
    read: list[str] = []
    found = cluster.get

    async def get(*given: Any) -> Workload:
        read.append(given[1])
        return await found(*given)

    cluster.get = get  # type: ignore[method-assign]

    assert await cluster.end(first) is not None
    assert read == ["web"]
    assert rules.waits_to_give_back(cluster.moves[first], cluster.moves.values())
    assert not rules.waits_to_give_back(cluster.moves[second], cluster.moves.values())
