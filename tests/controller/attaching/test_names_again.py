"""A device name that was just freed is used last again, however its volume was detached."""

from __future__ import annotations

import asyncio

import pytest

from tests.builders import INSTANCE
from tests.controller.attach_world import AttachWorld, in_attach_world


def name_of(world: AttachWorld) -> str:
    """Under which name AttachVolume asked for the only volume on the instance."""
    (name,) = world.cloud._instance(INSTANCE).devices
    return name


@pytest.mark.parametrize("by_force", [False, True])
def test_a_name_is_used_last_again_though_the_reply_to_the_detachment_was_lost(*, by_force: bool):
    async def story(world: AttachWorld) -> None:
        wished = world.wish()
        await asyncio.sleep(1300)
        world.wish(2, node=2, instance="i-00000000000000002")  # the book is tidied
        await asyncio.sleep(30)
        before = name_of(world)
        if by_force:  # the object goes first, and somebody detaches the volume
            world.remove_by_force(wished)
            world.cloud._placed.clear()
        else:
            world.delete(wished)  # the answer names no device, as if it were lost
        await asyncio.sleep(30)

        world.wish(3)
        await asyncio.sleep(30)
        assert name_of(world) != before

    in_attach_world(story)
