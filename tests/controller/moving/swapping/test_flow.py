"""What is done at the exchange and just before it, with a record that is made up."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec import structs

from provisioner import clock
from provisioner.controller.moving.creation import MoveVolumes
from provisioner.controller.moving.ending import MoveEnding
from provisioner.controller.moving.phase_rules import (
    Await,
    Undo,
    next_swap_step,
)
from provisioner.controller.moving.swapping.flow import Swapping
from provisioner.model.claim import PVC_PROTECTION
from provisioner.model.consistency import CONSISTENCY_S
from provisioner.model.decision import AGAIN, Later
from provisioner.model.document import Document
from provisioner.model.meta import ObjectReference
from provisioner.model.names import HELD_FOR_MOVE, POLICY_BEFORE_MOVE
from provisioner.model.persistent_volume import PersistentVolume, finalizer_of_attacher
from provisioner.model.volume import Volume, VolumeState
from provisioner.model.volume_move import MoveTarget, Phase, VolumeMove
from tests.builders import DELETED_AT, DRIVER, VOLUME, a_volume
from tests.controller.move_record import (
    OLD_PV,
    OLD_UID,
    FakeCompanions,
    FakeOwner,
    FakeRecord,
    a_claim,
    a_done_move,
    a_pv,
    in_phase,
)
from tests.controller.moving.swapping.made import a_swapping

RWO = "ReadWriteOnce"
RETAINED = {"persistentVolumeReclaimPolicy": "Retain"}
HELD = {HELD_FOR_MOVE: "shop/to-b"}


async def test_retain_that_somebody_sets_while_a_move_waits_is_what_the_swap_writes_down():
    swapping, record = a_swapping(a_pv("Bound", "Retain", **HELD))
    record.found = a_claim()

    await swapping.begin(a_done_move(keeps=False), a_pv("Bound", "Retain"), volume="v")

    (status,) = record.written
    assert status["phase"] == Phase.SWAPPING
    assert status["source"]["reclaimPolicy"] == "Retain"
    assert status["source"]["claimUID"] == OLD_UID
    assert status["volume"] == "v"


@pytest.mark.parametrize(
    ("to", "policy", "before", "frozen", "is_set"),
    [
        ({"zone": "us-east-1b"}, "Retain", {}, "Delete", True),
        ({"zone": "us-east-1b"}, "Retain", {POLICY_BEFORE_MOVE: "Delete"}, "Delete", False),
        ({"zone": "us-east-1b"}, "Delete", {}, "Delete", False),
        ({"zone": "us-east-1b"}, "Retain", {}, "Retain", False),
        ({"storageClassName": "gold"}, "Retain", {}, "Delete", False),
    ],
    ids=["by its user", "by the move", "nobody", "before the plan", "a class"],
)
async def test_retain_that_its_user_sets_while_a_copy_waits_comes_to_the_new_volume_as_well(
    to: Any, policy: str, before: dict[str, str], frozen: str, *, is_set: bool
):
    old = a_pv("Bound", policy, **HELD | before)
    swapping, record = a_swapping(old)
    record.found, record.new = a_claim(), new_pv("")
    body = {"metadata": {}, "spec": {"persistentVolumeReclaimPolicy": frozen, "capacity": {}}}
    move = in_phase(a_done_move(keeps=False), "Creating", persistent_volume=body)
    spec = structs.replace(move.spec, to=msgspec.convert(to, MoveTarget))

    await swapping.begin(structs.replace(move, spec=spec), old, volume=VOLUME)

    (status,) = record.written
    assert record.policies == (["Retain"] if is_set else [])
    # Should the object be deleted, it is created again like that.
    made = status.get("persistentVolume")
    assert made == ({**body, "spec": {**body["spec"], **RETAINED}} if is_set else None)


async def test_a_claim_whose_namespace_goes_is_not_created_again_and_both_volumes_stay():
    swapping, record = swapping_with(a_pv("Released", **HELD), a_volume())
    record.is_namespace_going = True

    await swapping.advance(a_swapping_move(keeps=False))

    assert [each["phase"] for each in record.written] == [Phase.CLEANING]
    assert (record.policies, record.removed) == ([], [])


async def test_an_old_volume_whose_policy_somebody_has_set_back_has_retain_before_the_swap():
    """What a cache shows as Retain may be Delete by now: the claim's end would delete it."""
    swapping, record = a_swapping(a_pv("Bound", "Delete", **HELD))
    record.found = a_claim()

    await swapping.begin(a_done_move(keeps=False), a_pv("Bound", "Retain"), volume="v")

    assert record.retained == ["Delete"]


