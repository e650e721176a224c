"""A volume that stays: its claim gets a PersistentVolume of another class, or of another driver."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from provisioner.controller.moving import form_rules, freshness_rules, phase_rules
from provisioner.controller.moving.facts_rules import Facts
from provisioner.controller.moving.freshness_rules import is_in_the_way
from provisioner.controller.moving.going_back.rules import Kept
from provisioner.controller.moving.phase_rules import (
    Await,
    Recreate,
    Remove,
    waits_for_pods,
)
from provisioner.controller.moving.plan_rules import AsAsked, Planned
from provisioner.controller.moving.staying import rules
from provisioner.model.document import Document
from provisioner.model.driver import AUTO_MODE_DRIVER, IN_TREE_DRIVER
from provisioner.model.meta import ObjectMeta
from provisioner.model.names import MADE_BY_DRIVER, UNCLAIMED
from provisioner.model.persistent_volume import PROVISIONED_BY, CsiSource, InTreeSource
from provisioner.model.pod import Pod
from provisioner.model.storage_class import StorageClass
from provisioner.model.volume import AttachmentState, InstanceAttachment, Volume
from provisioner.model.volume_move import VolumeMove
from tests.builders import DRIVER, VOLUME, ZONE, a_csi_node, a_node, a_volume, an_attachment
from tests.controller.moving import test_plan_rules as plans
from tests.controller.moving.test_plan_rules import (
    KEY,
    PV,
    THERE,
    a_move,
    a_pv,
    a_storage_class,
    examined,
    planned,
    refused,
)

TAGGED = {rules.AUTO_MODE_TAG: "prod", MADE_BY_DRIVER: "true"}
FITTING = replace(a_volume(), size_gib=4, iops=3000, throughput_mibps=125, tags=TAGGED)
IN_ZONE = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [ZONE]}


def to_class(found: StorageClass, volume: Volume = FITTING, **to: Any) -> Facts:
    move = a_move(to={"storageClassName": found.metadata.name} | to)
    return plans.facts(move, storage_class=found, volume=volume)


def auto(**parameters: str) -> StorageClass:
    return a_storage_class("auto", AUTO_MODE_DRIVER, **parameters)


def of_auto_mode(given: Facts, *, handle: str = VOLUME) -> Facts:
    """The same facts, of a PersistentVolume of EKS Auto Mode."""
    found = a_pv(csi=CsiSource(driver=AUTO_MODE_DRIVER, volume_handle=handle))
    spec = plans.DOCUMENT["spec"]
    meta = plans.DOCUMENT["metadata"]
    body = {
        "metadata": meta
        | {"annotations": meta["annotations"] | {PROVISIONED_BY: AUTO_MODE_DRIVER}},
        "spec": spec | {"csi": spec["csi"] | {"driver": AUTO_MODE_DRIVER}},
    }
    return replace(given, persistent_volume=found, document=msgspec.convert(body, Document))


def swapping(made: Planned) -> VolumeMove:
    status = {
        "phase": "Swapping",
        "plan": msgspec.to_builtins(made.plan),
        "source": msgspec.to_builtins(made.source),
        "volume": VOLUME,
    }
    move = a_move(to={"storageClassName": made.plan.target.storage_class_name})
    return msgspec.structs.replace(move, status=msgspec.convert(status, type(move.told)))


# -- another class of the same driver


def test_a_volume_that_is_as_the_class_asks_stays():
    found = msgspec.structs.replace(
        a_storage_class("other"), reclaim_policy="Retain", mount_options=["nodiscard"]
    )

    made = planned(to_class(found))

    spec = made.body["spec"]
    assert made.plan.keeps_volume
    assert made.request is None
    assert "nothing is copied" in made.plan.notes[0]
    assert (made.plan.source.driver, made.plan.target.driver) == (DRIVER, DRIVER)
    assert spec["storageClassName"] == "other"
    assert spec["mountOptions"] == ["nodiscard"]
    assert spec["persistentVolumeReclaimPolicy"] == "Retain"
    assert (spec["csi"]["driver"], spec["csi"]["volumeHandle"]) == (DRIVER, VOLUME)
    assert spec["csi"]["fsType"] == "xfs"
    assert spec["nodeAffinity"]["required"]["nodeSelectorTerms"] == [
        {"matchExpressions": [IN_ZONE]}
    ]
    assert made.body["metadata"]["annotations"][PROVISIONED_BY] == DRIVER


@pytest.mark.parametrize(
    ("parameters", "volume"),
    [
        ({"type": "gp2"}, FITTING),
        ({"throughput": "250"}, FITTING),
        ({}, replace(FITTING, iops=6000)),
        ({}, replace(FITTING, throughput_mibps=250)),
        ({"encrypted": "true"}, FITTING),
        ({"kmsKeyId": KEY, "encrypted": "true"}, replace(FITTING, encrypted=True)),
    ],
)
def test_a_volume_that_is_not_as_the_class_asks_is_copied(parameters: Any, volume: Volume):
    made = planned(to_class(a_storage_class("other", **parameters), volume))

    assert not made.plan.keeps_volume
    assert made.request is not None


@pytest.mark.parametrize("to", [{"zone": THERE}, {"size": "8Gi"}, {"encrypted": True}])
def test_what_only_another_volume_can_have_is_copied_with_the_class(to: Any):
    assert planned(to_class(a_storage_class("other"), **to)).request is not None


def test_an_encrypted_volume_stays_with_a_class_that_names_its_key_or_none():
    encrypted = replace(FITTING, encrypted=True, kms_key_id=KEY)

    for parameters in ({}, {"encrypted": "true"}, {"kmsKeyId": KEY, "encrypted": "true"}):
        found = a_storage_class("other", **parameters)
        assert planned(to_class(found, encrypted)).plan.keeps_volume


def test_the_class_that_it_has_changes_nothing():
    assert isinstance(examined(to_class(a_storage_class("fast"))), AsAsked)


def test_no_node_is_needed_but_a_class_that_allows_the_zone():
    found = a_storage_class("other")
    nowhere = replace(to_class(found), zones=set())
    elsewhere = msgspec.structs.replace(found, allowed_topologies=plans.in_zone(THERE))

    assert planned(nowhere).plan.keeps_volume
    assert f"allows zone {THERE} only" in refused(to_class(elsewhere))


def test_what_has_retain_keeps_it_whatever_the_class_says():
    found = msgspec.structs.replace(a_storage_class("other"), reclaim_policy="Delete")
    given = to_class(found)
    held = a_pv(persistent_volume_reclaim_policy="Retain")

    made = planned(replace(given, persistent_volume=held))

    assert "the reclaim policy stays Retain, although the class says Delete" in made.plan.notes
    body = form_rules.with_policy_of(given.move, made.body, held)
    assert body["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    body = form_rules.with_policy_of(given.move, made.body, a_pv())
    assert body["spec"]["persistentVolumeReclaimPolicy"] == "Delete"


def test_a_class_that_says_retain_has_it_at_the_swap():
    found = msgspec.structs.replace(a_storage_class("other"), reclaim_policy="Retain")
    given = to_class(found)

    body = form_rules.with_policy_of(given.move, planned(given).body, a_pv())

    assert body["spec"]["persistentVolumeReclaimPolicy"] == "Retain"


def test_one_of_the_in_tree_plugin_gets_form_and_class_at_once_and_keeps_its_partition():
    handle = f"aws://{ZONE}/{VOLUME}"
    given = to_class(a_storage_class("other"), form="csi")
    found = a_pv(csi=None, aws_elastic_block_store=InTreeSource(volume_id=handle))
    spec = {k: v for k, v in plans.DOCUMENT["spec"].items() if k != "csi"}
    spec |= {"awsElasticBlockStore": {"volumeID": handle, "partition": 1}}
    document = msgspec.convert({"metadata": plans.DOCUMENT["metadata"], "spec": spec}, Document)

    made = planned(replace(given, persistent_volume=found, document=document))

    assert made.plan.keeps_volume
    assert (made.plan.source.driver, made.plan.target.driver) == (IN_TREE_DRIVER, DRIVER)
    assert made.body["spec"]["csi"]["volumeAttributes"] == {"partition": "1"}
    assert made.body["spec"]["storageClassName"] == "other"
    assert not swapping(made).changes_driver


def test_the_claim_is_created_again_with_the_class():
    made = planned(to_class(a_storage_class("other")))
    recorded = phase_rules.record(
        msgspec.convert(
            {
                "metadata": {"name": "data", "namespace": "shop", "uid": "u"},
                "spec": {"storageClassName": "fast", "volumeName": PV},
            },
            Document,
        )
    )

    spec = phase_rules.recreated(swapping(made), recorded)["spec"]

    assert (spec["storageClassName"], spec["volumeName"]) == ("other", "pvc-uid-to-b")


# -- another driver


def test_a_volume_goes_to_eks_auto_mode_and_only_its_nodes_get_it():
    made = planned(to_class(auto(encrypted="false")))

    spec = made.body["spec"]
    (term,) = spec["nodeAffinity"]["required"]["nodeSelectorTerms"]
    where = {each["key"]: each["values"] for each in term["matchExpressions"]}
    assert spec["csi"]["driver"] == AUTO_MODE_DRIVER
    assert spec["csi"]["volumeHandle"] == VOLUME
    assert spec["storageClassName"] == "auto"
    assert where == {
        "topology.kubernetes.io/zone": [ZONE],
        "eks.amazonaws.com/compute-type": ["auto"],
    }
    assert made.body["metadata"]["annotations"][PROVISIONED_BY] == AUTO_MODE_DRIVER
    assert made.source.driver == DRIVER  # whose controller carries it out
    assert (made.plan.source.driver, made.plan.target.driver) == (DRIVER, AUTO_MODE_DRIVER)
    assert any(f"by driver {AUTO_MODE_DRIVER} alone" in each for each in made.plan.notes)
    assert swapping(made).changes_driver


def test_a_volume_of_eks_auto_mode_comes_to_this_driver():
    made = planned(of_auto_mode(to_class(a_storage_class("other"))))

    assert made.body["spec"]["csi"]["driver"] == DRIVER
    assert made.body["metadata"]["annotations"][PROVISIONED_BY] == DRIVER
    (term,) = made.body["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert term == {"matchExpressions": [IN_ZONE]}
    assert made.source.driver == DRIVER
    assert swapping(made).changes_driver


def test_a_class_that_was_made_again_for_another_driver_is_another_one():
    found = msgspec.structs.replace(a_storage_class("fast"), provisioner=AUTO_MODE_DRIVER)

    assert planned(to_class(found)).plan.target.driver == AUTO_MODE_DRIVER


def test_the_plan_says_that_no_node_of_the_other_driver_could_run_the_pods():
    pod = Pod(metadata=ObjectMeta(name="web-0", namespace="shop"))
    nodes = [(a_node("n1", zone=ZONE), a_csi_node("n1"))]
    given = replace(to_class(auto()), pods=[pod], nodes=nodes)

    notes = planned(given).plan.notes

    assert any(f"driver {AUTO_MODE_DRIVER} runs on none" in each for each in notes)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (to_class(auto(type="gp2")), "it is of type gp3 instead of gp2"),
        (to_class(auto(iops="4000")), "it has 3000 IOPS instead of 4000"),
        (to_class(auto(), replace(FITTING, iops=6000)), "it has 6000 IOPS instead of 3000"),
        (to_class(auto(throughput="500")), "it has 125 MiB/s instead of 500 MiB/s"),
        (to_class(auto(encrypted="true")), "it is not encrypted"),
        (to_class(auto(), zone=THERE), f"it is in zone {ZONE} instead of {THERE}"),
        (to_class(auto(), size="8Gi"), "it has 4 GiB instead of 8 GiB"),
        (to_class(auto(), size="1Gi"), "it has 4 GiB instead of 1 GiB"),
        (to_class(auto(), fsType="ext4"), "it has the file system xfs instead of ext4"),
        (to_class(auto(), replace(FITTING, tags={})), "lacks the tag eks:eks-cluster-name"),
        (
            to_class(auto(), replace(FITTING, tags=TAGGED | {UNCLAIMED: "Delete"})),
            "create another VolumeMove then",
        ),
        (
            of_auto_mode(
                to_class(
                    a_storage_class("other"), replace(FITTING, tags={rules.AUTO_MODE_TAG: "p"})
                )
            ),
            f"lacks the tag {MADE_BY_DRIVER}=true",
        ),
        (
            of_auto_mode(plans.facts(a_move(to={"zone": THERE}))),
            f"belongs to the driver {AUTO_MODE_DRIVER}",
        ),
        (
            of_auto_mode(to_class(auto(type="gp2"))),
            f"belongs to the driver {AUTO_MODE_DRIVER}",
        ),
        (
            replace(
                to_class(auto()),
                claim=plans.bound(attributes_class="gold"),
            ),
            "VolumeAttributesClass gold",
        ),
    ],
)
def test_what_cannot_go_to_another_driver_is_refused_in_one_sentence(given: Facts, said: str):
    message = refused(given)

    assert said in message
    assert ". " not in message


# -- who carries it out


def test_the_controller_of_the_driver_that_auto_modes_volume_goes_to_takes_the_move():
    coming = of_auto_mode(to_class(a_storage_class("other")))

    assert not rules.is_of_another_driver(coming, DRIVER)
    assert rules.is_of_another_driver(coming, "mine.example")
    assert not rules.is_of_another_driver(to_class(auto()), DRIVER)
    assert rules.is_of_another_driver(to_class(auto()), "mine.example")


def test_a_volume_of_no_ebs_driver_does_not_come():
    found = a_pv(csi=CsiSource(driver="efs.csi.aws.com", volume_handle="fs-1"))
    given = replace(to_class(a_storage_class("other")), persistent_volume=found)

    assert rules.is_of_another_driver(given, DRIVER)
    assert (
        rules.refused(given, DRIVER)
        == f"PersistentVolume {PV} belongs to the driver {found.spec.csi.driver if found.spec.csi else ''}"
    )


def test_to_go_back_from_another_driver_is_another_move():
    done = a_move("first", to={"storageClassName": "auto"})
    source = {"driver": DRIVER, "persistentVolume": "pv-first"}
    status = msgspec.convert({"phase": "Done", "source": source}, type(done.told))
    first = msgspec.structs.replace(done, status=status)
    given = of_auto_mode(plans.facts(a_move(to={"source": "first"}), kept=Kept(first)))

    assert not rules.is_of_another_driver(given, DRIVER)
    said = refused(given)
    assert "VolumeMove first has copied nothing: to go back, move the claim to a class of" in said


def test_to_go_back_from_a_class_of_the_same_driver_is_another_move_too():
    made = planned(to_class(a_storage_class("other")))
    done = swapping(made)
    status = msgspec.structs.replace(done.told, phase="Done")
    first = msgspec.structs.replace(done, status=status)
    given = plans.facts(a_move("back", to={"source": "to-b"}), kept=Kept(first))

    said = refused(given)

    assert said.endswith("no other one to go back to: move the claim to its class fast instead")


def test_the_old_object_of_an_earlier_move_is_named_with_what_keeps_it():
    earlier = swapping(planned(to_class(a_storage_class("other"))))
    status = msgspec.structs.replace(earlier.told, phase="Done")
    earlier = msgspec.structs.replace(earlier, status=status)
    given = replace(to_class(a_storage_class("third")), others=[earlier], namesakes={PV})

    assert f"PersistentVolume {PV}, which VolumeMove to-b has kept, names volume" in refused(given)
    assert "may be written to" in refused(replace(given, namesakes={"mine"}))


# -- the swap: two drivers never have the volume at once


@pytest.mark.parametrize(
    ("nodes", "made", "waits_for"),
    [
        (["node-1"], FITTING, "node-1"),
        (
            [],
            replace(
                FITTING,
                attachments=(InstanceAttachment("i-1", "/dev/xvdba", AttachmentState.DETACHING),),
            ),
            "i-1",
        ),
    ],
)
def test_the_claim_goes_and_comes_again_once_the_first_driver_has_detached_the_volume(
    nodes: Any, made: Volume, waits_for: str
):
    move = swapping(planned(to_class(auto())))

    def step(
        wanted: Recreate | Remove, move: VolumeMove = move, nodes: Any = nodes, made: Any = made
    ) -> Any:
        return freshness_rules.guarded(
            move, wanted, None, a_pv(), made=made, driver=DRIVER, attached=nodes
        )

    said = f"waiting until volume {VOLUME} is detached from {waits_for}"
    assert step(Recreate()) == Await(said)
    of_one_driver = swapping(planned(to_class(a_storage_class("other"))))
    for wanted in (Recreate(), Remove("u", "1")):
        assert step(wanted) == Await(said)
        assert step(wanted, nodes=[], made=FITTING) == wanted
        assert step(wanted, of_one_driver) == wanted


def test_an_attachment_that_nobody_has_begun_is_waited_for_if_another_driver_takes_over():
    untouched, begun = an_attachment(prepared=False), an_attachment()
    to_auto = swapping(planned(to_class(auto())))
    of_one_driver = swapping(planned(to_class(a_storage_class("other"))))

    assert is_in_the_way(to_auto, untouched)
    assert not is_in_the_way(of_one_driver, untouched)
    assert is_in_the_way(of_one_driver, begun)


def test_pods_that_came_in_are_stopped_before_the_claim_goes_to_another_driver():
    claim, going = plans.bound(), plans.bound(deleting=True)
    to_auto = swapping(planned(to_class(auto())))
    of_one_driver = swapping(planned(to_class(a_storage_class("other"))))

    assert waits_for_pods(to_auto, claim)
    assert not waits_for_pods(of_one_driver, claim)
    assert waits_for_pods(of_one_driver, going)
    assert not waits_for_pods(to_auto, None)
