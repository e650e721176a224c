"""How moves end: the old volume gets its policy back, with a record that is made up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec import structs

from provisioner.controller.moving.ending import MoveEnding
from provisioner.controller.moving.phase_rules import Await
from provisioner.model.copy_report import CopyReport
from provisioner.model.decision import AGAIN, SETTLED, Later, Next
from provisioner.model.names import HELD_FOR_MOVE
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.volume_move import (
    MoveConsumer,
    MoveKept,
    MovePlan,
    MoveTarget,
    Phase,
    Shape,
    VolumeMove,
)
from tests.builders import DRIVER
from tests.controller.move_record import (
    OLD_PV,
    PAST,
    FakeCompanions,
    FakeOwner,
    FakeRecord,
    a_done_move,
    a_pv,
    in_phase,
)

KEPT_PV = "pv-0"


def an_ending(old: PersistentVolume | None) -> tuple[MoveEnding, FakeRecord]:
    ending, record = object.__new__(MoveEnding), FakeRecord(old)
    ending._record = record  # type: ignore[assignment]
    return ending, record


@pytest.mark.parametrize("keeps", [False, True])
async def test_the_end_waits_until_the_binder_has_released_the_old_volume(keeps: Any):
    ending, record = an_ending(a_pv("Bound"))

    assert isinstance(await ending.keep_source(a_done_move(keeps=keeps)), Later)
    assert (record.policies, record.written) == ([], [])


async def test_the_old_volume_of_a_copy_gets_its_policy_back_once_it_is_released():
    ending, record = an_ending(a_pv("Released"))

    await ending.keep_source(a_done_move(keeps=False))

    assert record.policies == ["Delete"]
    assert record.written[-1]["sourceKeptUntil"] == ""


def kept_for(hours: str, *, done_hours_ago: float, kept_hours: float) -> VolumeMove:
    """A move that is done; ``kept_hours``: for how long it was to keep the old volume then."""
    done = datetime.now(UTC) - timedelta(hours=done_hours_ago)
    until = (done + timedelta(hours=kept_hours)).isoformat(timespec="seconds")
    move = in_phase(a_done_move(keeps=False), "Done", message=f"kept until {until}; see to it")
    told = structs.replace(
        move.told, phase_since=done.isoformat(timespec="seconds"), source_kept_until=until
    )
    return structs.replace(move, status=told, spec=structs.replace(move.spec, keep_source=hours))


async def test_a_longer_keep_source_is_honoured_after_the_move_is_done():
    ending, record = an_ending(a_pv("Released"))
    move = kept_for("720h", done_hours_ago=2, kept_hours=1)
    until = (datetime.fromisoformat(move.told.phase_since) + timedelta(hours=720)).isoformat()

    assert await ending.keep_source(move) == AGAIN
    (written,) = record.written
    message = f"kept until {until}; see to it"
    assert (written["message"], written["sourceKeptUntil"]) == (message, until)
    assert [each["message"] for each in written["conditions"] if each["type"] == "Done"] == [
        message
    ]

    told = structs.replace(move.told, source_kept_until=until)
    assert isinstance(await ending.keep_source(structs.replace(move, status=told)), Later)
    assert record.policies == []


async def test_a_shorter_keep_source_is_honoured_after_the_move_is_done():
    ending, record = an_ending(a_pv("Released"))
    move = kept_for("1h", done_hours_ago=2, kept_hours=168)

    assert await ending.keep_source(move) == AGAIN
    assert record.policies == []

    told = structs.replace(move.told, source_kept_until=record.written[-1]["sourceKeptUntil"])
    await ending.keep_source(structs.replace(move, status=told))
    assert record.policies == ["Delete"]


async def test_a_keep_source_that_nobody_has_changed_is_not_written_again():
    """The end is reckoned a moment before the phase is written."""
    ending, record = an_ending(a_pv("Released"))
    move = kept_for("1h", done_hours_ago=0.5, kept_hours=1 - 2 / 3600)

    assert isinstance(await ending.keep_source(move), Later)
    assert record.written == []


async def test_who_deletes_a_move_before_its_end_keeps_the_old_volume_and_waits_for_nothing():
    ending, record = an_ending(a_pv("Released"))
    released: list[str] = []

    async def release(move: VolumeMove) -> Next:
        released.append(move.name)
        return SETTLED

    ending.release = release  # type: ignore[method-assign]
    move = a_done_move(keeps=False)
    meta = structs.replace(move.metadata, deletion_timestamp=PAST)

    assert await ending.keep_source(structs.replace(move, metadata=meta)) == SETTLED

    assert (released, record.policies, record.written) == (["to-b"], [], [])


async def test_a_move_is_not_undone_before_its_owners_have_their_replicas_back():
    """A request to scale one down may still be under way, and nobody would scale it back."""
    ending, record = an_ending(a_pv("Bound"))
    owner = FakeOwner(record)
    ending._consumers = owner
    web = MoveConsumer(
        kind="StatefulSet", name="web", uid="w", replicas=3, generation=owner.generation, times=1
    )
    move = in_phase(a_done_move(keeps=True), "Aborting", consumers=[web], undone_from="Held")
    since = structs.replace(move.told, phase_since=datetime.now(UTC).isoformat())

    assert isinstance(await ending.undo(structs.replace(move, status=since)), Later)
    assert record.written == []


async def test_a_move_waits_until_another_has_given_an_owner_back_and_says_so():
    """That one has scaled it further down, and has recorded what this one has left."""
    ending, record = a_cleaning(a_pv("Bound"))
    owner = FakeOwner(record)
    ending._consumers, owner.replicas = owner, 0
    web = MoveConsumer(kind="StatefulSet", name="web", uid="w", replicas=3, scale_to=2)
    lower = structs.replace(web, replicas=2, scale_to=0)
    other = in_phase(a_done_move(keeps=False), "Swapping", consumers=[lower])
    meta = structs.replace(other.metadata, uid="other", name="first")
    owner._caches = SimpleNamespace(  # type: ignore[assignment]
        moves={"other": structs.replace(other, metadata=meta)}
    )
    text = (
        "waiting until VolumeMove shop/first has scaled StatefulSet web back, which it has scaled "
        "further down"
    )

    move = in_phase(a_done_move(keeps=False), "Cleaning", consumers=[web])
    assert isinstance(await ending.clean(move), Later)
    assert (owner.scaled, record.written) == ([], [{"message": text}])

    move = in_phase(move, "Aborting", message="aborted by its user", undone_from="Creating")
    assert isinstance(await ending.undo(move), Later)
    assert record.written[-1] == {"message": f"aborted by its user; {text}"}
    assert owner.scaled == []


def a_cleaning(old: PersistentVolume | None) -> tuple[MoveEnding, FakeRecord]:
    ending, record = an_ending(old)
    ending._consumers, ending._companions = FakeOwner(record), FakeCompanions()  # type: ignore[assignment]
    ending._snapshots = NoSnapshots()  # type: ignore[assignment]
    return ending, record


class NoSnapshots:
    """Deletes what there is: nothing."""

    async def delete_known(self, _: VolumeMove) -> None:
        pass


async def test_the_old_volume_is_held_until_nothing_waits_to_have_it_attached():
    """A pod that was kept from it is gone by now; its attachment goes a little later."""
    ending, record = a_cleaning(a_pv("Released"))
    record.is_wanted = True
    since = datetime.now(UTC).isoformat()
    move = a_done_move(keeps=False)
    fresh = structs.replace(
        move, status=structs.replace(move.told, phase="Cleaning", phase_since=since)
    )

    assert isinstance(await ending.clean(fresh), Later)
    assert (record.let_go_with, record.written) == ([], [])

    record.is_wanted = False
    await ending.clean(fresh)
    assert record.let_go_with == [""]
    assert record.written[-1]["phase"] == Phase.DONE


def in_cleaning_now(**fields: Any) -> VolumeMove:
    move = in_phase(a_done_move(keeps=False), "Cleaning", **fields)
    since = structs.replace(move.told, phase_since=datetime.now(UTC).isoformat())
    return structs.replace(move, status=since)


async def test_a_move_that_stopped_pods_is_done_once_one_has_the_new_volume():
    ending, record = a_cleaning(a_pv("Released"))
    move = in_cleaning_now(restarts=["pod-uid"])

    assert isinstance(await ending.clean(move), Later)
    text = "waiting until a pod has the new volume, for ten minutes at most"
    assert record.written == [{"message": text}]
    assert record.let_go_with == []

    record.attached.add(move.persistent_volume_name)
    await ending.clean(move)
    assert record.written[-1]["phase"] == Phase.DONE
    assert "no pod" not in record.written[-1]["message"]


async def test_a_move_whose_pods_never_come_is_done_later_and_says_so():
    ending, record = a_cleaning(a_pv("Released"))

    await ending.clean(in_phase(a_done_move(keeps=False), "Cleaning", restarts=["pod-uid"]))

    assert record.written[-1]["phase"] == Phase.DONE
    assert record.written[-1]["message"].startswith("no pod has had the new volume yet; ")


@pytest.mark.parametrize(
    "consumers",
    [
        pytest.param([], id="that had no pods"),
        pytest.param(
            [MoveConsumer(kind="StatefulSet", name="web", uid="w", replicas=0, is_back=True)],
            id="whose owner had no replicas",
        ),
    ],
)
async def test_a_move_is_done_at_once(consumers: list[MoveConsumer]):
    ending, record = a_cleaning(a_pv("Released"))

    await ending.clean(in_cleaning_now(consumers=consumers))

    assert record.written[-1]["phase"] == Phase.DONE


async def test_a_move_that_was_aborted_too_late_waits_for_no_pod():
    ending, record = a_cleaning(a_pv("Released"))
    move = in_cleaning_now(restarts=["pod-uid"])

    await ending.clean(structs.replace(move, spec=structs.replace(move.spec, abort=True)))

    assert record.written[-1]["phase"] == Phase.DONE


async def test_a_move_to_another_driver_does_not_wait_for_that_ones_attachments():
    ending, record = a_cleaning(a_pv("Released"))
    target = Shape(zone="us-east-1b", driver="ebs.csi.eks.amazonaws.com")
    plan = MovePlan(source=Shape(zone="us-east-1b", driver=DRIVER), target=target)

    await ending.clean(in_cleaning_now(restarts=["pod-uid"], plan=plan))

    assert record.written[-1]["phase"] == Phase.DONE


async def test_it_is_not_held_for_ever_for_an_attachment_that_stays():
    ending, record = a_cleaning(a_pv("Released"))
    record.is_wanted = True

    await ending.clean(in_phase(a_done_move(keeps=False), "Cleaning"))

    assert record.let_go_with == [""]


async def test_a_hold_that_the_cache_of_a_new_leader_does_not_show_yet_is_let_go():
    """It would be held for ever: ``keep_source`` waits as long as any move holds it."""
    ending, record = a_cleaning(a_pv("Released", **{HELD_FOR_MOVE: "shop/to-b"}))
    let_go: list[bool] = []

    async def known(_: VolumeMove, name: str) -> PersistentVolume | None:
        return a_pv("Bound", "Delete") if name == OLD_PV else None  # as it was before the move

    async def keep(_: VolumeMove, found: Any, policy: str = "") -> None:
        assert not policy
        let_go.append(HELD_FOR_MOVE in found.annotations)

    record.known_volume = known  # type: ignore[method-assign]
    record.let_go = keep  # type: ignore[method-assign]

    await ending.clean(in_phase(a_done_move(keeps=False), "Cleaning"))

    assert let_go == [True]


async def test_the_end_of_a_move_whose_old_object_was_deleted_says_so():
    ending, record = a_cleaning(None)

    await ending.clean(in_phase(a_done_move(keeps=False), "Cleaning"))

    assert record.written[-1]["sourceKeptUntil"] == ""
    assert "nothing keeps the old volume" in record.written[-1]["message"]


async def test_pods_are_not_brought_back_before_the_moves_that_go_together_have_swapped():
    ending, record = an_ending(None)
    ending._companions = FakeCompanions(Await("it waits"))  # type: ignore[assignment]

    move = in_phase(a_done_move(keeps=False), "Cleaning")
    assert isinstance(await ending.clean(move), Later)
    assert record.written == [{"message": "it waits"}]


def a_move_back(phase: str) -> VolumeMove:
    """Its claim has had PersistentVolume pvc-old, and gets the volume that pv-0 keeps."""
    kept = MoveKept(
        persistent_volume=KEPT_PV, volume_id="vol-0", claim_uid="before", reclaim_policy="Delete"
    )
    move = in_phase(a_done_move(keeps=False), phase, kept=kept, undone_from="Held")
    to = MoveTarget(source="there")
    return msgspec.structs.replace(move, spec=msgspec.structs.replace(move.spec, to=to))


def kept_pv(phase: str = "Released", name: str = KEPT_PV) -> PersistentVolume:
    spec = {
        "persistentVolumeReclaimPolicy": "Retain",
        "claimRef": {"uid": "before"},
        "csi": {"driver": DRIVER, "volumeHandle": "vol-0"},
    }
    meta = {"name": name, "annotations": {HELD_FOR_MOVE: "shop/to-b"}}
    return msgspec.convert(
        {"metadata": meta, "spec": spec, "status": {"phase": phase}}, PersistentVolume
    )


def going_back(old: PersistentVolume, *others: PersistentVolume) -> tuple[MoveEnding, FakeRecord]:
    ending, record = an_ending(old)
    record.others = {each.name: each for each in others}
    ending._consumers = FakeOwner(record)
    ending._snapshots = NoSnapshots()  # type: ignore[assignment]
    ending._companions = FakeCompanions()  # type: ignore[assignment]
    return ending, record


@pytest.mark.parametrize("held_for", ["shop/back", "shop/another"])
async def test_a_volume_that_another_move_goes_back_to_is_not_let_go(held_for: str):
    """keepSource has ended; the policy Delete would have the volume deleted at once."""
    ending, record = an_ending(a_pv("Released", **{HELD_FOR_MOVE: held_for}))

    assert isinstance(await ending.keep_source(a_done_move(keeps=False)), Later)
    assert (record.policies, record.written) == ([], [])


@pytest.mark.parametrize("old", [None, a_pv("Bound"), a_pv("Released")])
async def test_an_old_volume_that_is_not_kept_any_more_is_left_as_it_is(old: Any):
    if old is not None:
        holder = msgspec.structs.replace(old.spec.claim_ref, uid="another")
        old = msgspec.structs.replace(old, spec=msgspec.structs.replace(old.spec, claim_ref=holder))
    ending, record = an_ending(old)

    await ending.keep_source(a_done_move(keeps=False))

    assert record.policies == []
    told = record.written[-1]
    assert told["sourceKeptUntil"] == ""
    assert "not there any more" in told["message"] or "left as it is" in told["message"]


async def test_the_object_that_kept_the_volume_goes_once_the_claim_has_another():
    new = kept_pv("Bound", "pvc-move-uid")
    ending, record = going_back(a_pv("Released"), kept_pv(), new)

    assert await ending.clean(a_move_back("Cleaning")) == AGAIN

    assert record.removed == [KEPT_PV]
    assert record.written[-1]["phase"] == Phase.DONE
    assert "keeps the newer volume" in record.written[-1]["message"]


async def test_it_stays_if_no_other_object_names_its_volume():
    ending, record = going_back(a_pv("Released"), kept_pv())

    await ending.clean(a_move_back("Cleaning"))

    assert record.removed == []
    assert record.let_go_of == [KEPT_PV, OLD_PV]


@pytest.mark.parametrize(("aborting_s", "left"), [(5, [OLD_PV, KEPT_PV]), (65, [])])
async def test_what_goes_back_and_is_undone_lets_the_kept_volume_go(
    aborting_s: float, left: list[str]
):
    """A hold that was sent in Held may come for a minute; it waits for other moves for hours."""
    ending, record = going_back(a_pv("Bound"), kept_pv())
    move, since = a_move_back("Aborting"), datetime.now(UTC) - timedelta(seconds=aborting_s)
    told = structs.replace(move.told, phase_since=since.isoformat())

    await ending.undo(structs.replace(move, status=told))

    assert record.let_go_of == [OLD_PV, KEPT_PV]
    assert record.left == left
    assert record.written[-1]["phase"] == Phase.ABORTED


class FakeCopier:
    """A copy whose volume is still attached, or is not any more."""

    def __init__(self, left: Await | None) -> None:
        self.left = left

    async def remove(self, _: VolumeMove) -> Await | None:
        return self.left


async def test_the_old_volume_is_not_let_go_before_the_pod_of_a_copy_has_left_it():
    """A pod that came to the same node before would have it read-only."""
    ending, record = an_ending(a_pv("Bound"))
    ending._copier = FakeCopier(Await("waiting until it is detached"))  # type: ignore[assignment]
    ending._volumes = Undoing()  # type: ignore[assignment]
    move = in_phase(a_done_move(keeps=False), "Aborting", message="it does not fit")
    plan = structs.replace(move.told.plan or MovePlan(), copies_files=True)
    move = structs.replace(move, status=structs.replace(move.told, plan=plan))

    assert isinstance(await ending.undo(move), Later)

    assert record.let_go_with == []
    assert record.written == [{"message": "it does not fit; waiting until it is detached"}]


class Undoing:
    """What is undone after the pods have the claim again, in its order."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.left: Await | None = None
        self.comes = False
        self.taken: PersistentVolume | None = None

    def may_come(self, _: VolumeMove) -> bool:
        return self.comes

    async def remove(self, _: VolumeMove) -> Await | None:
        self.steps.append("pod")
        return self.left

    async def withdraw(self, _: VolumeMove) -> PersistentVolume | None:
        self.steps.append("object")
        return self.taken

    async def undo(self, _: VolumeMove) -> None:
        self.steps.append("volume")

    async def delete_new(self, _: VolumeMove) -> None:
        self.steps.append("snapshots")


