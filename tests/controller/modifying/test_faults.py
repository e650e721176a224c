"""Growing and changing while things fail: each ends as wanted, or with a word and a way back."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from provisioner.model.consistency import CONSISTENCY_S
from provisioner.model.errors import KubeError, Outcome, Reason
from provisioner.model.modification import ModifyRequest
from tests.controller.modify_cloud import VOLUME
from tests.controller.modify_world import DRIVER, World, claim_json, has_both, told, wants_both


def test_after_a_lost_reply_ec2_is_looked_at_and_nothing_is_sent_again(
    monkeypatch: pytest.MonkeyPatch,
):
    async def story(world: World) -> None:
        wants_both(world)
        world.cloud.loses = 1
        await world.run(20)

    world = told(story, monkeypatch)

    assert has_both(world)
    assert len(world.cloud.sent) == 1
    assert "VolumeResizeFailed" not in world.reasons


@pytest.mark.parametrize("hides_s", [5.0, 30.0])
def test_a_lost_reply_whose_effect_ec2_shows_late_is_waited_for(
    hides_s: float, monkeypatch: pytest.MonkeyPatch
):
    async def story(world: World) -> None:
        wants_both(world)
        world.cloud.loses, world.cloud.hides_s = 1, hides_s
        await world.run(CONSISTENCY_S + 20)

    world = told(story, monkeypatch)

    assert has_both(world)
    assert len(world.cloud.sent) == 1


def test_the_modification_before_that_ec2_still_shows_is_not_taken_for_ours(
    monkeypatch: pytest.MonkeyPatch,
):
    """DescribeVolumesModifications is eventually consistent."""

    async def story(world: World) -> None:
        cloud = world.cloud
        cloud.optimizing_s = 5.0
        cloud._begin(ModifyRequest(VOLUME, None, None, 5000, None))
        await world.run(20)
        before = cloud._shown()
        assert before is not None
        shown = cloud._shown
        monkeypatch.setattr(
            cloud,
            "_shown",
            lambda *, hidden=True: (
                before if hidden and world.clock() < 40 else shown(hidden=hidden)
            ),
        )
        world.ask("20Gi")
        await world.run(60)

    world = told(story, monkeypatch)

    assert len(world.cloud.sent) == 1
    assert world.persistent_volume.capacity == "20Gi"


def test_what_never_reached_ec2_is_sent_again_once_ec2_would_have_shown_it(
    monkeypatch: pytest.MonkeyPatch,
):
    async def story(world: World) -> None:
        wants_both(world)
        world.cloud.drops = 1
        await world.run(CONSISTENCY_S - 5)
        assert len(world.cloud.sent) == 1
        await world.run(30)

    world = told(story, monkeypatch)

    assert has_both(world)
    assert world.cloud.taken == 1
    assert len(world.cloud.sent) == 2


def test_what_was_wanted_meanwhile_is_sent_in_place_of_what_never_reached_ec2(
    monkeypatch: pytest.MonkeyPatch,
):
    async def story(world: World) -> None:
        world.ask("90Gi")
        world.cloud.drops = 1
        await world.run(10)
        world.ask("20Gi")
        await world.run(CONSISTENCY_S + 20)

    world = told(story, monkeypatch)

    assert [each.size_gib for each in world.cloud.sent] == [90, 20]
    assert world.persistent_volume.capacity == "20Gi"


@dataclass(frozen=True)
class Change:
    """What somebody asks for at once, and whether all of it is there, with nothing left behind."""

    ask: Callable[[World], None]
    is_there: Callable[[World], bool]


def by_annotations(world: World) -> None:
    """20 GiB, and 5000 IOPS by the annotation from before there were classes."""
    world.heed_annotations()
    claim = claim_json("20Gi", mode="Block")
    claim["metadata"]["annotations"] = {IOPS: "5000"}
    world.put("claim", claim)


def has_what_annotations_ask_for(world: World) -> bool:
    volume, pv = world.cloud.volume, world.persistent_volume
    assert volume is not None
    return has_grown(world) and (volume.iops, pv.annotations.get(IOPS)) == (5000, "5000")


def in_tree(world: World) -> None:
    """20 GiB for a volume of the in-tree form that the volume controller has given to us."""
    pv = world.objects["pv"]
    del pv["spec"]["csi"]
    pv["spec"]["awsElasticBlockStore"] = {"volumeID": f"aws://us-east-1a/{VOLUME}"}
    world.put("pv", pv)
    claim = claim_json("20Gi", mode="Block")
    claim["metadata"]["annotations"] = {"volume.kubernetes.io/storage-resizer": DRIVER}
    world.put("claim", claim)


def has_grown(world: World) -> bool:
    sizes = (world.claim.capacity, world.persistent_volume.capacity)
    return sizes == ("20Gi", "20Gi") and not world.conditions


IOPS = f"{DRIVER}/iops"
CHANGES = {
    "size and class": Change(wants_both, has_both),
    "annotations": Change(by_annotations, has_what_annotations_ask_for),
    "in-tree": Change(in_tree, has_grown),
}
every_change = pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
POINTS = [(moment, number) for moment in ("before", "after", "lost") for number in range(1, 5)] + [
    ("call", 1),
    ("carried out", 1),
]


@every_change
@pytest.mark.parametrize(("moment", "number"), POINTS)
def test_a_crash_anywhere_costs_no_second_modification(
    change: Change, moment: str, number: int, monkeypatch: pytest.MonkeyPatch
):
    """Killed before or after each write, and around the call; ``lost``: only the reply is."""
    died = asyncio.Event()
    seen = [0]

    def of_write(_: str, __: Any) -> KubeError | None:
        seen[0] += 1
        if seen[0] != number or moment not in ("before", "after", "lost"):
            return None
        if moment != "lost":
            died.set()
        outcome = Outcome.NOTHING if moment == "before" else Outcome.UNKNOWN
        return KubeError(Reason.REPLY_LOST, "gone", outcome=outcome)

    async def story(world: World) -> None:
        change.ask(world)
        world.fails_write = of_write
        if moment == "call":
            world.cloud.meanwhile = died.set
        if moment == "carried out":
            world.cloud.loses = 1
            world.cloud.meanwhile = died.set
        working = asyncio.create_task(world.run(30))
        if moment != "lost":
            await died.wait()
            if moment == "carried out":
                await asyncio.sleep(0.2)
            working.cancel()
            await world.restart()
            world.cloud.meanwhile = lambda: None
            world.fails_write = lambda *_: None
        await world.run(CONSISTENCY_S + 60)
        await asyncio.gather(working, return_exceptions=True)
        assert seen[0] >= number or moment in ("call", "carried out")

    world = told(story, monkeypatch)

    assert change.is_there(world)
    assert world.cloud.taken == 1


@every_change
def test_a_process_whose_cache_is_an_hour_old_does_nothing_again(
    change: Change, monkeypatch: pytest.MonkeyPatch
):
    """It sees the claim as it was before the change was begun; EC2 and the API server do not."""

    async def story(world: World) -> None:
        change.ask(world)
        before = copy.deepcopy(world.objects)
        await world.run(30)
        assert change.is_there(world)
        now = world.objects
        world.objects = before
        await world.restart()
        world.objects = now
        await world.run(60)
        assert change.is_there(world)
        for kind in now:  # the watch has come back
            world.put(kind, now[kind])
        await world.run(60)

    world = told(story, monkeypatch)

    assert change.is_there(world)
    assert world.cloud.taken == 1


def test_kubelet_and_others_write_in_between_and_nobody_hears_of_conflicts(
    monkeypatch: pytest.MonkeyPatch,
):
    async def story(world: World) -> None:
        writes = [0]

        def changed(kind: str, _: Any) -> None:
            writes[0] += 1
            if kind == "claim" and writes[0] % 2:
                claim = world.objects["claim"]
                claim["metadata"].setdefault("labels", {})["n"] = str(writes[0])
                claim["status"].setdefault("conditions", [])
                world.put("claim", claim)  # our version is old by now

        wants_both(world)
        world.fails_write = changed
        await world.run(60)

    world = told(story, monkeypatch)

    assert has_both(world)
    assert world.cloud.taken == 1
    assert not [reason for reason in world.reasons if "Failed" in reason]


def test_a_condition_of_somebody_else_stays(monkeypatch: pytest.MonkeyPatch):
    async def story(world: World) -> None:
        claim = claim_json(mode="Block")
        claim["status"]["conditions"] = [{"type": "Unused", "status": "True"}]
        world.put("claim", claim)
        world.ask("20Gi")
        await world.run(30)

    assert told(story, monkeypatch).conditions == {"Unused"}


def test_a_claim_that_goes_ends_the_work_on_its_volume(monkeypatch: pytest.MonkeyPatch):
    async def story(world: World) -> None:
        world.cloud.waits_s = 20.0
        world.ask("20Gi")
        await world.run(5)
        world.caches.claims._store.remove("web/data", str(world.version + 1))
        await world.run(60)

    assert told(story, monkeypatch).cloud.sent == []


def test_an_in_tree_volume_grows_when_it_is_given_to_us(monkeypatch: pytest.MonkeyPatch):
    async def story(world: World) -> None:
        pv = world.objects["pv"]
        del pv["spec"]["csi"]
        pv["spec"]["awsElasticBlockStore"] = {"volumeID": f"aws://us-east-1a/{VOLUME}"}
        world.put("pv", pv)
        world.ask("20Gi")
        await world.run(20)
        assert world.cloud.sent == []
        claim = world.objects["claim"]
        claim["metadata"]["annotations"] = {"volume.kubernetes.io/storage-resizer": DRIVER}
        world.put("claim", claim)
        await world.run(20)

    assert told(story, monkeypatch).persistent_volume.capacity == "20Gi"
