"""A controller whose watches stand still while the world goes on: nothing is doubled or lost.

The stories are told at the same time; each test waits for the end of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from tests.cluster import walk, walk_world
from tests.cluster.background import Background
from tests.cluster.hands import PVS
from tests.cluster.volume_stories import VolumeLife
from tests.cluster.walk_world import World

pytestmark = pytest.mark.asyncio(loop_scope="module")
CLAIMS, PERSISTENT, ATTACHED = "persistentvolumeclaims", "persistentvolumes", "volumeattachments"
STALE_S = 2.0  # well above the 0.2 s in which a watch tells of a change here


async def stale(story: VolumeLife, act: Awaitable[None], *, until: Awaitable[None]) -> list[str]:
    """Act while the cache stands still, let it go on, wait; what was sent meanwhile."""
    await story.freeze()
    sent = len(story.labels)
    await act
    await asyncio.sleep(STALE_S)  # that nothing happens can only be seen by waiting
    meanwhile = story.labels[sent:]
    story.thaw()
    await until
    return meanwhile


async def each_step_unseen(story: VolumeLife) -> None:
    frozen = story.freezes
    sent = await stale(story, story.make_claim(), until=story.is_bound())
    assert ("CreateVolume #1" in sent) == (CLAIMS not in frozen)
    sent = await stale(story, story.ask_for_attachment(), until=story.is_attached())
    assert ("PATCH volumeattachments #1" in sent) == (ATTACHED not in frozen)
    path = story.attachment_path
    sent = await stale(story, story.delete(path), until=story.is_gone(path))
    assert ("DetachVolume #1" in sent) == (ATTACHED not in frozen)
    gone = story.is_gone(f"{PVS}/{story.pv}")
    sent = await stale(story, story.delete(story.claim_path), until=gone)
    assert ("DeleteVolume #1" in sent) == (PERSISTENT not in frozen)
    await story.check()
    once = ("CreateVolume", "AttachVolume", "DetachVolume", "DeleteVolume")
    assert [label for label in story.labels if label.startswith(once)] == [f"{a} #1" for a in once]


async def claims_unseen(story: VolumeLife) -> None:
    await each_step_unseen(story)


async def persistent_volumes_unseen(story: VolumeLife) -> None:
    await each_step_unseen(story)


async def attachments_unseen(story: VolumeLife) -> None:
    await each_step_unseen(story)


async def nothing_seen(story: VolumeLife) -> None:
    await each_step_unseen(story)


async def an_attachment_that_is_not_seen(story: VolumeLife) -> None:
    """Race 9, 29: the cache shows no attachment; whoever would delete its volume finds it."""
    await story.make_claim()
    await story.is_bound()

    async def attach_and_delete() -> None:
        await story.ask_for_attachment()
        await story.delete(story.claim_path)

    sent = await stale(story, attach_and_delete(), until=story.is_attached())

    assert not [label for label in sent if label.startswith("DeleteVolume")]
    assert set(await story.volumes()) == {story.volume_id}
    await story.delete(story.attachment_path)
    await story.is_gone(f"{PVS}/{story.pv}")
    await story.check()


async def a_policy_that_is_not_seen(story: VolumeLife) -> None:
    """Race 19: the cache says Delete, the object says Retain."""
    await story.make_claim()
    await story.is_bound()
    await story.ask_for_attachment()
    await story.is_attached()
    await story.delete(story.claim_path)
    path = f"{PVS}/{story.pv}"

    async def released() -> bool:
        found = await story.world.api.get(path)
        return bool(found["status"]["phase"] == "Released")

    await story.until("Released", released)
    await asyncio.sleep(STALE_S / 4)  # that much is seen

    async def retain_and_detach() -> None:
        policy = {"spec": {"persistentVolumeReclaimPolicy": "Retain"}}
        await story.world.api.patch(path, policy)
        await story.delete(story.attachment_path)
        await story.is_gone(story.attachment_path)

    async def nothing() -> None:
        return

    sent = await stale(story, retain_and_detach(), until=nothing())

    assert not [label for label in sent if label.startswith(("DeleteVolume", "DELETE"))]
    assert set(await story.volumes()) == {story.volume_id}
    await story.world.api.patch(path, {"spec": {"persistentVolumeReclaimPolicy": "Delete"}})
    await story.is_gone(path)
    await story.check()


async def a_claim_made_anew_unseen(story: VolumeLife) -> None:
    """Race 8: another claim under the name of the first, which was never seen to go."""
    await story.make_claim()
    await story.is_bound()
    first = story.pv

    async def make_anew() -> None:
        await story.delete(story.claim_path)
        await story.is_gone(story.claim_path)
        await story.make_claim()

    await stale(story, make_anew(), until=story.is_bound())

    assert story.pv != first
    await story.is_gone(f"{PVS}/{first}")
    assert set(await story.volumes()) == {story.volume_id}
    await story.delete(story.claim_path)
    await story.is_gone(f"{PVS}/{story.pv}")
    await story.check(volumes=2)


STORIES: dict[Callable[[VolumeLife], Awaitable[None]], tuple[str, ...]] = {
    claims_unseen: (CLAIMS,),
    persistent_volumes_unseen: (PERSISTENT,),
    attachments_unseen: (ATTACHED,),
    nothing_seen: (CLAIMS, PERSISTENT, ATTACHED),
    an_attachment_that_is_not_seen: (ATTACHED,),
    a_policy_that_is_not_seen: (PERSISTENT,),
    a_claim_made_anew_unseen: (CLAIMS,),
}
Told = dict[Callable[[VolumeLife], Awaitable[None]], asyncio.Task[None]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def told(
    background: Background, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Told]:
    folder = tmp_path_factory.mktemp("stale")
    async with walk_world.opened(background, folder, len(STORIES)) as world:
        tasks = {
            story: asyncio.create_task(_tell(world, story, freezes), name=story.__name__)
            for story, freezes in STORIES.items()
        }
        try:
            yield tasks
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)


async def _tell(
    world: World, tell: Callable[[VolumeLife], Awaitable[None]], freezes: tuple[str, ...]
) -> None:
    async with walk.a_story(world, VolumeLife, freezes=freezes) as story:
        try:
            await tell(story)
        except AssertionError:
            print(f"--- {tell.__name__}\n{story.labels}\n{story.log[-4000:]}")  # noqa: T201
            raise


@pytest.mark.parametrize(
    "story",
    [claims_unseen, persistent_volumes_unseen, attachments_unseen, nothing_seen],
    ids=lambda story: story.__name__,
)
async def test_a_volume_lives_its_life_once_however_late_its_changes_are_seen(told: Told, story):
    await told[story]


async def test_a_volume_is_not_deleted_under_an_attachment_that_the_cache_lacks(told: Told):
    await told[an_attachment_that_is_not_seen]


async def test_a_volume_is_kept_when_its_policy_has_changed_since_the_cache_saw_it(told: Told):
    await told[a_policy_that_is_not_seen]


async def test_a_claim_made_anew_behind_the_caches_back_gets_a_volume_of_its_own(told: Told):
    await told[a_claim_made_anew_unseen]