async def test_pods_get_the_old_volume_before_a_check_is_gone_and_the_new_one_is_deleted_after_it():
    """Its node may be dead, and what names a volume keeps it from being deleted."""
    ending, record = an_ending(a_pv("Bound"))
    undoing = Undoing()
    ending._consumers = FakeOwner(record)
    ending._copier = ending._volumes = ending._snapshots = undoing  # type: ignore[assignment]
    plan = MovePlan(checks=True)
    move = in_phase(a_done_move(keeps=False), "Aborting", plan=plan, undone_from="Checking")
    undoing.left = Await("waiting until volume vol-2 is detached after the check")

    assert isinstance(await ending.undo(move), Later)
    assert (record.let_go_of, undoing.steps) == ([OLD_PV], ["pod"])
    assert record.written[-1]["message"].endswith(
        "; waiting until volume vol-2 is detached after the check"
    )

    undoing.left = None
    assert await ending.undo(move) == AGAIN
    assert undoing.steps == ["pod", "pod", "volume", "snapshots"]
    assert record.written[-1]["phase"] == Phase.ABORTED


async def test_no_claim_can_be_bound_to_half_a_copy_while_its_pod_ends():
    """Its user has deleted the claim, and a StatefulSet creates it again."""
    ending, _ = an_ending(a_pv("Released"))
    undoing = Undoing()
    ending._copier = ending._volumes = undoing  # type: ignore[assignment]
    undoing.left = Await("waiting until pod move-move-uid, which has copied the files, is gone")
    plan = MovePlan(copies_files=True)
    move = in_phase(a_done_move(keeps=False), "Aborting", plan=plan, undone_from="Copying")

    assert isinstance(await ending.undo(move), Later)

    assert undoing.steps == ["object", "pod"]
    held = in_phase(a_done_move(keeps=False), "Aborting", plan=plan, undone_from="Held")
    await ending.undo(held)
    assert undoing.steps[2:] == ["pod"]  # there is none yet


