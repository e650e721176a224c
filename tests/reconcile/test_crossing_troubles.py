"""What comes between a clone and the snapshot by which it goes to another zone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from provisioner.model.errors import StorageError
from tests.builders import UID
from tests.ec2.virtual_time import Clock, in_virtual_time
from tests.reconcile.test_crossing import TEMPORARY, a_crossing
from tests.sources import replaced


@pytest.mark.parametrize("comes", ["before", "after"])
def test_a_claim_that_is_bound_while_its_snapshot_is_taken_leaves_none(comes: str):
    world = a_crossing()

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
        running = asyncio.create_task(world.provisioner.sources.crossings.run())
        await asyncio.sleep(1)
        while True:
            try:
                wait_s = await world.provisioner.reconcile(UID)
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
