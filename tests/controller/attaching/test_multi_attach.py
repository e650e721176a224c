"""A file system on a volume with Multi-Attach, in virtual time: one node at a time may write."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from provisioner.model.attachment import NODE_ID
from provisioner.model.errors import KubeError, Reason
from provisioner.model.persistent_volume import InTreeSource, PersistentVolumeSpec
from tests.builders import VOLUME
from tests.controller.attach_world import AttachWorld, in_attach_world
from tests.controller.cloud import Placed

FIRST, SECOND = "i-11111111111111111", "i-22222222222222222"
# kube-controller-manager attaches to many nodes if any mode allows it; the kubelet uses the first.
WRITERS = [
    ["ReadWriteOnce", "ReadWriteMany"],
    ["ReadWriteOnce", "ReadOnlyMany"],
    ["ReadWriteMany"],
    [],
]


def wish(world: AttachWorld, node: int, **more: Any) -> str:
    instance = FIRST if node == 1 else SECOND
    return world.wish(node=node, instance=instance, name=f"csi-on-{node}", **more)


def a_shared_world(story: Any) -> None:
    async def whole(world: AttachWorld) -> None:
        world.cloud.shared = True
        await story(world)

    in_attach_world(whole)


@pytest.mark.parametrize("modes", WRITERS)
@pytest.mark.parametrize("volume_mode", [None, "Filesystem"])
def test_a_second_node_does_not_get_a_file_system_to_write_to(modes, volume_mode):
    kind = {"access_modes": modes, "volume_mode": volume_mode}

    async def story(world: AttachWorld) -> None:
        first = wish(world, 1, **kind)
        await asyncio.sleep(10)
        second = wish(world, 2, **kind)
        await asyncio.sleep(300)
        assert set(world.attached_at) == {first}
        assert world.cloud.actions() == ["AttachVolume"]
        [(_, text)] = world.told
        assert all(word in text for word in (VOLUME, FIRST, SECOND, "Block"))

        world.delete(first)
        await asyncio.sleep(60)

        assert set(world.gone_at) == {first}
        assert second in world.attached_at
        assert world.attached_at[second] > world.gone_at[first]

    a_shared_world(story)


@pytest.mark.parametrize("modes", [["ReadOnlyMany"], ["ReadOnlyMany", "ReadWriteOnce"]])
def test_a_file_system_to_be_read_is_never_attached(modes):
    async def story(world: AttachWorld) -> None:
        wish(world, 1, access_modes=modes)
        await asyncio.sleep(60)
        assert world.attached_at == {}
        assert "AttachVolume" not in world.cloud.actions()
        [(_, text)] = world.told
        assert "Multi-Attach" in text

    a_shared_world(story)


@pytest.mark.parametrize("modes", [["ReadOnlyMany"], ["ReadOnlyMany", "ReadWriteOnce"]])
def test_without_multi_attach_a_file_system_may_be_for_reading(modes):
    async def story(world: AttachWorld) -> None:
        name = wish(world, 1, access_modes=modes)
        await asyncio.sleep(10)
        assert set(world.attached_at) == {name}

    in_attach_world(story)


def test_raw_devices_are_shared():
    async def story(world: AttachWorld) -> None:
        kind = {"volume_mode": "Block", "access_modes": ["ReadWriteOnce", "ReadWriteMany"]}
        names = {wish(world, node, **kind) for node in (1, 2)}
        await asyncio.sleep(10)
        assert set(world.attached_at) == names
        assert world.told == []

    a_shared_world(story)


@pytest.mark.parametrize("slow_s", [0.0, 20.0])
def test_of_two_nodes_at_once_one_gets_it(slow_s):
    async def story(world: AttachWorld) -> None:
        world.cloud.waits_s["AttachVolume"] = slow_s
        names = {wish(world, node, access_modes=WRITERS[0]) for node in (1, 2)}
        await asyncio.sleep(120)
        [winner] = world.attached_at
        assert world.cloud.actions() == ["AttachVolume"]

        world.delete(winner)
        await asyncio.sleep(120)

        assert set(world.attached_at) == names

    a_shared_world(story)


def test_two_persistent_volumes_of_one_volume_are_no_way_round():
    async def story(world: AttachWorld) -> None:
        first = wish(world, 1)
        await asyncio.sleep(10)
        world.wish(2, node=2, instance=SECOND, name="csi-on-2", handle=VOLUME)
        await asyncio.sleep(60)
        assert set(world.attached_at) == {first}
        assert world.cloud.actions() == ["AttachVolume"]

    a_shared_world(story)


def test_a_new_leader_goes_on_with_what_the_one_before_had_attached():
    """It died before it could report it, and the other attachment is looked at first."""

    async def story(world: AttachWorld) -> None:
        world.cloud._placed[VOLUME] = {FIRST: Placed("/dev/xvdba", -1.0)}
        wish(world, 2, access_modes=WRITERS[0])
        first = wish(world, 1, access_modes=WRITERS[0])
        await asyncio.sleep(600)
        assert set(world.attached_at) == {first}
        assert world.cloud.actions() == []
        assert all(
            "as well: EC2 would allow that" in text and FIRST in text for _, text in world.told
        )

    a_shared_world(story)


@pytest.mark.parametrize(("made", "stays"), [({1: 1, 2: 2}, 1), ({1: 2, 2: 1}, 2), ({}, 1)])
def test_of_two_that_ec2_has_let_in_the_older_one_stays(made, stays):
    """The AttachVolume of the leader before us shows only after our own look for the other one."""

    async def story(world: AttachWorld) -> None:
        second = wish(world, 2, access_modes=WRITERS[0], **at(made, 2))
        await asyncio.sleep(1)
        assert world.cloud.actions() == ["AttachVolume"]
        world.cloud._placed[VOLUME][FIRST] = Placed("/dev/xvdba", -1.0)
        first = wish(world, 1, access_modes=WRITERS[0], **at(made, 1))
        await asyncio.sleep(1200)
        assert set(world.attached_at) == {first if stays == 1 else second}
        assert world.cloud.actions() == ["AttachVolume"]

    a_shared_world(story)


def test_one_that_may_be_reported_already_is_not_overtaken_by_an_older_one():
    """The API server does not answer while it is reported."""

    async def story(world: AttachWorld) -> None:
        second = wish(world, 2, access_modes=WRITERS[0], **at({2: 2}, 2))
        write, world.patch = world.patch, never  # type: ignore[method-assign]
        await asyncio.sleep(5)
        world.cloud._placed[VOLUME][FIRST] = Placed("/dev/xvdba", -1.0)
        wish(world, 1, access_modes=WRITERS[0], **at({1: 1}, 1))
        await asyncio.sleep(60)
        world.patch = write  # type: ignore[method-assign]
        await asyncio.sleep(600)
        assert set(world.attached_at) == {second}

    a_shared_world(story)


def test_what_another_controller_may_report_any_moment_does_not_give_way():
    async def story(world: AttachWorld) -> None:
        world.cloud._placed[VOLUME] = {each: Placed("/dev/xvdba", -1.0) for each in (FIRST, SECOND)}
        other = wish(world, 2, annotations={NODE_ID: SECOND})
        found = world.caches.attachments.get(other)
        assert found is not None
        world._put(replace(found, spec=replace(found.spec, attacher="another")))
        wish(world, 1)
        await asyncio.sleep(60)
        assert world.attached_at == {}

    a_shared_world(story)


async def never(*_: Any, **__: Any) -> Any:
    raise KubeError(Reason.UNREACHABLE, "no answer")


def at(made: dict[int, int], node: int) -> dict[str, Any]:
    """When the attachment of a node was created, in hours of a day."""
    hour = made.get(node)
    return {"created_at": datetime(2026, 11, 21, hour, tzinfo=UTC) if hour else None}


def test_a_raw_device_that_is_only_to_be_read_is_no_reader():
    """Nothing keeps its pod from writing."""

    async def story(world: AttachWorld) -> None:
        kind: dict[str, Any] = {"volume_mode": "Block", "access_modes": ["ReadOnlyMany"]}
        raw = world.wish(2, node=2, instance=SECOND, handle=VOLUME, name="csi-reads", **kind)
        await asyncio.sleep(10)
        wish(world, 1)
        await asyncio.sleep(60)
        assert set(world.attached_at) == {raw}

    a_shared_world(story)


def test_volumes_that_pods_name_by_themselves_are_written_by_one_node():
    spec = PersistentVolumeSpec(aws_elastic_block_store=InTreeSource(volume_id=VOLUME))
    inline = {"inline": spec, "persistent_volume": None}

    async def story(world: AttachWorld) -> None:
        for node in (1, 2):
            wish(world, node, **inline)
        await asyncio.sleep(60)
        assert len(world.attached_at) == 1
        assert world.cloud.actions() == ["AttachVolume"]

    a_shared_world(story)


def test_what_was_attached_by_hand_is_never_reported_beside_it_nor_taken_away():
    """No attachment tells of it, so EC2 gives it to a second one; no pod starts with it."""

    async def story(world: AttachWorld) -> None:
        world.cloud._placed[VOLUME] = {FIRST: Placed("/dev/xvdba", -1000.0)}
        second = wish(world, 2)
        await asyncio.sleep(60)
        assert world.attached_at == {}
        assert world.cloud.actions() == ["AttachVolume"]
        [(_, text)] = world.told
        assert FIRST in text

        del world.cloud._placed[VOLUME][FIRST]
        await asyncio.sleep(60)

        assert set(world.attached_at) == {second}
        assert world.cloud.actions() == ["AttachVolume"]

    a_shared_world(story)


def test_a_node_that_cannot_get_it_holds_up_no_other():
    async def story(world: AttachWorld) -> None:
        world.cloud.refuses["AttachVolume"] = Reason.INSTANCE_FULL
        wish(world, 1, access_modes=WRITERS[0])
        await asyncio.sleep(0.5)
        assert [text for _, text in world.told] == ["EC2 refuses AttachVolume"]
        del world.cloud.refuses["AttachVolume"]
        second = wish(world, 2, access_modes=WRITERS[0])  # before the first one's next try
        await asyncio.sleep(120)
        assert set(world.attached_at) == {second}

    a_shared_world(story)


@pytest.mark.parametrize("volume_mode", [None, "Block"])
def test_without_multi_attach_a_move_is_as_it_was(volume_mode):
    async def story(world: AttachWorld) -> None:
        first = wish(world, 1, volume_mode=volume_mode)
        await asyncio.sleep(10)
        second = wish(world, 2, volume_mode=volume_mode)
        await asyncio.sleep(10)
        [(_, text)] = world.told
        assert text == f"volume {VOLUME} is attached to instance {FIRST}; detach it there first"

        world.delete(first)
        await asyncio.sleep(60)

        assert second in world.attached_at
        assert set(world.cloud._on(VOLUME)) == {SECOND}

    in_attach_world(story)
