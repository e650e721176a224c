"""UnclaimedTags: taken off in batches, flushed at the end, and worth nothing after another controller."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Container, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest
from structlog.testing import capture_logs

from provisioner.controller.shared.unclaimed import UnclaimedTags
from provisioner.ec2.batches import NOTHING_PASSES, ask_about
from provisioner.ec2.volumes import Volumes
from provisioner.kube.queue import KeyedQueue
from provisioner.kube.wire import Listing
from provisioner.metrics import Metrics
from provisioner.model.decision import SETTLED, Later, Next
from provisioner.model.errors import Ec2Error, Reason, StorageError
from provisioner.model.leadership import Epoch
from provisioner.model.names import UNCLAIMED, VOLUME_NAME
from provisioner.model.volume import Volume
from tests.builders import VOLUME, a_persistent_volume, a_volume, an_ec2_error
from tests.controller.services import CurrentCaches
from tests.ec2.virtual_time import Clock, in_virtual_time

MADE_AT = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)
TAGGED = a_volume(tags={UNCLAIMED: "Delete", VOLUME_NAME: "pvc-1"}, created_at=MADE_AT)
SINCE_THEN, AFTER_THAT = Epoch(MADE_AT), Epoch(MADE_AT + timedelta(seconds=1))


class World:
    """EC2 with tagged volumes, and an API server without any persistent volume."""

    def __init__(self, *tagged: Volume) -> None:
        self.tagged = list(tagged)
        self.untagged: list[str] = []
        self.failures = 0
        self.denials: list[StorageError] = []
        self.forbidden: Container[str] = ()
        self.is_away = {"find": False, "untag": False}
        self.calls = 0
        self.caches = CurrentCaches()

    async def find(self, **_: object) -> list[Volume]:
        if self.is_away["find"]:
            raise an_ec2_error(Reason.UNREACHABLE)
        if self.denials:
            raise self.denials.pop()
        return self.tagged

    async def untag(self, volume_ids: Sequence[str], _: str) -> dict[str, Ec2Error]:
        return await ask_about(volume_ids, 500, self._delete_tags)

    async def _delete_tags(self, volume_ids: list[str]) -> None:
        self.calls += 1
        if self.is_away["untag"]:
            raise an_ec2_error(Reason.UNREACHABLE)
        if any(volume_id in self.forbidden for volume_id in volume_ids):
            raise denial(*volume_ids)
        if self.failures:
            self.failures -= 1
            raise an_ec2_error(Reason.REPLY_LOST)
        self.untagged += volume_ids


def denial(*volume_ids: str) -> Ec2Error:
    text = f"not {volume_ids[0]}" if len(volume_ids) == 1 else f"not these {len(volume_ids)}"
    return Ec2Error(Reason.PERMISSION_DENIED, text, action="DeleteTags", retry_after_s=60.0)


class Everything(Container[str]):
    def __contains__(self, _: object) -> bool:
        return True


@asynccontextmanager
async def running(world: World, epoch: Epoch | None = SINCE_THEN) -> AsyncIterator[UnclaimedTags]:
    unclaimed = UnclaimedTags(cast("Volumes", world), world.caches, cluster_id="prod")
    unclaimed.leadership.epoch = epoch
    task = asyncio.create_task(unclaimed.run())
    try:
        yield unclaimed
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_the_end_waits_until_tag_are_off():
    world = World()
    async with running(world) as unclaimed:
        await unclaimed.settled()
        unclaimed.note(VOLUME)
        unclaimed.remove(VOLUME)

        await unclaimed.flush(5)

    assert world.untagged == [VOLUME]
    assert not unclaimed.is_tagged(VOLUME)


async def test_the_end_does_not_wait_for_ever():
    world = World()
    world.failures = 1_000
    async with running(world) as unclaimed:
        await unclaimed.settled()
        unclaimed.remove(VOLUME)

        await unclaimed.flush(0.01)

    assert world.untagged == []


async def test_an_object_that_cannot_be_read_holds_back_only_the_volumes_that_it_may_name():
    world = World(TAGGED)
    odd = world.caches.persistent_volumes._store
    odd.cannot_read("pv-odd", "5")
    with capture_logs() as logs:
        async with running(world) as unclaimed, asyncio.timeout(30):
            with pytest.raises(StorageError) as told:
                await unclaimed.volume_for("pvc-1")
            assert told.value.reason is Reason.UNREADABLE
            assert "PersistentVolume pv-odd cannot be read" in told.value.message
            assert "until the object is corrected or deleted" in told.value.message
            assert await unclaimed.volume_for("pvc-2") is None
            assert not unclaimed.is_tagged("vol-another")  # so it is attached
            await unclaimed.settled()

            odd.replace(Listing([], "9"))
            assert await unclaimed.volume_for("pvc-1") == TAGGED

    (line,) = [line for line in logs if "pv-odd" in str(line)]
    assert line["volumes"] == 1


async def test_a_volume_that_the_object_named_once_it_can_be_read_is_not_used_for_another():
    world = World(TAGGED)
    odd = world.caches.persistent_volumes._store
    odd.cannot_read("pv-odd", "5")
    async with running(world) as unclaimed, asyncio.timeout(30):
        with pytest.raises(StorageError):
            await unclaimed.volume_for("pvc-1")

        odd.replace(Listing([a_persistent_volume("pv-odd", handle=VOLUME)], "9"))

        assert await unclaimed.volume_for("pvc-1") is None


async def test_who_asks_for_an_unowned_volume_hears_why_that_cannot_be_told():
    world = World(TAGGED)
    denied = an_ec2_error(Reason.PERMISSION_DENIED)
    denied.retry_after_s = 0.05
    world.denials = [denied]
    async with running(world) as unclaimed, asyncio.timeout(30):
        with pytest.raises(StorageError) as told:
            await unclaimed.volume_for("pvc-1")
        assert told.value.reason is Reason.PERMISSION_DENIED
        assert told.value.retry_after_s == denied.retry_after_s

        await unclaimed.settled()
        assert await unclaimed.volume_for("pvc-1") == TAGGED


@pytest.mark.parametrize("call", ["find", "untag"])
def test_while_ec2_is_away_an_attachment_is_woken_for_the_news_and_kept_once(call: str) -> None:
    async def story(_: Clock) -> tuple[int, int]:
        world = World()
        world.is_away[call] = True
        async with running(world) as unclaimed:

            async def look(key: str) -> Next:
                looks.append(key)
                if unclaimed.is_tagged(VOLUME):
                    unclaimed.remove(VOLUME, lambda: queue.add(key), who=key)
                    return Later(30.0)  # as the watcher reminds it
                return SETTLED

            looks: list[str] = []
            queue = KeyedQueue("attach", look, Metrics())
            unclaimed.note(VOLUME)
            work = asyncio.create_task(queue.run())
            queue.add("csi-1")
            await asyncio.sleep(3600)
            kept = len(unclaimed._waiting) + sum(map(len, unclaimed._to_clear.values()))
            before = len(looks)
            world.is_away[call] = False
            await asyncio.sleep(5)
            assert not unclaimed.is_tagged(VOLUME)
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
        return kept, before

    kept, looks = in_virtual_time(story)

    assert kept == 1
    assert looks <= 3600 / 30 + 2


@pytest.mark.parametrize("bad", [0, 250, 499])
def test_a_volume_that_may_not_be_untagged_holds_up_no_other(bad: int) -> None:
    volume_ids = [f"vol-{number}" for number in range(500)]
    woken: list[str] = []

    async def story(_: Clock) -> World:
        world = World()
        world.forbidden = {volume_ids[bad]}
        async with running(world) as unclaimed:
            await unclaimed.settled()
            for volume_id in volume_ids:
                unclaimed.note(volume_id)
                unclaimed.remove(
                    volume_id, functools.partial(woken.append, volume_id), who=volume_id
                )
            await asyncio.sleep(5)
            assert [v for v in volume_ids if unclaimed.is_tagged(v)] == [volume_ids[bad]]
            assert world.calls <= 20

            why = unclaimed.trouble_with(volume_ids[bad])
            assert why is not None
            assert why.message == f"not {volume_ids[bad]}"
            assert unclaimed.trouble_with(volume_ids[1]) is None
            await asyncio.sleep(600)
            world.forbidden = ()
            await asyncio.sleep(61)
            assert not unclaimed.is_tagged(volume_ids[bad])
        return world

    with capture_logs() as logs:
        world = in_virtual_time(story)

    assert world.calls <= 40
    assert set(woken) == set(volume_ids)
    assert {line["volume"] for line in logs if "volume" in line} == {volume_ids[bad]}


def test_some_that_may_not_be_untagged_do_not_hold_up_the_others_for_ever() -> None:
    volume_ids = [f"vol-{number}" for number in range(100)]

    async def story(_: Clock) -> set[str]:
        world = World()
        world.forbidden = set(volume_ids[:8])
        async with running(world) as unclaimed:
            await unclaimed.settled()
            for volume_id in volume_ids:
                unclaimed.remove(volume_id)
            await asyncio.sleep(600)
        return set(world.untagged)

    assert in_virtual_time(story) == set(volume_ids[8:])


def test_where_nothing_may_be_untagged_ec2_is_asked_once_a_minute_and_all_are_told() -> None:
    async def story(_: Clock) -> tuple[int, int]:
        world = World()
        world.forbidden = Everything()
        async with running(world) as unclaimed:
            await unclaimed.settled()
            for number in range(500):
                unclaimed.remove(f"vol-{number}", lambda: None, who=str(number))
            await asyncio.sleep(60)
            at_first = world.calls
            await asyncio.sleep(3600)
            assert all(unclaimed.trouble_with(f"vol-{number}") for number in range(500))
            later = world.calls - at_first
            world.forbidden = ()
            await asyncio.sleep(120)
            assert len(world.untagged) == 500
        return at_first, later

    at_first, later = in_virtual_time(story)

    assert at_first <= NOTHING_PASSES + 1
    assert 55 <= later <= 61


def test_a_volume_that_is_deleted_while_its_tag_is_denied_is_forgotten() -> None:
    async def story(_: Clock) -> None:
        world = World()
        world.forbidden = {VOLUME}
        async with running(world) as unclaimed:
            await unclaimed.settled()
            unclaimed.remove(VOLUME)
            await asyncio.sleep(5)
            unclaimed.forget(VOLUME)
            await asyncio.sleep(5)
            assert unclaimed.trouble_with(VOLUME) is None
            await unclaimed.flush(0)  # nothing is left to wait for
            calls = world.calls
            await asyncio.sleep(600)
            assert world.calls == calls

    with capture_logs() as logs:
        in_virtual_time(story)

    assert "are not removed yet" not in str(logs)


@pytest.mark.parametrize("denied", [1, 13, 50])
def test_volumes_denied_for_good_hold_up_a_new_one_for_a_minute_at_most(denied: int) -> None:
    async def story(_: Clock) -> None:
        forbidden = [f"vol-{number}" for number in range(denied)]
        world = World()
        world.forbidden = forbidden
        async with running(world) as unclaimed:
            await unclaimed.settled()
            for volume_id in forbidden:
                unclaimed.remove(volume_id)
            await asyncio.sleep(3600)
            for number in range(5):
                unclaimed.remove(f"vol-new-{number}")
                await asyncio.sleep(62)
                assert world.untagged[number:] == [f"vol-new-{number}"]
                await asyncio.sleep(537)
            world.forbidden = ()
            await asyncio.sleep(120)
            assert set(forbidden) < set(world.untagged)

    in_virtual_time(story)
