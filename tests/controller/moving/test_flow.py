"""What the flow of moves does at the edges between its phases, with a record that is made up."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec import structs

from provisioner.controller.moving.ending import MoveEnding
from provisioner.controller.moving.flow import Mover
from provisioner.controller.moving.phase_rules import Await, Undo
from provisioner.model.attachment import Attachment
from provisioner.model.claim import Claim
from provisioner.model.consistency import CONSISTENCY_S
from provisioner.model.decision import AGAIN, SETTLED, Later, Next
from provisioner.model.errors import KubeError, Outcome, Reason
from provisioner.model.names import HELD_FOR_MOVE, POLICY_BEFORE_MOVE
from provisioner.model.persistent_volume import PersistentVolume, finalizer_of_attacher
from provisioner.model.volume import Volume, VolumeState
from provisioner.model.volume_move import MoveConsumer, MovePlan, Phase, VolumeMove
from tests.builders import DRIVER, VOLUME, a_volume
from tests.controller.move_record import (
    OLD_PV,
    OLD_UID,
    PAST,
    FakeCompanions,
    FakeOwner,
    FakeRecord,
    a_claim,
    a_done_move,
    a_pv,
    in_phase,
)

HELD = {HELD_FOR_MOVE: "shop/to-b"}


def a_mover(old: PersistentVolume | None) -> tuple[Mover, FakeRecord]:
    mover, record = object.__new__(Mover), FakeRecord(old)
    mover._record = record  # type: ignore[assignment]
    mover._driver = DRIVER
    mover._companions = FakeCompanions()  # type: ignore[assignment]
    no_moves = SimpleNamespace(keyed=lambda *_: [])
    mover._caches = SimpleNamespace(moves=no_moves)  # type: ignore[assignment]
    return mover, record


@pytest.mark.parametrize(
    ("phase", "gone", "queued"),
    [("Held", True, ["move-uid"]), ("Held", False, []), ("Snapshotting", True, [])],
)
def test_a_held_move_goes_on_at_once_when_its_volume_is_detached(
    phase: str, *, gone: bool, queued: list[str]
):
    mover, _ = a_mover(None)
    holder = {"spec": {"claimRef": {"namespace": "shop", "name": "data"}}}
    volumes = {OLD_PV: msgspec.convert(holder, PersistentVolume)}
    moves = {("claim", "shop/data"): [in_phase(a_done_move(keeps=False), phase)]}
    woken: list[str] = []
    mover._caches = SimpleNamespace(  # type: ignore[assignment]
        persistent_volumes=volumes,
        moves=SimpleNamespace(keyed=lambda *key: moves.get(key, [])),
    )
    mover.queue = SimpleNamespace(add=woken.append)  # type: ignore[assignment]
    source = {"spec": {"source": {"persistentVolumeName": OLD_PV}}}
    attachment = msgspec.convert(source, Attachment)

    mover._attachment_changed(attachment, None if gone else attachment)

    assert woken == queued


async def test_retain_that_somebody_sets_while_a_move_waits_is_what_the_swap_writes_down():
    mover, record = a_mover(a_pv("Bound", "Retain", **HELD))
    record.found = a_claim()

    await mover._begin_swap(a_done_move(keeps=False), a_pv("Bound", "Retain"), volume="v")

    (status,) = record.written
    assert status["phase"] == Phase.SWAPPING
    assert status["source"]["reclaimPolicy"] == "Retain"
    assert status["source"]["claimUID"] == OLD_UID
    assert status["volume"] == "v"


async def test_a_claim_whose_namespace_goes_is_not_created_again_and_both_volumes_stay():
    mover, record = a_mover_with(a_pv("Released", **HELD), a_volume())
    record.is_namespace_going = True

    await mover._swap(a_swapping(keeps=False))

    assert [each["phase"] for each in record.written] == [Phase.CLEANING]
    assert (record.policies, record.removed) == ([], [])


def seen_after_retain(record: FakeRecord) -> list[list[str]]:
    """What had Retain each time the claim was read, and that nothing was written before."""
    seen: list[list[str]] = []

    async def claim(_: VolumeMove) -> Any:
        assert record.written == []
        seen.append(list(record.retained))
        return record.found

    record.claim = claim  # type: ignore[method-assign]
    return seen


async def test_a_volume_that_stays_has_retain_before_its_claim_is_exchanged():
    mover, record = a_mover(a_pv("Bound", "Delete"))
    record.found = a_claim()
    seen = seen_after_retain(record)

    await mover._begin_swap_of_form(a_done_move(keeps=True), a_pv("Bound", "Delete"))

    assert seen == [["Delete"]]
    (status,) = record.written
    assert status["phase"] == Phase.SWAPPING
    assert status["source"]["reclaimPolicy"] == "Delete"
    assert status["persistentVolume"]["spec"]["persistentVolumeReclaimPolicy"] == "Delete"


async def test_a_claim_that_is_deleted_after_retain_was_set_aborts_and_the_policy_comes_back():
    """Kubernetes then deletes the volume, as its user wanted; nothing is created again."""
    noted = a_pv("Released", **{POLICY_BEFORE_MOVE: "Delete"})
    mover, record = a_mover(noted)
    move = a_done_move(keeps=True)

    await mover._begin_swap_of_form(move, noted)
    assert record.written[-1]["phase"] == Phase.ABORTING

    ending = object.__new__(MoveEnding)
    ending._record, ending._consumers = record, FakeOwner(record)  # type: ignore[assignment]
    await ending.undo(in_phase(move, "Aborting"))
    assert record.let_go_with == ["Delete"]
    assert record.written[-1]["phase"] == Phase.ABORTED
    assert record.created == []


class FakeVolumes:
    """The new volume in EC2, and for how long its PersistentVolume is missing."""

    def __init__(self, made: Volume | None, missing_s: float) -> None:
        self.made = made
        self.missing_s = missing_s

    async def volume(self, volume_id: str) -> Volume | None:
        assert volume_id == VOLUME
        return self.made

    def missing_for_s(self, _: str) -> float:
        return self.missing_s

    def forget(self, _: str) -> None:
        pass


def a_mover_without_new(made: Volume | None, missing_s: float) -> tuple[Mover, FakeRecord]:
    """The claim waits for its new PersistentVolume, which somebody has deleted."""
    mover, record = a_mover_with(a_pv("Released"), made, missing_s)
    record.found = a_claim("new", "pvc-move-uid")
    return mover, record


def a_mover_with(
    old: PersistentVolume | None, made: Volume | None, missing_s: float = CONSISTENCY_S
) -> tuple[Mover, FakeRecord]:
    """``made``: the volume that the claim is to have, as EC2 has it."""
    mover, record = a_mover(old)
    volumes = FakeVolumes(made, missing_s)
    mover._volumes = volumes  # type: ignore[assignment]
    mover._services = SimpleNamespace(volume_reads=volumes)  # type: ignore[assignment]
    return mover, record


def a_swapping(*, keeps: bool) -> VolumeMove:
    body = {"metadata": {"name": "pvc-move-uid"}, "spec": {"csi": {"driver": DRIVER}}}
    changes: Any = {"volume": VOLUME, "snapshot": "snap-1", "persistent_volume": body}
    return in_phase(a_done_move(keeps=keeps), "Swapping", **changes)


def a_swapping_copy() -> VolumeMove:
    return a_swapping(keeps=False)


async def test_the_new_object_of_a_copy_that_its_user_deletes_is_created_again():
    mover, record = a_mover_without_new(a_volume(), CONSISTENCY_S)

    assert await mover._swap(a_swapping_copy()) == AGAIN

    (body,) = record.created
    assert body["metadata"]["name"] == "pvc-move-uid"
    assert body["spec"]["csi"] == {"driver": DRIVER, "volumeHandle": VOLUME}


async def test_it_is_not_created_again_before_ec2_would_show_that_its_volume_is_deleted():
    mover, record = a_mover_without_new(a_volume(), CONSISTENCY_S - 1)

    assert isinstance(await mover._swap(a_swapping_copy()), Later)

    assert record.created == []
    assert "was deleted" in record.written[-1]["message"]


@pytest.mark.parametrize("made", [None, replace(a_volume(), state=VolumeState.DELETING)])
async def test_a_new_volume_that_is_gone_is_told_with_the_snapshot_that_helps(made: Any):
    mover, record = a_mover_without_new(made, CONSISTENCY_S)

    assert isinstance(await mover._swap(a_swapping_copy()), Later)

    told = record.written[-1]["message"]
    assert record.created == []
    assert "from snapshot snap-1" in told
    assert f"PersistentVolume {OLD_PV} keeps the old volume vol-1" in told


def a_scaling_move() -> VolumeMove:
    web = {
        "kind": "StatefulSet",
        "name": "web",
        "uid": "w",
        "scaleTo": 0,
        "replicas": 3,
        "generation": 4,
        "times": 1,
    }
    return msgspec.convert({"status": {"phase": "Aborting", "consumers": [web]}}, VolumeMove)


async def test_an_owner_that_a_lost_request_may_scale_down_yet_is_not_taken_for_brought_back():
    record = FakeRecord(None)
    owner = FakeOwner(record)

    await owner.bring_back(a_scaling_move(), is_settled=False)
    assert (record.written, owner.scaled) == ([], [])

    owner.replicas, owner.generation = 0, 5  # it has arrived
    await owner.bring_back(a_scaling_move(), is_settled=False)
    assert owner.scaled == [3]
    assert record.written[-1]["consumers"][0]["isBack"] is True


async def test_once_no_lost_request_can_come_any_more_an_unchanged_owner_is_back():
    record = FakeRecord(None)
    owner = FakeOwner(record)

    await owner.bring_back(a_scaling_move(), is_settled=True)

    assert owner.scaled == []
    assert record.written[-1]["consumers"][0]["isBack"] is True


@pytest.mark.parametrize(
    ("stops", "warning"),
    [(["StatefulSet web is scaled from 2 to 0, and back after the swap"], False), ([], True)],
)
async def test_an_owner_is_named_before_it_is_scaled_down_and_one_without_a_plan_warns(
    stops: Any, warning: Any
):
    record = FakeRecord(None)
    owner = FakeOwner(record)
    plan = MovePlan(stops=stops)
    known = [MoveConsumer(kind="StatefulSet", name="web", uid="w")]
    move = in_phase(a_done_move(keeps=False), "Held", plan=plan, consumers=known)

    await owner.stop(move)

    (said,) = record.announced
    assert said.startswith(f"{warning} StatefulSet web is scaled from 3 to 0")
    assert ("the plan does not name it" in said) is warning
    assert record.written[-1]["consumers"][0]["replicas"] == 3
    assert owner.scaled == [0]


async def test_a_copy_has_its_old_volume_kept_while_a_deletion_of_the_claim_still_aborts():
    old = a_pv("Bound", "Delete", **HELD)
    mover, record = a_mover(old)
    record.found, move = a_claim(), a_done_move(keeps=False)
    seen = seen_after_retain(record)

    await mover._begin_swap(move, old, volume=VOLUME)
    assert seen == [["Delete"]]
    assert record.written[-1]["source"]["reclaimPolicy"] == "Delete"

    record.found, record.written = None, []
    await mover._begin_swap(move, old, volume=VOLUME)
    assert record.written[-1]["phase"] == Phase.ABORTING


@pytest.mark.parametrize("policy", ["Delete", "Retain"])
async def test_a_copy_is_not_swapped_if_its_old_volume_was_attached_since_whatever_is_known(
    policy: str,
):
    """A cache did not show the attacher's finalizer; the write, or the read, does."""
    touched = a_pv("Bound", policy, **HELD)
    finalizers = [finalizer_of_attacher(DRIVER)]
    meta = structs.replace(touched.metadata, finalizers=finalizers)
    touched = structs.replace(touched, metadata=meta)
    mover, record = a_mover(touched)
    record.found = a_claim()

    async def retain(_: PersistentVolume) -> PersistentVolume:
        return touched

    record.retain = retain  # type: ignore[assignment]
    await mover._begin_swap(a_done_move(keeps=False), a_pv("Bound", policy, **HELD))

    assert [each["phase"] for each in record.written] == [Phase.ABORTING]
    assert "another controller has attached" in record.written[0]["message"]