@pytest.mark.parametrize("copied", [None, CopyReport(done=True)], ids=["half", "whole"])
async def test_a_claim_that_was_bound_to_half_a_copy_all_the_same_is_told(copied: Any):
    ending, record = an_ending(a_pv("Released"))
    undoing = Undoing()
    undoing.taken = kept_pv("Bound", "pvc-move-uid")
    ending._consumers = FakeOwner(record)
    ending._copier = ending._volumes = ending._snapshots = undoing  # type: ignore[assignment]
    plan, why = MovePlan(copies_files=True), "the claim was deleted"
    told: Any = {"plan": plan, "undone_from": "Copying", "message": why, "copied": copied}
    move = in_phase(a_done_move(keeps=False), "Aborting", **told)

    await ending.undo(move)

    half = (
        f"{why}; claim shop/data was created again, and is bound to PersistentVolume pvc-move-uid, "
        "to which not all files were copied: delete the claim"
    )
    assert record.written[-1]["phase"] == Phase.ABORTED
    assert record.written[-1]["message"] == (half if copied is None else why)


async def test_the_new_volume_of_a_copy_is_kept_while_an_object_that_names_it_may_come_yet():
    """By a request of a process that died: with it there, the volume would be left for ever."""
    ending, record = an_ending(a_pv("Bound"))
    undoing = Undoing()
    ending._consumers = FakeOwner(record)
    ending._copier = ending._volumes = ending._snapshots = undoing  # type: ignore[assignment]
    plan, since = MovePlan(copies_files=True), datetime.now(UTC).isoformat()
    move = in_phase(a_done_move(keeps=False), "Aborting", plan=plan, undone_from="Copying")
    fresh = structs.replace(move, status=structs.replace(move.told, phase_since=since))
    undoing.comes = True

    assert isinstance(await ending.undo(fresh), Later)
    assert "volume" not in undoing.steps

    assert await ending.undo(move) == AGAIN
    assert undoing.steps[-2:] == ["pod", "volume"]
    assert record.written[-1]["phase"] == Phase.ABORTED
