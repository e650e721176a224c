"""What comes between a clone and the snapshot by which it goes to another zone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from provisioner.model.ebs_snapshot import EbsSnapshot, SnapshotState
from provisioner.model.errors import Outcome, Reason, StorageError
from tests.builders import UID, VOLUME, a_volume, an_ec2_error
from tests.controller.services import seconds
from tests.controller.source_world import OTHER_ZONE, SourceWorld, a_copy
from tests.controller.sources.test_cross_zone import TEMPORARY, a_clone_across, until_settled
from tests.ec2.virtual_time import Clock, in_virtual_time
from tests.sources import its_volume, replaced

OTHER_VOLUME = "vol-0eeeeeeeeeeeeeee1"


@pytest.mark.parametrize("comes", ["before", "after"])
def test_a_claim_that_is_bound_while_its_snapshot_is_taken_leaves_none(comes: str):
    world = a_clone_across()

    def bind() -> None:
        claim = world.caches.claim(UID)
        assert claim is not None
        bound = replaced(claim, spec=replaced(claim.spec, volume_name="by-hand"))
        world.show(world.caches.claims, bound)

    async def story(_: Clock) -> None:
        create = world.snapshots.create

        async def slow(request: Any, *, gate: Any) -> Any:
            if comes == "before":
                bind()
            snapshot = await create(request, gate=gate)
            bind()
            return snapshot

        world.snapshots.create = slow  # type: ignore[method-assign]
        world.provisioner.subscribe()
        running = asyncio.create_task(world.provisioner.sources.cross_zone_clones.run())
        await asyncio.sleep(1)
        while True:
            try:
                wait_s = seconds(await world.provisioner.reconcile(UID))
            except StorageError as error:
                wait_s = error.retry_after_s or 1.0
            if wait_s is None:
                break
            await asyncio.sleep(wait_s)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await world.provisioner.close()

    in_virtual_time(story)

    assert world.snapshots.there == {}
    assert world.snapshots.deleted == ([TEMPORARY] if comes == "after" else [])
    assert world.events.told == []  # nothing has failed


@pytest.mark.parametrize("call", ["describe", "find_any"])
def test_what_ec2_does_not_let_us_see_is_told_once(call: str):
    world = a_clone_across()

    async def denied(*_: Any, **__: Any) -> Any:
        raise an_ec2_error(Reason.PERMISSION_DENIED)

    async def story(_: Clock) -> None:
        if call == "find_any":
            world.snapshots.answers = [an_ec2_error(Reason.REPLY_LOST, Outcome.UNKNOWN)]
            with pytest.raises(StorageError):
                await world.provisioner.reconcile(UID)
        before = len(world.events.told)
        setattr(world.snapshots, call, denied)
        for _again in range(3):
            with pytest.raises(StorageError):
                await world.provisioner.reconcile(UID)
        [told] = world.events.told[before:]
        assert Reason.PERMISSION_DENIED in told
        await world.provisioner.close()

    in_virtual_time(story)


def test_a_snapshot_of_a_source_that_is_another_volume_by_now_is_not_used():
    world = a_clone_across()
    again = EbsSnapshot("snap-0again", OTHER_VOLUME, SnapshotState.PENDING, 1)
    world.snapshots.answers.append(again)
    world.ec2.answers = [a_copy(zone=OTHER_ZONE, snapshot_id="snap-0again")]

    async def story(_: Clock) -> None:
        running = asyncio.create_task(world.provisioner.sources.cross_zone_clones.run())
        await world.provisioner.reconcile(UID)
        world.snapshots.complete()
        world.ec2.known = {OTHER_VOLUME: a_volume(OTHER_VOLUME)}
        world.show(world.caches.persistent_volumes, its_volume(handle=OTHER_VOLUME))
        await asyncio.sleep(60)  # the reads of the volume before are old
        await world.provisioner.reconcile(UID)
        world.snapshots.complete()
        await until_settled(world)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await world.provisioner.close()

    in_virtual_time(story)

    assert [each.volume_id for each in world.snapshots.asked] == [VOLUME, OTHER_VOLUME]
    assert world.snapshots.deleted == [TEMPORARY]
    assert [each.snapshot_id for each in world.ec2.requests] == ["snap-0again"]


def taken_in_an_hour(world: SourceWorld, *, wakes_every_s: float) -> int:
    """How many snapshots are taken while the claim is looked at so often, or as often as it asks."""

    async def story(clock: Clock) -> int:
        while clock() < 3600:
            try:
                wait_s = seconds(await world.provisioner.reconcile(UID))
            except StorageError as error:
                wait_s = error.retry_after_s
            await asyncio.sleep(min(wakes_every_s, wait_s or wakes_every_s))
        await world.provisioner.close()
        return len(world.snapshots.asked)

    return in_virtual_time(story)


@pytest.mark.parametrize("wakes_every_s", [5.0, 3600.0], ids=["woken often", "by itself"])
def test_a_snapshot_that_fails_every_time_is_taken_ever_less_often(wakes_every_s: float):
    world = a_clone_across()
    world.snapshots.answers = [
        EbsSnapshot(f"snap-0bad{number}", VOLUME, SnapshotState.ERROR, 1) for number in range(1000)
    ]

    assert 6 <= taken_in_an_hour(world, wakes_every_s=wakes_every_s) <= 9
    told = [each for each in world.events.told if Reason.SNAPSHOT_STATE in each]
    assert "another one will be taken in 15 s" in told[0]
    assert "another one will be taken in 960 s" in told[6]
