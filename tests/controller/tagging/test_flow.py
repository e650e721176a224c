"""Extra tags on their way to volumes: few calls, nobody else's volumes, no volume that stops it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from provisioner.controller.shared.caches import Caches
from provisioner.controller.shared.settings import Settings
from provisioner.controller.tagging.flow import ExtraTags
from provisioner.ec2.batches import ask_about
from provisioner.metrics import Metrics
from provisioner.model import tags
from provisioner.model.errors import Ec2Error, Outcome, Reason, StorageError
from provisioner.model.names import CLAIM_NAME, MADE_BY_DRIVER, VOLUME_NAME
from tests.builders import DRIVER, a_persistent_volume, a_volume
from tests.controller.services import Kube
from tests.ec2.virtual_time import Clock, in_virtual_time

if TYPE_CHECKING:
    from provisioner.controller.shared.services import Services
    from provisioner.kube.client import KubeClient
    from provisioner.model.volume import Volume

EVERY_S = 3600.0


@pytest.fixture(autouse=True)
def same_order() -> None:
    """What is refused is asked for again in a random order."""
    random.seed(1)


@dataclass
class Ec2:
    """Volumes with tags. ``refuses``: those that may not be tagged."""

    volumes: dict[str, Volume] = field(default_factory=dict)
    refuses: Mapping[str, Reason] = field(default_factory=dict)
    away: bool = False
    described: list[int] = field(default_factory=list)
    calls: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    ends_at: int = 0
    fate: str = ""
    _count: int = 0

    def _end(self, moment: str) -> None:
        """Have the process die, or lose the reply, at the call of ``ends_at``."""
        self._count += moment == "before"
        if self._count != self.ends_at:
            return
        if self.fate == f"dies {moment}":
            raise asyncio.CancelledError
        if (self.fate, moment) == ("loses the reply", "after"):
            lost, unknown = Reason.REPLY_LOST, Outcome.UNKNOWN
            raise Ec2Error(lost, "no answer", action="CreateTags", outcome=unknown)

    async def describe(self, ids: Sequence[str], *, background: bool) -> dict[str, Volume]:
        assert background
        self._end("before")
        self._end("after")
        self.described.append(len(ids))
        if self.away:
            raise Ec2Error(Reason.UNREACHABLE, "EC2 is away", action="DescribeVolumes")
        return {each: self.volumes[each] for each in ids if each in self.volumes}

    async def tag(self, ids: Sequence[str], written: Mapping[str, str]) -> dict[str, Ec2Error]:
        return await ask_about(ids, 500, partial(self._create_tags, written))

    async def _create_tags(self, written: Mapping[str, str], ids: list[str]) -> None:
        self._end("before")
        self.calls.append((len(ids), dict(written)))
        for each in ids:
            if each in self.refuses:
                raise Ec2Error(self.refuses[each], f"not {each}", action="CreateTags")
        for each in ids:
            volume = self.volumes[each]
            has = {**volume.tags, **written}
            self.volumes[each] = a_volume(each, tags=has)
        self._end("after")


def volume_id(number: int) -> str:
    return f"vol-{number:017x}"


class World:
    """A cluster of so many volumes that carry our creation tags."""

    def __init__(self, count: int, *extra: str, asked_for: bool = True) -> None:
        self.ec2, self.metrics = Ec2(), Metrics()
        self.caches = Caches(cast("KubeClient", Kube()), self.metrics, DRIVER)
        self.settings = Settings(
            cluster_id="prod",
            extra_tags=tuple(tags.parse(each) for each in extra),
            reconcile_extra_tags=asked_for,
        )
        for number in range(count):
            self.add(number, VOLUME_NAME, name=f"pvc-{number}")
        self.extra_tags = self.process()

    def process(self) -> ExtraTags:
        """One that begins with what EC2 and the API server have, and knows nothing else."""
        services = SimpleNamespace(
            settings=self.settings, caches=self.caches, volumes=self.ec2, metrics=self.metrics
        )
        return ExtraTags(cast("Services", services))

    def add(self, number: int, key: str, *, name: str, deleting: bool = False) -> None:
        found = a_persistent_volume(name, handle=volume_id(number), deleting=deleting)
        self.caches.persistent_volumes._store.apply(found)
        has = {key: name, MADE_BY_DRIVER: "true", CLAIM_NAME: f"data-{number}"}
        self.ec2.volumes[volume_id(number)] = a_volume(volume_id(number), tags=has)

    def tagged(self, key: str) -> int:
        return sum(key in volume.tags for volume in self.ec2.volumes.values())

    def counted(self, outcome: str) -> float:
        labels = {"outcome": outcome}
        name = "ebs_provisioner_extra_tags_total"
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


async def test_many_volumes_are_tagged_by_few_calls():
    world = World(1200, "env=prod", "team=shop")

    await world.extra_tags.round()

    assert world.ec2.described == [500, 500, 200]
    both = {"env": "prod", "team": "shop"}
    assert world.ec2.calls == [(500, both), (500, both), (200, both)]
    assert world.tagged("env") == 1200
    assert world.counted("tagged") == 1200


async def test_the_next_round_writes_nothing():
    world = World(3, "env=prod")
    await world.extra_tags.round()
    world.ec2.calls.clear()

    await world.extra_tags.round()

    assert world.ec2.calls == []


@pytest.mark.parametrize("fate", ["dies before", "dies after", "loses the reply"])
@pytest.mark.parametrize("call", [1, 2, 3, 4])
async def test_what_a_round_leaves_at_any_call_the_next_one_brings(call: int, fate: str):
    """One look and three calls of CreateTags: each volume has a value of its own."""
    world = World(3, "env=prod", "who={{ .PVCName }}")
    world.ec2.volumes[volume_id(1)] = a_volume(
        volume_id(1), tags={**world.ec2.volumes[volume_id(1)].tags, "env": "somebody's"}
    )
    world.ec2.ends_at, world.ec2.fate = call, fate
    with pytest.raises(StorageError if fate == "loses the reply" else asyncio.CancelledError):
        await world.extra_tags.round()
    done = {each: dict(volume.tags) for each, volume in world.ec2.volumes.items()}

    again = world.process()
    await again.round()

    expected = [("prod", "data-0"), ("somebody's", "data-1"), ("prod", "data-2")]
    tags_ = [volume.tags for _, volume in sorted(world.ec2.volumes.items())]
    assert [(each["env"], each["who"]) for each in tags_] == expected
    for each, was in done.items():
        assert was.items() <= world.ec2.volumes[each].tags.items(), "a tag was overwritten"
    world.ec2.calls.clear()
    await again.round()
    assert world.ec2.calls == []


async def test_each_volume_gets_the_value_that_is_its_own():
    world = World(3, "claim={{.PVCName}}")

    await world.extra_tags.round()

    values = {each.tags["claim"] for each in world.ec2.volumes.values()}
    assert values == {"data-0", "data-1", "data-2"}


async def test_volumes_of_others_and_those_that_go_are_left_alone():
    world = World(1, "env=prod")
    world.add(7, "Name", name="static")
    world.add(8, VOLUME_NAME, name="pvc-8", deleting=True)

    await world.extra_tags.round()

    assert world.tagged("env") == 1
    assert world.ec2.described == [2]  # that which is being deleted is not even looked at


@pytest.mark.parametrize(
    "reason", [Reason.PERMISSION_DENIED, Reason.QUOTA_EXCEEDED, Reason.VOLUME_STATE]
)
async def test_one_volume_that_may_not_be_tagged_does_not_keep_the_others(reason: Reason):
    world = World(500, "env=prod")
    world.ec2.refuses = {volume_id(77): reason}

    await world.extra_tags.round()
    await world.extra_tags.round()

    assert world.tagged("env") == 499
    assert world.counted("skipped") == 2


async def test_one_that_ec2_does_not_describe_does_not_keep_the_others():
    world = World(500, "env=prod")
    why = Ec2Error(Reason.INVALID_REQUEST, "no such form", action="DescribeVolumes")
    world.ec2.volumes[volume_id(7)] = cast("Volume", why)

    await world.extra_tags.round()

    assert len(world.ec2.calls) == 1
    assert (world.counted("tagged"), world.counted("skipped")) == (499, 1)


@pytest.mark.parametrize("bad", [range(4), range(8), range(100, 140), range(0, 1200, 30)])
async def test_however_many_neighbours_are_refused_all_others_are_tagged(bad: range):
    world = World(1200, "env=prod")
    world.ec2.refuses = {volume_id(each): Reason.PERMISSION_DENIED for each in bad}

    await world.extra_tags.round()

    assert world.tagged("env") == 1200 - len(bad)
    assert world.counted("skipped") == len(bad)


async def test_a_group_that_is_refused_from_end_to_end_does_not_keep_the_others():
    world = World(1200, "env=prod")
    world.ec2.refuses = {volume_id(each): Reason.PERMISSION_DENIED for each in range(500)}

    with pytest.raises(StorageError):
        await world.extra_tags.round()

    assert world.tagged("env") == 700


async def test_nothing_is_remembered_of_volumes_that_are_gone():
    world = World(3, "env=prod")
    world.ec2.refuses = {volume_id(1): Reason.PERMISSION_DENIED}
    await world.extra_tags.round()
    assert volume_id(1) in world.extra_tags._told

    world.caches.persistent_volumes._store.remove("pvc-1", "")
    await world.extra_tags.round()

    assert volume_id(1) not in world.extra_tags._told


@pytest.mark.parametrize("others", [range(499, 500), range(20, 480)])
async def test_what_somebody_sets_while_values_of_their_own_are_written_is_left_alone(
    others: range,
):
    world = World(500, "owner={{.PVCName}}")
    plain = world.ec2.tag

    async def tag(ids: Sequence[str], written: Mapping[str, str]) -> dict[str, Ec2Error]:
        if not world.ec2.calls:
            for each in map(volume_id, others):
                has = {**world.ec2.volumes[each].tags, "owner": "alice"}
                world.ec2.volumes[each] = a_volume(each, tags=has)
        return await plain(ids, written)

    world.ec2.tag = tag  # type: ignore[method-assign]

    await world.extra_tags.round()

    owners = [volume.tags["owner"] for volume in world.ec2.volumes.values()]
    assert owners.count("alice") == len(others)
    assert world.counted("tagged") == 500 - len(others)


@pytest.mark.parametrize("reason", [Reason.PERMISSION_DENIED, Reason.INVALID_REQUEST])
async def test_when_all_are_refused_a_round_ends_early(reason: Reason):
    world = World(500, "env=prod")
    world.ec2.refuses = dict.fromkeys(world.ec2.volumes, reason)

    with pytest.raises(StorageError):
        await world.extra_tags.round()

    assert len(world.ec2.calls) < 40


def test_rounds_follow_each_other_even_when_one_fails():
    world = World(3, "env=prod")

    async def story(_: Clock) -> None:
        world.ec2.away = True
        going_round = asyncio.create_task(world.extra_tags.run())
        await asyncio.sleep(EVERY_S / 2)
        assert (len(world.ec2.described), world.tagged("env")) == (1, 0)
        world.ec2.away = False
        await asyncio.sleep(EVERY_S)
        assert (len(world.ec2.described), world.tagged("env")) == (2, 3)
        going_round.cancel()
        await asyncio.gather(going_round, return_exceptions=True)

    in_virtual_time(story)


@pytest.mark.parametrize(
    "world",
    [World(3), World(3, "env=prod", asked_for=False)],
    ids=["no tags", "not asked for"],
)
async def test_there_is_no_round_unless_it_was_asked_for(world: World):
    async with asyncio.timeout(30):
        await world.extra_tags.run()  # it ends

    assert world.ec2.described == []


def test_it_is_off_by_default():
    assert not Settings().reconcile_extra_tags
