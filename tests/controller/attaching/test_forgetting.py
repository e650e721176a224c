"""What a leader remembers of attachments does not grow with those that it made."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.controller.attach_world import AttachWorld, in_attach_world


def remembered_names(world: AttachWorld) -> int:
    return sum(len(page.by_volume) for page in world.ec2.devices._pages.values())


def test_the_device_names_of_volumes_that_stay_attached_are_forgotten():
    async def story(world: AttachWorld) -> None:
        for volume in (1, 2):
            world.wish(volume)
        await asyncio.sleep(60)
        assert len(world.attached_at) == remembered_names(world) == 2

        await asyncio.sleep(700)
        world.wish(3)
        await asyncio.sleep(60)
        assert len(world.attached_at) == 3
        assert remembered_names(world) == 1

    in_attach_world(story)


@pytest.mark.parametrize(("led_for_s", "left"), [(0.0, 1), (100.0, 0)])
def test_an_attachment_of_the_process_before_us_is_forgotten_once_its_object_is_gone(
    *, led_for_s: float, left: int
):
    async def story(world: AttachWorld) -> None:
        name = world.wish()
        await asyncio.sleep(30)
        world.attacher.detacher.take_over()
        await asyncio.sleep(led_for_s)
        world.delete(name)
        await asyncio.sleep(30)
        assert list(world.gone_at) == [name]
        assert len(world.attacher.detacher._before_us) == left

    in_attach_world(story)


def test_the_registration_of_a_node_that_is_gone_is_not_asked_for():
    async def story(world: AttachWorld) -> tuple[list[str], list[str]]:
        asked: list[str] = []
        get = world.get

        async def noted(resource: Any, name: str, namespace: str = "") -> Any:
            asked.append(resource.plural)
            return await get(resource, name, namespace)

        world.get = noted  # type: ignore[method-assign]
        name = world.wish()
        await asyncio.sleep(20)
        world.caches.nodes._store.remove("node-1", "")
        world.caches.csi_nodes._store.remove("node-1", "")
        world.delete(name)
        await asyncio.sleep(60)
        return list(world.gone_at), asked

    assert in_attach_world(story) == (["csi-1"], [])
