"""What is told of claims, volumes, attachments and deletions, and what is left in peace."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from provisioner.inspect.doctor.check_rules import Check, Verdict
from provisioner.model import tags
from provisioner.model.attachment import Attachment
from provisioner.model.persistent_volume import PlacedVolume
from provisioner.model.volume import AttachmentState, InstanceAttachment, VolumeState
from tests.inspect.doctor import evidence as e
from tests.inspect.doctor.evidence import checked, with_cloud, with_cluster


def test_no_volume_is_given_up_before_region_and_account_are_confirmed():
    elsewhere = with_cloud(volumes={}, instances={}, region="eu-west-1")

    found = checked(elsewhere)

    assert found["volumes-exist"].verdict is Verdict.UNKNOWN
    assert found["region"].verdict is Verdict.FAILED
    assert "delete" not in found["volumes-exist"].remedy


def test_a_node_without_provider_id_is_known_by_its_registration():
    seen = with_cluster(nodes=[e.node(providerID="")])

    assert checked(seen)["attached-elsewhere"].verdict is Verdict.OK


def test_nothing_is_told_to_be_detached_while_a_nodes_instance_is_not_known():
    seen = with_cluster(nodes=[e.node(providerID="")], csi_nodes=[])

    assert checked(seen)["attached-elsewhere"].verdict is Verdict.OK


@pytest.mark.parametrize("state", [AttachmentState.DETACHING, AttachmentState.DETACHED])
def test_what_is_being_detached_needs_no_hand(state: AttachmentState):
    leaving = e.volume(attachments=(InstanceAttachment(e.INSTANCE, "/dev/xvdaa", state),))
    seen = replace(
        with_cluster(attachments=[]), cloud=replace(e.CLOUD, volumes={e.VOLUME: leaving})
    )

    assert checked(seen)["attached-elsewhere"].verdict is Verdict.OK


def test_an_attachment_that_came_between_both_looks_is_wanted():
    before = with_cluster(attachments=[])
    after = with_cluster(attachments=[], later_attachments=[e.attachment()])

    assert checked(before)["attached-elsewhere"].verdict is Verdict.WARNING
    assert checked(after)["attached-elsewhere"].verdict is Verdict.OK


def test_any_persistent_volume_of_the_same_handle_wants_it():
    twin = e.a_volume("pv-0", e.VOLUME)
    seen = with_cluster(volumes=[twin, e.persistent_volume()])

    assert checked(seen)["attached-elsewhere"].verdict is Verdict.OK


def test_a_volume_that_another_driver_names_is_no_orphan():
    marks = {**tags.of_cluster("prod"), "CSIVolumeName": "pvc-1"}
    free = e.volume(
        tags=marks,
        attachments=(),
        state=VolumeState.AVAILABLE,
        created_at=e.NOW - timedelta(days=3),
    )
    source = {"driver": "ebs.csi.eks.amazonaws.com", "volumeHandle": e.VOLUME}
    other = e.read(PlacedVolume, {"metadata": {"name": "auto"}, "spec": {"csi": source}})

    def found(*volumes: PlacedVolume) -> Check:
        seen = with_cluster(volumes=[*volumes], cluster_id="prod")
        return checked(replace(seen, cloud=replace(e.CLOUD, tagged=[free])))["orphans"]

    assert found().verdict is Verdict.WARNING
    assert found(other).verdict is Verdict.OK


def deleting(driver: str, *finalizers: str) -> PlacedVolume:
    about = {"name": "pv-x", "deletionTimestamp": e.OLD, "finalizers": [*finalizers]}
    source = {"driver": driver, "volumeHandle": e.VOLUME}
    return e.read(PlacedVolume, {"metadata": about, "spec": {"csi": source}})


@pytest.mark.parametrize(
    ("made", "verdict"),
    [
        (deleting(e.DRIVER, "external-attacher/ebs-csi-aws-com"), Verdict.FAILED),
        (deleting("efs.csi.aws.com", "external-attacher/efs-csi-aws-com"), Verdict.OK),
        (
            deleting(e.DRIVER, "kubernetes.io/pv-protection", "external-attacher/ebs-csi-aws-com"),
            Verdict.OK,
        ),
    ],
    ids=["stuck", "another driver's", "waits for its claim"],
)
def test_a_deletion_is_stuck_only_if_nothing_is_waited_for(made: PlacedVolume, verdict: Verdict):
    assert checked(with_cluster(volumes=[made]))["stuck-deletions"].verdict is verdict


def waiting(age: timedelta, error: str = "") -> Attachment:
    document: dict[str, Any] = {
        "metadata": {"name": "csi-1", "creationTimestamp": (e.NOW - age).isoformat()},
        "spec": {
            "attacher": e.DRIVER,
            "nodeName": "node-1",
            "source": {"persistentVolumeName": "pv-1"},
        },
        "status": {"attached": False} | ({"attachError": {"message": error}} if error else {}),
    }
    return e.read(Attachment, document)


@pytest.mark.parametrize(
    ("made", "verdict", "proof"),
    [
        (waiting(timedelta(seconds=5), "once"), Verdict.OK, "not attached yet"),
        (waiting(timedelta(minutes=2)), Verdict.OK, "csi-1"),
        (waiting(timedelta(minutes=2), "no room"), Verdict.WARNING, "no room"),
        (waiting(timedelta(minutes=11), "no room"), Verdict.FAILED, "no room"),
    ],
    ids=["once", "waits", "fails", "stuck"],
)
def test_an_attachment_that_fails_is_told_before_it_is_stuck(
    made: Attachment, verdict: Verdict, proof: str
):
    found = checked(with_cluster(attachments=[made]))["stuck-attachments"]

    assert found.verdict is verdict
    assert proof in found.proof


def test_a_claim_for_a_volume_made_by_hand_needs_no_class():
    def placed(**annotations: str) -> PlacedVolume:
        about = {"name": "by-hand", "annotations": annotations}
        source = {"driver": e.DRIVER, "volumeHandle": e.VOLUME}
        spec = {"csi": source, "storageClassName": "manual"}
        return e.read(PlacedVolume, {"metadata": about, "spec": spec})

    def found(*volumes: PlacedVolume) -> Verdict:
        seen = with_cluster(claims=[e.claim(storageClassName="manual")], volumes=[*volumes])
        return checked(seen)["claims-of-no-class"].verdict

    assert found() is Verdict.FAILED
    assert found(placed(**{"pv.kubernetes.io/provisioned-by": e.DRIVER})) is Verdict.FAILED
    assert found(placed()) is Verdict.OK


def test_a_persistent_volume_is_made_anew_only_once_its_volume_is_kept():
    wrong = with_cluster(volumes=[e.persistent_volume("us-east-1b")])
    remedy = checked(wrong)["volume-zones"].remedy

    assert "Retain" in remedy
    assert remedy.index("Retain") < remedy.index("again")
    assert "kubectl ebs explain pv" in remedy
