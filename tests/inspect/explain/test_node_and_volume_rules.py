"""What is wrong with a node, a PersistentVolume, a claim that grows, and a snapshot."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec import structs

from provisioner.inspect.explain.view_rules import Said, SnapshotView, View
from provisioner.inspect.reading.kind_rules import SnapshotSource, SnapshotSpec, WatchedSnapshot
from provisioner.model.claim import ClaimStatus, Condition
from provisioner.model.ebs_snapshot import EbsSnapshot, SnapshotState
from provisioner.model.errors import Reason
from provisioner.model.meta import ObjectMeta
from provisioner.model.modification import Modification, ModificationState, Shape
from provisioner.model.node import Node, NodeCondition, NodeStatus
from provisioner.model.persistent_volume import PROVISIONED_BY
from provisioner.model.taint import Taint
from provisioner.model.volume import Instance, VolumeState
from provisioner.model.volume_snapshot import (
    VolumeSnapshotClass,
    VolumeSnapshotContent,
    VolumeSnapshotContentSpec,
    VolumeSnapshotStatus,
)
from tests.builders import DRIVER, INSTANCE, VOLUME, ZONE
from tests.inspect.explain.views import (
    LONG_AGO,
    NODE,
    NOW,
    attachment_of,
    causes,
    chains,
    claim_of,
    claim_view,
    csi_node_of,
    ebs,
    first_causes,
    led,
    node_of,
    node_view,
    of_another_driver,
    pod_of,
    pv_of,
    said,
    view,
    volume_of,
)


def of_node(**changes: Any) -> list[str]:
    return first_causes(view("node", node=node_view(**changes)))


def of_volume(**changes: Any) -> list[str]:
    return first_causes(view("pv", volume=volume_of(**changes)))


# -- nodes


def test_a_node_with_which_all_is_well():
    assert of_node() == []


def test_a_node_that_is_not_there():
    assert of_node(node=None) == ["ObjectMissing"]


def test_a_node_without_a_zone_label_is_labelled_by_the_command():
    (chain,) = chains(view("node", node=node_view(node=node_of(zone=None))))
    assert str(chain.cause) == "ZoneLabelMissing"
    assert chain.links[0].command == f"kubectl label node {NODE} topology.kubernetes.io/zone={ZONE}"


def test_a_node_whose_label_differs_from_ec2():
    assert of_node(node=node_of(zone="us-east-1b")) == ["ZoneLabelWrong"]


def test_a_startup_taint_of_a_registered_driver_is_the_controllers_to_remove():
    taints = [Taint(key=f"{DRIVER}/agent-not-ready", effect="NoExecute")]
    node = node_view(node=node_of(taints=taints))
    assert causes(view("node", node=node)) == [["StartupTaintLeft"]]
    (chain,) = chains(view("node", node=node))
    assert "logs" in chain.links[0].command
    assert "taint" in chain.links[0].remedy
    nobody = view("node", node=node, controller=led(""))
    assert causes(nobody) == [["NoController", "StartupTaintLeft"]]


def test_a_terminated_instance_hides_all_else():
    gone = Instance(INSTANCE, ZONE, "terminated", "m5.large")
    assert of_node(instance=gone, csi_node=None) == ["InstanceNotFound"]


def unready_node(**spec: Any) -> Node:
    found = node_of(**spec)
    condition = NodeCondition(type="Ready", status="Unknown")
    return structs.replace(found, status=NodeStatus(conditions=[condition]))


def test_a_ready_node_that_ec2_does_not_know_is_of_another_account():
    for kind in ("node", "pod"):
        node = node_view(instance=None, region="us-east-1")
        chain, *more = chains(view(kind, node=node))
        assert (chain.cause, more) == (Reason.WRONG_CLOUD, [])
        assert "gone" not in chain.links[0].sentence
        assert "taint" not in chain.links[0].command


def test_a_node_of_another_region_is_not_gone_either():
    node = node_view(node=unready_node(), instance=None, region="eu-west-1")
    chain, *_ = chains(view("node", node=node))
    assert chain.cause is Reason.WRONG_CLOUD
    assert f"Node {NODE} is in us-east-1a" in chain.links[0].proof.seen


def test_an_unready_node_that_ec2_does_not_know_is_checked_before_it_is_deleted():
    node = node_view(node=unready_node(), instance=None, region="us-east-1")
    (chain,) = chains(view("node", node=node))
    assert chain.cause is Reason.INSTANCE_NOT_FOUND
    assert chain.links[0].remedy.startswith("Check that region and account")
    assert "taint" not in chain.links[0].command


def test_only_a_terminated_instance_is_tainted_out_of_service():
    for state, is_over in (("terminated", True), ("shutting-down", False)):
        instance = Instance(INSTANCE, ZONE, state, "m5.large")
        (chain,) = chains(view("node", node=node_view(instance=instance)))
        assert chain.cause is Reason.INSTANCE_NOT_FOUND
        assert ("out-of-service" in chain.links[0].command) is is_over


def test_an_instance_that_ec2_was_not_asked_about_proves_nothing():
    assert of_node(instance=None, asked=False) == []


def test_a_full_node_only_waits():
    node = node_view(csi_node=csi_node_of(count=1), attachments=(attachment_of(attached=True),))
    (chain,) = chains(view("node", node=node))
    assert (str(chain.cause), chain.waits) == ("VolumeLimitReached", True)
    assert chain.links[0].proof.seen == "limit 1, attached 1"


def test_volumes_that_ec2_was_not_asked_about_are_not_unknown_to_it():
    there = attachment_of(attached=True)
    node = node_view(attachments=(there,), volume_of={there.name: VOLUME})
    assert chains(view("node", node=node, unread=frozenset({"DescribeVolumes"}))) == ()


def test_an_attachment_that_ec2_does_not_have():
    there = attachment_of(attached=True)
    assert of_node(attachments=(there,), volume_of={there.name: VOLUME}) == [
        "AttachmentUnknownToEc2"
    ]


def test_an_attachment_that_has_been_going_for_long():
    assert of_node(attachments=(attachment_of(attached=True, deleting=True),)) == [
        "AttachmentStuck"
    ]


# -- persistent volumes


def test_a_volume_with_which_all_is_well():
    assert of_volume() == []


def test_a_persistent_volume_that_is_not_there():
    assert of_volume(persistent_volume=None) == ["ObjectMissing"]


def test_a_volume_that_somebody_has_deleted():
    assert of_volume(ebs=None) == ["VolumeNotFound"]


def test_a_volume_in_another_zone_than_its_affinity():
    assert of_volume(ebs=ebs("us-east-1b")) == ["ZoneMismatch"]


def test_a_volume_that_ec2_has_lost():
    assert of_volume(ebs=ebs(on="", state=VolumeState.ERROR)) == ["VolumeInErrorState"]


def test_a_handle_that_is_no_volume():
    assert of_volume(persistent_volume=pv_of(handle="data"), ebs=None) == ["InvalidRequest"]


def test_a_released_volume_that_is_kept_on_purpose_is_not_wrong():
    kept = pv_of(phase="Released", policy="Retain")
    (chain,) = chains(view("pv", volume=volume_of(persistent_volume=kept, attachments=())))
    assert (str(chain.cause), chain.waits) == ("Released", True)


def released(**changes: Any) -> list[list[str]]:
    usual: dict[str, Any] = {
        "persistent_volume": pv_of(phase="Released"),
        "attachments": (),
        "ebs": ebs(on=""),
    }
    return causes(view("pv", volume=volume_of(**usual | changes)))


def test_a_released_volume_that_is_still_attached():
    assert released(attachments=(attachment_of(attached=True),)) == [["VolumeInUse", "Released"]]


def test_a_released_volume_that_another_object_names():
    assert released(namesakes=("pv-2",)) == [["VolumeInUse", "Released"]]


def test_a_released_volume_that_may_not_be_deleted():
    event = Said(
        "pv",
        "event VolumeFailedDelete",
        "PermissionDenied: …",
        event="VolumeFailedDelete",
        reason=Reason.PERMISSION_DENIED,
        at=NOW,
    )
    assert released(said=(event,)) == [["PermissionDenied", "Released"]]


@pytest.mark.parametrize(("since", "waits"), [(NOW, True), (LONG_AGO, False), (None, False)])
def test_a_released_volume_waits_for_its_deletion_only_as_long_as_that_may_take(
    since: datetime | None, *, waits: bool
):
    going = pv_of(phase="Released", since=since)
    found = view("pv", volume=volume_of(persistent_volume=going, attachments=(), ebs=ebs(on="")))
    (chain,) = chains(found)
    assert (str(chain.cause), chain.waits) == ("Released", waits)
    assert bool(chain.links[0].remedy) != waits


def test_a_released_volume_of_another_provisioner_is_not_deleted_here():
    other = pv_of(phase="Released")
    meta = structs.replace(other.metadata, annotations={PROVISIONED_BY: "example.com/other"})
    found = structs.replace(other, metadata=meta)
    (chain,) = chains(
        view("pv", volume=volume_of(persistent_volume=found, attachments=(), ebs=ebs(on="")))
    )
    assert not chain.waits
    assert chain.links[0].next == "the controller of example.com/other, if one runs"


def test_a_finalizer_that_nobody_removes():
    held = pv_of(phase="Released", deleting=True, finalizers=["example.com/hold"])
    assert released(persistent_volume=held, ebs=None) == [["FinalizerStuck", "Released"]]


# -- growth and change


def growing(**changes: Any) -> View:
    """A claim of 1Gi that asks for 2Gi."""
    found = claim_of("Bound", size="2Gi")
    volume = volume_of(**changes.pop("volume", {}))
    usual: dict[str, Any] = {"claim": found, "volume": volume}
    controller = changes.pop("controller", led())
    return view(claims=(claim_view("Bound", **usual | changes),), controller=controller)


def test_what_refuses_a_growth():
    event = said(
        "… failed: PermissionDenied: …", "VolumeResizeFailed", reason=Reason.QUOTA_EXCEEDED
    )
    (chain,) = chains(growing(said=(event,)))
    assert [str(each.cause) for each in chain.links] == ["QuotaExceeded", "VolumeGrows"]
    assert "as a rule within 30 minutes" in chain.links[0].next


def test_a_used_up_budget_says_until_when():
    until = NOW + timedelta(hours=3)
    (chain,) = chains(growing(volume={"left": 0, "more_at": until}))
    assert chain.cause is Reason.MODIFICATION_LIMIT
    assert "2026-11-23T23:00:00Z" in chain.links[0].next


def test_a_modification_that_runs_is_not_wrong():
    running = Modification(VOLUME, ModificationState.OPTIMIZING, Shape(1, "gp3"))
    (chain,) = chains(growing(volume={"modification": running}))
    assert (chain.cause, chain.waits) == (Reason.MODIFICATION_RUNNING, True)


def under_way(state: ModificationState, size_gib: int = 2, **changes: Any) -> View:
    """EC2's last modification, which was the fourth of 24 hours."""
    found = Modification(
        VOLUME, state, Shape(size_gib, "gp3"), started_at=NOW - timedelta(seconds=20)
    )
    volume = {"modification": found, "left": 0, "more_at": NOW + timedelta(hours=20)}
    return growing(volume=volume, **changes)


