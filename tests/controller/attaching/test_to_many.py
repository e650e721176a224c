"""One volume for many nodes, in virtual time: who gets it, who waits, and who leaves alone."""

from __future__ import annotations

import asyncio

import pytest

from tests.builders import VOLUME
from tests.controller.attach_world import AttachWorld, in_attach_world
from tests.controller.cloud import INSTANCES


def wish(world: AttachWorld, node: int) -> str:
    """A raw device for many nodes: what is shared on purpose."""
    return world.wish(
        node=node,
        instance=instance_of(node),
        name=f"csi-on-{node}",
        volume_mode="Block",
        access_modes=["ReadWriteMany"],
    )


def instance_of(node: int) -> str:
    return f"i-{node:017x}"


def holders(world: AttachWorld) -> set[str]:
    return set(world.cloud._on(VOLUME))


def test_sixteen_nodes_get_it_with_one_call_each():
    async def story(world: AttachWorld) -> None:
        world.cloud.shared = True
        names = [wish(world, node) for node in range(INSTANCES)]
        await asyncio.sleep(10)
        assert set(world.attached_at) == set(names)
        assert holders(world) == {instance_of(node) for node in range(INSTANCES)}
        assert world.cloud.actions() == ["AttachVolume"] * INSTANCES
        assert world.told == []

    in_attach_world(story)


def test_a_seventeenth_is_told_who_has_it_and_gets_it_when_one_leaves():
    async def story(world: AttachWorld) -> None:
        world.cloud.shared = True
        names = [wish(world, node) for node in range(INSTANCES)]
        await asyncio.sleep(10)
        late = wish(world, INSTANCES)
        await asyncio.sleep(10)
        assert late not in world.attached_at
        [(_, text)] = world.told
        assert "no more than 16" in text
        assert instance_of(0) in text

        world.delete(names[0])
        await asyncio.sleep(30)

        assert set(world.gone_at) == {names[0]}
        assert late in world.attached_at
        assert holders(world) == {instance_of(node) for node in range(1, INSTANCES + 1)}

    in_attach_world(story)


def test_a_node_that_leaves_does_not_disturb_one_that_comes():
    async def story(world: AttachWorld) -> None:
        world.cloud.shared = True
        first = wish(world, 1)
        await asyncio.sleep(10)
        second = wish(world, 2)
        world.delete(first)
        await asyncio.sleep(10)
        assert set(world.gone_at) == {first}
        assert second in world.attached_at
        assert holders(world) == {instance_of(2)}
        assert world.cloud.actions().count("DetachVolume") == 1

    in_attach_world(story)


def test_an_attachment_that_is_stuck_on_one_node_is_taken_back_there_only():
    async def story(world: AttachWorld) -> None:
        world.cloud.shared = True
        wish(world, 1)
        await asyncio.sleep(10)
        world.cloud.attach_s = 1000  # for the first one, too: EC2 shows it as attaching again
        wish(world, 2)
        await asyncio.sleep(110)
        assert holders(world) >= {instance_of(1)}
        assert world.cloud.actions().count("DetachVolume") == 1

    in_attach_world(story)


@pytest.mark.parametrize("is_shared", [False, True])
def test_the_node_is_told_whether_others_may_have_the_volume_too(is_shared):
    """For there nothing is written for readers."""

    async def story(world: AttachWorld) -> None:
        world.cloud.shared = is_shared
        name = wish(world, 0)
        await asyncio.sleep(10)

        said = world.metadata[name].get("ebs-provisioner.io/multi-attach")
        assert said == ("true" if is_shared else None)

    in_attach_world(story)
