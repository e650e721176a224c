"""What a move does next."""

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from provisioner.controller.moving import phase_rules as rules
from provisioner.controller.moving.phase_rules import InUse, Use
from provisioner.controller.moving.shape_rules import not_as_planned
from provisioner.model.claim import BIND_COMPLETED
from provisioner.model.document import Document
from provisioner.model.persistent_volume import (
    PersistentVolume,
    PersistentVolumeSpec,
    PersistentVolumeStatus,
)
from provisioner.model.volume import CreateRequest, VolumeState
from provisioner.model.volume_move import (
    ABORTABLE,
    ENDS,
    STAGES,
    MovePlan,
    Phase,
    Shape,
    VolumeMove,
)
from tests.builders import DELETED_AT, VOLUME, ZONE, a_volume, an_attachment

OLD_UID, NEW_PV, OLD_PV = "old-uid", "pvc-move-uid", "pvc-old"
POD = Use("web-0")


def a_move(*, claim: str = "", to: Any = None) -> VolumeMove:
    body = {
        "metadata": {"name": "to-b", "namespace": "shop", "uid": "move-uid"},
        "spec": {
            "claimName": "data",
            "to": to or {"zone": "us-east-1b"},
        },
        "status": {
            "claim": claim,
            "source": {
                "claimUID": OLD_UID,
                "persistentVolume": OLD_PV,
                "volumeID": VOLUME,
                "reclaimPolicy": "Delete",
            },
            "plan": {"target": {"sizeGiB": 10}},
        },
    }
    return msgspec.convert(body, VolumeMove)


def a_claim(uid: str = OLD_UID, volume: str = OLD_PV, **meta: Any) -> Document:
    body = {
        "metadata": {
            "name": "data",
            "namespace": "shop",
            "uid": uid,
            "resourceVersion": "7",
            "labels": {"app": "shop"},
            "annotations": {
                BIND_COMPLETED: "yes",
                "volume.kubernetes.io/selected-node": "node-a",
                "ebs-provisioner.io/zone": f"{ZONE}/{uid}",
                "example.com/note": "stays",
            },
            "ownerReferences": [{"kind": "StatefulSet", "name": "web", "uid": "s"}],
        }
        | meta,
        "spec": {
            "volumeName": volume,
            "storageClassName": "fast",
            "resources": {"requests": {"storage": "4Gi"}},
            "dataSource": {"kind": "VolumeSnapshot", "name": "monday"},
        },
    }
    return msgspec.convert(body, Document)


def in_use(*, held: bool = False, uses: Any = (), nodes: Any = (), **volume: Any) -> InUse:
    found = replace(a_volume(), state=VolumeState.AVAILABLE, attachments=(), **volume)
    return InUse(held, uses, nodes, found)


def test_pods_that_have_ended_are_to_be_deleted_and_not_waited_for():
    counts = "counts as a user of the claim until somebody deletes it (kubectl delete pod)"
    uses = [rules.Use("web-0"), rules.Use("backup-1", has_ended=True)]

    assert rules.waiting_for(uses[1:]) == f"pod backup-1 has ended, and {counts}"
    assert rules.waiting_for(uses) == (
        f"waiting for pods web-0 to end; pod backup-1 has ended, and {counts}"
    )


def test_an_unused_volume_is_held_before_its_snapshot_is_taken():
    assert rules.next_held_step(a_move(), in_use()) == rules.Hold()
    assert rules.next_held_step(a_move(), in_use(held=True)) == rules.GoOn()


def test_pods_are_waited_for_and_can_restart_elsewhere():
    step = rules.next_held_step(a_move(), in_use(uses=[POD], nodes=["node-a"]))

    assert step == rules.Await("waiting for pods web-0 to end")
    came_between = in_use(held=True, uses=[POD])
    assert isinstance(rules.next_held_step(a_move(), came_between), rules.LetGo)


def test_an_attachment_counts_once_it_is_recorded():
    assert rules.may_be_attached(an_attachment())
    assert rules.may_be_attached(an_attachment(prepared=False, attached=True))
    assert not rules.may_be_attached(an_attachment(prepared=False))