@pytest.mark.parametrize(
    "state",
    [ModificationState.MODIFYING, ModificationState.OPTIMIZING, ModificationState.COMPLETED],
)
def test_a_modification_that_has_used_the_budget_itself_is_not_refused(state: ModificationState):
    (chain,) = chains(under_way(state))
    assert chain.waits
    assert chain.cause is not Reason.MODIFICATION_LIMIT
    old = said("MODIFICATION", "VolumeResizeFailed", reason=Reason.QUOTA_EXCEEDED)
    assert [each.waits for each in chains(under_way(state, said=(old,)))] == [True]


def test_another_modification_that_runs_does_not_hide_that_the_budget_is_used_up():
    (chain,) = chains(under_way(ModificationState.MODIFYING, size_gib=1))
    assert (chain.cause, chain.waits) == (Reason.MODIFICATION_LIMIT, False)


def test_a_modification_that_ec2_could_not_carry_out_is_a_fault():
    (chain,) = chains(under_way(ModificationState.FAILED))
    assert (chain.cause, chain.waits) == (Reason.VOLUME_STATE, False)
    assert chain.links[0].remedy


def test_what_has_failed_since_the_modification_began_counts():
    event = said("… no", "VolumeResizeFailed", reason=Reason.PERMISSION_DENIED, at=NOW)
    found = under_way(ModificationState.COMPLETED, said=(event,))
    assert first_causes(found) == ["PermissionDenied"]