def seen_after_retain(record: FakeRecord) -> list[list[str]]:
    """What had Retain each time the claim was read, and that nothing was written before."""
    seen: list[list[str]] = []

    async def claim(_: VolumeMove) -> Any:
        assert record.written == []
        seen.append(list(record.retained))
        return record.found

    record.claim = claim  # type: ignore[assignment,method-assign]
    return seen


async def test_a_volume_that_stays_has_retain_before_its_claim_is_exchanged():
    swapping, record = a_swapping(a_pv("Bound", "Delete"))
    record.found = a_claim()
    seen = seen_after_retain(record)

    await swapping.begin_with_object(a_done_move(keeps=True), a_pv("Bound", "Delete"))

    assert seen == [["Delete"]]
    (status,) = record.written
    assert status["phase"] == Phase.SWAPPING
    assert status["source"]["reclaimPolicy"] == "Delete"
    assert status["persistentVolume"]["spec"]["persistentVolumeReclaimPolicy"] == "Delete"


async def test_a_claim_that_is_deleted_after_retain_was_set_aborts_and_the_policy_comes_back():
    """Kubernetes then deletes the volume, as its user wanted; nothing is created again."""
    noted = a_pv("Released", **{POLICY_BEFORE_MOVE: "Delete"})
    swapping, record = a_swapping(noted)
    move = a_done_move(keeps=True)

    await swapping.begin_with_object(move, noted)
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

    def seen(self, _: str) -> None:
        pass

    def forget(self, _: str) -> None:
        pass


def without_new(made: Volume | None, missing_s: float) -> tuple[Swapping, FakeRecord]:
    """The claim waits for its new PersistentVolume, which somebody has deleted."""
    swapping, record = swapping_with(a_pv("Released"), made, missing_s)
    record.found = a_claim("new", "pvc-move-uid")
    return swapping, record


def swapping_with(
    old: PersistentVolume | None, made: Volume | None, missing_s: float = CONSISTENCY_S
) -> tuple[Swapping, FakeRecord]:
    """``made``: the volume that the claim is to have, as EC2 has it."""
    swapping, record = a_swapping(old)
    volumes = FakeVolumes(made, missing_s)
    swapping._volumes = volumes  # type: ignore[assignment]
    swapping._volume_reads = volumes  # type: ignore[assignment]
    return swapping, record


def a_swapping_move(*, keeps: bool) -> VolumeMove:
    body = {"metadata": {"name": "pvc-move-uid"}, "spec": {"csi": {"driver": DRIVER}}}
    changes: Any = {"volume": VOLUME, "snapshot": "snap-1", "persistent_volume": body}
    return in_phase(a_done_move(keeps=keeps), "Swapping", **changes)


def a_swapping_copy() -> VolumeMove:
    return a_swapping_move(keeps=False)


async def test_the_new_object_of_a_copy_that_its_user_deletes_is_created_again():
    swapping, record = without_new(a_volume(), CONSISTENCY_S)

    assert await swapping.advance(a_swapping_copy()) == AGAIN

    (body,) = record.created
    assert body["metadata"]["name"] == "pvc-move-uid"
    assert body["spec"]["csi"] == {"driver": DRIVER, "volumeHandle": VOLUME}


async def test_it_is_not_created_again_before_ec2_would_show_that_its_volume_is_deleted():
    swapping, record = without_new(a_volume(), CONSISTENCY_S - 1)

    assert isinstance(await swapping.advance(a_swapping_copy()), Later)

    assert record.created == []
    assert "was deleted" in record.written[-1]["message"]


@pytest.mark.parametrize("made", [None, replace(a_volume(), state=VolumeState.DELETING)])
async def test_a_new_volume_that_is_gone_is_told_with_the_snapshot_that_helps(made: Any):
    swapping, record = without_new(made, CONSISTENCY_S)

    assert isinstance(await swapping.advance(a_swapping_copy()), Later)

    told = record.written[-1]["message"]
    assert record.created == []
    assert "from snapshot snap-1" in told
    assert f"PersistentVolume {OLD_PV} keeps the old volume vol-1" in told


