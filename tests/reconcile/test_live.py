"""Live lists: who shares one, how old one may be, and how often they are fetched."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from provisioner.ec2.calls import GATE_S
from provisioner.kube.client import KubeClient
from provisioner.kube.resources import PERSISTENT_VOLUMES
from provisioner.kube.wire import Listing
from provisioner.model.errors import KubeError, Reason
from provisioner.reconcile.live import LiveLists
from tests.builders import VOLUME, a_persistent_volume
from tests.ec2.virtual_time import Clock, in_virtual_time


class Server:
    """An API server that takes its time to list, and can fail."""

    def __init__(self, clock: Clock, takes_s: float = 0.0) -> None:
        self._clock, self._takes_s = clock, takes_s
        self.begun_at: list[float] = []
        self.version = 1
        self.failure: Exception | None = None

    async def list(self, resource: Any) -> Listing[Any]:
        if resource is not PERSISTENT_VOLUMES:
            return Listing(items=[], resource_version=str(self.version), unreadable_keys=())
        self.begun_at.append(self._clock())
        await asyncio.sleep(self._takes_s)
        if self.failure is not None:
            raise self.failure
        items = [a_persistent_volume(), a_persistent_volume("imported", driver="my.ebs")]
        return Listing(items=items, resource_version=str(self.version), unreadable_keys=())


def told(
    story: Callable[[LiveLists, Server], Coroutine[Any, Any, None]], takes_s: float = 0.0
) -> list[float]:
    """When lists were begun in the story."""

    async def whole(clock: Clock) -> list[float]:
        server = Server(clock, takes_s)
        live = LiveLists(cast("KubeClient", server))
        await story(live, server)
        await live.close()
        return server.begun_at

    return in_virtual_time(whole)


def test_all_who_ask_at_about_the_same_time_share_one_list() -> None:
    async def story(live: LiveLists, _: Server) -> None:
        answers = await asyncio.gather(*(live.snapshot() for _ in range(1000)))
        assert len({id(answer) for answer in answers}) == 1
        assert answers[0].named_volume_ids == {VOLUME}

    assert len(told(story)) == 1


def test_a_volume_is_named_by_objects_of_any_driver() -> None:
    async def story(live: LiveLists, _: Server) -> None:
        names = (await live.snapshot()).names_by_volume[VOLUME]
        assert names == {a_persistent_volume().name, "imported"}

    told(story)


def test_who_asks_while_a_list_is_fetched_gets_the_next_one() -> None:
    async def story(live: LiveLists, _: Server) -> None:
        first = asyncio.create_task(live.snapshot())
        await asyncio.sleep(0.1)
        assert await live.snapshot() is not await first

    assert len(told(story, takes_s=0.2)) == 2


def test_who_asks_while_lists_rest_gets_the_very_next_one() -> None:
    async def story(live: LiveLists, server: Server) -> None:
        await live.snapshot()
        early = asyncio.create_task(live.snapshot())
        await asyncio.sleep(0.2)  # lists rest until 0.8 s after the first has begun
        late = await live.snapshot()
        assert late is await early

    assert len(told(story, takes_s=0.4)) == 2


def test_whoever_asks_gets_a_list_begun_afterwards_and_one_at_a_time_is_fetched() -> None:
    async def story(live: LiveLists, server: Server) -> None:
        now = asyncio.get_running_loop().time
        snapshots: dict[int, float] = {}

        async def ask() -> None:
            asked_at = now()
            found = await live.snapshot()
            begun_at = snapshots.setdefault(id(found), server.begun_at[-1])
            kept.append(found)
            assert begun_at >= asked_at

        kept: list[object] = []  # so that no id is used twice
        async with asyncio.TaskGroup() as asking:
            for _ in range(1000):
                asking.create_task(ask())
                await asyncio.sleep(0.005)

    begun_at = told(story, takes_s=0.3)

    assert len(begun_at) <= 5 / 0.6 + 2


def test_a_slow_list_is_waited_for_before_the_next_is_begun() -> None:
    async def story(live: LiveLists, _: Server) -> None:
        early = asyncio.create_task(live.snapshot())
        await asyncio.sleep(0.1)
        await live.snapshot()
        assert early.done()

    first, second = told(story, takes_s=4.0)

    assert second - first > 4.0


def test_who_waits_for_lists_at_the_end_is_cancelled() -> None:
    async def story(live: LiveLists, _: Server) -> None:
        asking = [asyncio.create_task(live.snapshot())]
        await asyncio.sleep(0.1)
        asking.append(asyncio.create_task(live.snapshot()))
        await asyncio.sleep(0.1)
        await live.close()
        ended = await asyncio.gather(*asking, return_exceptions=True)
        assert [type(each) for each in ended] == [asyncio.CancelledError] * 2

    assert len(told(story, takes_s=60)) == 1


def test_a_list_of_the_last_seconds_serves_what_was_written_before_it() -> None:
    async def story(live: LiveLists, server: Server) -> None:
        server.version = 7
        known = await live.snapshot()
        assert await live.snapshot(since="7") is known
        server.version = 8
        assert (await live.snapshot(since="8")).version == 8

    told(story)


def test_a_list_is_not_used_after_ten_seconds() -> None:
    async def story(live: LiveLists, _: Server) -> None:
        known = await live.snapshot()
        await asyncio.sleep(10.1)
        assert await live.snapshot(since="1") is not known

    told(story)


def test_lists_take_no_more_than_half_of_the_time() -> None:
    async def story(live: LiveLists, server: Server) -> None:
        while len(server.begun_at) < 4:
            await live.snapshot()

    begun_at = told(story, takes_s=0.4)

    pauses = [late - early for early, late in itertools.pairwise(begun_at)]
    assert min(pauses) == pytest.approx(0.8)


@pytest.mark.parametrize("takes_s", [2.0, 4.0])
def test_the_rest_after_slow_lists_leaves_a_last_look_enough_time(takes_s: float) -> None:
    async def story(live: LiveLists, _: Server) -> None:
        await live.snapshot()
        async with asyncio.timeout(GATE_S):
            await live.nobody_names("vol-of-nobody")

    first, second = told(story, takes_s=takes_s)

    assert second - first == pytest.approx(takes_s + 2.0)


def test_short_lists_follow_each_other_four_times_a_second_at_most() -> None:
    async def story(live: LiveLists, server: Server) -> None:
        while len(server.begun_at) < 5:
            await live.snapshot()

    begun_at = told(story, takes_s=0.001)

    assert begun_at[-1] - begun_at[0] == pytest.approx(1.0, abs=0.01)


def test_a_list_that_failed_is_not_asked_for_again_within_a_second() -> None:
    async def story(live: LiveLists, server: Server) -> None:
        server.failure = KubeError(Reason.UNREACHABLE, "the API server is away")
        for _ in range(3):
            with pytest.raises(KubeError):
                await live.snapshot()

    begun_at = told(story)

    assert begun_at[-1] - begun_at[0] == pytest.approx(2.0, abs=0.01)