def test_the_growth_of_another_drivers_volume_waits_for_that_driver():
    found = growing(controller=led(ago_s=300))
    (claim,) = found.claims
    elsewhere = replace(of_another_driver("driver.longhorn.io"), left=0, more_at=NOW)
    for events in ((), (said("no space", "VolumeResizeFailed", warning=True),)):
        around = replace(claim, volume=elsewhere, said=events)
        (chain,) = chains(replace(found, claims=(around,)))
        assert chain.waits is not bool(events)
        assert "EC2" not in str(chain)
    assert "no space" in chain.links[0].proof.seen


def test_nobody_grows_volumes_without_a_controller():
    assert first_causes(growing(controller=led(ago_s=300))) == ["LeaseExpired"]


def test_a_volume_attributes_class_that_does_not_exist():
    found = claim_of("Bound", attributes_class="fast")
    assert causes(view(claims=(claim_view("Bound", claim=found),))) == [
        ["ClassNotFound", "VolumeChanges"]
    ]


def test_a_file_system_grows_with_its_next_pod():
    found = claim_of("Bound")
    pending = Condition(type="FileSystemResizePending", status="True")
    status = ClaimStatus(phase="Bound", capacity={"storage": "1Gi"}, conditions=[pending])
    found = structs.replace(found, status=status)
    (chain,) = chains(view(claims=(claim_view("Bound", claim=found),)))
    assert (str(chain.cause), chain.waits) == ("FileSystemGrowsWithPod", True)


