"""The last look before DeleteVolume, while the caches are behind: what it sees, and what it costs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from provisioner.controller.deleting.flow import Deleter
from provisioner.controller.shared.caches import Caches
from provisioner.controller.shared.services import Services
from provisioner.controller.shared.settings import Settings
from provisioner.controller.shared.unclaimed import UnclaimedTags
from provisioner.ec2.calls import AT_ONCE
from provisioner.ec2.limiter import Grant, Rate, Rates
from provisioner.ec2.volumes import Volumes
from provisioner.kube.client import KubeClient
from provisioner.kube.resources import ATTACHMENTS, PERSISTENT_VOLUMES
from provisioner.metrics import Metrics
from provisioner.model.errors import KubeError, Reason, StorageError
from provisioner.model.persistent_volume import PersistentVolume
from tests.builders import DRIVER, a_persistent_volume, an_attachment
from tests.controller.services import Events
from tests.ec2.test_gate import Ec2InVirtualTime
from tests.ec2.virtual_time import Clock, in_virtual_time
from tests.kube.behind import Behind, after

RELEASED = a_persistent_volume(phase="Released")
RESCUE = a_persistent_volume("rescue", uid="pv-2", policy="Retain", phase="Available")
QUOTA = Rates(exact={"DeleteVolume": Rate(2000, 100), "AttachVolume": Rate(1000, 100)})


class World:
    """A deleter with its caches full, an API server that is ahead of them, and EC2."""

    def __init__(self, clock: Clock, api: Behind) -> None:
        self.api = api
        self.calls = Ec2InVirtualTime(clock, takes_s=0.1, at_once=AT_ONCE, rates=QUOTA)
        kube, volumes, metrics = cast("KubeClient", api), Volumes(self.calls), Metrics()
        self.caches = Caches(kube, metrics, DRIVER)
        services = SimpleNamespace(
            settings=Settings(driver=DRIVER),
            client=kube,
            caches=self.caches,
            volumes=volumes,
            unclaimed=UnclaimedTags(volumes, self.caches, cluster_id=""),
            events=Events(),
            metrics=metrics,
        )
        self.deleter = Deleter(cast("Services", services))

    @property
    def deleted(self) -> int:
        return len(self.calls.sent_at.get("DeleteVolume", ()))

    async def look(self, name: str = RELEASED.name) -> None:
        try:
            await self.deleter.reconcile(name)
        except StorageError as refusal:
            assert "rescue" in refusal.message  # noqa: PT017 -- a look may end without one


@asynccontextmanager
async def following(clock: Clock, api: Behind) -> AsyncIterator[World]:
    world = World(clock, api)
    informers = (world.caches.persistent_volumes, world.caches.attachments)
    tasks = [asyncio.create_task(informer.run()) for informer in informers]
    for informer in informers:
        await informer.synced.wait()
    await asyncio.sleep(1)
    api.asked.clear()
    api.carried = 0
    yield world
    world.calls.limiter.close()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def of_volume(n: int, phase: str = "Bound") -> PersistentVolume:
    return a_persistent_volume(f"pv-{n}", uid=f"pv-{n}", handle=f"vol-{n:017x}", phase=phase)


def crowded(api: Behind, volumes: int, *, released: int = 0) -> None:
    for n in range(volumes):
        api.put(PERSISTENT_VOLUMES, of_volume(n, "Released" if n < released else "Bound"))
        if n >= released and n % 2:
            api.put(ATTACHMENTS, an_attachment(f"csi-{n}", persistent_volume=f"pv-{n}"))


def rescued(api: Behind) -> None:
    api.put(PERSISTENT_VOLUMES, RESCUE)


def attached(api: Behind) -> None:
    api.put(ATTACHMENTS, an_attachment(persistent_volume=RELEASED.name))


def retained(api: Behind) -> None:
    api.put(PERSISTENT_VOLUMES, a_persistent_volume(phase="Released", policy="Retain"))


def ended(api: Behind) -> None:
    api.end(PERSISTENT_VOLUMES, RELEASED)


@pytest.mark.parametrize(
    "happens", [rescued, attached, retained, ended], ids=lambda each: each.__name__
)
@pytest.mark.parametrize("volumes", [0, 1500], ids=["few", "many"])
@pytest.mark.parametrize("waits_s", [0, 30], ids=["no wait", "a wait"])
def test_what_was_accepted_before_a_deletion_had_its_turn_protects_the_volume(
    monkeypatch: pytest.MonkeyPatch,
    happens: Callable[[Behind], None],
    volumes: int,
    waits_s: float,
):
    async def story(clock: Clock) -> int:
        api = Behind()
        crowded(api, volumes)
        api.put(PERSISTENT_VOLUMES, RELEASED)
        async with following(clock, api) as world:
            acquire = world.calls.limiter.acquire

            async def later(*given: Any, **more: Any) -> Grant:
                await asyncio.sleep(waits_s)
                return await acquire(*given, **more)

            monkeypatch.setattr(world.calls.limiter, "acquire", later)
            if waits_s:
                after(waits_s - 1, lambda: happens(api))
            else:
                happens(api)
            await world.look()
            return world.deleted

    assert in_virtual_time(story) == 0


def test_a_volume_of_an_object_that_cannot_be_read_may_be_any_so_none_is_deleted():
    async def story(clock: Clock) -> int:
        api = Behind()
        api.put(PERSISTENT_VOLUMES, RELEASED)
        async with following(clock, api) as world:
            world.caches.attachments._store.cannot_read("csi-odd", str(api.version + 1))
            with pytest.raises(KubeError, match="csi-odd cannot be read") as caught:
                await world.deleter.reconcile(RELEASED.name)
            assert caught.value.reason is Reason.UNREADABLE
            return world.deleted

    # The page that a few objects are on says what cannot be read; in a crowd the watch has said it.
    assert in_virtual_time(story) == 0


@pytest.mark.parametrize(
    "reason", [Reason.REPLY_LOST, Reason.TIMED_OUT, Reason.FORBIDDEN, Reason.UNREADABLE]
)
def test_where_the_object_itself_cannot_be_read_again_nothing_is_deleted(reason: Reason):
    async def story(clock: Clock) -> int:
        api = Behind()
        api.put(PERSISTENT_VOLUMES, RELEASED)
        async with following(clock, api) as world:
            api.get_failure = KubeError(reason, "cannot get it")
            with pytest.raises(KubeError, match="cannot get it") as caught:
                await world.deleter.reconcile(RELEASED.name)
            assert caught.value.reason is reason
            before = world.deleted
            api.get_failure = None
            await world.look()
            assert world.deleted == 1
            return before

    assert in_virtual_time(story) == 0


def test_what_was_accepted_while_one_of_two_looks_took_its_time_protects_the_volume():
    async def story(clock: Clock) -> int:
        api = Behind()  # its long watches show nothing
        crowded(api, 1500)
        api.put(PERSISTENT_VOLUMES, RELEASED)
        async with following(clock, api) as world:
            api.besides_s["persistentvolumes"] = 20
            after(10, lambda: attached(api))
            await world.look()
            return world.deleted

    assert in_virtual_time(story) == 0


def test_two_slow_looks_do_not_wait_for_each_other_for_ever():
    async def story(clock: Clock) -> int:
        api = Behind(has_bookmarks=False)
        crowded(api, 1500)
        api.put(PERSISTENT_VOLUMES, RELEASED)
        async with following(clock, api) as world:
            api.version += 1
            api.list_takes_s = 10
            api.besides_s["persistentvolumes"] = 6
            await world.look()
            return world.deleted

    assert in_virtual_time(story) == 1


def deletions_and_attaches(clock: Clock, volumes: int, deletions: int) -> Any:
    """When the last of 50 attaches ended, the last of the deletions, and what the API server was asked."""

    async def story() -> tuple[float, float, Behind]:
        api = Behind(lag_s=0.05, takes_s=0.1)
        crowded(api, volumes, released=deletions)
        async with following(clock, api) as world:
            began_s = clock()
            deleting = [asyncio.create_task(world.look(f"pv-{n}")) for n in range(deletions)]
            await asyncio.sleep(0.5)
            await asyncio.gather(*(world.calls.call("AttachVolume", {}) for _ in range(50)))
            attached_s = clock() - began_s - 0.5
            await asyncio.gather(*deleting)
            assert world.deleted == deletions
            return attached_s, clock() - began_s, api

    return story()


def test_a_thousand_deletions_among_20_000_volumes_delay_50_attaches_by_less_than_a_second():
    alone_s, _, _ = in_virtual_time(lambda clock: deletions_and_attaches(clock, 20_000, 0))
    beside_s, _, _ = in_virtual_time(lambda clock: deletions_and_attaches(clock, 20_000, 1000))

    assert beside_s < alone_s + 0.3


def test_what_deletions_cost_does_not_grow_with_what_there_is():
    _, few_s, few = in_virtual_time(lambda clock: deletions_and_attaches(clock, 1000, 100))
    _, many_s, many = in_virtual_time(lambda clock: deletions_and_attaches(clock, 9000, 100))

    assert "list" not in many.asked
    assert many.carried <= few.carried + 10
    assert abs(many_s - few_s) < 3


def test_while_the_api_server_hangs_deletions_take_no_place_from_other_calls():
    async def story(clock: Clock) -> float:
        api = Behind()
        crowded(api, 300, released=300)
        async with following(clock, api) as world:
            api.takes_s = 10_000
            deleting = [asyncio.create_task(world.deleter.reconcile(f"pv-{n}")) for n in range(300)]
            await asyncio.sleep(30)
            began_s = clock()
            await world.calls.call("AttachVolume", {})
            took_s = clock() - began_s
            ends = await asyncio.gather(*deleting, return_exceptions=True)
            assert {type(end) for end in ends} == {KubeError}
            assert world.deleted == 0
            return took_s

    assert in_virtual_time(story) == pytest.approx(0.1)