async def test_a_copy_has_its_old_volume_kept_while_a_deletion_of_the_claim_still_aborts():
    old = a_pv("Bound", "Delete", **HELD)
    swapping, record = a_swapping(old)
    record.found, move = a_claim(), a_done_move(keeps=False)
    seen = seen_after_retain(record)

    await swapping.begin(move, old, volume=VOLUME)
    assert seen == [["Delete"]]
    assert record.written[-1]["source"]["reclaimPolicy"] == "Delete"

    record.found, record.written = None, []
    await swapping.begin(move, old, volume=VOLUME)
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
    swapping, record = a_swapping(touched)
    record.found = a_claim()

    async def retain(_: PersistentVolume) -> PersistentVolume:
        return touched

    record.retain = retain  # type: ignore[assignment]
    await swapping.begin(a_done_move(keeps=False), a_pv("Bound", policy, **HELD))

    assert [each["phase"] for each in record.written] == [Phase.ABORTING]
    assert "another controller has attached" in record.written[0]["message"]


async def test_a_swap_that_turns_back_makes_a_deletion_that_is_under_way_come_too_late():
    swapping, record = swapping_with(a_pv("Bound", **HELD), None)
    record.found, move = a_claim(), a_swapping_copy()
    claim = json.dumps({"metadata": {"resourceVersion": "7"}})
    move = in_phase(move, "Swapping", claim=claim)

    assert await swapping.advance(move) == AGAIN

    (status,) = record.written
    assert (status["phase"], status["undoneFrom"]) == (Phase.ABORTING, Phase.SWAPPING)
    assert record.kept == [OLD_UID]


async def test_it_waits_for_a_minute_for_a_volume_that_ec2_does_not_show():
    swapping, record = swapping_with(a_pv("Bound", **HELD), None, CONSISTENCY_S - 1)
    claim = json.dumps({"metadata": {"resourceVersion": "7"}})
    record.found, move = a_claim(), in_phase(a_swapping_copy(), "Swapping", claim=claim)

    assert isinstance(await swapping.advance(move), Later)
    assert record.written[-1]["message"] == f"EC2 does not show volume {VOLUME}"
    assert record.kept == []