async def test_a_swap_that_turns_back_makes_a_deletion_that_is_under_way_come_too_late():
    mover, record = a_mover_with(a_pv("Bound", **HELD), None)
    record.found, move = a_claim(), a_swapping_copy()
    claim = json.dumps({"metadata": {"resourceVersion": "7"}})
    move = in_phase(move, "Swapping", claim=claim)

    assert await mover._swap(move) == AGAIN

    (status,) = record.written
    assert (status["phase"], status["undoneFrom"]) == (Phase.ABORTING, Phase.SWAPPING)
    assert record.kept == [OLD_UID]


async def test_it_waits_for_a_minute_for_a_volume_that_ec2_does_not_show():
    mover, record = a_mover_with(a_pv("Bound", **HELD), None, CONSISTENCY_S - 1)
    claim = json.dumps({"metadata": {"resourceVersion": "7"}})
    record.found, move = a_claim(), in_phase(a_swapping_copy(), "Swapping", claim=claim)

    assert isinstance(await mover._swap(move), Later)
    assert record.written[-1]["message"] == f"EC2 does not show volume {VOLUME}"
    assert record.kept == []


async def test_the_swap_does_not_begin_in_a_namespace_that_is_being_deleted():
    old = a_pv("Bound", **HELD)
    mover, record = a_mover(old)
    record.found, record.is_namespace_going = a_claim(), True
    move = in_phase(a_done_move(keeps=False), "Creating")

    assert isinstance(await mover._begin_swap(move, old, volume=VOLUME), Later)
    assert [each["message"] for each in record.written] == [
        "its namespace is being deleted: the claim stays as it is"
    ]


