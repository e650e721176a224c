"""Whether a copy still has all that was written, and what a swap does if it has not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from msgspec import structs

from provisioner.controller.moving import freshness_rules as rules
from provisioner.controller.moving.freshness_rules import TurnBack
from provisioner.controller.moving.phase_rules import Await, Record, Recreate, Remove
from provisioner.model.claim import BIND_COMPLETED
from provisioner.model.document import Document
from provisioner.model.names import ATTACHED_BEFORE_MOVE, HELD_FOR_MOVE
from provisioner.model.persistent_volume import PersistentVolume
from provisioner.model.volume import VolumeState
from provisioner.model.volume_move import MovePlan, VolumeMove
from tests.builders import DRIVER, VOLUME, a_volume
from tests.controller.move_record import OLD_PV, a_claim, a_done_move, in_phase

ATTACHER = "external-attacher/ebs-csi-aws-com"
OTHER = "kubernetes.io/pv-protection"
REMOVE, RECREATE = Remove("old-uid", "7"), Recreate()


def a_pv(*finalizers: str, held_for: str = "shop/to-b") -> PersistentVolume:
    notes = {HELD_FOR_MOVE: held_for} if held_for else {}
    meta = {"name": OLD_PV, "annotations": notes, "finalizers": list(finalizers)}
    return msgspec.convert({"metadata": meta}, PersistentVolume)


def a_move(*, keeps: bool = False) -> VolumeMove:
    return in_phase(a_done_move(keeps=keeps), "Swapping", volume=VOLUME, snapshot="snap-1")


def test_the_hold_takes_the_attachers_finalizer_away_and_leaves_those_of_others():
    held = rules.held(a_pv(OTHER, ATTACHER, held_for=""), a_move(), DRIVER)

    notes = {HELD_FOR_MOVE: "shop/to-b", ATTACHED_BEFORE_MOVE: "true"}
    assert held == {"annotations": notes, "finalizers": [OTHER]}
    assert "finalizers" not in rules.held(a_pv(OTHER, held_for=""), a_move(), DRIVER)


def test_a_copy_is_complete_as_long_as_the_volume_is_held_and_no_attacher_came():
    assert rules.outdated(a_move(), a_pv(OTHER), DRIVER) is None


@pytest.mark.parametrize(
    ("old", "why"),
    [
        (a_pv(ATTACHER), "another controller has attached PersistentVolume pvc-old"),
        (a_pv(held_for=""), "was not held any more, so the snapshot may be too old: the move"),
        (a_pv(held_for="shop/another"), "was not held any more"),
        (None, "PersistentVolume pvc-old is gone, so the move is undone"),
    ],
)
def test_a_copy_may_lack_what_was_written_since(old: Any, why: str):
    assert why in (rules.outdated(a_move(), old, DRIVER) or "")


def guarded(step: Any, claim: Any, old: Any, *, made: Any = None, keeps: bool = False) -> Any:
    return rules.guarded(a_move(keeps=keeps), step, claim, old, made=made, driver=DRIVER)


def test_the_swap_turns_back_before_the_claim_goes_if_the_copy_may_lack_something():
    stale = guarded(REMOVE, a_claim(), a_pv(ATTACHER), made=a_volume())

    assert isinstance(stale, TurnBack)
    assert "pods may have written to it" in stale.message
    assert guarded(REMOVE, a_claim(), a_pv(), made=a_volume()) == REMOVE
    assert isinstance(guarded(REMOVE, a_claim(), a_pv(held_for=""), made=a_volume()), TurnBack)
    assert guarded(Record(), a_claim(), a_pv(ATTACHER)) == Record()
    assert guarded(REMOVE, a_claim(), None, made=a_volume()) == REMOVE


@pytest.mark.parametrize("made", [None, replace(a_volume(), state=VolumeState.DELETING)])
def test_it_turns_back_if_the_copy_is_gone(made: Any):
    gone = guarded(REMOVE, a_claim(), a_pv(), made=made)

    assert gone == TurnBack(f"the new volume {VOLUME} was deleted in EC2")


def test_once_the_claim_is_gone_a_human_decides_which_state_it_gets():
    both = guarded(RECREATE, None, a_pv(ATTACHER), made=a_volume())
    lost = guarded(RECREATE, None, a_pv(), made=None)

    assert isinstance(both, Await)
    assert "create claim shop/data with spec.volumeName pvc-old, then kubectl" in both.message
    assert '-p \'{"metadata": {"finalizers": []}}\'' in both.message
    assert f"lose what was written since (without {ATTACHER}: kubectl patch" in both.message
    loose = guarded(RECREATE, None, a_pv(held_for=""), made=a_volume())
    assert isinstance(loose, Await)
    held = "--overwrite ebs-provisioner.io/held-for-move=shop/to-b"
    assert f"lose what was written since (kubectl annotate pv pvc-old {held})" in loose.message
    assert isinstance(lost, Await)
    assert "from snapshot snap-1" in lost.message
    assert guarded(RECREATE, None, a_pv(), made=a_volume()) == RECREATE
    assert guarded(RECREATE, None, None, made=a_volume()) == RECREATE


def test_of_copied_files_no_snapshot_is_told_as_there_is_none():
    move = structs.replace(
        a_move(), status=structs.replace(a_move().told, plan=MovePlan(copies_files=True))
    )

    lost = rules.guarded(move, RECREATE, None, a_pv(), made=None, driver=DRIVER)
    both = rules.guarded(move, RECREATE, None, a_pv(ATTACHER), made=a_volume(), driver=DRIVER)

    assert lost == Await(
        f"the new volume {VOLUME} was deleted in EC2: create a claim of another name with the old "
        "volume vol-1, which PersistentVolume pvc-old keeps"
    )
    assert isinstance(both, Await)
    assert both.message.startswith(
        "PersistentVolume pvc-old was attached, or not held, after its files were copied, so "
        "PersistentVolume pvc-move-uid may lack what was written since: either keep all"
    )


def bound_to_old(**meta: Any) -> Document:
    body = {
        "metadata": {"name": "data", "namespace": "shop", "uid": "mine"}
        | {"annotations": {BIND_COMPLETED: "yes"}}
        | meta,
        "spec": {"volumeName": OLD_PV},
    }
    return msgspec.convert(body, Document)


def test_a_claim_that_a_human_has_given_its_old_volume_again_ends_the_move():
    waits = Await("somebody else has created claim")

    assert isinstance(guarded(waits, bound_to_old(), a_pv(ATTACHER)), TurnBack)
    assert guarded(waits, bound_to_old(annotations={}), a_pv(ATTACHER)) == waits
    assert guarded(waits, bound_to_old(), a_pv(), keeps=True) == waits


def test_a_volume_that_stays_may_be_written_to_and_has_to_be_there():
    assert guarded(REMOVE, a_claim(), a_pv(ATTACHER), made=a_volume(), keeps=True) == REMOVE
    for step in (REMOVE, RECREATE):
        gone = guarded(step, a_claim(), a_pv(), made=None, keeps=True)
        assert isinstance(gone, Await)
        assert f"volume {VOLUME} was deleted in EC2 by somebody else" in gone.message
        assert "its finalizer ebs-provisioner.io/move: kubectl -n shop patch" in gone.message