def test_it_goes_on_only_once_nothing_is_attached_and_ec2_says_so_too():
    attached = in_use(nodes=["node-a"])
    assert isinstance(rules.next_held_step(a_move(), attached), rules.Await)
    by_hand = replace(in_use(held=True), volume=replace(a_volume(), state=VolumeState.IN_USE))
    assert isinstance(rules.next_held_step(a_move(), by_hand), rules.Await)
    assert isinstance(rules.next_held_step(a_move(), replace(in_use(), volume=None)), rules.Undo)


@pytest.mark.parametrize(
    "claim",
    [
        None,
        a_claim("another"),
        a_claim(deletionTimestamp=DELETED_AT),
        a_claim(volume="pvc-other"),
    ],
)
def test_a_claim_that_its_user_deleted_or_replaced_is_not_moved(claim: Document | None):
    source = a_move().told.source
    assert source is not None
    assert rules.broken(source, claim) is not None
    assert rules.broken(source, a_claim()) is None


def a_pv(policy: str = "Retain", **changes: Any) -> PersistentVolume:
    spec = {"persistentVolumeReclaimPolicy": policy, "claimRef": {"uid": OLD_UID}}
    body = {"metadata": {"name": OLD_PV}, "spec": spec, "status": {"phase": "Released"}} | changes
    return msgspec.convert(body, PersistentVolume)


RECORDED = rules.record(a_claim())


def test_the_claim_is_deleted_only_after_its_volume_is_kept_and_it_is_recorded():
    move = a_move()

    assert rules.next_swap_step(move, a_pv("Delete"), a_claim(), ()) == rules.Retain()
    assert rules.next_swap_step(move, a_pv(), a_claim(), ()) == rules.Record()
    recorded = a_move(claim=RECORDED)
    assert rules.next_swap_step(recorded, a_pv(), a_claim(), ()) == rules.Remove(OLD_UID, "7")
    changed = a_claim(resourceVersion="8")
    assert rules.next_swap_step(recorded, a_pv(), changed, ()) == rules.Record()


def test_a_deleted_claim_is_waited_for_and_then_created_again():
    move, going = a_move(claim=RECORDED), a_claim(deletionTimestamp=DELETED_AT)

    assert isinstance(rules.next_swap_step(move, a_pv(), going, ()), rules.Await)
    step = rules.next_swap_step(move, a_pv(), going, [POD])
    assert step == rules.Await("waiting for pods web-0 to end")
    assert rules.next_swap_step(move, a_pv(), None, ()) == rules.Recreate()


def test_the_new_claim_is_waited_for_until_it_is_bound():
    move = a_move(claim=RECORDED)
    bound = a_claim("new", NEW_PV)
    waiting = a_claim("new", NEW_PV, annotations={})

    assert rules.next_swap_step(move, a_pv(), bound, ()) == rules.Swapped()
    assert rules.waits_to_be_bound(move, waiting)
    assert not rules.waits_to_be_bound(move, bound)
    assert not rules.waits_to_be_bound(move, a_claim())
    assert not rules.waits_to_be_bound(move, None)
    for new in (a_new_pv(""), a_new_pv("new")):
        step = rules.next_swap_step(move, a_pv(), waiting, (), new)
        assert step == rules.Await("the claim is being bound")
    going = a_pv(metadata={"name": NEW_PV, "deletionTimestamp": DELETED_AT})
    step = rules.next_swap_step(move, a_pv(), waiting, (), going)
    assert isinstance(step, rules.Await)
    assert "was deleted, is gone" in step.message


def a_new_pv(holder: str) -> PersistentVolume:
    spec = {"claimRef": {"uid": holder}}
    return msgspec.convert({"metadata": {"name": NEW_PV}, "spec": spec}, PersistentVolume)


