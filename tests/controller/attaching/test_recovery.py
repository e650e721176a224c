"""How soon attaches and detaches go on once what EC2 refused them for is over."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from structlog.testing import capture_logs

from provisioner.model.errors import Reason
from tests.controller.attach_world import AttachWorld, in_attach_world

PASSES = (Reason.INSTANCE_FULL, Reason.INSTANCE_STATE, Reason.VOLUME_STATE)


@pytest.mark.parametrize("reason", PASSES)
def test_an_attach_goes_on_within_30_s(reason: Reason):
    async def story(world: AttachWorld) -> float:
        world.cloud.refuses["AttachVolume"] = reason
        name = world.wish()
        await asyncio.sleep(1200)
        assert {told for _, told in world.told} == {"EC2 refuses AttachVolume"}
        del world.cloud.refuses["AttachVolume"]
        await asyncio.sleep(400)
        return world.attached_at[name] - 1200

    assert in_attach_world(story) <= 30 + 5


def test_a_detach_from_an_instance_that_is_stopping_goes_on_within_30_s():
    async def story(world: AttachWorld) -> float:
        name = world.wish()
        await asyncio.sleep(10)
        world.cloud.refuses["DetachVolume"] = Reason.INSTANCE_STATE
        world.delete(name)
        await asyncio.sleep(1200)
        assert {told for _, told in world.told} == {"EC2 refuses DetachVolume"}
        del world.cloud.refuses["DetachVolume"]
        await asyncio.sleep(400)
        return world.gone_at[name] - 1210

    assert in_attach_world(story) <= 30 + 6


def test_what_waiting_does_not_cure_is_asked_for_less_and_less():
    async def story(world: AttachWorld) -> int:
        world.cloud.refuses["AttachVolume"] = Reason.PERMISSION_DENIED
        world.wish()
        await asyncio.sleep(3600)
        return len(world.cloud.sent)

    assert in_attach_world(story) < 30


def test_an_attach_that_ec2_drops_each_time_is_told_once_and_asked_for_every_five_minutes():
    async def story(world: AttachWorld) -> list[float]:
        world.cloud.drops = True
        name = world.wish()
        with capture_logs() as logs:
            await asyncio.sleep(3600)
        assert [at < 60 for at, _ in world.told] == [True]
        assert "drops it each time" in world.told[0][1]
        assert {line["event"] for line in logs} == {
            "EC2 accepted an attachment and dropped it; trying again"
        }
        assert len(logs) == len(world.cloud.sent) - 2

        world.cloud.drops = False
        await asyncio.sleep(310)
        assert name in world.attached_at
        return [at for _, at in world.cloud.sent]

    sent_at = in_attach_world(story)

    pauses = [later - earlier for earlier, later in itertools.pairwise(sent_at)]
    wanted = [10, 20, 40, 80, 160, *[300] * (len(pauses) - 5)]
    late = [pause - least for pause, least in zip(pauses, wanted, strict=True)]
    assert min(late) >= 0
    assert max(late) < 11  # it is looked at every 10 s
