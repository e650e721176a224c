"""What a new process makes of requests that the one before it had started, or only recorded."""

from __future__ import annotations

import copy
from datetime import timedelta

import pytest

from provisioner.model.budget import Ledger, Start
from provisioner.model.consistency import CONSISTENCY_S
from provisioner.model.errors import Reason
from provisioner.model.modification import Modification, ModificationState, shape_of
from provisioner.model.names import MODIFICATIONS
from tests.controller.modify_cloud import VOLUME, refusal
from tests.controller.modify_world import World, told

DAY_S = 24 * 3600.0


def use_up(world: World) -> None:
    """Four modifications of the last hours, the latest one completed."""
    assert world.cloud.volume is not None
    starts = tuple(Start(world.now() - timedelta(hours=ago), f"{ago}") for ago in (5, 4, 3, 2))
    world.cloud.began = [start.at for start in starts]
    shape = shape_of(world.cloud.volume)
    world.cloud.latest_ = Modification(
        VOLUME, ModificationState.COMPLETED, shape, original=shape, started_at=starts[-1].at
    )
    noted = copy.deepcopy(world.objects["pv"])
    text = Ledger(starts).text(persistent_volume_uid="pv-u1", volume_id=VOLUME)
    noted["metadata"]["annotations"][MODIFICATIONS] = text
    world.put("pv", noted)


def test_a_size_that_only_waited_is_corrected_after_a_restart(monkeypatch: pytest.MonkeyPatch):
    async def story(world: World) -> None:
        use_up(world)
        world.ask("2000Gi")
        await world.run(30)
        assert world.claim.resize_status == "ControllerResizeInProgress"
        await world.restart()
        world.ask("20Gi")
        await world.run(DAY_S)

    assert [each.size_gib for each in told(story, monkeypatch).cloud.sent] == [20]


def test_a_class_that_only_waited_is_taken_back_after_a_restart(monkeypatch: pytest.MonkeyPatch):
    async def story(world: World) -> None:
        use_up(world)
        world.attributes_class("gold", iops="9000")
        world.ask(attributes="gold")
        await world.run(30)
        await world.restart()
        world.ask(attributes="")
        await world.run(DAY_S)

    world = told(story, monkeypatch)

    assert world.cloud.sent == []
    assert world.claim.modify_status is None
    assert world.reasons[-1] == "VolumeModifyCanceled"


def test_what_waited_for_optimizing_and_what_is_wanted_by_now_are_one(
    monkeypatch: pytest.MonkeyPatch,
):
    async def story(world: World) -> None:
        world.ask("12Gi")
        await world.run(20)
        world.kubelet()
        world.ask("20Gi")
        await world.run(30)
        await world.restart()
        world.ask("30Gi")
        await world.run(900)

    assert [each.size_gib for each in told(story, monkeypatch).cloud.sent] == [12, 30]


def test_a_size_that_was_refused_is_corrected_after_a_restart(monkeypatch: pytest.MonkeyPatch):
    async def story(world: World) -> None:
        world.cloud.refuses = lambda request: (
            refusal(Reason.QUOTA_EXCEEDED) if request.size_gib == 5000 else None
        )
        world.ask("5000Gi")
        await world.run(30)
        await world.restart()
        world.cloud.refuses = lambda _: None  # the quota was raised
        world.ask("20Gi")
        await world.run(600)

    assert told(story, monkeypatch).persistent_volume.capacity == "20Gi"


def test_what_the_stock_resizer_may_have_sent_is_looked_for_until_ec2_would_show_it(
    monkeypatch: pytest.MonkeyPatch,
):
    """It leaves no note."""

    async def story(world: World) -> None:
        world.ask("20Gi")
        claim = copy.deepcopy(world.objects["claim"])
        claim["status"]["allocatedResources"] = {"storage": "50Gi"}
        claim["status"]["allocatedResourceStatuses"] = {"storage": "ControllerResizeInProgress"}
        world.put("claim", claim)
        await world.run(CONSISTENCY_S - 5)
        assert world.cloud.sent == []
        await world.run(20)

    assert [each.size_gib for each in told(story, monkeypatch).cloud.sent] == [20]


def test_a_size_under_way_stays_though_the_class_is_refused_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
):
    """``allocatedResources``, which quotas count, never says less than EC2 is giving."""

    async def story(world: World) -> None:
        world.cloud.modifying_s = 60.0
        world.cloud.refuses = lambda request: (
            refusal(Reason.INVALID_REQUEST) if request.iops else None
        )
        world.attributes_class("gold", iops="4000")
        world.ask("100Gi", "gold")
        await world.run(20)
        assert world.cloud.taken == 1
        world.ask("11Gi")
        await world.run(10)
        assert world.claim.allocated_storage == "100Gi"
        await world.run(300)

    assert told(story, monkeypatch).persistent_volume.capacity == "100Gi"