def test_a_new_persistent_volume_that_a_dead_claim_has_is_named_with_what_frees_it():
    """The binder says for ever that it is bound to another claim."""
    waiting = a_claim("new", NEW_PV, annotations={})

    step = rules.next_swap_step(a_move(claim=RECORDED), a_pv(), waiting, (), a_new_pv("dead"))

    assert step == rules.Await(
        f"PersistentVolume {NEW_PV} is bound to a claim that was deleted (UID dead), so it is not "
        f"given to claim shop/data: kubectl patch pv {NEW_PV} --type=json -p "
        '\'[{"op": "remove", "path": "/spec/claimRef/uid"}]\''
    )


def test_a_new_persistent_volume_that_was_deleted_comes_again_while_ec2_has_its_volume():
    move, waiting = a_move(claim=RECORDED), a_claim("new", NEW_PV, annotations={})

    step = rules.next_swap_step(move, a_pv(), waiting, (), made=a_volume())
    assert step == rules.Introduce()
    for state in (VolumeState.DELETING, VolumeState.DELETED):
        gone = replace(a_volume(), state=state)
        step = rules.next_swap_step(move, a_pv(), waiting, (), made=gone)
        assert isinstance(step, rules.Await)
        assert "from snapshot" in step.message


def test_an_empty_claim_that_somebody_put_in_between_makes_room_and_a_full_one_is_named():
    move = a_move(claim=RECORDED)

    empty = rules.next_swap_step(move, a_pv(), a_claim("sneaked", ""), ())
    full = rules.next_swap_step(move, a_pv(), a_claim("sneaked", "pvc-full"), ())

    assert empty == rules.RemoveEmpty("sneaked", "7")
    assert isinstance(full, rules.Await)
    assert "pvc-full" in full.message
    assert NEW_PV in full.message


def test_the_claim_is_created_again_as_it_was_with_another_volume():
    body = rules.recreated(a_move(), RECORDED)

    meta, spec = body["metadata"], body["spec"]
    assert meta["labels"] == {"app": "shop"}
    assert meta["annotations"] == {"example.com/note": "stays"}
    assert meta["ownerReferences"] == [{"kind": "StatefulSet", "name": "web", "uid": "s"}]
    assert "uid" not in meta
    assert "resourceVersion" not in meta
    assert spec == json.loads(RECORDED)["spec"] | {"volumeName": NEW_PV}


def test_it_gets_the_class_and_the_size_of_the_move():
    move = a_move(claim=RECORDED, to={"storageClassName": "secret", "size": "10Gi"})

    spec = rules.recreated(move, RECORDED)["spec"]

    assert spec["storageClassName"] == "secret"
    assert spec["resources"]["requests"]["storage"] == "10Gi"


REQUEST = CreateRequest("token", ZONE, 4, "gp3", snapshot_id="snap-1", encrypted=True)
MADE = replace(a_volume(), size_gib=4, snapshot_id="snap-1", encrypted=True)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"zone": "us-east-1f"}, "is in us-east-1f"),
        ({"size_gib": 3}, "has 3 GiB"),
        ({"snapshot_id": ""}, "no snapshot"),
        ({"encrypted": False}, "not encrypted"),
        ({"volume_type": "gp2"}, "of type gp2"),
    ],
)
def test_a_new_volume_that_is_not_as_planned_is_found_out(changes: Any, said: str):
    assert not_as_planned(REQUEST, MADE) is None
    assert said in (not_as_planned(REQUEST, replace(MADE, **changes)) or "")


@pytest.mark.parametrize(
    ("asked", "has", "is_other"),
    [
        ("arn:aws:kms:r:1:key/a", "arn:aws:kms:r:1:key/a", False),
        ("a", "arn:aws:kms:r:1:key/a", False),
        ("alias/mine", "arn:aws:kms:r:1:key/a", False),
        ("b", "arn:aws:kms:r:1:key/a", True),
        (None, "arn:aws:kms:r:1:key/a", False),
    ],
)
def test_another_key_than_was_asked_for_is_found_out(asked: Any, has: str, is_other: Any):
    wrong = not_as_planned(replace(REQUEST, kms_key_id=asked), replace(MADE, kms_key_id=has))

    assert (wrong is not None) is is_other


