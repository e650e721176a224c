"""None of the things that one call asks for costs another its answer, in whichever flow."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from provisioner.ec2.attachments import Attachments
from provisioner.ec2.batches import NOTHING_PASSES, ask_about, whole
from provisioner.ec2.calls import Ec2Calls
from provisioner.ec2.lookups import (
    InstanceLookUps,
    ModificationReads,
    NameLookUps,
    SnapshotLookUps,
    VolumeReads,
)
from provisioner.ec2.modifications import Modifications
from provisioner.ec2.snapshots import Snapshots
from provisioner.ec2.volumes import Volumes
from provisioner.ec2.watcher import Watchers
from provisioner.metrics import Metrics
from provisioner.model import tags
from provisioner.model.ebs_snapshot import SnapshotRequest
from provisioner.model.errors import Ec2Error, Reason
from provisioner.model.modification import ModifyRequest
from provisioner.model.names import SNAPSHOT_NAME, VOLUME_NAME
from provisioner.sandbox.strict_ec2.client import StrictEc2
from tests.ec2.builders import a_request
from tests.sandbox.lab import Lab

DIGITS = "0123456789abcdef0"
GONE = {"vol": f"vol-{DIGITS}", "snap": f"snap-{DIGITS}", "i": f"i-{DIGITS}"}
# What people, tools and other drivers write where an id is meant.
ODD = ("foo", "local-ebs://dev/xvdbz", "", "hyperpod-ab12-i-0123456789abcdef0", "vol_1", " vol-1")
OF_OTHER_KINDS = {
    "vol": (GONE["snap"], GONE["i"]),
    "snap": (GONE["vol"], GONE["i"]),
    "i": (GONE["vol"], GONE["snap"]),
}


def bad_ids(kind: str) -> tuple[str, ...]:
    malformed = (f"{kind}-", f"{kind}-data", f"{kind}-0123456789ABCDEF0", f"{kind}-0123")
    return (*ODD, *OF_OTHER_KINDS[kind], *malformed, GONE[kind])


class Services:
    """All that asks EC2 for many things at once; each answers whether it found a thing."""

    def __init__(self, calls: Ec2Calls) -> None:
        self.volumes, self.snapshots = Volumes(calls), Snapshots(calls)
        self.modifications = Modifications(calls)
        self.attachments = Attachments(calls)
        self.reads = VolumeReads(self.volumes)
        self.modification_reads = ModificationReads(self.modifications)
        self.names = NameLookUps(self.volumes)
        self.snapshot_names = SnapshotLookUps(self.snapshots)
        self.instances = InstanceLookUps(calls, "prod")
        self.watchers = Watchers.over(self.volumes, self.modifications, self.snapshots, Metrics())

    async def close(self) -> None:
        for each in (
            *(self.attachments, self.reads, self.modification_reads, self.names),
            *(self.snapshot_names, self.instances),
        ):
            await each.close()

    async def by(self, edge: str, good: str, bad: tuple[str, ...]) -> bool:
        """Ask for a good thing together with bad ones."""
        ids = [*bad[:3], good, *bad[3:]]
        match edge.split():
            case ["describe", what]:
                return good in await getattr(self, what).describe(ids)
            case ["look_for", what]:
                return good in await getattr(self, what).look_for(ids)
            case ["latest"]:
                return good in await self.modifications.latest(ids)
            case ["initializations"]:
                return good in await self.volumes.initializations(ids)
            case ["tag"]:
                refused = await self.volumes.tag(ids, {"team": "a"})
                return good not in refused and "team" in await self._tags(good)
            case ["untag"]:
                refused = await self.volumes.untag(ids, "mark")
                return good not in refused and "mark" not in await self._tags(good)
            case ["watch", what]:
                return await self._sees(getattr(self.watchers, what), good, bad)
            case [what, method]:
                ask: Callable[[str], Awaitable[Any]] = getattr(getattr(self, what), method)
                answers = await asyncio.gather(*map(ask, ids), return_exceptions=True)
                found = answers[ids.index(good)]
                return bool(found) and not isinstance(found, BaseException)
        raise AssertionError(edge)

    async def _tags(self, volume_id: str) -> Mapping[str, str]:
        return whole(await self.volumes.describe([volume_id]))[volume_id].tags

    @staticmethod
    async def _sees(watcher: Any, good: str, bad: tuple[str, ...]) -> bool:
        news = asyncio.Event()
        for each in (*bad, good):
            watcher.watch(each, "test", news.set)
        task = asyncio.create_task(watcher.run())
        try:
            async with asyncio.timeout(30):
                while (seen := watcher.sighting(good)) is None:
                    await news.wait()
                    news.clear()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        return seen.found is not None


OF_VOLUMES = (
    *("describe volumes", "look_for volumes", "initializations", "tag", "untag"),
    *("reads volume", "watch volumes", "watch initializations"),
)
OF_MODIFICATIONS = (
    *("describe modifications", "look_for modifications", "latest"),
    *("modification_reads latest", "watch modifications"),
)
OF_SNAPSHOTS = ("describe snapshots", "look_for snapshots", "watch snapshots")
OF_INSTANCES = ("attachments instance",)
OF_NAMES = ("names find", "snapshot_names find", "instances named", "instances addressed")
ALL = (*OF_VOLUMES, *OF_MODIFICATIONS, *OF_SNAPSHOTS, *OF_INSTANCES, *OF_NAMES)


class World:
    """One good thing of each kind."""

    def __init__(self, services: Services, lab: Lab) -> None:
        self.services, self.lab = services, lab
        self.good: dict[str, str] = {}

    async def make(self) -> None:
        volume_id = (await self.services.volumes.create(a_request("one", mark="y"))).volume_id
        await self.services.volumes.create(
            replace(a_request("two"), tags=((VOLUME_NAME, "pvc-1"),))
        )
        named = SnapshotRequest(volume_id, "", ((SNAPSHOT_NAME, "pvc-1"),))
        snapshot_id = (await self.services.snapshots.create(named)).snapshot_id
        await self.services.modifications.modify(ModifyRequest(volume_id, size_gib=8))
        instance_id = self.lab.instance()
        owned = {"Key": tags.cluster_key("prod"), "Value": "owned"}
        self.lab.ec2.create_tags(Resources=[instance_id], Tags=[owned])
        (found,) = self.lab.ec2.describe_instances(InstanceIds=[instance_id])["Reservations"]
        shown = found["Instances"][0]
        self.good = {
            **dict.fromkeys((*OF_VOLUMES, *OF_MODIFICATIONS), volume_id),
            **dict.fromkeys(OF_SNAPSHOTS, snapshot_id),
            **dict.fromkeys(OF_INSTANCES, instance_id),
            **dict.fromkeys(OF_NAMES, "pvc-1"),
            "instances named": shown["PrivateDnsName"].lower(),
            "instances addressed": shown["PrivateIpAddress"],
        }


@pytest.fixture
async def world(calls: Ec2Calls, strict_lab: Lab) -> AsyncIterator[World]:
    made = World(Services(calls), strict_lab)
    await made.make()
    yield made
    await made.services.close()


@pytest.mark.parametrize("edge", ALL)
async def test_odd_ids_cost_the_others_nothing(
    world: World, edge: str, strict_ec2: StrictEc2
) -> None:
    kind = "snap" if edge in OF_SNAPSHOTS else "i" if edge in OF_INSTANCES else "vol"

    assert await world.services.by(edge, world.good[edge], bad_ids(kind))

    refusals = strict_ec2.report()["errors"]
    # But for what EC2 alone can tell: too few digits.
    assert not [each for each in refusals if not each.endswith((".NotFound", ".Malformed"))]


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("InvalidParameterValue", "Value ({bad}) for parameter volumes is invalid."),
        ("InvalidParameterValue", "One of the values is invalid."),
        ("SomethingNew", "It cannot be done."),
    ],
)
@pytest.mark.parametrize("edge", sorted({*OF_VOLUMES, *OF_MODIFICATIONS}))
async def test_whatever_ec2_has_against_a_volume_costs_the_others_nothing(
    world: World, edge: str, code: str, text: str
) -> None:
    bad = GONE["vol"]
    told = {"code": code, "message": text.format(bad=bad), "http_status": 400}
    everywhere = ("VolumeId", "ResourceId", "Filter.1.Value")
    fault = {"action": "*", "do": "error", "n": 99, **told}
    world.lab.control(faults=[{**fault, "match": {name: bad}} for name in everywhere])

    assert await world.services.by(edge, world.good[edge], (bad, f"vol-{1:017x}"))


@pytest.mark.parametrize("edge", ["tag", "untag"])
async def test_a_volume_whose_tags_are_not_ours_to_change_costs_the_others_nothing(
    world: World, edge: str
) -> None:
    bad = GONE["vol"]
    told = {"code": "UnauthorizedOperation", "message": "Not authorized.", "http_status": 403}
    fault = {"action": "*Tags", "do": "error", "n": 99, "match": {"ResourceId": bad}, **told}
    world.lab.control(faults=[fault])

    assert await world.services.by(edge, world.good[edge], (bad, f"vol-{1:017x}"))


@pytest.mark.parametrize("edge", OF_NAMES)
async def test_a_name_that_ec2_does_not_take_costs_the_others_nothing(
    world: World, edge: str
) -> None:
    told = {"code": "InvalidParameterValue", "message": "A value is invalid.", "http_status": 400}
    fault = {"action": "*", "do": "error", "n": 99, "match": {"Filter.1.Value": "bad*"}, **told}
    world.lab.control(faults=[fault])

    assert await world.services.by(edge, world.good[edge], ("bad one", "another"))


class Ec2:
    """Takes a call if it names nothing bad; counts the calls."""

    def __init__(self, *bad: str, reason: Reason = Reason.INVALID_REQUEST, names: bool = False):
        self.bad, self.reason, self.names = frozenset(bad), reason, names
        self.answered: list[str] = []
        self.calls = 0
        self.action = "DescribeVolumes"

    async def ask(self, ids: list[str]) -> None:
        self.calls += 1
        if found := [each for each in ids if each in self.bad]:
            text = f"not {found[0]}" if self.names else "no"
            raise Ec2Error(self.reason, text, action=self.action)
        self.answered += ids


IDS = [f"vol-{number:017x}" for number in range(500)]


@pytest.fixture(autouse=True)
def same_order() -> None:
    """What is refused is asked for again in a random order."""
    random.seed(1)


@pytest.mark.parametrize("reason", [Reason.INVALID_REQUEST, Reason.QUOTA_EXCEEDED])
@pytest.mark.parametrize("names", [True, False])
@pytest.mark.parametrize("bad", [[0], [499], [100, 101, 102], range(0, 500, 30)])
async def test_those_that_ec2_refuses_are_found_and_all_others_answered(
    bad: list[int], reason: Reason, *, names: bool
) -> None:
    ec2 = Ec2(*(IDS[each] for each in bad), reason=reason, names=names)

    refused = await ask_about(IDS, 500, ec2.ask)

    assert refused.keys() == ec2.bad
    assert sorted([*ec2.answered, *ec2.bad]) == IDS
    assert ec2.calls <= 1 + 2 * 9 * len(bad)


@pytest.mark.parametrize("names", [True, False])
async def test_what_is_not_there_is_no_refusal(*, names: bool) -> None:
    ec2 = Ec2(*IDS[:3], reason=Reason.VOLUME_NOT_FOUND, names=names)

    assert await ask_about(IDS, 500, ec2.ask) == {}
    assert sorted(ec2.answered) == IDS[3:]


async def test_where_nothing_is_there_each_one_has_been_asked_for() -> None:
    """None is taken for gone because others are."""
    ec2 = Ec2(*IDS, reason=Reason.INSTANCE_NOT_FOUND)

    assert await ask_about(IDS, 500, ec2.ask) == {}
    assert ec2.calls == 2 * len(IDS) - 1


@pytest.mark.parametrize(
    ("reason", "action"),
    [
        (Reason.CREDENTIALS_INVALID, "DeleteTags"),
        (Reason.NOT_LEADING, "DeleteTags"),
        (Reason.PERMISSION_DENIED, "DescribeVolumes"),
        (Reason.REPLY_LOST, "DescribeVolumes"),
        (Reason.THROTTLED, "DescribeVolumes"),
        (Reason.TIMED_OUT, "CreateTags"),
        (Reason.UNREACHABLE, "DescribeVolumes"),
    ],
)
async def test_what_is_no_matter_of_single_things_is_not_asked_again(
    reason: Reason, action: str
) -> None:
    ec2 = Ec2(*IDS, reason=reason)
    ec2.action = action

    with pytest.raises(Ec2Error) as caught:
        await ask_about(IDS, 500, ec2.ask)

    assert caught.value.reason is reason
    assert ec2.calls == 1


@pytest.mark.parametrize("names", [True, False])
async def test_a_batch_of_which_nothing_passes_costs_few_calls(*, names: bool) -> None:
    ec2 = Ec2(*IDS, reason=Reason.PERMISSION_DENIED, names=names)
    ec2.action = "CreateTags"

    with pytest.raises(Ec2Error) as caught:
        await ask_about(IDS, 500, ec2.ask)

    assert caught.value.reason is Reason.PERMISSION_DENIED
    assert ec2.calls == NOTHING_PASSES


@pytest.mark.parametrize("names", [True, False])
async def test_a_batch_of_which_anything_passes_is_asked_about_to_the_end(*, names: bool) -> None:
    ec2 = Ec2(*IDS[:400], names=names)

    refused = await ask_about(IDS, 500, ec2.ask)

    assert refused.keys() == ec2.bad
    assert sorted(ec2.answered) == IDS[400:]
    assert ec2.calls < 2 * len(IDS)


async def test_what_was_left_beside_nearly_none_but_bad_ones_is_answered_before_long() -> None:
    ec2 = Ec2(*IDS[:475])
    rounds = 0
    while set(ec2.answered) != set(IDS[475:]):
        rounds += 1
        try:
            await ask_about(IDS, 500, ec2.ask)
        except Ec2Error:
            continue

    assert rounds < 10