# -- moves that go together


async def test_what_is_ready_says_so_once_and_waits_for_those_that_go_with_it():
    mover, record = a_mover(None)
    mover._companions = FakeCompanions(Await("all is ready"))  # type: ignore[assignment]
    move = a_done_move(keeps=False)

    assert await mover._wait_for_others(move) == AGAIN
    assert record.written == [{"message": "all is ready", "ready": True}]
    again = in_phase(move, "Creating", ready=True)
    assert isinstance(await mover._wait_for_others(again), Later)
    assert all(each.keys() == {"message"} for each in record.written[1:])


async def test_what_is_ready_is_undone_if_another_one_fails():
    mover, record = a_mover(None)
    mover._companions = FakeCompanions(Undo("claim logs is not"))  # type: ignore[assignment]

    assert await mover._wait_for_others(a_done_move(keeps=False)) == AGAIN
    assert record.written[-1]["phase"] is Phase.ABORTING
    assert record.written[-1]["message"] == "claim logs is not"


async def test_a_planned_move_does_not_begin_before_the_others_are_planned():
    mover, record = a_mover(None)
    mover._companions = FakeCompanions(Await("it waits"))  # type: ignore[assignment]
    move = in_phase(a_done_move(keeps=False), "Planned")

    assert isinstance(await mover._begin(move), Later)
    assert record.written == [{"message": "it waits"}]


