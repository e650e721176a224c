"""Snapshots that another account shares: seen once they are shared, whatever else is missing."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from provisioner.ec2.calls import Ec2Calls
from provisioner.ec2.snapshots import Snapshots
from provisioner.ec2.watcher import Watcher
from provisioner.metrics import Metrics
from provisioner.model.ebs_snapshot import EbsSnapshot, SnapshotState
from provisioner.model.errors import Ec2Error, Reason
from tests.ec2.virtual_time import Clock, in_virtual_time

FOREIGN = "snap-0f00000000000000f"


class Calls:
    """EC2 with one snapshot, of another owner; a refusal names one unknown id, as EC2 does."""

    def __init__(self, *, shared: bool) -> None:
        self.shared = shared

    async def call(self, action: str, params: dict[str, Any], **_: Any) -> dict[str, Any]:
        ids = params.get("SnapshotIds")
        if ids is None:
            visible = self.shared and "OwnerIds" not in params
            wanted = FOREIGN in params["Filters"][0]["Values"]
            return {"Snapshots": [_foreign()] if visible and wanted else []}
        for each in ids:
            if each != FOREIGN or not self.shared:
                text = f"The snapshot '{each}' does not exist."
                raise Ec2Error(Reason.SNAPSHOT_NOT_FOUND, text, action=action)
        return {"Snapshots": [_foreign()]}


def _foreign() -> EbsSnapshot:
    return EbsSnapshot(FOREIGN, "vol-ffffffff", SnapshotState.COMPLETED, 4)


@pytest.mark.parametrize(
    ("others", "shared_at_first"),
    [((), False), (("snap-0a", "snap-0b"), True)],
    ids=["shared later", "among unknown ones"],
)
def test_a_shared_snapshot_is_seen(*, others: tuple[str, ...], shared_at_first: bool):
    async def story(clock: Clock) -> EbsSnapshot | None:
        calls = Calls(shared=shared_at_first)
        snapshots = Snapshots(cast("Ec2Calls", calls))
        watcher: Watcher[EbsSnapshot] = Watcher(
            cast("Any", snapshots), metrics=Metrics(), kind="snapshots", clock=clock
        )
        for each in (*others, FOREIGN):
            watcher.watch(each, "me", lambda: None)
        looking = asyncio.create_task(watcher.run())
        await asyncio.sleep(5)
        calls.shared = True
        await asyncio.sleep(60)
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        sighting = watcher.sighting(FOREIGN)
        return None if sighting is None else sighting.found

    assert in_virtual_time(story) == _foreign()
