"""What changes while a volume grows or changes: nothing is lost, left behind or sent in vain."""

from __future__ import annotations

import asyncio
import copy
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from provisioner.controller.modifying.steps import ledger_of
from provisioner.model.budget import Ledger, Start
from provisioner.model.errors import KubeError, Reason
from provisioner.model.modification import Modification, ModifyRequest
from provisioner.model.names import HELD_FOR_MOVE, MODIFICATIONS
from tests.controller.modify_cloud import VOLUME, refusal
from tests.controller.modify_world import World, told

HOUR_S = 3600.0


def test_a_claim_whose_volume_was_seen_too_early_grows_once_that_is_up_to_date(
    monkeypatch: pytest.MonkeyPatch,
):
    async def story(world: World) -> None:
        bound = copy.deepcopy(world.objects["pv"])
        early = copy.deepcopy(bound)
        early["spec"]["claimRef"]["uid"] = ""
        world.put("pv", early)
        world.ask("20Gi")
        await world.run(5)
        assert world.cloud.sent == []
        world.put("pv", bound)
        await world.run(20)

    assert told(story, monkeypatch).persistent_volume.capacity == "20Gi"


def test_nothing_is_started_while_a_move_holds_the_volume(monkeypatch: pytest.MonkeyPatch):
    async def story(world: World) -> None:
        free = copy.deepcopy(world.objects["pv"])
        held = copy.deepcopy(free)
        held["metadata"]["annotations"][HELD_FOR_MOVE] = "data-to-b"
        world.put("pv", held)
        world.attributes_class("gold", iops="4000")
        world.ask("20Gi", "gold")
        await world.run(60)
        assert world.cloud.sent == []
        assert world.writes == []
        world.put("pv", free)  # the move was undone
        await world.run(30)

    world = told(story, monkeypatch)

    assert world.cloud.sent == [ModifyRequest(VOLUME, 20, None, 4000, None)]


def test_what_was_started_before_a_move_holds_the_volume_ends(monkeypatch: pytest.MonkeyPatch):
    async def story(world: World) -> None:
        world.cloud.waits_s = 5.0
        world.ask("20Gi")
        await world.run(2)
        held = copy.deepcopy(world.objects["pv"])
        held["metadata"]["annotations"][HELD_FOR_MOVE] = "data-to-b"
        world.put("pv", held)
        await world.run(30)

    assert told(story, monkeypatch).persistent_volume.capacity == "20Gi"


def test_a_note_of_a_clock_that_was_far_ahead_blocks_nothing(monkeypatch: pytest.MonkeyPatch):
    async def story(world: World) -> None:
        noted = copy.deepcopy(world.objects["pv"])
        wrong = Ledger((Start(world.now() + timedelta(days=30)),))
        text = wrong.text(persistent_volume_uid="pv-u1", volume_id=VOLUME)
        noted["metadata"]["annotations"][MODIFICATIONS] = text
        world.put("pv", noted)
        world.ask("20Gi")
        await world.run(30)

    world = told(story, monkeypatch)

    assert world.persistent_volume.capacity == "20Gi"
    assert len(ledger_of(world.persistent_volume, VOLUME).starts) == 1


def test_the_note_of_a_call_that_was_throttled_tells_when_it_went(
    monkeypatch: pytest.MonkeyPatch,
):
    ages_s = []

    async def story(world: World) -> None:
        modify = world.cloud.modify

        async def throttled(request: Any, *, gate: Any) -> Modification:
            await gate()
            await asyncio.sleep(100)
            return await modify(request, gate=gate)

        def sent() -> None:
            (start,) = ledger_of(world.persistent_volume, VOLUME).starts
            ages_s.append((world.now() - start.at).total_seconds())

        monkeypatch.setattr(world.cloud, "modify", throttled)
        world.cloud.meanwhile = sent
        world.ask("20Gi")
        await world.run(200)

    assert told(story, monkeypatch).persistent_volume.capacity == "20Gi"
    assert len(ages_s) == 1
    assert ages_s[0] < 1


def test_a_claim_that_goes_while_its_volume_is_modified_leaves_no_watch(
    monkeypatch: pytest.MonkeyPatch,
):
    async def story(world: World) -> None:
        def gone() -> None:
            world.version += 1
            world.caches.claims._store.remove("web/data", str(world.version))
            del world.objects["claim"]

        world.cloud.meanwhile = gone
        world.fails_write = lambda kind, _: (
            KubeError(Reason.OBJECT_NOT_FOUND, "gone") if kind not in world.objects else None
        )
        world.ask("20Gi")
        await world.run(60)
        assert world.cloud.taken == 1
        assert not world.watcher._watched

    told(story, monkeypatch)


