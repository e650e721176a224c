"""The end of a process: what EC2 has made is saved first, and nothing more is begun."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from provisioner.controller.provisioning.creation_rules import with_volume
from provisioner.model.volume import VolumeState
from tests.builders import UID, a_persistent_volume, a_volume
from tests.controller.provisioning.test_flow import CLAIM, PINNED, World


async def test_a_volume_that_was_made_is_saved_and_nothing_else_is_passed_at():
    world = World(CLAIM)
    world.kube.answers = [PINNED, a_persistent_volume()]
    world.ec2.answers = [a_volume(state=VolumeState.CREATING)]
    provisioner = world.provisioner
    work = asyncio.create_task(provisioner.queue.run())
    provisioner.queue.add(UID)
    async with asyncio.timeout(30):
        await provisioner._passed.wait()
        assert provisioner.creations.has_made(UID)
        finishing = asyncio.create_task(provisioner.finish())
        await asyncio.sleep(0)
        provisioner.queue.add("another")
        await asyncio.sleep(0.05)
        assert not finishing.done()
        assert provisioner.queue.depth <= 1

        attempt = provisioner.creations.attempts[UID]
        made = replace(a_volume(), state=VolumeState.AVAILABLE)
        provisioner.creations.attempts[UID] = with_volume(attempt, made, is_shown=True)
        provisioner.queue.add(UID)
        await finishing
        assert await provisioner.queue.drain(0.0)
        await work

    assert world.kube.sent[-1][:2] == ("create", "persistentvolumes")
    assert len(world.ec2.requests) == 1
    world.provisioner._forget(UID)


async def test_what_ec2_was_not_asked_for_is_left():
    world = World(CLAIM)
    work = asyncio.create_task(world.provisioner.queue.run())
    world.provisioner.queue.add(UID, after_s=60)

    async with asyncio.timeout(30):
        await world.provisioner.finish()
        assert await world.provisioner.queue.drain(0.0)
        await work

    assert (world.kube.sent, world.ec2.requests) == ([], [])