@pytest.mark.parametrize(
    ("other", "phase", "goes_on"),
    [
        ("a", "Planned", False),  # by name, as both are of the same second
        ("z", "Planned", True),
        ("z", "Warming", False),
        ("z", "Aborting", False),
        ("a", "", True),  # its own plan is refused
        ("a", "Aborted", True),
    ],
)
async def test_of_two_moves_that_were_planned_at_the_same_time_one_begins(
    other: str, phase: str, *, goes_on: bool
):
    mover, record = a_mover(None)
    mover._companions = FakeCompanions(Await("it goes on"))  # type: ignore[assignment]
    move = in_phase(a_done_move(keeps=False), "Planned")
    meta = structs.replace(move.metadata, name=other, uid=f"uid-{other}")
    second = structs.replace(in_phase(move, phase), metadata=meta)
    both = {("claim", "shop/data"): [move, second]}
    mover._caches = SimpleNamespace(  # type: ignore[assignment]
        moves=SimpleNamespace(keyed=lambda *key: both[key])
    )

    await mover._begin(move)

    (status,) = record.written
    assert (status.get("phase") is None) is goes_on
    if not goes_on:
        assert status["phase"] is Phase.ABORTED
        assert f"VolumeMove {other} of the same claim is not finished" in status["message"]


