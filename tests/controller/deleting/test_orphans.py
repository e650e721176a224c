"""The sweep over lives: what another controller may have written to, and the last look."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from provisioner.controller.deleting.orphans import OrphanSweep
from provisioner.controller.provisioning.creation import Creations
from provisioner.controller.shared.services import Services
from provisioner.controller.shared.settings import Settings
from provisioner.controller.shared.unclaimed import UnclaimedTags
from provisioner.ec2.volumes import Volumes
from provisioner.kube.resources import VOLUME_MOVES
from provisioner.metrics import Metrics
from provisioner.model import tags
from provisioner.model.errors import Ec2Error, KubeError, Reason, StorageError
from provisioner.model.leadership import Epoch
from provisioner.model.names import UNCLAIMED, VOLUME_NAME
from provisioner.model.volume import Volume
from tests.builders import a_claim, a_persistent_volume, a_volume
from tests.controller.services import CurrentCaches
from tests.ec2.virtual_time import Clock, in_virtual_time

NOW = datetime.now(UTC)
HOUR = timedelta(hours=1)
STOCK_LED_UNTIL = NOW - HOUR
OURS_SINCE = Epoch(STOCK_LED_UNTIL)


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
    forbidden: Collection[str] = ()
    named_meanwhile: Collection[str] = ()
    gone_meanwhile: Collection[str] = ()
    shows_late: bool = False
    deleted: list[str] = field(default_factory=list)
    untagged: list[str] = field(default_factory=list)
    attempts: dict[str, Any] = field(default_factory=dict)
    finds: int = 0
    pages_at: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.caches = CurrentCaches()
        self.caches.nobody_names = self.nobody_names  # type: ignore[method-assign]

    async def find(self, *, tags: Any, background: bool = False) -> list[Volume]:
        self.finds += 1
        if self.shows_late and not background:
            return []
        return [volume for volume in self.volumes if tags.keys() <= volume.tags.keys()]

    async def find_pages(self, *, tags: Any, background: bool) -> AsyncIterator[list[Volume]]:
        for at in range(0, len(self.volumes), 2):
            self.pages_at.append(asyncio.get_running_loop().time())
            yield self.volumes[at : at + 2]

    async def untag(self, volume_ids: Sequence[str], _: str) -> dict[str, Ec2Error]:
        if not self.may_untag:
            raise StorageError(Reason.PERMISSION_DENIED, "no ec2:DeleteTags", retry_after_s=60.0)
        self.untagged += [each for each in volume_ids if each not in self.forbidden]
        why = Ec2Error(Reason.PERMISSION_DENIED, "no", action="DeleteTags", retry_after_s=60.0)
        return {each: why for each in volume_ids if each in self.forbidden}

    async def delete(self, volume_id: str, *, gate: Callable[[], Awaitable[None]]) -> bool:
        await gate()
        if volume_id in self.gone_meanwhile:
            return False
        self.deleted.append(volume_id)
        return True

    async def nobody_names(self, volume_id: str) -> None:
        if volume_id in self.named_meanwhile:
            raise KubeError(Reason.CONFLICT, f"{volume_id} is named")


async def life(world: World, epoch: Epoch | None, lasts_s: float, metrics: Metrics) -> None:
    """One leader's tags and sweeps."""
    volumes = cast("Volumes", world)
    unclaimed = UnclaimedTags(volumes, world.caches, cluster_id="prod")
    unclaimed.leadership.epoch = epoch
    services = SimpleNamespace(
        settings=Settings(cluster_id="prod"),
        client=world,
        volumes=volumes,
        unclaimed=unclaimed,
        caches=world.caches,
        metrics=metrics,
    )
    sweep = OrphanSweep(cast("Services", services), cast("Creations", world))
    tasks = [asyncio.create_task(unclaimed.run()), asyncio.create_task(sweep.run())]
    await asyncio.sleep(lasts_s)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def lives(
    world: World, *lasts_s: float, epoch: Epoch | None = OURS_SINCE
) -> Callable[[str], float]:
    """Leaders of ours one after the other; what the last one has counted, by outcome."""
    metrics = Metrics()

    async def story(_: Clock) -> None:
        nonlocal metrics
        for each_s in lasts_s:
            metrics = Metrics()
            await life(world, epoch, each_s, metrics)

    in_virtual_time(story)
    return lambda outcome: float(metrics.orphans.labels(outcome)._value.get())


