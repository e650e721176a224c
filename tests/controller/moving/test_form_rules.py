"""A PersistentVolume of the in-tree plugin becomes one in CSI form, of the same volume."""

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from provisioner.controller.moving import form_rules, phase_rules
from provisioner.controller.moving.facts_rules import Facts
from provisioner.controller.moving.phase_rules import InUse
from provisioner.controller.moving.staying import rules as stay_rules
from provisioner.model.claim import BIND_COMPLETED
from provisioner.model.document import Document
from provisioner.model.driver import IN_TREE_DRIVER
from provisioner.model.names import MODIFICATIONS, POLICY_BEFORE_MOVE
from provisioner.model.persistent_volume import (
    MIGRATED_TO,
    PROVISIONED_BY,
    CsiSource,
    InTreeSource,
    PersistentVolume,
)
from provisioner.model.volume import VolumeState
from provisioner.model.volume_move import MoveSource, VolumeMove
from tests.builders import DELETED_AT, DRIVER, VOLUME, ZONE, a_volume
from tests.controller.moving import test_plan_rules as plans
from tests.controller.moving.test_plan_rules import PV, THERE, a_move, a_pv, planned, refused

HANDLE = f"aws://{ZONE}/{VOLUME}"
ZONES = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [ZONE]}
NEW = "pvc-uid-to-b"


def in_tree(**source: Any) -> Document:
    spec = {k: v for k, v in plans.DOCUMENT["spec"].items() if k != "csi"}
    meta = plans.DOCUMENT["metadata"]
    ours = {PROVISIONED_BY: IN_TREE_DRIVER, MIGRATED_TO: DRIVER, MODIFICATIONS: '{"a": 1}'}
    body = {
        "metadata": meta | {"annotations": meta["annotations"] | ours},
        "spec": spec | {"awsElasticBlockStore": {"volumeID": HANDLE} | source},
    }
    return msgspec.convert(body, Document)


def facts(to: Any = None, **changes: Any) -> Facts:
    found = a_pv(csi=None, aws_elastic_block_store=InTreeSource(volume_id=HANDLE), **changes)
    move = a_move(to=to or {"form": "csi"})
    return plans.facts(move, persistent_volume=found, document=in_tree(fsType="xfs"))


def test_alone_it_copies_nothing_and_the_new_object_names_the_same_volume():
    made = planned(facts())

    spec, meta = made.body["spec"], made.body["metadata"]
    assert made.plan.keeps_volume
    assert made.request is None
    assert made.plan.source.driver == IN_TREE_DRIVER
    assert made.plan.target.driver == DRIVER
    assert msgspec.structs.replace(made.plan.source, driver=DRIVER) == made.plan.target
    assert "nothing is copied" in made.plan.notes[0]
    assert spec["csi"] == {
        "driver": DRIVER,
        "volumeHandle": VOLUME,
        "fsType": "xfs",
        "volumeAttributes": {},
    }
    assert "awsElasticBlockStore" not in spec
    assert spec["capacity"] == {"storage": "4Gi"}
    assert spec["persistentVolumeReclaimPolicy"] == "Delete"
    assert spec["claimRef"]["name"] == "data"
    assert "uid" not in spec["claimRef"]
    assert spec["nodeAffinity"]["required"]["nodeSelectorTerms"] == [{"matchExpressions": [ZONES]}]
    assert meta["name"] == NEW
    assert meta["annotations"] == {
        PROVISIONED_BY: DRIVER,
        MODIFICATIONS: '{"a": 1}',
        "example.com/note": "stays",
    }


def test_it_is_planned_where_no_node_is_now_and_whatever_its_class_says():
    given = replace(facts(), zones=set(), storage_class=None, read_class="cannot be read")

    assert planned(given).plan.keeps_volume


def test_the_partition_and_read_only_are_kept_as_kubernetes_translates_them():
    csi = form_rules.in_csi_form(in_tree(partition=1, readOnly=True), DRIVER).spec["csi"]
    whole = form_rules.in_csi_form(in_tree(partition=0), DRIVER).spec["csi"]

    assert csi["volumeAttributes"] == {"partition": "1"}
    assert csi["readOnly"] is True
    assert whole == {"driver": DRIVER, "volumeHandle": VOLUME}


def test_one_made_by_hand_is_not_said_to_be_provisioned():
    found = msgspec.convert({"spec": {"awsElasticBlockStore": {"volumeID": VOLUME}}}, Document)

    assert form_rules.in_csi_form(found, DRIVER).annotations == {}