def with_its_own_clock(swapping: Swapping, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(clock, "now_s", lambda: now[0])
    volumes = object.__new__(MoveVolumes)
    volumes._looking_since_s = {}
    swapping._volumes = volumes
    return now


async def test_a_volume_that_ec2_has_shown_again_is_not_gone_at_the_next_look_without_it(
    monkeypatch: pytest.MonkeyPatch,
):
    swapping, record = swapping_with(a_pv("Bound", **HELD), None)
    now, ec2 = with_its_own_clock(swapping, monkeypatch), FakeVolumes(None, 0)
    swapping._volume_reads = ec2  # type: ignore[assignment]
    claim = json.dumps({"metadata": {"resourceVersion": "7"}})
    record.found, move = a_claim(), in_phase(a_swapping_copy(), "Swapping", claim=claim)
    unseen = f"EC2 does not show volume {VOLUME}"

    for ec2.made in (None, a_volume(), None, None):
        await swapping.advance(move)
        now[0] += CONSISTENCY_S

    assert record.removed_claims == [(OLD_UID, "7")]  # when it was shown
    assert [each["message"] for each in record.written] == [
        unseen,
        unseen,
        f"the new volume {VOLUME} was deleted in EC2",
    ]


async def test_a_volume_that_was_to_stay_and_is_gone_is_told_although_its_object_is_there(
    monkeypatch: pytest.MonkeyPatch,
):
    swapping, record = swapping_with(a_pv("Bound", **HELD), None)
    now = with_its_own_clock(swapping, monkeypatch)
    swapping._volume_reads = SimpleNamespace(volume=never_shown)  # type: ignore[assignment]
    claim = json.dumps({"metadata": {"resourceVersion": "7"}})
    move = in_phase(a_swapping_move(keeps=True), "Swapping", claim=claim)
    new = msgspec.to_builtins(new_pv(""))
    new["spec"]["csi"] = {"driver": DRIVER, "volumeHandle": move.existing_volume_id}
    record.found, record.new = a_claim(), msgspec.convert(new, PersistentVolume)

    for _ in range(2):
        await swapping.advance(move)
        now[0] += CONSISTENCY_S

    unseen, gone = (each["message"] for each in record.written)
    assert unseen == f"EC2 does not show volume {move.existing_volume_id}"
    assert "was deleted in EC2 by somebody else" in gone
    assert record.removed_claims == []


async def never_shown(_: str) -> None:
    """The answer of EC2 about any volume."""


async def test_an_object_that_was_there_again_is_not_created_at_the_next_look_without_it(
    monkeypatch: pytest.MonkeyPatch,
):
    """EC2 may not show yet that its volume is deleted with it."""
    swapping, record = without_new(a_volume(), 0)
    now = with_its_own_clock(swapping, monkeypatch)
    for new in (None, new_pv(""), None):
        record.new = new
        await swapping.advance(a_swapping_copy())
        now[0] += CONSISTENCY_S

    assert record.created == []
    monkeypatch.setattr(MoveVolumes, "forget", MoveVolumes.seen)
    await swapping.advance(a_swapping_copy())
    assert len(record.created) == 1


async def test_the_swap_does_not_begin_in_a_namespace_that_is_being_deleted():
    old = a_pv("Bound", **HELD)
    swapping, record = a_swapping(old)
    record.found, record.is_namespace_going = a_claim(), True
    move = in_phase(a_done_move(keeps=False), "Creating")

    assert isinstance(await swapping.begin(move, old, volume=VOLUME), Later)
    assert [each["message"] for each in record.written] == [
        "its namespace is being deleted: the claim stays as it is"
    ]


async def test_what_is_ready_says_so_once_and_waits_for_those_that_go_with_it():
    swapping, record = a_swapping(None)
    swapping._companions = FakeCompanions(Await("all is ready"))  # type: ignore[assignment]
    move = a_done_move(keeps=False)

    assert await swapping._wait_for_others(move) == AGAIN
    assert record.written == [{"message": "all is ready", "ready": True}]
    again = in_phase(move, "Creating", ready=True)
    assert isinstance(await swapping._wait_for_others(again), Later)
    assert all(each.keys() == {"message"} for each in record.written[1:])


async def test_what_is_ready_is_undone_if_another_one_fails():
    swapping, record = a_swapping(None)
    swapping._companions = FakeCompanions(Undo("claim logs is not"))  # type: ignore[assignment]

    assert await swapping._wait_for_others(a_done_move(keeps=False)) == AGAIN
    assert record.written[-1]["phase"] is Phase.ABORTING
    assert record.written[-1]["message"] == "claim logs is not"


async def test_the_old_volume_is_read_before_the_claim_is_deleted_whatever_is_known_of_it():
    """A cache still shows it held; another controller has attached it since."""
    touched = a_pv("Bound", **HELD)
    meta = structs.replace(touched.metadata, finalizers=[finalizer_of_attacher(DRIVER)])
    swapping, record = swapping_with(structs.replace(touched, metadata=meta), a_volume())
    claim = json.dumps({"metadata": {"resourceVersion": "7"}})
    record.found, move = a_claim(), in_phase(a_swapping_copy(), "Swapping", claim=claim)

    async def known(_: VolumeMove, name: str) -> PersistentVolume | None:
        return a_pv("Bound", **HELD) if name == OLD_PV else None

    record.known_volume = known  # type: ignore[method-assign]
    await swapping.advance(move)

    assert [each["phase"] for each in record.written] == [Phase.ABORTING]
    assert record.kept == [OLD_UID]


async def test_a_claim_that_somebody_keeps_by_a_finalizer_since_the_plan_is_not_exchanged():
    """Once it was deleted, it would wait for its owner, with neither volume, and no way back."""
    swapping, record = a_swapping(a_pv("Bound", "Retain", **HELD))
    claim = a_claim()
    meta = structs.replace(claim.metadata, finalizers=[PVC_PROTECTION, "example.com/backup"])
    record.found = structs.replace(claim, metadata=meta)

    following = await swapping.begin(a_done_move(keeps=False), a_pv("Bound", "Retain"), volume="v")

    assert isinstance(following, Later)
    (status,) = record.written
    assert status["message"] == (
        "claim shop/data has the finalizer example.com/backup since the plan was made: it is "
        "exchanged once that is removed; remove it, or abort the move"
    )


def test_who_keeps_a_deleted_claim_is_named():
    claim = a_claim()
    kept: Any = {"deletion_timestamp": datetime.now(UTC), "finalizers": ["example.com/backup"]}
    claim = structs.replace(claim, metadata=structs.replace(claim.metadata, **kept))

    step = next_swap_step(a_swapping_copy(), a_pv("Bound", "Retain"), claim, ())

    assert step == Await(
        "waiting until the old claim is gone: it has the finalizer example.com/backup, which its "
        "owner, or you, have to remove"
    )


def an_empty_claim(age_s: float, **spec: Any) -> Document:
    """One that a StatefulSet has created after the old one was gone."""
    wish = {"accessModes": [RWO], "resources": {"requests": {"storage": "4Gi"}}}
    claim = structs.replace(a_claim("sneaked", ""), spec=wish | spec)
    created_at = datetime.now(UTC) - timedelta(seconds=age_s)
    return structs.replace(
        claim, metadata=structs.replace(claim.metadata, creation_timestamp=created_at)
    )


def new_pv(holder: str) -> PersistentVolume:
    """The new PersistentVolume; ``holder``: the UID of the claim that the binder gives it to."""
    found = a_pv("Bound" if holder else "Available", "Delete")
    spec = structs.replace(
        found.spec,
        claim_ref=ObjectReference(name="data", uid=holder),
        access_modes=[RWO],
        capacity={"storage": "4Gi"},
    )
    meta = structs.replace(found.metadata, name="pvc-move-uid")
    return structs.replace(found, metadata=meta, spec=spec)


def a_new_pv_that_is_deleted() -> PersistentVolume:
    new = new_pv("")
    meta = structs.replace(new.metadata, deletion_timestamp=DELETED_AT)
    return structs.replace(new, metadata=meta)


async def test_a_claim_to_which_the_binder_is_giving_the_new_volume_is_not_deleted_as_empty():
    """Its name comes to the claim last; without the claim, the new volume would be deleted."""
    swapping, record = swapping_with(a_pv("Released", **HELD), a_volume())
    record.found = an_empty_claim(3600)
    record.new = new_pv("sneaked")

    async def known(_: VolumeMove, name: str) -> PersistentVolume | None:
        """A cache that is an hour old."""
        return record.old if name == OLD_PV else new_pv("")

    record.known_volume = known  # type: ignore[method-assign]

    assert isinstance(await swapping.advance(a_swapping_copy()), Later)

    assert record.removed_claims == []
    assert record.written[-1]["message"] == "the claim is being bound"


async def test_a_claim_that_somebody_has_just_created_is_left_to_the_binder_for_ten_seconds():
    swapping, record = swapping_with(a_pv("Released", **HELD), a_volume())
    record.found, record.new = an_empty_claim(9), new_pv("")

    assert isinstance(await swapping.advance(a_swapping_copy()), Later)

    assert record.removed_claims == []
    assert record.written[-1]["message"] == (
        "somebody else has created claim shop/data: it is deleted if it has no volume in 10 seconds"
    )

    record.found = an_empty_claim(11)
    await swapping.advance(a_swapping_copy())
    assert record.removed_claims == [("sneaked", "7")]


@pytest.mark.parametrize(
    ("claim", "new"),
    [
        (an_empty_claim(0, resources={"requests": {"storage": "5Gi"}}), new_pv("")),
        (an_empty_claim(0, volumeMode="Block"), new_pv("")),
        (an_empty_claim(0, accessModes=["ReadWriteMany"]), new_pv("")),
        (an_empty_claim(0, volumeAttributesClassName="fast"), new_pv("")),
        (an_empty_claim(0), new_pv("dead-claim")),
        (an_empty_claim(0), a_new_pv_that_is_deleted()),
        (an_empty_claim(0), None),
    ],
    ids=["larger", "block", "modes", "attributes class", "taken", "deleted", "gone"],
)
async def test_an_empty_claim_that_the_binder_gives_nothing_goes_before_a_volume_is_made_for_it(
    claim: Document, new: PersistentVolume | None
):
    swapping, record = swapping_with(a_pv("Released", **HELD), a_volume())
    record.found, record.new = claim, new

    await swapping.advance(a_swapping_copy())

    assert record.removed_claims == [("sneaked", "7")]
