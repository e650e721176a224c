"""What a move looks at before it goes on, so that no data are lost, with a record that is made up."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from msgspec import structs

from provisioner.controller.moving.phase_rules import GoOn, Hold, InUse, Use, next_held_step
from provisioner.controller.moving.pods.consumers import Consumers
from provisioner.controller.moving.snapshot import progress_of
from provisioner.ec2.watcher import Sighting
from provisioner.model.decision import AGAIN, SETTLED
from provisioner.model.ebs_snapshot import EbsSnapshot, SnapshotState
from provisioner.model.persistent_volume import PersistentVolume, finalizer_of_attacher
from provisioner.model.volume_move import MoveConsumer, MovePlan, Phase, VolumeMove
from provisioner.model.workload import Workload
from tests.builders import DRIVER, a_volume
from tests.controller.move_record import a_claim, a_done_move, a_pv, in_phase
from tests.controller.moving.test_flow import HELD, REQUEST, a_mover


@pytest.mark.parametrize(("size_gib", "asks"), [(4, {}), (8, {"request": {"size_gib": 8}})])
async def test_a_volume_that_was_grown_since_the_plan_gets_a_copy_of_its_size(
    size_gib: int, asks: dict[str, Any]
):
    """EC2 makes no volume that is smaller than its snapshot, and pods would wait for ever."""
    mover, record = a_mover(a_pv("Bound", **HELD))
    record.found = a_claim()
    taken = EbsSnapshot("snap-1", "vol-1", SnapshotState.COMPLETED, size_gib)
    mover._snapshots = SimpleNamespace(  # type: ignore[assignment]
        follow=lambda *_: Sighting(taken, 0.0), leave=lambda _: None
    )
    mover._volumes = SimpleNamespace(begin=lambda _: None)  # type: ignore[assignment]
    move = in_phase(a_done_move(keeps=False), "Snapshotting", request=REQUEST, snapshot="snap-1")

    assert await mover._take_snapshot(move) == AGAIN

    (written,) = record.written
    all_of_it = dict.fromkeys(("progressBytes", "totalBytes"), size_gib * 2**30)
    assert (
        written == {"phase": "Creating", "message": "", "progressPercent": 100} | all_of_it | asks
    )


@pytest.mark.parametrize(
    ("full_bytes", "percent", "done", "total"),
    [(None, 25, 2**30, 4 * 2**30), (1000, 25, 250, 1000), (0, 0, 0, 0), (1000, 0, 0, 1000)],
)
def test_progress_is_told_in_bytes_of_what_was_written_else_of_the_volume(
    full_bytes: int | None, percent: int, done: int, total: int
):
    pending = EbsSnapshot("snap-1", "vol-1", SnapshotState.PENDING, 4, None, percent)
    told = progress_of(replace(pending, full_bytes=full_bytes))

    assert told == {"progressPercent": percent, "progressBytes": done, "totalBytes": total}


def test_a_snapshot_that_is_complete_has_all_bytes_whatever_its_percentage():
    complete = EbsSnapshot("snap-1", "vol-1", SnapshotState.COMPLETED, 1, None, 99)

    assert progress_of(complete)["progressBytes"] == 2**30
    assert set(progress_of(None).values()) == {0}


async def test_a_new_volume_that_is_not_as_planned_is_given_to_no_claim():
    mover, record = a_mover(a_pv("Bound", **HELD))
    record.found, record.new = a_claim(), a_pv("Available")
    made = replace(a_volume(), zone="us-east-1c")
    mover._volumes = SimpleNamespace(  # type: ignore[assignment]
        is_under_way=lambda _: False, shown=lambda *_: made
    )
    move = in_phase(a_done_move(keeps=False), "Creating", request=REQUEST)

    assert await mover._create(move) == AGAIN

    (written,) = record.written
    assert written["phase"] is Phase.ABORTING
    assert "is in us-east-1c instead of us-east-1b" in written["message"]


async def test_who_else_may_write_to_a_volume_that_stays_is_seen():
    """By another object of it, or by another attacher since the hold."""
    old = a_pv("Bound", **HELD)
    marked = structs.replace(old.metadata, finalizers=[finalizer_of_attacher(DRIVER)])
    old, mover = structs.replace(old, metadata=marked), a_mover(None)[0]
    new, other = (
        structs.replace(old, metadata=structs.replace(old.metadata, name=name))
        for name in ("pvc-move-uid", "by-hand")
    )

    async def nothing(*_: Any) -> None:
        pass

    named = SimpleNamespace(keyed=lambda *_: [old, new, other])
    unattached = SimpleNamespace(keyed=lambda *_: [])
    mover._caches = SimpleNamespace(  # type: ignore[assignment]
        certain=nothing, persistent_volumes=named, attachments=unattached
    )
    reads = SimpleNamespace(volume=nothing)
    mover._services = SimpleNamespace(volume_reads=reads)  # type: ignore[assignment]

    seen = await mover._in_use(a_done_move(keeps=True), old)

    assert (seen.held, seen.touched, set(seen.namesakes)) == (True, True, {"by-hand"})


async def test_a_copy_is_thrown_away_if_a_pod_has_the_old_volume_once_it_is_complete():
    mover, record = a_mover(a_pv("Bound", **HELD))
    record.found = a_claim()

    async def copied(_: VolumeMove) -> GoOn:
        return GoOn()

    async def used(_: VolumeMove, __: PersistentVolume) -> InUse:
        return InUse(held=True, uses=[Use("web-0")], nodes=[], volume=a_volume())

    mover._copier = SimpleNamespace(advance=copied)  # type: ignore[assignment]
    mover._in_use = used  # type: ignore[method-assign,assignment]

    assert (
        await mover._work_in_pod(
            in_phase(a_done_move(keeps=False), "Copying", plan=MovePlan(copies_files=True))
        )
        == AGAIN
    )

    (written,) = record.written
    assert written["phase"] is Phase.ABORTING
    assert "the copy is thrown away" in written["message"]


def test_a_volume_that_another_attacher_has_touched_since_its_hold_is_held_anew():
    """So that the snapshot comes after what was written."""
    free = InUse(held=True, uses=[], nodes=[], volume=a_volume())
    move = a_done_move(keeps=False)

    assert next_held_step(move, free) == GoOn()
    assert next_held_step(move, replace(free, touched=True)) == Hold()


async def test_an_owner_is_scaled_only_in_the_version_that_was_read():
    bodies: list[Any] = []

    async def patch(_: Any, __: str, body: Any, **___: Any) -> None:
        bodies.append(body)

    services = SimpleNamespace(client=SimpleNamespace(patch=patch), caches=None)
    consumers = Consumers(cast("Any", services), None)  # type: ignore[arg-type]
    meta = {"name": "web", "namespace": "shop", "uid": "w", "resourceVersion": "8"}
    seen = msgspec.convert({"metadata": meta, "spec": {"replicas": 3}}, Workload)

    for kind in ("StatefulSet", "Deployment", "ReplicaSet"):
        await consumers._scale(MoveConsumer(kind=kind, name="web", uid="w"), seen, 1)

    exactly = {"metadata": {"uid": "w", "resourceVersion": "8"}, "spec": {"replicas": 1}}
    assert bodies == [exactly] * 3


async def test_a_move_of_another_driver_is_left_to_its_controller():
    mover, record = a_mover(a_pv("Bound"))
    move = in_phase(a_done_move(keeps=False), "Creating")
    source = structs.replace(move.source, driver="ebs.example.com")
    spec = structs.replace(move.spec, abort=True)

    status = structs.replace(move.told, source=source)
    assert await mover._pass(structs.replace(move, spec=spec, status=status)) == SETTLED

    assert record.written == []