def test_with_a_zone_the_volume_is_copied_and_comes_in_csi_form():
    made = planned(facts({"form": "csi", "zone": THERE}))

    assert not made.plan.keeps_volume
    assert made.request is not None
    assert made.request.zone == THERE
    assert made.body["spec"]["csi"]["fsType"] == "xfs"
    assert made.body["metadata"]["annotations"][PROVISIONED_BY] == DRIVER


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (facts({"zone": THERE}), "add form: csi"),
        (facts(volume_mode="Block"), "volumeMode Block"),
        (plans.facts(a_move(to={"form": "csi"})), "nothing is to be done"),
        (
            plans.facts(a_move(to={"form": "csi"}), persistent_volume=a_pv(csi=None)),
            "is not an EBS volume",
        ),
        (replace(facts(), namesakes={"mine"}), "mine names volume"),
    ],
)
def test_what_has_no_form_to_change_is_refused_in_one_sentence(given: Facts, said: str):
    message = refused(given)

    assert said in message
    assert ". " not in message


def test_only_the_driver_that_kubernetes_has_migrated_the_plugin_to_takes_it():
    found = facts().persistent_volume
    assert found is not None

    assert form_rules.refused(a_move(to={"form": "csi"}), found, DRIVER) is None
    other = form_rules.refused(a_move(to={"form": "csi"}), found, "mine.example")
    assert other == f"PersistentVolume {PV} belongs to the driver {DRIVER}"
    assert stay_rules.is_of_another_driver(facts(), "mine.example")
    assert not stay_rules.is_of_another_driver(facts(), DRIVER)


# -- the swap

OLD_UID = "old-uid"
CLAIM: dict[str, Any] = {
    "metadata": {"name": "data", "namespace": "shop", "uid": OLD_UID, "resourceVersion": "7"},
    "spec": {"volumeName": PV, "resources": {"requests": {"storage": "4Gi"}}},
}
SOURCE = {
    "claimUID": OLD_UID,
    "persistentVolume": PV,
    "volumeID": VOLUME,
    "reclaimPolicy": "Delete",
}


def moving(claim: str = "", *, keeps: bool = True) -> VolumeMove:
    status = {"claim": claim, "source": SOURCE, "plan": {"keepsVolume": keeps}}
    body = {
        "metadata": {"name": "to-b", "namespace": "shop", "uid": "uid-to-b"},
        "spec": {"claimName": "data", "to": {"form": "csi"}},
        "status": status,
    }
    return msgspec.convert(body, VolumeMove)


def a_claim(**meta: Any) -> Document:
    return msgspec.convert(CLAIM | {"metadata": CLAIM["metadata"] | meta}, Document)


def the_old(policy: str = "Retain", phase: str = "Released", **meta: Any) -> PersistentVolume:
    body = {
        "metadata": {"name": PV} | meta,
        "spec": {
            "persistentVolumeReclaimPolicy": policy,
            "claimRef": {"uid": OLD_UID},
            "awsElasticBlockStore": {"volumeID": HANDLE},
        },
        "status": {"phase": phase},
    }
    return msgspec.convert(body, PersistentVolume)


def the_new(volume: str = VOLUME, *, deleting: bool = False) -> PersistentVolume:
    csi = {"driver": DRIVER, "volumeHandle": volume}
    meta = {"name": NEW} | ({"deletionTimestamp": DELETED_AT} if deleting else {})
    return msgspec.convert({"metadata": meta, "spec": {"csi": csi}}, PersistentVolume)


RECORDED = phase_rules.record(a_claim())


def swap(
    claim: Document | None,
    old: PersistentVolume | None = None,
    new: PersistentVolume | None = None,
    move: VolumeMove | None = None,
) -> phase_rules.SwapStep:
    return phase_rules.next_swap_step(move or moving(RECORDED), old or the_old(), claim, (), new)


def test_never_do_two_persistent_volumes_that_delete_name_one_volume():
    assert swap(a_claim(), the_old("Delete")) == phase_rules.Retain()
    assert swap(a_claim(), the_old("Delete"), the_new()) == phase_rules.Retain()
    # Somebody deletes the old object: with Delete, its volume would go as soon as it is released.
    going = the_old("Delete", deletionTimestamp=DELETED_AT)
    assert swap(a_claim(), going) == phase_rules.Retain()
    assert swap(a_claim()) == phase_rules.Introduce()


def test_the_claim_goes_only_after_it_is_recorded_and_its_new_persistent_volume_is_there():
    assert swap(a_claim(), move=moving()) == phase_rules.Record()
    assert swap(a_claim()) == phase_rules.Introduce()
    assert swap(a_claim(), new=the_new()) == phase_rules.Remove(OLD_UID, "7")
    assert swap(None, new=the_new()) == phase_rules.Recreate()


