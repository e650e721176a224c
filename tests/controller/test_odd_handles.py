"""Handles that are no ids of EC2, whoever wrote them: each is its own object's trouble only."""

from __future__ import annotations

import asyncio

import pytest

from provisioner.model.attachment import NODE_ID
from provisioner.model.names import VOLUME_ID
from tests.builders import INSTANCE
from tests.controller.attach_world import AttachWorld, in_attach_world

HYPERPOD = "hyperpod-ab12-i-0123456789abcdef0"
ODD = pytest.mark.parametrize(
    "handle", ["foo", "local-ebs://dev/xvdbz", "vol-data", "snap-1", "i-1"]
)


@ODD
def test_an_odd_handle_is_refused_on_its_attachment_and_keeps_no_other_from_its_node(handle: str):
    async def story(world: AttachWorld) -> None:
        world.wish(7, handle=handle)
        await asyncio.sleep(3)
        good = world.wish(2)
        await asyncio.sleep(10)
        assert list(world.attached_at) == [good]
        assert all(f"{handle!r}, which is not an EBS volume" in text for _, text in world.told)
        assert world.told
        assert world.watcher.trouble is None

    in_attach_world(story)


@ODD
def test_the_end_of_such_an_attachment_after_a_take_over_keeps_nobody_waiting(handle: str):
    """What another controller has attached, or a version of ours that did not look."""

    async def story(world: AttachWorld) -> None:
        bad = world.wish(7, handle=handle)
        world.delete(bad)
        world.attacher.detacher.take_over()
        good = world.wish(2)
        await asyncio.sleep(10)
        assert list(world.gone_at) == [bad]
        assert list(world.attached_at) == [good]
        assert "DetachVolume" not in world.cloud.actions()

    in_attach_world(story)


def test_a_node_that_is_no_instance_gets_no_volume_and_keeps_no_other_waiting():
    async def story(world: AttachWorld) -> None:
        world.wish(7, node=2, instance=HYPERPOD)
        good = world.wish(2)
        await asyncio.sleep(10)
        assert list(world.attached_at) == [good]
        (_, told), *_ = world.told
        assert "HyperPod nodes are not supported" in told

    in_attach_world(story)


@pytest.mark.parametrize("held", [True, False])
def test_a_volume_on_such_a_node_is_let_go_only_once_it_is_off(*, held: bool):
    """The stock driver has attached it by SageMaker's own call, which EC2 shows without instance."""

    async def story(world: AttachWorld) -> None:
        if held:
            world.cloud.managed.add("vol-00000000000000007")
        bad = world.wish(7, node=2, instance=HYPERPOD)
        world.delete(bad)
        await asyncio.sleep(30)
        assert bool(world.gone_at) is not held
        assert "DetachVolume" not in world.cloud.actions()
        if held:
            assert "only the service that manages it" in world.told[-1][1]
            world.cloud.managed.clear()
            await asyncio.sleep(30)
            assert list(world.gone_at) == [bad]

    in_attach_world(story)


def test_what_is_on_such_a_node_and_cannot_be_named_any_more_is_kept_and_told():
    async def story(world: AttachWorld) -> None:
        bad = world.wish(7, node=2, instance=HYPERPOD, annotations={NODE_ID: HYPERPOD})
        world.caches.persistent_volumes._store.remove("pv-7", "9")
        world.delete(bad)
        await asyncio.sleep(100)
        assert world.gone_at == {}
        assert "the volume to detach from" in world.told[-1][1]

    in_attach_world(story)


def test_a_handle_that_only_the_record_names_is_let_go_too():
    async def story(world: AttachWorld) -> None:
        bad = world.wish(7, annotations={NODE_ID: INSTANCE, VOLUME_ID: "foo"})
        world.delete(bad)
        await asyncio.sleep(5)
        assert list(world.gone_at) == [bad]

    in_attach_world(story)