# -- snapshots


def snapshot(**changes: Any) -> View:
    """A snapshot that is ready."""
    content = VolumeSnapshotContent(
        metadata=ObjectMeta(name="content-1"),
        spec=VolumeSnapshotContentSpec(driver=DRIVER),
    )
    found = WatchedSnapshot(
        metadata=ObjectMeta(name="snap", namespace="shop", creation_timestamp=LONG_AGO),
        spec=SnapshotSpec(
            source=SnapshotSource(persistent_volume_claim_name="data"),
            volume_snapshot_class_name="nightly",
        ),
        status=VolumeSnapshotStatus(
            bound_volume_snapshot_content_name="content-1", ready_to_use=True
        ),
    )
    usual = SnapshotView(
        "shop/snap",
        snapshot=found,
        content=content,
        snapshot_class=VolumeSnapshotClass(metadata=ObjectMeta(name="nightly"), driver=DRIVER),
        source=claim_of("Bound"),
        versions=("v1",),
    )
    return view("snapshot", snapshot=replace(usual, **changes))


def unready(**changes: Any) -> View:
    """The same, not ready yet."""
    found = snapshot().snapshot
    assert found is not None
    assert found.snapshot is not None
    status = changes.pop(
        "status",
        VolumeSnapshotStatus(bound_volume_snapshot_content_name="content-1", ready_to_use=False),
    )
    return snapshot(snapshot=structs.replace(found.snapshot, status=status), **changes)