def test_the_old_volume_gets_its_policy_back_only_while_nobody_has_taken_it():
    source = a_move().told.source
    assert source is not None

    assert rules.may_let_source_go(source, a_pv())
    assert not rules.may_let_source_go(source, None)
    assert not rules.may_let_source_go(source, a_pv(status={"phase": "Bound"}))
    other = PersistentVolume(
        spec=PersistentVolumeSpec(persistent_volume_reclaim_policy="Retain"),
        status=PersistentVolumeStatus(phase="Released"),
    )
    assert not rules.may_let_source_go(source, other)


def test_a_policy_that_was_set_since_the_plan_is_the_one_that_comes_back():
    """Whoever sets Retain while the move waits wants the volume kept."""
    source = a_move().told.source
    assert source is not None

    assert rules.at_swap(source, a_pv("Retain")).reclaim_policy == "Retain"
    assert rules.at_swap(source, a_pv("Delete")) == source
    assert not rules.may_let_source_go(rules.at_swap(source, a_pv()), a_pv())


def test_an_owner_is_not_scaled_down_for_pods_that_may_have_the_new_volume():
    move = a_move(claim=RECORDED)

    assert rules.keeps_pods_away(move, a_claim(deletionTimestamp=DELETED_AT))
    assert rules.keeps_pods_away(move, a_claim("sneaked", "pvc-full"))
    assert not rules.keeps_pods_away(move, a_claim("new", NEW_PV, annotations={}))
    assert not rules.keeps_pods_away(move, None)


@pytest.mark.parametrize(
    ("phase", "is_sure"),
    [("Held", True), ("Snapshotting", False), ("Creating", False), ("", False)],
)
def test_a_move_that_was_aborted_in_held_has_nothing_in_ec2(phase: str, is_sure: Any):
    move = a_move()
    status = msgspec.structs.replace(move.told, undone_from=phase)

    assert rules.has_made_nothing(msgspec.structs.replace(move, status=status)) is is_sure


def test_every_phase_leads_to_an_end():
    def ends_of(phase: Phase) -> set[Phase]:
        then = STAGES[phase].then
        return set().union(*map(ends_of, then)) if then else {phase}

    assert STAGES.keys() == set(Phase)
    for phase in Phase:
        assert ends_of(phase) <= ENDS
    assert all(Phase.ABORTED in ends_of(phase) for phase in ABORTABLE)
    # It turns back only if that is all that saves data; its user cannot abort it any more.
    assert ends_of(Phase.SWAPPING) == {Phase.DONE, Phase.ABORTED}
    assert Phase.SWAPPING not in ABORTABLE


@pytest.mark.parametrize("policy", ["Retain", ""])
def test_an_old_volume_that_nobody_will_ever_delete_has_no_date_at_which_it_is(policy: str):
    """With none recorded, the policy stays the Retain that the move has set."""
    move = a_move()
    retained = msgspec.structs.replace(move.source, reclaim_policy=policy)

    assert rules.kept(move, move.source, "Sunday", is_there=True) == (
        f"PersistentVolume {OLD_PV} keeps the old volume {VOLUME} until Sunday"
    )
    assert rules.kept(move, retained, "Sunday", is_there=True) == (
        f"PersistentVolume {OLD_PV} keeps the old volume {VOLUME} until you delete both: its "
        "reclaim policy is Retain"
    )


@pytest.mark.parametrize(
    ("driver", "keeps"),
    [("ebs.csi.eks.amazonaws.com", False), ("ebs.csi.aws.com", True), ("", True)],
)
def test_the_old_object_of_a_volume_that_went_to_another_driver_keeps_nothing(
    driver: str, *, keeps: bool
):
    move, plan = a_move(), MovePlan(keeps_volume=True, target=Shape(driver=driver))
    source = msgspec.structs.replace(move.source, driver="ebs.csi.aws.com")
    move = msgspec.structs.replace(move, status=msgspec.structs.replace(move.told, plan=plan))

    said = rules.kept(move, source, "Sunday", is_there=True)

    assert ("nobody deletes before" in said) is keeps
    assert (f"driver {driver} deletes volume {VOLUME}" in said) is not keeps
