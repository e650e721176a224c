"""The lists right before DeleteVolume, while the caches are behind: what they show, and how many."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from msgspec.structs import replace

from provisioner.ec2.calls import AT_ONCE
from provisioner.kube.client import KubeClient
from provisioner.kube.resources import PERSISTENT_VOLUMES
from provisioner.kube.wire import Listing
from provisioner.model.attachment import Attachment
from provisioner.model.errors import KubeError, Reason, StorageError
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.reconcile.delete import Deleter
from provisioner.reconcile.live import LiveLists
from tests.builders import a_persistent_volume, an_attachment
from tests.ec2.virtual_time import Clock, in_virtual_time
from tests.reconcile.edges import Ec2, Events, Kube
from tests.reconcile.test_delete import Lists, a_deleter, shows

RELEASED = a_persistent_volume(phase="Released")
RESCUE = a_persistent_volume("rescue", uid="pv-2", policy="Retain", phase="Available")
LIST_S = 0.15
CALL_S = 0.25
COUNT = 1000


class Api(Kube):
    """An API server whose watches stand still: only who asks it sees what has changed."""

    def __init__(self, *objects: PersistentVolume) -> None:
        super().__init__()
        self.kept: dict[str, PersistentVolume] = {}
        self.attachments: list[Attachment] = []
        self.listed_at: list[float] = []
        self.takes_s = LIST_S
        self.failure: KubeError | None = None
        self._versions = itertools.count(1)
        for each in objects:
            self.accept(each)

    def accept(self, persistent_volume: PersistentVolume) -> PersistentVolume:
        """Somebody's object, accepted now."""
        metadata = replace(persistent_volume.metadata, resource_version=str(next(self._versions)))
        kept = self.kept[persistent_volume.name] = replace(persistent_volume, metadata=metadata)
        return kept

    async def list(self, resource: Any) -> Listing[Any]:
        if resource is not PERSISTENT_VOLUMES:
            return Listing(list(self.attachments), "1", ())
        self.listed_at.append(asyncio.get_running_loop().time())
        shown = Listing(list(self.kept.values()), str(next(self._versions)), ())
        await asyncio.sleep(self.takes_s)
        if self.failure is not None:
            raise self.failure
        return shown

    async def get(self, resource: Any, name: str, namespace: str = "") -> Any:
        if name not in self.kept:
            raise KubeError(Reason.OBJECT_NOT_FOUND, f"no {name}")
        return self.kept[name]

    async def delete(self, resource: Any, name: str, **_: Any) -> Any:
        return replace(self.kept.pop(name), metadata=a_persistent_volume(finalizers=()).metadata)


@dataclass
class Turns(Ec2):
    """EC2 behind a limiter. ``places``: so many calls, with their last looks, at once."""

    places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    async def delete(self, volume_id: str, *, gate: Any) -> None:
        await asyncio.sleep(self.waits_s)
        async with self.places:
            await gate()
            await asyncio.sleep(CALL_S)
        self.deleted.append(volume_id)


async def look(deleter: Deleter, name: str = RELEASED.name) -> None:
    try:
        await deleter.reconcile(name)
    except StorageError as refusal:
        assert "rescue" in refusal.message  # noqa: PT017 -- a look may end without one


def made(api: Api, ec2: Ec2, *cached: PersistentVolume) -> tuple[Deleter, LiveLists]:
    live = LiveLists(cast("KubeClient", api))
    deleter = a_deleter(cached[0], cast("Lists", live), ec2, api, Events())
    for each in cached[1:]:
        deleter._caches.persistent_volumes._store.apply(each)
    return deleter, live


def rescued(api: Api) -> None:
    api.accept(RESCUE)


def attached(api: Api) -> None:
    api.attachments.append(an_attachment(persistent_volume=RELEASED.name))


@pytest.mark.parametrize("happens", [rescued, attached], ids=lambda each: each.__name__)
@pytest.mark.parametrize("before_s", [0.01, 1, 9, 300])
def test_what_was_accepted_before_the_call_protects_the_volume(
    happens: Callable[[Api], None], before_s: float
):
    async def story(_: Clock) -> list[str]:
        api, ec2 = Api(RELEASED), Turns(waits_s=before_s + 1)
        deleter, live = made(api, ec2, api.kept[RELEASED.name])
        await live.snapshot()  # for the deletion of some other volume
        looking = asyncio.create_task(look(deleter))
        await asyncio.sleep(1)
        happens(api)
        await looking
        await live.close()
        return ec2.deleted

    assert in_virtual_time(story) == []


def test_a_rescue_a_moment_after_a_list_for_others_protects_the_volume_without_any_wait():
    async def story(_: Clock) -> list[str]:
        api, ec2 = Api(RELEASED), Turns()
        deleter, live = made(api, ec2, api.kept[RELEASED.name])
        await live.snapshot()
        rescued(api)
        await asyncio.sleep(9)
        await look(deleter)
        await live.close()
        return ec2.deleted

    assert in_virtual_time(story) == []


async def test_the_lists_of_the_last_look_decide_whatever_those_before_the_wait_showed():
    ec2, kube = Ec2(), Kube(objects={RELEASED.name: RELEASED})
    lists = Lists(shows(RELEASED), shows(RELEASED, an_attachment()))

    await a_deleter(RELEASED, lists, ec2, kube).reconcile(RELEASED.name)

    assert ec2.deleted == []


def test_a_thousand_deletions_share_lists_that_leave_the_api_server_half_of_its_time():
    async def story(clock: Clock) -> tuple[float, list[float], int]:
        objects = [
            a_persistent_volume(f"pv-{n}", uid=f"pv-{n}", handle=f"vol-{n:017x}", phase="Released")
            for n in range(COUNT)
        ]
        api, ec2 = Api(*objects), Turns()
        deleter, live = made(api, ec2, *api.kept.values())
        await asyncio.gather(*(look(deleter, each.name) for each in objects))
        took_s = clock()
        await live.close()
        return took_s, api.listed_at, len(ec2.deleted)

    took_s, listed_at, deleted = in_virtual_time(story)

    assert deleted == COUNT
    assert min(b - a for a, b in itertools.pairwise(listed_at)) >= 2 * LIST_S - 1e-6
    assert took_s < 10  # a hundred a second: faster than this machine's API server lets them go


def test_while_lists_fail_deletions_take_no_place_from_other_calls():
    async def story(_: Clock) -> None:
        api, ec2 = Api(RELEASED), Turns(places=asyncio.Semaphore(1))
        deleter, live = made(api, ec2, api.kept[RELEASED.name])
        api.failure = KubeError(Reason.UNREACHABLE, "the API server is away")
        api.takes_s = 60
        looking = asyncio.create_task(deleter.reconcile(RELEASED.name))
        await asyncio.sleep(30)
        assert not ec2.places.locked()
        with pytest.raises(KubeError):
            await looking
        await live.close()

    in_virtual_time(story)