@pytest.mark.parametrize("lasts_s", [(3600.0,), (3600.0, 3600.0), (0.2, 60.0)], ids=str)
@pytest.mark.parametrize("may_untag", [True, False])
def test_what_was_there_before_our_epoch_is_reported_by_every_leader_and_deleted_by_none(
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


def test_what_was_made_in_our_epoch_is_deleted_also_beside_what_was_not():
    world = World([BEFORE, SINCE], may_untag=False)

    counted = lives(world, 60.0)

    assert world.deleted == [SINCE.volume_id]
    assert counted("deleted") == 1


def test_nothing_is_deleted_by_a_process_that_does_not_know_who_led():
    world = World([BEFORE, SINCE])

    lives(world, 3600.0, epoch=None)

    assert world.deleted == []


def test_the_last_look_keeps_what_an_object_has_come_to_name_and_nothing_else():
    other = an_orphan("vol-0000000000000000d", STOCK_LED_UNTIL + HOUR / 2)
    world = World([SINCE, other], named_meanwhile=[SINCE.volume_id])

    lives(world, 60.0)

    assert world.deleted == [other.volume_id]


def test_what_the_flow_of_its_object_has_deleted_just_now_is_not_told_as_an_orphan():
    world = World([SINCE], gone_meanwhile=[SINCE.volume_id])

    counted = lives(world, 60.0)

    assert (world.deleted, counted("deleted")) == ([], 0)


def test_where_nothing_is_wrong_a_sweep_is_one_call_and_the_inventory_is_taken_once_an_hour():
    owned = a_volume("vol-00000000000000000", tags=BEFORE.tags, created_at=BEFORE.created_at)
    volumes = [replace(owned, volume_id=f"vol-{n:017x}", tags=without_tag(owned)) for n in range(6)]
    world = World(volumes)
    for volume in volumes:
        named = a_persistent_volume(volume.volume_id, handle=volume.volume_id)
        world.caches.persistent_volumes._store.apply(named)
    asked_for_proof: list[None] = []
    world.caches.news = lambda: asked_for_proof.append(None)

    lives(world, 2 * 3600.0 - 1)

    learned = 1
    assert world.finds - learned == 2 * 12
    assert len(world.pages_at) == 2 * 3
    assert world.pages_at[1] - world.pages_at[0] >= 1  # EC2 and our memory have a rest
    assert world.pages_at[3] - world.pages_at[0] == pytest.approx(3600, rel=0.01)
    assert asked_for_proof == []  # the caches know them all


def test_a_volume_without_a_tag_is_reported_once_for_as_long_as_it_is_there():
    world = World([replace(SINCE, tags=without_tag(SINCE))])

    counted = lives(world, 3 * 3600.0)

    assert counted("reported") == 1
    assert world.deleted == []


def test_what_is_left_counts_until_it_is_gone_or_something_names_it():
    gone = replace(SINCE, tags=without_tag(SINCE))
    named = replace(BEFORE, tags=without_tag(BEFORE))
    world, metrics = World([gone, named]), Metrics()
    left: list[float | None] = []

    async def story(_: Clock) -> None:
        living = asyncio.create_task(life(world, OURS_SINCE, 4 * 3600.0, metrics))
        for happens in (
            lambda: None,
            lambda: world.volumes.remove(gone),
            lambda: world.caches.persistent_volumes._store.apply(
                a_persistent_volume("imported", handle=named.volume_id)
            ),
        ):
            happens()
            await asyncio.sleep(3700.0)
            left.append(metrics.registry.get_sample_value("ebs_provisioner_orphans_reported"))
        await living

    in_virtual_time(story)

    assert left == [2, 1, 0]


def test_a_tagged_volume_that_is_gone_counts_no_more_after_the_next_sweep():
    world, metrics = World([BEFORE]), Metrics()
    left: list[float | None] = []

    async def story(_: Clock) -> None:
        living = asyncio.create_task(life(world, None, 3600.0, metrics))
        for happens in (lambda: None, world.volumes.clear):
            happens()
            await asyncio.sleep(Settings().orphan_sweep_interval_s + 30.0)
            left.append(metrics.registry.get_sample_value("ebs_provisioner_orphans_reported"))
        await living

    in_virtual_time(story)

    assert left == [1, 0]


@pytest.mark.parametrize("reads", ["none", "all but the inventory"])
def test_that_none_is_left_is_unknown_until_all_volumes_were_looked_at(reads):
    world, metrics = World([]), Metrics()

    async def fails(*_: Any, **__: Any) -> list[Volume]:
        raise StorageError(Reason.PERMISSION_DENIED, "no ec2:DescribeVolumes")

    async def ends_early(**_: Any) -> AsyncIterator[list[Volume]]:
        await fails()
        yield []

    if reads == "none":
        world.find = fails  # type: ignore[method-assign]
    else:
        world.find_pages = ends_early  # type: ignore[method-assign]

    async def story(_: Clock) -> None:
        await life(world, None, 3600.0, metrics)

    in_virtual_time(story)

    left = metrics.registry.get_sample_value("ebs_provisioner_orphans_reported")
    assert left is not None
    assert math.isnan(left)


@pytest.mark.parametrize("owner", ["persistent volume by id", "persistent volume by name", "claim"])
def test_an_owner_of_whom_the_caches_have_not_heard_keeps_a_volume(owner):
    uid = "0c5a1b2e-7f00-4a7e-9d61-3b1f00000001"
    orphan = replace(SINCE, tags={**SINCE.tags, VOLUME_NAME: f"pvc-{uid}"})
    world = World([orphan])
    caches = world.caches

    def turns_up() -> None:
        if owner == "claim":
            caches.claims._store.apply(a_claim(uid=uid))
        elif owner == "persistent volume by id":
            named = a_persistent_volume("imported", handle=orphan.volume_id)
            caches.persistent_volumes._store.apply(named)
        else:
            caches.persistent_volumes._store.apply(a_persistent_volume(f"pvc-{uid}"))

    caches.news = turns_up

    lives(world, 60.0)

    assert world.deleted == []


def test_a_sweep_that_cannot_tell_what_is_owned_touches_nothing():
    world = World([SINCE, replace(BEFORE, tags=without_tag(BEFORE))])

    def cannot_tell() -> None:
        raise KubeError(Reason.UNREADABLE, "a claim cannot be read")

    world.caches.news = cannot_tell

    counted = lives(world, 600.0)

    assert world.deleted == []
    assert counted("reported") == 0


class Pages(World):
    """Its page with ``failing`` cannot be read. Volumes come two a page."""

    failing: int | None = None

    async def find_pages(self, *, tags: Any, background: bool) -> AsyncIterator[list[Volume]]:
        number = 0
        async for page in super().find_pages(tags=tags, background=background):
            if number == self.failing:
                raise StorageError(Reason.TIMED_OUT, "no answer")
            number += 1
            yield page


@pytest.mark.parametrize(("failing", "calls"), [(0, 120), (1, 11 * 2), (2, 11 * 3), (None, 10 * 3)])
def test_an_inventory_that_always_fails_costs_hardly_more_calls_than_one_that_does_not(
    failing, calls
):
    volumes = [replace(SINCE, volume_id=f"vol-{n:017x}", tags=without_tag(SINCE)) for n in range(6)]
    world = Pages(volumes)
    world.failing = failing

    lives(world, 10 * 3600.0)

    assert len(world.pages_at) == calls


@pytest.mark.parametrize(("lasts_s", "complete_after_s"), [(60.0, 400.0), (2400.0, 4000.0)])
def test_an_inventory_that_failed_tells_what_it_found_and_is_complete_later(
    lasts_s, complete_after_s
):
    volumes = [replace(SINCE, volume_id=f"vol-{n:017x}", tags=without_tag(SINCE)) for n in range(6)]
    world, metrics = Pages(volumes), Metrics()
    world.failing = 2
    left: list[float | None] = []

    async def story(_: Clock) -> None:
        living = asyncio.create_task(life(world, None, 2 * 3600.0, metrics))
        for pause_s in (lasts_s, complete_after_s - lasts_s):
            await asyncio.sleep(pause_s)
            left.append(metrics.registry.get_sample_value("ebs_provisioner_orphans_reported"))
            world.failing = None
        await living

    in_virtual_time(story)

    assert left == [4, 6]


def unreadable(world: World, kind: str, key: str) -> None:
    caches = world.caches
    of_kind: dict[str, Any] = {"claim": caches.claims, "move": caches.moves}
    of_kind.get(kind, caches.persistent_volumes)._store.unreadable[key] = "7"


@pytest.mark.parametrize("kind", ["claim", "persistent volume", "move"])
def test_while_an_object_cannot_be_read_orphans_are_told_with_the_doubt_and_none_is_deleted(kind):
    marked = replace(SINCE, volume_id="vol-0000000000000000f")
    others = [replace(BEFORE, volume_id=f"vol-{n:017x}", tags=without_tag(BEFORE)) for n in (1, 2)]
    world, metrics = World([marked, *others]), Metrics()
    unreadable(world, kind, "odd" if kind == "persistent volume" else "shop/odd")

    async def story(_: Clock) -> None:
        await life(world, OURS_SINCE, 24 * 3600.0 - 1, metrics)

    with capture_logs() as logs:
        in_virtual_time(story)

    assert world.deleted == []
    assert len(world.pages_at) == 24 * 2
    assert metrics.registry.get_sample_value("ebs_provisioner_orphans_reported") == 3
    told = [entry for entry in logs if "do not delete it" in entry["event"]]
    assert {entry["volume"] for entry in told} == {each.volume_id for each in (marked, *others)}
    assert len(told) == 3
    assert all("odd cannot be read" in entry["error"] for entry in told)
    said = [entry for entry in logs if "until all objects can be read" in entry["event"]]
    assert len(said) == 24
    assert not any("ended early" in entry["event"] for entry in logs)


def test_once_the_object_can_be_read_the_orphan_is_deleted_and_the_others_are_told_again():
    other = replace(BEFORE, tags=without_tag(BEFORE))
    world, metrics = World([other]), Metrics()
    unreadable(world, "persistent volume", "odd")

    async def story(_: Clock) -> None:
        living = asyncio.create_task(life(world, OURS_SINCE, 2 * 3600.0, metrics))
        await asyncio.sleep(400.0)
        world.volumes.append(SINCE)
        await asyncio.sleep(600.0)
        assert world.deleted == []
        world.caches.persistent_volumes._store.unreadable.clear()
        await asyncio.sleep(300.0)
        world.volumes.remove(SINCE)
        await living

    with capture_logs() as logs:
        in_virtual_time(story)

    assert world.deleted == [SINCE.volume_id]
    told = [entry["event"] for entry in logs if entry.get("volume") == other.volume_id]
    assert [("do not delete" in event, "delete it in EC2" in event) for event in told] == [
        (True, False),
        (False, True),
    ]
    assert metrics.orphans.labels("reported")._value.get() == 2


class Creates:
    """An API server that answers in one way to whoever creates a persistent volume."""

    def __init__(self, answer: KubeError | None) -> None:
        self.answer = answer
        self.bodies: list[Any] = []

    async def create(self, _: object, body: Any) -> None:
        self.bodies.append(body)
        if self.answer is not None:
            raise self.answer


@pytest.mark.parametrize(
    ("answer", "retained"),
    [
        (None, 1),
        (KubeError(Reason.OBJECT_EXISTS, "somebody was faster"), 0),
        (KubeError(Reason.FORBIDDEN, "no"), 0),
    ],
)
def test_a_volume_to_be_kept_is_put_under_a_persistent_volume_and_only_then_untagged(
    answer, retained
):
    kept = an_orphan("vol-0000000000000000e", STOCK_LED_UNTIL + HOUR / 2, "Retain")
    uid = "0c5a1b2e-7f00-4a7e-9d61-3b1f00000001"
    kept = replace(kept, tags={**kept.tags, VOLUME_NAME: f"pvc-{uid}"})
    world, api = World([kept]), Creates(answer)
    world.create = api.create  # type: ignore[attr-defined]

    with capture_logs() as logs:
        counted = lives(world, 60.0)

    assert len(api.bodies) == 1
    assert counted("retained") == retained
    assert world.untagged == [kept.volume_id] * retained
    failed = [entry for entry in logs if entry["event"] == "cannot handle an orphaned volume yet"]
    assert len(failed) == (answer is not None and answer.reason is Reason.FORBIDDEN)


def test_one_named_volume_whose_tag_may_not_be_taken_off_does_not_keep_the_sweep_from_others():
    named = an_orphan("vol-0000000000000000f", STOCK_LED_UNTIL + HOUR / 2)
    world = World([named, SINCE], forbidden={named.volume_id})
    rescue = a_persistent_volume("rescue", handle=named.volume_id)
    world.caches.persistent_volumes._store.apply(rescue)

    async def story(_: Clock) -> None:
        living = asyncio.create_task(life(world, OURS_SINCE, 3600.0, Metrics()))
        await asyncio.sleep(30)
        # What its tag proves is in doubt, so it stays though its object goes.
        world.caches.persistent_volumes._store.remove(rescue.name, "9999")
        await living

    with capture_logs() as logs:
        in_virtual_time(story)

    assert set(world.deleted) == {SINCE.volume_id}
    told = {entry["event"] for entry in logs if entry.get("volume") == named.volume_id}
    assert any("the sweep for orphans ignores it" in event for event in told)


def without_tag(volume: Volume) -> dict[str, str]:
    return {key: value for key, value in volume.tags.items() if key != UNCLAIMED}


@pytest.mark.parametrize("names_it", [False, True])
def test_what_an_unreadable_object_may_have_named_at_the_start_is_judged_once_it_can_be_read(
    names_it,
):
    world, metrics = World([SINCE]), Metrics()
    unreadable(world, "persistent volume", "odd")
    store = world.caches.persistent_volumes._store
    left: list[float | None] = []

    async def story(_: Clock) -> None:
        living = asyncio.create_task(life(world, OURS_SINCE, 3600.0, metrics))
        await asyncio.sleep(60.0)
        left.append(metrics.registry.get_sample_value("ebs_provisioner_orphans_reported"))
        assert (world.deleted, world.untagged) == ([], [])
        store.unreadable.clear()
        if names_it:
            store.apply(a_persistent_volume("odd", handle=SINCE.volume_id))
        await living

    in_virtual_time(story)

    assert left == [1]
    assert (SINCE.volume_id in world.deleted) is not names_it
    assert (SINCE.volume_id in world.untagged) is names_it


@pytest.mark.parametrize("fails", ["never listed", "not listed now"])
def test_while_moves_cannot_be_listed_no_volume_is_deleted_that_one_may_have_made(fails):
    world, metrics = World([SINCE]), Metrics()
    caches = world.caches
    caches._served.append(caches.moves)
    serves = {(VOLUME_MOVES.api_version, VOLUME_MOVES.plural)}

    async def served() -> set[tuple[str, str]]:
        return serves

    caches._client = cast("Any", SimpleNamespace(served=served))
    if fails == "not listed now":
        caches.moves.synced.set()

        def cannot_tell() -> None:
            if serves:
                raise KubeError(Reason.FORBIDDEN, "may not list them")

        caches.news_of_moves = cannot_tell
    left: list[float | None] = []

    async def story(_: Clock) -> None:
        living = asyncio.create_task(life(world, OURS_SINCE, 3600.0, metrics))
        await asyncio.sleep(1200.0)
        left.append(metrics.registry.get_sample_value("ebs_provisioner_orphans_reported"))
        assert world.deleted == []
        serves.clear()  # the CRD is deleted, and all moves with it
        await living

    with capture_logs() as logs:
        in_virtual_time(story)

    assert left == [1]
    assert SINCE.volume_id in world.deleted
    told = [entry for entry in logs if "do not delete it" in entry["event"]]
    assert [entry["volume"] for entry in told] == [SINCE.volume_id]
    assert "VolumeMoves cannot be listed" in told[0]["error"]
