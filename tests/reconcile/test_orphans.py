"""The sweep over lives: what another controller may have written to, and the last look."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from provisioner.ec2.volumes import Volumes
from provisioner.kube.client import KubeClient
from provisioner.kube.wire import Listing
from provisioner.metrics import Metrics
from provisioner.model import tags
from provisioner.model.errors import Ec2Error, KubeError, Reason, StorageError
from provisioner.model.reign import Reign
from provisioner.model.volume import Volume
from provisioner.reconcile.creation import Creations
from provisioner.reconcile.live import LiveLists, Snapshot
from provisioner.reconcile.marks import Marks
from provisioner.reconcile.orphans import OrphanSweep
from provisioner.settings import Settings
from tests.builders import a_volume
from tests.ec2.virtual_time import Clock, in_virtual_time

NOW = datetime.now(UTC)
HOUR = timedelta(hours=1)
STOCK_LED_UNTIL = NOW - HOUR
OURS_SINCE = Reign(STOCK_LED_UNTIL)


def an_orphan(volume_id: str, made_at: datetime, policy: str = "Delete") -> Volume:
    owner = tags.Owner("shop", "data", f"pvc-of-{volume_id}", policy)
    written = dict(tags.of_new_volume(owner, cluster_id="prod", extra={}))
    return a_volume(volume_id, tags=written, created_at=made_at)


BEFORE = an_orphan("vol-0000000000000000a", STOCK_LED_UNTIL - HOUR)
KEPT_BEFORE = an_orphan("vol-0000000000000000b", STOCK_LED_UNTIL - HOUR, "Retain")
SINCE = an_orphan("vol-0000000000000000c", STOCK_LED_UNTIL + HOUR / 2)


@dataclass
class World:
    """EC2 with orphans, and an API server with neither claim nor persistent volume."""

    volumes: list[Volume]
    may_untag: bool = True
    named_meanwhile: Collection[str] = ()
    shows_late: bool = False
    deleted: list[str] = field(default_factory=list)
    untagged: list[str] = field(default_factory=list)
    attempts: dict[str, Any] = field(default_factory=dict)

    async def find(self, *, background: bool = False, **_: object) -> list[Volume]:
        return [] if self.shows_late and not background else self.volumes

    async def untag(self, volume_ids: Sequence[str], _: str) -> dict[str, Ec2Error]:
        if not self.may_untag:
            raise StorageError(Reason.PERMISSION_DENIED, "no ec2:DeleteTags", retry_after_s=60.0)
        self.untagged += volume_ids
        return {}

    async def delete(self, volume_id: str, *, gate: Callable[[], Awaitable[None]]) -> None:
        await gate()
        self.deleted.append(volume_id)

    async def snapshot(self) -> Snapshot:
        return Snapshot(1, {}, {}, {})

    async def nobody_names(self, volume_id: str) -> None:
        if volume_id in self.named_meanwhile:
            raise KubeError(Reason.CONFLICT, f"{volume_id} is named")

    async def list(self, *_: object) -> Listing[Any]:
        return Listing([], "1", ())


async def life(world: World, reign: Reign | None, lasts_s: float, metrics: Metrics) -> None:
    """One leader's marks and sweeps."""
    volumes, live = cast("Volumes", world), cast("LiveLists", world)
    marks = Marks(volumes, live, cluster_id="prod")
    marks.lineage.reign = reign
    sweep = OrphanSweep(
        settings=Settings(cluster_id="prod"),
        client=cast("KubeClient", world),
        volumes=volumes,
        marks=marks,
        live=live,
        creations=cast("Creations", world),
        metrics=metrics,
    )
    tasks = [asyncio.create_task(marks.run()), asyncio.create_task(sweep.run())]
    await asyncio.sleep(lasts_s)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def lives(
    world: World, *lasts_s: float, reign: Reign | None = OURS_SINCE
) -> Callable[[str], float]:
    """Leaders of ours one after the other; what the last one has counted, by outcome."""
    metrics = Metrics()

    async def story(_: Clock) -> None:
        nonlocal metrics
        for each_s in lasts_s:
            metrics = Metrics()
            await life(world, reign, each_s, metrics)

    in_virtual_time(story)
    return lambda outcome: float(metrics.orphans.labels(outcome)._value.get())


@pytest.mark.parametrize("lasts_s", [(3600.0,), (3600.0, 3600.0), (0.2, 60.0)], ids=str)
@pytest.mark.parametrize("may_untag", [True, False])
def test_what_was_there_before_our_reign_is_reported_by_every_leader_and_deleted_by_none(
    lasts_s, may_untag
):
    world = World([BEFORE, KEPT_BEFORE], may_untag=may_untag)

    counted = lives(world, *lasts_s)

    assert world.deleted == []
    assert counted("reported") == 2
    assert set(world.untagged) == (
        {BEFORE.volume_id, KEPT_BEFORE.volume_id} if may_untag else set()
    )


def test_it_is_not_deleted_either_when_ec2_shows_it_only_after_the_start():
    world = World([BEFORE], shows_late=True)

    counted = lives(world, 3600.0)

    assert world.deleted == []
    assert counted("reported") == 1


def test_what_was_made_in_our_reign_is_deleted_also_beside_what_was_not():
    world = World([BEFORE, SINCE], may_untag=False)

    counted = lives(world, 60.0)

    assert world.deleted == [SINCE.volume_id]
    assert counted("deleted") == 1


def test_nothing_is_deleted_by_a_process_that_does_not_know_who_led():
    world = World([BEFORE, SINCE])

    lives(world, 3600.0, reign=None)

    assert world.deleted == []


def test_the_last_look_keeps_what_an_object_has_come_to_name_and_nothing_else():
    other = an_orphan("vol-0000000000000000d", STOCK_LED_UNTIL + HOUR / 2)
    world = World([SINCE, other], named_meanwhile=[SINCE.volume_id])

    lives(world, 60.0)

    assert world.deleted == [other.volume_id]