def test_a_ready_snapshot_is_healthy():
    assert causes(snapshot()) == []


def test_a_cluster_without_snapshots():
    assert first_causes(snapshot(versions=(), snapshot=None)) == ["SnapshotCrdsMissing"]
    assert first_causes(snapshot(versions=("v1beta1",), snapshot=None)) == ["SnapshotCrdsMissing"]


def test_a_snapshot_that_is_not_there():
    assert first_causes(snapshot(snapshot=None)) == ["ObjectMissing"]


def test_a_snapshot_class_that_is_not_there():
    assert first_causes(unready(snapshot_class=None)) == ["SnapshotClassMissing"]


def test_a_ready_snapshot_whose_class_was_deleted_is_healthy():
    assert causes(snapshot(snapshot_class=None)) == []


def test_a_ready_snapshot_whose_content_was_deleted_is_not():
    assert causes(snapshot(content=None)) == [["SnapshotContentMissing"]]


def test_what_is_not_ready_is_proved_by_the_object():
    (chain,) = chains(unready(snapshot_class=None))
    assert chain.links[-1].proof.seen == "false"
    (chain,) = chains(unready(content=None, status=None))
    assert chain.links[-1].proof.seen == "not set"


def test_nobody_has_created_a_content():
    found = unready(content=None, status=None)
    assert causes(found) == [["SnapshotControllerMissing", "SnapshotNotReady"]]


def test_a_snapshot_of_a_claim_that_is_not_there():
    found = unready(content=None, status=None, source=None)
    assert first_causes(found) == ["SourceMissing"]


def test_what_ec2_refuses_about_a_snapshot():
    event = said("… PermissionDenied: …", "SnapshotCreationFailed", reason=Reason.PERMISSION_DENIED)
    assert first_causes(unready(said=(event,))) == ["PermissionDenied"]


def test_ec2_copies_the_data():
    pending = EbsSnapshot("snap-1", VOLUME, SnapshotState.PENDING, 1, progress_percent=40)
    (chain,) = chains(unready(ebs=pending))
    assert chain.waits
    assert "40 %" in chain.links[0].proof.seen


def test_a_snapshot_that_has_failed_in_ec2():
    failed = EbsSnapshot("snap-1", VOLUME, SnapshotState.ERROR, 1, message="key gone")
    assert first_causes(unready(ebs=failed)) == ["SnapshotInWrongState"]


def test_nobody_takes_snapshots_without_a_controller():
    found = replace(unready(), controller=led(""))
    assert first_causes(found) == ["NoController"]


@pytest.mark.parametrize(
    ("state", "command", "waits"),
    [
        ("stopped", "aws ec2 start-instances", False),
        ("stopping", "aws ec2 describe-instances", False),
        ("pending", "aws ec2 describe-instances", True),
    ],
)
def test_only_a_stopped_instance_can_be_started(state: str, command: str, *, waits: bool):
    node = node_view(instance=Instance(INSTANCE, ZONE, state, "m5.large"))
    (chain,) = chains(view("node", node=node))
    assert (str(chain.cause), chain.waits) == ("InstanceInWrongState", waits)
    assert chain.links[0].command.startswith(command)


@pytest.mark.parametrize(
    "provider",
    ["aws:///us-east-1a/1234abcd/fargate-ip-10-0-0-1", "eks-hybrid:///us-west-2/c/mi-01"],
)
def test_the_driver_need_not_be_on_a_node_that_is_no_instance(provider: str):
    node = node_of(zone=None, provider_id=provider)
    absent = {"node": node, "csi_node": None, "instance": None, "asked": False}
    assert causes(view("node", node=node_view(**absent))) == []
    # A pod with a volume cannot start there all the same.
    pod = view("pod", pod=pod_of(phase="Pending"), node=node_view(**absent))
    assert first_causes(pod) == ["DriverNotRegistered"]