def test_a_claim_that_is_being_deleted_costs_no_modification(monkeypatch: pytest.MonkeyPatch):
    async def story(world: World) -> None:
        claim = copy.deepcopy(world.objects["claim"])
        claim["metadata"]["deletionTimestamp"] = "2026-11-22T00:00:00Z"
        world.put("claim", claim)
        world.ask("20Gi")
        await world.run(60)

    world = told(story, monkeypatch)

    assert world.cloud.sent == []
    assert world.told == []


def test_what_ec2_has_begun_is_written_down_though_the_claim_is_being_deleted(
    monkeypatch: pytest.MonkeyPatch,
):
    """Its persistent volume may be kept."""

    async def story(world: World) -> None:
        world.ask("20Gi")
        await world.run(2)
        assert world.cloud.taken == 1
        claim = copy.deepcopy(world.objects["claim"])
        claim["metadata"]["deletionTimestamp"] = "2026-11-22T00:00:00Z"
        world.put("claim", claim)
        await world.run(30)

    assert told(story, monkeypatch).persistent_volume.capacity == "20Gi"


@pytest.mark.parametrize("attributes", [None, "missing"], ids=["no class", "a missing class"])
def test_a_node_that_cannot_grow_the_file_system_is_asked_again_now_and_then(
    attributes: str | None, monkeypatch: pytest.MonkeyPatch
):
    asked = []

    async def story(world: World) -> None:
        def refuses(old: Any, new: Any) -> None:
            if new is not None and new.resize_status == "NodeResizePending":
                asked.append(world.clock())
                claim = copy.deepcopy(world.objects["claim"])
                statuses = claim["status"]["allocatedResourceStatuses"]
                statuses["storage"] = "NodeResizeInfeasible"
                asyncio.get_running_loop().call_later(0.5, world.put, "claim", claim)

        world.caches.claims.subscribe(refuses)
        world.ask("20Gi", attributes)
        await world.run(HOUR_S)

    world = told(story, monkeypatch)

    pauses_s = [later - before for before, later in pairwise(asked)]
    assert pauses_s == pytest.approx([5, 20, 80, 320, 1280, 1800], abs=2)
    assert world.reasons.count("FileSystemResizeRequired") == len(asked)


def test_a_class_that_was_put_right_waits_for_the_size_that_follows_at_once(
    monkeypatch: pytest.MonkeyPatch,
):
    async def story(world: World) -> None:
        world.attributes_class("bad", iops="x")
        world.attributes_class("good", iops="4000")
        world.ask(attributes="bad")
        await world.run(HOUR_S)
        world.ask(attributes="good")
        await world.run(0.3)
        world.ask("20Gi")
        await world.run(60)

    world = told(story, monkeypatch)

    assert [(each.size_gib, each.iops) for each in world.cloud.sent] == [(20, 4000)]
    took_s = world.metrics.registry.get_sample_value(
        "ebs_provisioner_flow_seconds_sum", {"flow": "modify"}
    )
    assert took_s is not None
    assert took_s < 60  # counted from the request that was carried out


def test_a_class_made_anew_brings_no_refused_size_back(monkeypatch: pytest.MonkeyPatch):
    async def story(world: World) -> None:
        world.cloud.refuses = lambda _: refusal(Reason.INVALID_REQUEST)
        world.attributes_class("gold", iops="4000")
        world.ask("20000Gi", "gold")
        await world.run(60)
        sent = [(each.size_gib, each.iops) for each in world.cloud.sent]
        assert sent == [(20000, 4000), (20000, None), (None, 4000)]
        remade = copy.deepcopy(world.objects["gold"])
        remade["metadata"]["uid"] = "another"
        world.put("gold", remade)
        await world.run(60)

    sent = told(story, monkeypatch).cloud.sent

    assert [(each.size_gib, each.iops) for each in sent[3:]] == [(None, 4000)]


def test_a_size_that_is_refused_while_its_node_pauses_is_not_reported_as_one_of_the_class(
    monkeypatch: pytest.MonkeyPatch,
):
    async def story(world: World) -> None:
        world.cloud.refuses = lambda request: (
            refusal(Reason.INVALID_REQUEST) if request.size_gib else None
        )

        def node_gives_up() -> None:
            claim = copy.deepcopy(world.objects["claim"])
            if len(world.cloud.sent) == 2:  # both together were refused, and now the size alone
                statuses = claim["status"]["allocatedResourceStatuses"]
                statuses["storage"] = "NodeResizeInfeasible"
                world.put("claim", claim)

        world.cloud.meanwhile = node_gives_up
        world.attributes_class("gold", iops="4000")
        world.ask("20Gi", "gold")
        await world.run(60)

    world = told(story, monkeypatch)

    assert [(each.size_gib, each.iops) for each in world.cloud.sent[:3]] == [
        (20, 4000),
        (20, None),
        (None, 4000),
    ]
    assert "ModifyVolumeError" not in str(world.writes)
    assert world.claim.current_attributes_class_name == "gold"