def test_a_new_persistent_volume_that_its_user_deletes_comes_again():
    assert swap(None) == phase_rules.Introduce()
    going = swap(None, new=the_new(deleting=True))
    assert isinstance(going, phase_rules.Await)
    assert "is gone" in going.message
    born = a_claim(uid="new", annotations={BIND_COMPLETED: "yes"})
    bound = msgspec.structs.replace(born, spec=born.spec | {"volumeName": NEW})
    assert swap(bound, new=the_new(deleting=True)) == phase_rules.Swapped()


def test_a_foreign_persistent_volume_of_the_new_name_is_told():
    step = swap(a_claim(), new=the_new("vol-0fffffffffffffff0"))

    assert isinstance(step, phase_rules.Await)
    assert "names another volume" in step.message


def test_a_copy_has_its_persistent_volume_before_the_swap():
    step = swap(a_claim(), move=moving(RECORDED, keeps=False))

    assert step == phase_rules.Remove(OLD_UID, "7")


def test_it_waits_while_another_persistent_volume_names_the_volume():
    free = replace(a_volume(), state=VolumeState.AVAILABLE, attachments=())
    seen = InUse(held=False, uses=(), nodes=(), volume=free, namesakes={"mine"})

    waits = phase_rules.next_held_step(moving(), seen)
    assert isinstance(waits, phase_rules.Await)
    assert "mine names volume" in waits.message
    held = phase_rules.next_held_step(moving(), replace(seen, held=True))
    assert isinstance(held, phase_rules.LetGo)
    alone = replace(seen, held=True, namesakes=())
    assert phase_rules.next_held_step(moving(), alone) == phase_rules.GoOn()


def source() -> MoveSource:
    return msgspec.convert(SOURCE, MoveSource)


def test_the_old_object_is_deleted_only_with_retain_and_while_the_new_one_names_the_volume():
    assert form_rules.may_remove(source(), the_old(), the_new())
    assert not form_rules.may_remove(source(), the_old("Delete"), the_new())
    assert not form_rules.may_remove(source(), the_old(phase="Bound"), the_new())
    assert not form_rules.may_remove(source(), the_old(), None)
    assert not form_rules.may_remove(source(), the_old(), the_new("vol-0fffffffffffffff0"))
    assert not form_rules.may_remove(source(), the_old(), the_new(deleting=True))


def test_the_end_waits_until_the_binder_has_released_the_old_object():
    assert phase_rules.is_to_be_released(source(), the_old(phase="Bound"))
    assert not phase_rules.is_to_be_released(source(), the_old())
    others = msgspec.convert({"claimUID": "another"}, MoveSource)
    assert not phase_rules.is_to_be_released(others, the_old(phase="Bound"))


def test_the_same_volume_keeps_the_policy_that_it_has_at_the_swap():
    made = planned(facts())
    assert made.body["spec"]["persistentVolumeReclaimPolicy"] == "Delete"

    kept = form_rules.with_policy_of(a_move(to={"form": "csi"}), made.body, the_old("Retain"))

    assert kept["spec"] == made.body["spec"] | {"persistentVolumeReclaimPolicy": "Retain"}
    assert (
        form_rules.with_policy_of(a_move(to={"form": "csi"}), made.body, the_old("Delete"))
        == made.body
    )


def test_retain_that_the_move_has_set_is_not_taken_for_the_users():
    noted = the_old(annotations={POLICY_BEFORE_MOVE: "Delete"})

    assert form_rules.policy_before(noted) == "Delete"
    assert form_rules.policy_before(the_old()) == "Retain"
    assert form_rules.policy_before(the_old("Delete")) == "Delete"
    assert phase_rules.at_swap(source(), noted).reclaim_policy == "Delete"


def test_the_claim_is_created_again_as_it_was():
    body = phase_rules.recreated(moving(), RECORDED)

    assert body["spec"] == json.loads(RECORDED)["spec"] | {"volumeName": NEW}


def test_the_end_says_that_it_is_the_same_volume():
    assert "same volume" in phase_rules.kept(moving(), source(), "tomorrow", is_there=True)
    copied = phase_rules.kept(moving(keeps=False), source(), "tomorrow", is_there=True)
    assert f"keeps the old volume {VOLUME} until tomorrow" in copied


@pytest.mark.parametrize(
    ("keeps", "left"), [(True, "the volume stays"), (False, "nothing keeps the old volume")]
)
def test_the_end_does_not_say_that_an_old_object_which_was_deleted_is_kept(keeps: Any, left: Any):
    said = phase_rules.kept(moving(keeps=keeps), source(), "tomorrow", is_there=False)

    assert said.endswith(f"was deleted meanwhile: {left}")
    assert "tomorrow" not in said


def test_a_persistent_volume_in_csi_form_stays_as_it_is():
    found = msgspec.convert(plans.DOCUMENT, Document)

    assert form_rules.in_csi_form(found, DRIVER) is found
    assert form_rules.driver_of(a_pv(csi=CsiSource(driver="other"))) == "other"
