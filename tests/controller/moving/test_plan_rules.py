"""What is said of a move before anything is touched."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from provisioner.classes.storage_class_rules import read
from provisioner.controller.moving import plan_rules
from provisioner.controller.moving.facts_rules import Facts
from provisioner.controller.moving.plan_rules import AsAsked, Planned
from provisioner.controller.moving.pods.consumer_rules import Consumer
from provisioner.controller.moving.together.companion_rules import Companion
from provisioner.controller.moving.warming import rules as warm_rules
from provisioner.model.claim import BIND_COMPLETED
from provisioner.model.decision import Refuse
from provisioner.model.document import Document
from provisioner.model.meta import ObjectMeta, ObjectReference
from provisioner.model.names import HELD_FOR_MOVE, LEFT_BY_MOVE, MODIFICATIONS, POLICY_BEFORE_MOVE
from provisioner.model.persistent_volume import (
    CsiSource,
    InTreeSource,
    PersistentVolume,
    PersistentVolumeSpec,
)
from provisioner.model.pod import Pod
from provisioner.model.storage_class import StorageClass
from provisioner.model.volume import AttachmentState, CreateRequest, InstanceAttachment
from provisioner.model.volume_move import VolumeMove
from provisioner.model.zone import TopologyRequirement, TopologyTerm
from tests.builders import DRIVER, UID, VOLUME, ZONE, a_claim, a_csi_node, a_node, a_volume

THERE = "us-east-1b"
KEY = "arn:aws:kms:us-east-1:123456789012:key/0a1b2c3d-0000-4000-8000-000000000001"
PV = "pvc-old"
DOCUMENT: dict[str, Any] = {
    "metadata": {
        "name": PV,
        "labels": {"topology.kubernetes.io/zone": ZONE, "team": "shop"},
        "annotations": {
            "pv.kubernetes.io/provisioned-by": DRIVER,
            "pv.kubernetes.io/bound-by-controller": "yes",
            MODIFICATIONS: "{}",
            HELD_FOR_MOVE: "shop/other",
            LEFT_BY_MOVE: "shop/other",
            POLICY_BEFORE_MOVE: "Delete",
            "example.com/note": "stays",
        },
    },
    "spec": {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "4Gi"},
        "claimRef": {"name": "data", "uid": UID},
        "csi": {
            "driver": DRIVER,
            "volumeHandle": VOLUME,
            "fsType": "xfs",
            "volumeAttributes": {"storage.kubernetes.io/csiProvisionerIdentity": "x", "a": "b"},
        },
        "mountOptions": ["noatime"],
        "nodeAffinity": {"required": {}},
        "persistentVolumeReclaimPolicy": "Delete",
        "storageClassName": "fast",
        "volumeMode": "Filesystem",
    },
}


def a_move(name: str = "to-b", **spec: Any) -> VolumeMove:
    wish = {"claimName": "data", "to": {"zone": THERE}} | spec
    body = {"metadata": {"name": name, "namespace": "shop", "uid": f"uid-{name}"}, "spec": wish}
    return msgspec.convert(body, VolumeMove)


def a_pv(**spec: Any) -> PersistentVolume:
    wanted: dict[str, Any] = {
        "csi": CsiSource(driver=DRIVER, volume_handle=VOLUME),
        "claim_ref": ObjectReference(name="data", namespace="shop", uid=UID),
        "persistent_volume_reclaim_policy": "Delete",
    }
    meta = ObjectMeta(name=PV)
    return PersistentVolume(metadata=meta, spec=PersistentVolumeSpec(**wanted | spec))


def a_storage_class(name: str = "fast", provisioner: str = DRIVER, **params: str) -> StorageClass:
    return StorageClass(
        metadata=ObjectMeta(name=name), provisioner=provisioner, parameters={"type": "gp3"} | params
    )


def bound(**changes: Any) -> Any:
    return a_claim(volume_name=PV, annotations={BIND_COMPLETED: "yes"}, **changes)


def facts(move: VolumeMove | None = None, **changes: Any) -> Facts:
    move = move or a_move()
    found = changes.pop("storage_class", a_storage_class(move.spec.to.storage_class_name or "fast"))
    made = Facts(
        move=move,
        claim=bound(),
        persistent_volume=a_pv(),
        document=msgspec.convert(DOCUMENT, Document),
        volume=replace(a_volume(), size_gib=4, iops=3000, throughput_mibps=125),
        class_name=found.name if found else "fast",
        storage_class=found,
        read_class=read(found) if found else None,
        zones={ZONE, THERE},
        others=[],
        consumers=[],
    )
    return replace(made, **changes)


def examined(given: Facts) -> Planned | Refuse:
    return plan_rules.examine(given, driver=DRIVER, cluster_id="prod", extra_tags=())


def planned(given: Facts) -> Planned:
    found = examined(given)
    assert isinstance(found, Planned), found
    return found


def requested(made: Planned) -> CreateRequest:
    assert made.request is not None
    return made.request


def refused(given: Facts) -> str:
    found = examined(given)
    assert isinstance(found, Refuse), found
    return found.message


def test_a_move_to_another_zone_keeps_all_else_of_the_volume():
    request = requested(planned(facts()))

    assert (request.zone, request.size_gib, request.volume_type) == (THERE, 4, "gp3")
    assert (request.iops, request.throughput_mibps, request.encrypted) == (3000, 125, False)
    assert dict(request.tags)["CSIVolumeName"] == "pvc-uid-to-b"
    assert dict(request.tags)["kubernetes.io/created-for/pvc/name"] == "data"
    assert dict(request.tags)["kubernetes.io/cluster/prod"] == "owned"


def test_the_new_persistent_volume_is_the_old_one_reserved_for_the_claim_by_name():
    body = plan_rules.with_volume(planned(facts()).body, a_volume(zone=THERE))

    spec, meta = body["spec"], body["metadata"]
    assert spec["claimRef"] == {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": "shop",
        "name": "data",
    }
    assert spec["csi"]["fsType"] == "xfs"
    assert spec["csi"]["volumeAttributes"] == {"a": "b"}
    assert spec["mountOptions"] == ["noatime"]
    assert spec["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"] == [
        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [THERE]}
    ]
    assert meta["labels"] == {"team": "shop", "topology.kubernetes.io/zone": THERE}
    assert meta["annotations"] == {
        "pv.kubernetes.io/provisioned-by": DRIVER,
        "example.com/note": "stays",
    }


def test_a_class_decides_type_encryption_and_key_but_not_the_file_system():
    move = a_move(to={"storageClassName": "secret"})
    found = a_storage_class("secret", type="gp2", encrypted="true", kmsKeyId=KEY)

    made = planned(facts(move, storage_class=found))

    assert (requested(made).volume_type, requested(made).iops, requested(made).zone) == (
        "gp2",
        None,
        ZONE,
    )
    assert (requested(made).encrypted, requested(made).kms_key_id) == (True, KEY)
    assert made.body["spec"]["storageClassName"] == "secret"
    assert made.body["spec"]["csi"]["fsType"] == "xfs"
    assert "mountOptions" not in made.body["spec"]


def test_a_claim_keeps_a_class_that_is_gone():
    assert planned(facts(storage_class=None)).body["spec"]["storageClassName"] == "fast"


def test_it_can_be_encrypted_and_grown():
    made = planned(facts(a_move(to={"kmsKeyId": KEY, "size": "10Gi"})))

    assert (requested(made).encrypted, requested(made).kms_key_id) == (True, KEY)
    assert requested(made).size_gib == 10


def test_the_plan_names_pods_that_stop_and_claims_that_go_along():
    pods = [Consumer("web-0", ("shop/data", "shop/logs"))]
    logs = Companion("logs", zones=frozenset({ZONE}), pods=["web-0"])

    move = a_move(movedWith=["logs"])
    plan = planned(facts(move, consumers=pods, companions=[logs])).plan

    assert plan.pods == ["web-0"]
    assert any("claim logs is moved at the same time" in note for note in plan.notes)
    assert any("scale their owner down" in note for note in plan.notes)


def test_a_claim_of_the_same_pods_that_would_stay_behind_refuses_a_move_to_another_zone():
    logs = Companion("logs", zones=frozenset({ZONE}), pods=["web-0"])

    assert refused(facts(companions=[logs])) == (
        f"pod web-0 uses claim logs as well, in zone {ZONE}, and could not run in {THERE}: move "
        f"them together (kubectl ebs move -n shop pvc/data pvc/logs --to-zone {THERE}; in a "
        "manifest, movedWith)"
    )
    stays = a_move(to={"encrypted": True})
    assert isinstance(examined(facts(stays, companions=[logs])), Planned)


def test_the_plan_says_that_no_node_of_the_new_zone_could_run_the_pods():
    pod = Pod(metadata=ObjectMeta(name="web-0", namespace="shop"))
    without = [(a_node(zone=THERE), a_csi_node(driver=None))]

    notes = planned(facts(pods=[pod], nodes=without)).plan.notes

    why = f"driver {DRIVER} runs on none"
    assert f"no node in zone {THERE} could run pod web-0 now: {why}" in notes
    stays = a_move(to={"encrypted": True})
    notes = planned(facts(stays, pods=[pod], nodes=without)).plan.notes
    assert not any("no node" in each for each in notes)


def in_zone(zone: str) -> list[TopologyTerm]:
    wanted = TopologyRequirement(key="topology.kubernetes.io/zone", values=[zone])
    return [TopologyTerm(match_label_expressions=[wanted])]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"claim": None}, "claim shop/data does not exist"),
        ({"claim": bound(deleting=True)}, "being deleted"),
        ({"claim": a_claim()}, "not bound to a volume yet"),
        ({"claim": bound(modes=["ReadWriteMany"])}, "Multi-Attach"),
        ({"persistent_volume": None}, "does not exist"),
        (
            {
                "persistent_volume": a_pv(
                    csi=None, aws_elastic_block_store=InTreeSource(volume_id="v")
                )
            },
            "has the form of the in-tree plugin",
        ),
        (
            {"persistent_volume": a_pv(csi=CsiSource(driver="other", volume_handle=VOLUME))},
            "belongs to the driver other",
        ),
        ({"persistent_volume": a_pv(claim_ref=None)}, "bound to another claim"),
        ({"volume": None}, f"EC2 does not know volume {VOLUME}"),
        ({"volume": replace(a_volume(), multi_attach=True)}, "Multi-Attach enabled"),
        ({"namesakes": {"pv-of-mine"}}, "pv-of-mine names volume"),
        ({"zones": {ZONE}}, f"no node with the driver is in zone {THERE}"),
        ({"move": a_move(to={"zone": ZONE})}, "nothing is to be done"),
        ({"move": a_move(to={"encrypted": False})}, "nothing is to be done"),
        ({"move": a_move(to={"size": "much"})}, "is not a quantity"),
        ({"move": a_move(to={"size": "0Gi"})}, "size 0Gi is nothing"),
        ({"move": a_move(to={"kmsKeyId": "no key"})}, "neither an ARN"),
    ],
)
def test_what_cannot_be_done_safely_is_refused_in_one_sentence(changes: Any, said: str):
    message = refused(replace(facts(), **changes))

    assert said in message
    assert ". " not in message


def test_a_claim_of_which_a_snapshot_is_being_taken_is_refused_until_it_is_ready():
    claim = bound()
    held = msgspec.structs.replace(
        claim.metadata, finalizers=["snapshot.storage.kubernetes.io/pvc-as-source-protection"]
    )
    given = facts(claim=msgspec.structs.replace(claim, metadata=held))

    assert refused(given) == (
        "a snapshot of claim shop/data is being taken; wait until the VolumeSnapshot is ready"
    )


def test_a_claim_that_goes_with_its_pod_is_refused_before_the_pod_is_ended():
    body = {
        "metadata": {"name": "job", "namespace": "shop"},
        "spec": {"volumes": [{"name": "scratch", "ephemeral": {}}]},
    }
    pods = [msgspec.convert(body, Pod)]
    move = a_move(claimName="job-scratch")

    message = refused(facts(move, pods=pods))

    assert message.startswith("claim shop/job-scratch is an ephemeral volume of pod job: ")
    assert isinstance(examined(facts(pods=pods)), Planned)


def test_whether_there_is_nothing_to_do_can_be_told_from_a_refusal():
    assert isinstance(examined(facts(a_move(to={"zone": ZONE}))), AsAsked)
    assert not isinstance(examined(facts(zones={ZONE})), AsAsked)


def test_a_volume_that_is_in_the_zone_already_is_as_asked_whatever_else_would_be_in_the_way():
    in_its_zone = a_move(to={"zone": ZONE})
    larger_too = a_move(to={"zone": ZONE, "size": "9Gi"})

    assert isinstance(examined(facts(in_its_zone, namesakes={"pv-of-mine"})), AsAsked)
    assert "pv-of-mine names volume" in refused(facts(larger_too, namesakes={"pv-of-mine"}))


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (None, "does not exist"),
        (a_storage_class("other", "efs.csi.aws.com"), "belongs to the provisioner"),
        (a_storage_class("other", "kubernetes.io/aws-ebs"), "belongs to the provisioner"),
    ],
)
def test_a_class_of_another_driver_is_refused(found: StorageClass | None, said: str):
    move = a_move(to={"storageClassName": "other"})

    assert said in refused(facts(move, storage_class=found))


def test_a_class_whose_volumes_lack_a_parameter_is_refused():
    move = a_move(to={"storageClassName": "other"})

    message = refused(facts(move, storage_class=a_storage_class("other", type="io2")))

    assert "cannot be created: an io2 volume needs the parameter iops" in message


def test_a_class_that_does_not_allow_the_zone_is_refused():
    found = msgspec.structs.replace(a_storage_class(), allowed_topologies=in_zone(ZONE))

    assert f"allows zone {ZONE} only" in refused(facts(storage_class=found))


def test_an_encrypted_volume_stays_encrypted():
    encrypted = replace(a_volume(), encrypted=True, kms_key_id=KEY)

    made = planned(facts(volume=encrypted))

    assert (requested(made).encrypted, requested(made).kms_key_id) == (True, KEY)
    move = a_move(to={"zone": THERE, "encrypted": False})
    assert "cannot decrypt" in refused(facts(move, volume=encrypted))


@pytest.mark.parametrize("finalizer", ["example.com/backup", "provisioner.storage.kubernetes.io/x"])
def test_a_claim_whose_deletion_somebody_else_acts_on_is_refused(finalizer: str):
    claim = bound()
    held = msgspec.structs.replace(claim.metadata, finalizers=[finalizer])

    message = refused(facts(claim=msgspec.structs.replace(claim, metadata=held)))

    assert finalizer in message


def test_of_two_moves_of_one_claim_the_older_one_goes_first():
    def born(name: str, second: int, phase: str = "") -> VolumeMove:
        move = a_move(name)
        at = datetime(2026, 11, 24, 3, 0, second, tzinfo=UTC)
        meta = msgspec.structs.replace(move.metadata, creation_timestamp=at)
        status = msgspec.convert({"phase": phase}, type(move.told))
        return msgspec.structs.replace(move, metadata=meta, status=status)

    older, younger = born("one", 1), born("two", 2)

    assert "VolumeMove one" in refused(facts(younger, others=[older, younger]))
    assert isinstance(examined(facts(older, others=[older, younger])), Planned)
    going = born("three", 3, "Held")
    assert "VolumeMove three" in refused(facts(older, others=[going]))
    done = born("three", 3, "Done")
    assert isinstance(examined(facts(older, others=[done])), Planned)


@pytest.mark.parametrize(("on_a_node", "wanted"), [(True, True), (True, False), (False, True)])
def test_snapshots_before_the_stop_are_planned_for_a_volume_that_a_node_has(
    on_a_node: Any, wanted: Any
):
    on = InstanceAttachment("i-1", "/dev/xvdba", AttachmentState.ATTACHED)
    volume = replace(a_volume(), size_gib=4, attachments=(on,) if on_a_node else ())

    plan = planned(facts(a_move(warm=wanted), volume=volume)).plan

    assert plan.warms is (on_a_node and wanted)
    assert (warm_rules.NOTE in plan.notes) is plan.warms