@pytest.mark.parametrize("phase", ["Held", "Creating"])
@pytest.mark.parametrize(
    ("others", "ready", "goes_on"),
    [(["a"], True, True), (["a"], False, False), (["z"], True, False), ([], True, False)],
)
async def test_an_abort_after_a_move_has_said_it_is_ready_comes_too_late_unless_it_leads(
    others: list[str], phase: str, *, ready: bool, goes_on: bool
):
    mover, record = a_mover(a_pv("Bound"))
    asked = in_phase(a_done_move(keeps=False), phase, ready=ready)
    spec = structs.replace(asked.spec, abort=True, moved_with=others)
    asked = structs.replace(asked, spec=spec)
    asked = structs.replace(
        asked,
        status=structs.replace(asked.told, source=structs.replace(asked.source, driver=DRIVER)),
    )
    passed: list[str] = []

    async def create(move: VolumeMove) -> Next:
        passed.append(move.told.phase)
        return SETTLED

    mover._passes = {Phase(phase): create}
    await mover._pass(asked)

    assert (passed == [phase]) is goes_on
    assert (Phase.ABORTING in [each.get("phase") for each in record.written]) is not goes_on


# -- what is known, and what is read


class FakePasses:
    """Passes over a move: each fails as it is told, or succeeds."""

    def __init__(self, move: VolumeMove, *failures: KubeError | None) -> None:
        self.move, self.failures = move, list(failures)
        self.trusted = True
        self.passes: list[bool] = []

    def is_trusted(self, _: str) -> bool:
        return self.trusted

    def trust(self, _: str) -> None:
        self.trusted = True

    def doubt(self, _: str) -> None:
        self.trusted = False

    async def known_move(self, _: str) -> VolumeMove | None:
        return self.move

    def written_move(self, _: str) -> VolumeMove | None:
        return self.move

    async def tell(self, *_: Any) -> None:
        pass

    async def take(self, _: VolumeMove) -> Next:
        self.passes.append(self.trusted)
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise failure
        return SETTLED


def a_mover_of(passes: FakePasses) -> Mover:
    mover = object.__new__(Mover)
    mover._record = passes  # type: ignore[assignment]
    mover._pass = passes.take  # type: ignore[assignment]
    mover._tell = passes.tell  # type: ignore[assignment]
    return mover


async def test_after_a_conflict_with_what_was_only_known_all_is_read_at_once():
    passes = FakePasses(a_done_move(keeps=False), KubeError(Reason.CONFLICT, "changed"))

    assert await a_mover_of(passes).reconcile("move-uid") == SETTLED
    assert passes.passes == [True, False]
    assert passes.trusted


async def test_after_a_conflict_with_what_was_read_it_waits():
    conflict = KubeError(Reason.CONFLICT, "changed")
    passes = FakePasses(a_done_move(keeps=False), conflict, conflict)

    assert isinstance(await a_mover_of(passes).reconcile("move-uid"), Later)
    assert passes.passes == [True, False]
    assert not passes.trusted


