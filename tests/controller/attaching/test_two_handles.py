"""A volume that two PersistentVolumes name by handles of their own, both attached to one node.

Kubernetes takes these for two volumes. Our controller attaches no second one while a VolumeMove
copies files, but another attacher may.
"""

from __future__ import annotations

import asyncio

from provisioner.model.attachment import NODE_ID
from provisioner.model.names import VOLUME_ID
from provisioner.model.volume import serial_of
from tests.builders import INSTANCE, VOLUME
from tests.controller.attach_world import AttachWorld, in_attach_world


async def both(world: AttachWorld) -> tuple[str, str]:
    """The attachments, each reported as attached."""
    ours = world.wish()
    await asyncio.sleep(30)
    theirs = world.wish(
        2, handle=serial_of(VOLUME), annotations={NODE_ID: INSTANCE, VOLUME_ID: VOLUME}
    )
    await asyncio.sleep(30)
    assert {ours, theirs} == set(world.attached_at)
    assert world.cloud.actions() == ["AttachVolume"]
    return ours, theirs


def test_the_disk_stays_for_the_one_that_is_left_and_goes_with_it():
    async def story(world: AttachWorld) -> None:
        ours, theirs = await both(world)

        world.delete(ours)
        await asyncio.sleep(60)
        assert ours in world.gone_at
        assert "DetachVolume" not in world.cloud.actions()

        world.delete(theirs)
        await asyncio.sleep(60)
        assert theirs in world.gone_at
        assert world.cloud.actions().count("DetachVolume") == 1

    in_attach_world(story)


def test_the_disk_goes_if_only_an_old_cache_shows_the_other_one():
    async def story(world: AttachWorld) -> None:
        ours, theirs = await both(world)

        async def caught_up(*_: object) -> None:
            if theirs not in world.gone_at:
                world.remove_by_force(theirs)

        world.caches.certain = caught_up  # type: ignore[method-assign]
        world.delete(ours)
        await asyncio.sleep(60)

        assert "DetachVolume" in world.cloud.actions()

    in_attach_world(story)


def test_the_disk_goes_if_both_end_at_the_same_time():
    async def story(world: AttachWorld) -> None:
        ours, theirs = await both(world)

        world.delete(ours)
        world.delete(theirs)
        await asyncio.sleep(60)

        assert {ours, theirs} == set(world.gone_at)
        assert "DetachVolume" in world.cloud.actions()

    in_attach_world(story)
