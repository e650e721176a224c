"""A cache that catches up is as good as a list, and costs the same however much there is."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, cast

import pytest

from provisioner.kube import informer as informers
from provisioner.kube.client import KubeClient
from provisioner.kube.informer import Informer
from provisioner.kube.resources import CLAIMS, PERSISTENT_VOLUMES, Resource
from provisioner.metrics import Metrics
from provisioner.model.errors import KubeError, Reason
from provisioner.model.persistent_volume import PersistentVolume
from tests.builders import a_claim, a_persistent_volume
from tests.ec2.virtual_time import Clock, in_virtual_time
from tests.kube.behind import Behind, after

MANY = 600
Story = Callable[[Behind, Informer[Any]], Coroutine[Any, Any, None]]


def volumes(api: Behind, count: int) -> Resource[Any]:
    for n in range(count):
        api.put(PERSISTENT_VOLUMES, a_persistent_volume(f"pv-{n}"))
    return PERSISTENT_VOLUMES


def claims(api: Behind, count: int) -> Resource[Any]:
    for n in range(count):
        api.put(CLAIMS, a_claim(f"data-{n}"))
    return CLAIMS


def told(
    story: Story,
    api: Behind,
    *,
    objects: int,
    put: Callable[[Behind, int], Resource[Any]] = volumes,
) -> None:
    """A story of a cache that was filled, with an API server that is asked from then on."""

    async def whole(_: Clock) -> None:
        informer = Informer(cast("KubeClient", api), put(api, objects), Metrics())
        following = asyncio.create_task(informer.run())
        await informer.synced.wait()
        await asyncio.sleep(1)
        api.asked.clear()
        api.asked_at.clear()
        api.asked_of.clear()
        api.carried = 0
        await story(api, informer)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    in_virtual_time(whole)


def names(informer: Informer[PersistentVolume]) -> set[str]:
    return {each.name for each in informer.values()}


def now_s() -> float:
    return asyncio.get_running_loop().time()


def test_a_few_quiet_objects_are_listed() -> None:
    async def story(api: Behind, informer: Informer[PersistentVolume]) -> None:
        began_s = now_s()
        api.end(PERSISTENT_VOLUMES, a_persistent_volume("pv-0"))
        api.put(PERSISTENT_VOLUMES, a_persistent_volume("new"))

        await informer.catch_up()

        assert names(informer) == {"pv-1", "pv-2", "new"}
        assert api.asked == ["page of 1", "page of 500"]
        assert now_s() - began_s < 0.2

    told(story, Behind(), objects=3)


@pytest.mark.parametrize("objects", [3, MANY])
def test_where_the_watch_shows_changes_soon_nothing_is_listed(objects: int) -> None:
    async def story(api: Behind, informer: Informer[PersistentVolume]) -> None:
        api.put(PERSISTENT_VOLUMES, a_persistent_volume("new"))

        await informer.catch_up()

        assert "new" in names(informer)
        # Among many, for one name only: nothing is carried, and nothing counted.
        assert (api.asked, api.carried) == (["page of 1"], 0 if objects == MANY else 1)

    told(story, Behind(lag_s=0.05), objects=objects)


def test_a_quiet_kind_is_proven_by_a_short_watch() -> None:
    async def story(api: Behind, informer: Informer[PersistentVolume]) -> None:
        began_s = now_s()
        api.version += 1  # something of another kind has changed

        await informer.catch_up()

        assert api.asked.count("short watch") == 1
        assert "list" not in api.asked
        assert api.carried <= 2
        assert now_s() - began_s < 3

    told(story, Behind(lag_s=0.05), objects=MANY)


def test_where_nothing_at_all_has_changed_the_question_is_the_answer() -> None:
    async def story(api: Behind, informer: Informer[PersistentVolume]) -> None:
        await informer.catch_up()

        assert api.asked == ["page of 1"]

    told(story, Behind(), objects=MANY)


def test_what_the_long_watch_keeps_back_is_seen_all_the_same() -> None:
    async def story(api: Behind, informer: Informer[PersistentVolume]) -> None:
        api.end(PERSISTENT_VOLUMES, a_persistent_volume("pv-0"))
        api.put(PERSISTENT_VOLUMES, a_persistent_volume("new"))

        await informer.catch_up()

        assert "new" in names(informer)
        assert "pv-0" not in names(informer)
        assert "list" not in api.asked

    told(story, Behind(), objects=MANY)


def test_where_there_is_nothing_the_question_is_the_answer_too() -> None:
    async def story(api: Behind, informer: Informer[PersistentVolume]) -> None:
        api.version += 1
        await informer.catch_up()
        assert api.asked == ["page of 1"]

    told(story, Behind(), objects=0)


def test_a_long_watch_that_comes_later_does_not_bring_back_what_was_deleted() -> None:
    async def story(api: Behind, informer: Informer[PersistentVolume]) -> None:
        seen: list[tuple[bool, bool]] = []
        informer.subscribe(lambda old, new: seen.append((old is not None, new is not None)))
        seen.clear()
        passing = api.put(PERSISTENT_VOLUMES, a_persistent_volume("passing"))
        api.end(PERSISTENT_VOLUMES, passing)

        await informer.catch_up()
        await asyncio.sleep(30)

        assert "passing" not in names(informer)
        assert seen == [(False, True), (True, False)]

    told(story, Behind(lag_s=10), objects=MANY)


def test_an_api_server_that_does_not_tell_how_far_it_is_has_the_kind_listed() -> None:
    async def story(api: Behind, informer: Informer[PersistentVolume]) -> None:
        api.version += 1

        await informer.catch_up()

        assert api.asked.count("list") == 1

    told(story, Behind(has_bookmarks=False), objects=MANY)


def test_versions_that_run_backwards_have_the_kind_listed() -> None:
    async def story(api: Behind, informer: Informer[PersistentVolume]) -> None:
        del api.objects["persistentvolumes", "pv-0"]
        api.version -= 3  # etcd was restored

        await informer.catch_up()

        assert api.asked.count("list") == 1
        assert "pv-0" not in names(informer)

    told(story, Behind(), objects=MANY)


@pytest.mark.parametrize("objects", [30, MANY])
def test_what_is_written_after_a_restore_is_seen_though_its_version_passes_ours_before_we_ask(
    objects: int,
) -> None:
    """As a standby's cache, or a webhook's: nobody asks it for hours."""

    async def story(api: Behind, informer: Informer[PersistentVolume]) -> None:
        told: list[str] = []
        informer.on_restore = lambda: told.append("restored")
        api.restore(20, "pv-29")
        api.put(PERSISTENT_VOLUMES, a_persistent_volume("rescue"))
        await asyncio.sleep(60)
        api.version += 10_000

        await informer.catch_up()

        assert "rescue" in names(informer)
        assert "pv-29" not in names(informer)
        assert told == ["restored"]

    told(story, Behind(lag_s=0.05), objects=objects)


@pytest.mark.parametrize("objects", [3, MANY])
def test_a_list_that_is_wanted_while_a_broken_watch_asks_is_not_forgotten(objects: int) -> None:
    """Another kind has told that etcd was restored."""

    async def story(api: Behind, informer: Informer[PersistentVolume]) -> None:
        api.takes_s = 2.0
        api.restore(api.version)  # nothing of this kind is lost
        await asyncio.sleep(1)
        assert api.asked == ["page of 1"]
        began_s = now_s()
        informer.list_soon()

        await informer.catch_up()

        assert now_s() - began_s < 20

    told(story, Behind(lag_s=0.05), objects=objects)


@pytest.mark.parametrize("objects", [0, 1, 3, MANY])
def test_where_watches_break_again_and_again_the_questions_are_as_few(objects: int) -> None:
    async def story(api: Behind, informer: Informer[PersistentVolume]) -> None:
        for _ in range(600):
            api.restore(api.version + 1)  # others write meanwhile
            await asyncio.sleep(1)

        assert len(api.asked) < 250

    told(story, Behind(lag_s=0.05), objects=objects)


def test_a_watch_that_breaks_is_resumed_after_one_question() -> None:
    async def story(api: Behind, informer: Informer[PersistentVolume]) -> None:
        api.restore(api.version)  # nothing is lost
        await asyncio.sleep(60)

        assert api.asked == ["page of 1", "long watch"]
        assert api.carried == 0
        assert len(informer.values()) == MANY

    told(story, Behind(lag_s=0.05), objects=MANY)


@pytest.mark.parametrize("objects", [3, MANY])
def test_a_restored_etcd_of_a_higher_version_is_noticed_by_the_next_list_and_told(
    objects: int,
) -> None:
    async def story(api: Behind, informer: Informer[PersistentVolume]) -> None:
        told: list[str] = []
        informer.on_restore = lambda: told.append("restored")
        before = api.objects["persistentvolumes", "pv-1"]
        api.put(PERSISTENT_VOLUMES, before)
        await informer.catch_up()
        api.objects["persistentvolumes", "pv-1"] = before
        api.version += 1_000_000_000

        await informer.catch_up()

        assert informer.get("pv-1") == before
        assert told == ["restored"]

    told(story, Behind(has_bookmarks=False), objects=objects)


def test_while_a_list_is_asked_for_no_watch_proves_what_is_here() -> None:
    """Another kind has told that etcd was restored, and the API server was away until now."""

    async def story(api: Behind, informer: Informer[PersistentVolume]) -> None:
        before = api.objects["persistentvolumes", "pv-1"]
        api.put(PERSISTENT_VOLUMES, before)
        await informer.catch_up()
        api.objects["persistentvolumes", "pv-1"] = before
        api.version += 1_000_000_000
        api.failure = KubeError(Reason.UNREACHABLE, "nobody answers")
        informer.list_soon()
        await asyncio.sleep(30)
        api.failure = None

        await informer.catch_up()

        assert informer.get("pv-1") == before

    told(story, Behind(), objects=MANY)


def test_once_a_list_was_needed_short_watches_are_left_out_for_minutes() -> None:
    async def story(api: Behind, informer: Informer[PersistentVolume]) -> None:
        took_s, watched = [], []
        for wait_s in (0, 60, 600):
            await asyncio.sleep(wait_s)
            api.version += 1
            api.asked.clear()
            began_s = now_s()
            await informer.catch_up()
            took_s.append(now_s() - began_s)
            watched.append(api.asked.count("short watch"))
            assert api.asked.count("list") == 1

        assert watched == [4, 0, 4]
        assert took_s[1] < 1 < took_s[0]

    told(story, Behind(has_bookmarks=False), objects=MANY)


def test_a_list_that_outlives_its_look_answers_those_who_asked_before_it_began() -> None:
    async def story(api: Behind, informer: Informer[PersistentVolume]) -> None:
        api.version += 1
        api.list_takes_s = 80
        first = asyncio.create_task(informer.catch_up())
        await asyncio.sleep(1)
        api.version += 1
        second = asyncio.create_task(informer.catch_up())

        with pytest.raises(KubeError, match="newest persistentvolumes"):
            await first
        began_s = now_s()
        await second

        assert now_s() - began_s < 80
        assert api.asked.count("list") == 1

    told(story, Behind(has_bookmarks=False), objects=MANY)


def test_half_of_the_time_is_free_of_lists_though_no_look_ends_in_time() -> None:
    async def story(api: Behind, informer: Informer[PersistentVolume]) -> None:
        api.list_takes_s = 100
        while now_s() < 2000:
            api.version += 1
            await asyncio.gather(*(informer.catch_up() for _ in range(3)), return_exceptions=True)

        assert 5 <= api.asked.count("list") <= 2000 / 200 + 1

    told(story, Behind(has_bookmarks=False), objects=MANY)


def test_a_thousand_who_ask_share_looks_that_began_after_each_had_asked() -> None:
    async def story(api: Behind, informer: Informer[PersistentVolume]) -> None:
        async def ask(n: int) -> None:
            await asyncio.sleep(n * 0.002)
            asked_at = now_s()
            made = api.put(PERSISTENT_VOLUMES, a_persistent_volume(f"made-{n}"))
            await informer.catch_up()
            assert informer.get(made.name) is not None
            assert any(asked_at <= at <= now_s() for at in api.asked_at)

        await asyncio.gather(*(ask(n) for n in range(1000)))

        assert len(api.asked_at) <= 2 / 0.25 + 2
        assert min(b - a for a, b in itertools.pairwise(api.asked_at)) > 0.2

    told(story, Behind(lag_s=0.02, takes_s=0.1), objects=MANY)


def test_a_failure_is_told_to_all_who_asked_and_to_nobody_after_it() -> None:
    async def story(api: Behind, informer: Informer[PersistentVolume]) -> None:
        api.failure = KubeError(Reason.UNREACHABLE, "the API server is away")
        asking = [asyncio.create_task(informer.catch_up()) for _ in range(100)]
        await asyncio.sleep(1.1)
        api.failure = None

        ends = await asyncio.gather(*asking, return_exceptions=True)
        assert {type(end) for end in ends} == {KubeError}
        assert len(api.asked) == 1
        await informer.catch_up()

    told(story, Behind(takes_s=1), objects=MANY)


def test_who_gives_up_leaves_the_others_their_look() -> None:
    async def story(api: Behind, informer: Informer[PersistentVolume]) -> None:
        first = asyncio.create_task(informer.catch_up())
        second = asyncio.create_task(informer.catch_up())
        after(1, first.cancel)

        await second

        assert first.cancelled()

    told(story, Behind(takes_s=2), objects=MANY)


@pytest.mark.parametrize("objects", [3, MANY])
def test_an_api_server_that_hangs_is_not_waited_for_for_ever(objects: int) -> None:
    async def story(api: Behind, informer: Informer[PersistentVolume]) -> None:
        api.takes_s = 10_000
        with pytest.raises(KubeError, match="newest persistentvolumes") as caught:
            await informer.catch_up()
        assert caught.value.reason is Reason.TIMED_OUT

    told(story, Behind(), objects=objects)


def test_an_older_version_of_what_is_there_is_not_taken_for_newer() -> None:
    async def story(api: Behind, informer: Informer[PersistentVolume]) -> None:
        found = api.objects["persistentvolumes", "pv-0"]
        api.put(PERSISTENT_VOLUMES, found)
        newest = api.put(PERSISTENT_VOLUMES, found)
        await informer.catch_up()
        await asyncio.sleep(30)
        assert informer.get("pv-0") == newest

    told(story, Behind(lag_s=5), objects=MANY)


def test_a_cache_that_is_forgotten_while_a_list_is_taken_in_is_filled_by_the_next_one() -> None:
    async def story(api: Behind, informer: Informer[PersistentVolume]) -> None:
        for n in range(MANY, 2 * MANY):
            api.put(PERSISTENT_VOLUMES, a_persistent_volume(f"pv-{n}"))

        halfway = asyncio.Event()

        def count(_: object, new: PersistentVolume | None) -> None:
            if new is not None and len(informer.values()) == MANY + MANY // 2:
                halfway.set()

        informer.subscribe(count)
        informer.list_soon()
        await halfway.wait()
        await informer.forget()
        await informer.synced.wait()

        assert len(informer.values()) == 2 * MANY
        assert api.asked.count("list") == 2

    told(story, Behind(), objects=MANY)


def test_who_asks_a_cache_that_is_forgotten_meanwhile_is_answered_by_its_next_list() -> None:
    async def story(api: Behind, informer: Informer[PersistentVolume]) -> None:
        api.version += 1
        asking = asyncio.create_task(informer.catch_up())
        await asyncio.sleep(0.05)
        api.takes_s = 10
        await informer.forget()
        informer._advance(str(api.version))  # the long watch ends with one more bookmark

        await asking

        assert len(informer.values()) == MANY

    told(story, Behind(), objects=MANY)


def test_a_cache_that_is_forgotten_as_an_answer_arrives_is_not_taken_for_complete() -> None:
    async def story(api: Behind, informer: Informer[PersistentVolume]) -> None:
        look = informer._look
        forgotten: list[asyncio.Task[None]] = []

        async def look_and_forget(ticket: int) -> None:
            await look(ticket)
            if not forgotten:  # runs in the pass of the loop that ends this task
                forgotten.append(asyncio.create_task(informer.forget()))

        informer._look = look_and_forget  # type: ignore[method-assign]
        api.put(PERSISTENT_VOLUMES, a_persistent_volume("new"))

        await informer.catch_up()

        assert forgotten[0].done()
        assert len(informer.values()) == MANY + 1

    told(story, Behind(lag_s=0.05), objects=MANY)


def test_who_asks_while_a_quiet_kind_is_looked_at_waits_for_no_look_but_its_own() -> None:
    """One look after the other, nobody would be answered for a second or two, and then all are."""

    async def story(api: Behind, informer: Informer[PersistentVolume]) -> None:
        took_s: list[float] = []

        async def ask(n: int) -> None:
            await asyncio.sleep(n * 0.1)
            api.version += 1  # something of another kind
            asked_at = now_s()
            await informer.catch_up()
            took_s.append(now_s() - asked_at)

        alone = now_s()
        await ask(0)
        alone = now_s() - alone
        took_s.clear()
        await asyncio.gather(*(ask(n) for n in range(100)))

        assert max(took_s) < alone + 2 * informers._PACE_S
        assert sorted(took_s)[50] < alone / 2  # by the short watch of somebody who asked before

    told(story, Behind(), objects=MANY)


def test_who_is_answered_by_a_later_look_waits_no_longer_for_his_own() -> None:
    """One of several API servers hangs: it has the question until that times out."""

    async def story(api: Behind, informer: Informer[PersistentVolume]) -> None:
        began_s = now_s()
        api.takes_s = 29
        first = asyncio.create_task(informer.catch_up())
        await asyncio.sleep(1)
        api.takes_s = 0

        await informer.catch_up()
        await first

        assert now_s() - began_s < 5
        assert not informer._looks

    told(story, Behind(), objects=MANY)


def test_who_was_answered_while_he_waited_to_begin_a_look_begins_none() -> None:
    """Or of a thousand volumes that are deleted, one would be proven each quarter of a second."""

    async def story(_: Behind, informer: Informer[PersistentVolume]) -> None:
        began_s = now_s()

        await asyncio.gather(*(informer.catch_up() for _ in range(300)))

        assert now_s() - began_s < 2 * informers._PACE_S

    told(story, Behind(), objects=MANY)


def test_the_newest_version_is_asked_without_a_look_at_the_objects_of_any_namespace() -> None:
    async def story(api: Behind, informer: Informer[Any]) -> None:
        await informer.catch_up()

        # By a name in all namespaces, the API server would look at each of them (``ListPredicate``
        # in ``registry/generic/registry/store.go`` of 1.37).
        assert {*api.asked_of} == {("none", "")}
        assert api.carried == 0

    told(story, Behind(), objects=MANY, put=claims)


def test_looks_at_once_are_few_also_where_none_is_answered() -> None:
    async def story(api: Behind, informer: Informer[PersistentVolume]) -> None:
        api.takes_s = 10_000

        async def ask(n: int) -> None:
            await asyncio.sleep(n)
            with suppress(KubeError):
                await informer.catch_up()

        asking = [asyncio.create_task(ask(n)) for n in range(60)]
        await asyncio.sleep(50)
        assert len(informer._looks) <= informers._LOOKS
        await asyncio.gather(*asking)
        assert not informer._looks

    told(story, Behind(), objects=MANY)


def test_who_asks_as_the_cache_ends_is_answered_and_not_cancelled() -> None:
    async def whole(_: Clock) -> None:
        api = Behind()
        informer = Informer(cast("KubeClient", api), volumes(api, MANY), Metrics())
        following = asyncio.create_task(informer.run())
        await informer.synced.wait()
        api.version += 1
        after(0.5, following.cancel)  # while a short watch is open

        await informer.catch_up()

    in_virtual_time(whole)