async def test_after_a_lost_reply_the_next_pass_reads_all():
    lost = KubeError(Reason.TIMED_OUT, "no answer", outcome=Outcome.UNKNOWN)
    passes = FakePasses(a_done_move(keeps=False), lost)

    with pytest.raises(KubeError):
        await a_mover_of(passes).reconcile("move-uid")
    assert passes.passes == [True]
    assert not passes.trusted


@pytest.mark.parametrize(
    ("wanted", "used", "held"), [(False, False, [OLD_PV]), (True, False, []), (False, True, [])]
)
async def test_a_volume_is_held_at_once_unless_somebody_seems_to_use_it(
    *, wanted: bool, used: bool, held: list[str]
):
    mover, record = a_mover(a_pv("Bound"))
    mover._used = {"move-uid"} if used else set()
    record.is_wanted = wanted

    assert await mover._held_volume(a_done_move(keeps=False), a_pv("Bound")) is not None
    assert record.held == held


async def test_the_old_volume_is_read_before_the_claim_is_deleted_whatever_is_known_of_it():
    """A cache still shows it held; another controller has attached it since."""
    touched = a_pv("Bound", **HELD)
    meta = structs.replace(touched.metadata, finalizers=[finalizer_of_attacher(DRIVER)])
    mover, record = a_mover_with(structs.replace(touched, metadata=meta), a_volume())
    claim = json.dumps({"metadata": {"resourceVersion": "7"}})
    record.found, move = a_claim(), in_phase(a_swapping_copy(), "Swapping", claim=claim)

    async def known(_: VolumeMove, name: str) -> PersistentVolume | None:
        return a_pv("Bound", **HELD) if name == OLD_PV else None

    record.known_volume = known  # type: ignore[method-assign]
    await mover._swap(move)

    assert [each["phase"] for each in record.written] == [Phase.ABORTING]
    assert record.kept == [OLD_UID]


@pytest.mark.parametrize(("seen", "queued"), [("ending", []), ("gone", ["move-uid"])])
def test_a_claim_wakes_the_swap_when_it_is_gone_and_not_when_it_is_to_go(
    seen: str, queued: list[str]
):
    mover, _ = a_mover(None)
    moves = {("claim", "shop/data"): [in_phase(a_done_move(keeps=False), "Swapping")]}
    woken: list[str] = []
    keyed = SimpleNamespace(keyed=lambda *key: moves.get(key, []))
    mover._caches = SimpleNamespace(moves=keyed)  # type: ignore[assignment]
    mover.queue = SimpleNamespace(add=woken.append)  # type: ignore[assignment]
    meta = {"name": "data", "namespace": "shop", "deletionTimestamp": PAST}
    ending = msgspec.convert({"metadata": meta}, Claim)

    mover._claim_changed(ending, ending if seen == "ending" else None)

    assert woken == queued


@pytest.mark.parametrize(
    ("claim", "phase", "woken"),
    [
        ("logs", "Creating", ["uid-of-data"]),  # the leader waits for it
        ("data", "Creating", []),
        ("data", "Swapping", ["uid-of-logs", "uid-of-more"]),
        ("logs", "Swapping", []),
    ],
)
def test_moves_that_go_together_do_not_wait_for_each_others_next_look(
    claim: str, phase: str, woken: list[str]
):
    mover, _ = a_mover(None)
    names = {"data", "logs", "more"}
    spec = structs.replace(
        a_done_move(keeps=False).spec, claim_name=claim, moved_with=sorted(names - {claim})
    )
    before = structs.replace(
        in_phase(a_done_move(keeps=False), "Creating", ready=phase == "Swapping"), spec=spec
    )
    after = in_phase(before, phase, ready=True)
    called: list[str] = []
    keyed = lambda _, key: [SimpleNamespace(uid=f"uid-of-{key.partition('/')[2]}")]  # noqa: E731
    mover._caches = SimpleNamespace(moves=SimpleNamespace(keyed=keyed))  # type: ignore[assignment]
    mover.queue = SimpleNamespace(add=called.append)  # type: ignore[assignment]

    mover._changed(before, after)

    assert called == woken
