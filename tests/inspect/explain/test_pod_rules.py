"""Why a pod is not scheduled, or does not start on its node."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs

from provisioner.inspect.explain.view_rules import ClaimView, NodeView, Said, View, VolumeView
from provisioner.inspect.reading.kind_rules import (
    ContainerState,
    ContainerStatus,
    PodStatus,
)
from provisioner.model import persistent_volume as p
from provisioner.model.copy_pod import Waiting
from provisioner.model.errors import Reason
from provisioner.model.taint import Taint
from provisioner.model.volume import AttachmentState, Instance, InstanceAttachment
from tests.builders import ATTACHER_FINALIZER, INSTANCE, OTHER_INSTANCE, VOLUME, ZONE, a_class
from tests.inspect.explain.views import (
    CLAIM,
    NODE,
    NOW,
    PV,
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
    pod_of,
    pv_of,
    refused,
    said,
    view,
    volume_of,
)

OTHER_ZONE = "us-east-1b"
CONFLICT = "0/2 nodes are available: 2 node(s) didn't match PersistentVolume's node affinity"


def unscheduled(message: str = CONFLICT, *, spec: Any = None, **changes: Any) -> View:
    pod = pod_of(node="", message=message, **(spec or {}))
    usual: dict[str, Any] = {"pod": pod, "node": None, "nodes": (node_of(),)}
    return view("pod", **usual | changes)


def starting(**changes: Any) -> View:
    """It has a node, and its volume is not there yet."""
    away = claim_view("Bound", volume=volume_of(attachments=(), ebs=ebs(on="")))
    usual: dict[str, Any] = {"pod": pod_of(phase="Pending"), "claims": (away,)}
    return view("pod", **usual | changes)


def with_volume(**changes: Any) -> tuple[ClaimView]:
    return (claim_view("Bound", volume=volume_of(**changes)),)


def test_a_running_pod_is_healthy():
    assert causes(view("pod")) == []


def test_a_pod_that_has_ended_is_healthy():
    assert causes(view("pod", pod=pod_of(phase="Succeeded"))) == []


# -- no node


def test_what_is_wrong_with_the_claim_is_wrong_with_the_pod():
    found = unscheduled(claims=(claim_view(storage_class=None),))
    assert causes(found) == [["ClassNotFound", "PodNotScheduled"]]


def test_a_missing_claim():
    assert first_causes(unscheduled(claims=(ClaimView(CLAIM),))) == ["ClaimMissing"]


def test_a_pod_whose_node_is_chosen_waits_for_the_claims_that_are_made():
    going = said("being created", "Provisioning", warning=False, at=NOW)
    made = claim_view(claim=claim_of(node=NODE), said=(going,))
    unsaid = structs.replace(pod_of(node=""), status=PodStatus(phase="Pending"))

    (chain,) = chains(unscheduled(pod=unsaid, claims=(made,)))

    assert (str(chain.cause), chain.waits) == ("Provisioning", True)
    assert chain.links[-1].proof.seen == f"none: node {NODE} is chosen, and waits for the volumes"


def test_a_node_in_the_zone_without_the_label_that_the_volume_asks_for():
    key = "topology.ebs.csi.aws.com/zone"
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": [ZONE]}]}]
    pv = pv_of()
    affinity = p.Affinity(required=p.Required(node_selector_terms=terms))
    pv = structs.replace(pv, spec=structs.replace(pv.spec, node_affinity=affinity))
    claims = with_volume(persistent_volume=pv, ebs=ebs(on=""), attachments=())
    (chain,) = chains(unscheduled(claims=claims))
    assert str(chain.cause) == "ZoneLabelMissing"
    assert key in chain.links[0].sentence


def test_a_claim_for_one_pod_is_no_want_of_nodes():
    message = (
        "0/3 nodes are available: 1 node has pod using PersistentVolumeClaim with the same name "
        "and ReadWriteOncePod access mode."
    )
    (chain,) = chains(unscheduled(message))
    assert "delete that pod" in chain.links[0].remedy


def test_no_node_in_the_zone_of_the_volume():
    found = unscheduled(nodes=(node_of(zone=OTHER_ZONE),))
    (chain,) = chains(found)
    assert str(chain.cause) == "NoNodeInVolumeZone"
    assert ZONE in chain.links[0].sentence


def test_a_selector_that_excludes_the_zone_of_the_volume():
    spec = {"node_selector": {"topology.kubernetes.io/zone": OTHER_ZONE}}
    assert first_causes(unscheduled(spec=spec)) == ["PodExcludesVolumeZone"]


def test_two_volumes_in_different_zones():
    other = VolumeView("pv-2", pv_of(OTHER_ZONE, name="pv-2"), ebs(OTHER_ZONE))
    claims = (claim_view("Bound"), replace(claim_view("Bound", volume=other), key="shop/logs"))
    assert first_causes(unscheduled(claims=claims)) == ["VolumesInDifferentZones"]


def test_nodes_that_take_no_more_volumes():
    assert first_causes(unscheduled("0/1: 1 node(s) exceed max volume count")) == ["NodesFull"]


def test_a_taint_that_the_pod_does_not_tolerate():
    taints = [Taint(key="gpu", effect="NoSchedule")]
    (chain,) = chains(unscheduled(nodes=(node_of(taints=taints),)))
    assert str(chain.cause) == "TaintNotTolerated"
    assert "gpu" in chain.links[0].sentence


def test_a_cordoned_node_is_uncordoned_by_the_command():
    (chain,) = chains(unscheduled(nodes=(node_of(unschedulable=True),)))
    assert chain.links[0].command == f"kubectl uncordon {NODE}"


def test_two_cordoned_nodes_are_one_cause_while_the_taint_of_one_is_late():
    taint = Taint(
        key="node.kubernetes.io/unschedulable", effect="NoSchedule", time_added=NOW.isoformat()
    )
    tainted = node_of(unschedulable=True, taints=[taint])
    (chain,) = chains(unscheduled(nodes=(tainted, node_of("late", unschedulable=True))))
    assert chain.links[0].sentence == (
        "The 2 node(s) that could take the pod and its volumes are cordoned."
    )
    assert chain.links[0].command == f"kubectl uncordon {NODE}"


def test_our_startup_taint_is_explained_by_what_the_node_lacks():
    taints = [Taint(key="ebs.csi.aws.com/agent-not-ready", effect="NoExecute")]
    found = unscheduled(nodes=(node_of(taints=taints),))
    assert causes(found) == [["DriverNotRegistered", "StartupTaintLeft", "NoNodeFits"]]


def test_what_is_no_matter_of_volumes_is_told_in_the_schedulers_words():
    (chain,) = chains(unscheduled("0/1 nodes are available: 1 Insufficient cpu."))
    assert str(chain.cause) == "NoNodeFits"
    assert chain.links[0].proof.seen == "0/1 nodes are available: 1 Insufficient cpu."


def test_a_pod_that_does_not_exist():
    assert first_causes(view("pod", pod=None, claims=(), node=None)) == ["ObjectMissing"]


# -- a node, and no volume


def test_a_pending_claim_keeps_a_placed_pod_from_starting():
    found = starting(claims=(claim_view(said=(refused(Reason.QUOTA_EXCEEDED),)),))
    assert causes(found) == [["QuotaExceeded", "ClaimNotBound", "PodWaitsForVolume"]]


def test_a_volume_that_ec2_does_not_have():
    found = starting(claims=with_volume(ebs=None, attachments=(attachment_of(),)))
    assert causes(found) == [["VolumeNotFound", "VolumeNotAttached", "PodWaitsForVolume"]]


def test_what_ec2_does_not_answer_proves_nothing():
    found = starting(claims=with_volume(ebs=None, asked=False, attachments=(attachment_of(),)))
    assert "VolumeNotFound" not in first_causes(found)


def test_a_volume_of_another_region():
    found = starting(claims=with_volume(ebs=None, region="eu-west-1", attachments=()))
    assert first_causes(found) == ["WrongRegionOrAccount"]


def test_a_volume_that_is_attached_to_a_strange_instance():
    found = starting(claims=with_volume(ebs=ebs(on=OTHER_INSTANCE), attachments=(attachment_of(),)))
    (chain,) = chains(found)
    assert chain.cause is Reason.VOLUME_IN_USE
    assert chain.links[0].command == (
        f"aws ec2 detach-volume --volume-id {VOLUME} --instance-id {OTHER_INSTANCE}"
    )


def test_a_volume_that_another_pod_uses_elsewhere():
    volume = volume_of(
        attachments=(attachment_of("node-2", attached=True),), nodes_of={INSTANCE: "node-2"}
    )
    other = pod_of(node="node-2", name="old")
    found = starting(claims=(claim_view("Bound", volume=volume, users=(other,)),))
    (chain,) = chains(found)
    assert str(chain.cause) == "VolumeOnOtherNode"
    assert chain.links[0].command == "kubectl -n shop delete pod old"


def test_an_attachment_that_a_finalizer_of_nobody_keeps():
    held = attachment_of("node-2", attached=True, deleting=True, finalizers=("example.com/hold",))
    found = starting(claims=with_volume(attachments=(held,), ebs=ebs(on="")))
    (chain,) = chains(found)
    first = chain.links[0]
    assert str(first.cause) == "AttachmentStuck"
    assert "is being deleted since 2026-" in first.sentence
    assert "finalizer example.com/hold keeps it" in first.sentence
    assert first.proof.seen == f"example.com/hold; {VOLUME} is available"
    assert first.next == "the owner of example.com/hold; unknown to this driver"
    assert first.remedy.startswith("No part of this driver removes finalizer example.com/hold")
    assert first.remedy.endswith(
        "kube-controller-manager makes a new one by itself if a pod waits for the volume."
    )
    assert '{"op":"test","path":"/metadata/finalizers/0","value":"example.com/hold"}' in (
        first.command
    )


def test_a_finalizer_is_not_to_be_removed_while_ec2_has_the_volume_on_that_node():
    held = attachment_of("node-2", attached=True, deleting=True, finalizers=("example.com/hold",))
    volume = {"ebs": ebs(on=OTHER_INSTANCE), "nodes_of": {OTHER_INSTANCE: "node-2"}}
    (chain,) = chains(starting(claims=with_volume(attachments=(held,), **volume)))

    assert f"{VOLUME} is in-use on {OTHER_INSTANCE} (node node-2)" in chain.links[0].proof.seen
    assert "do not remove the finalizer by hand yet" in chain.links[0].remedy
    assert "--show-managed-fields" in chain.links[0].command


def test_an_attachment_that_is_stuck_is_proved_by_the_pods_event_too():
    held = attachment_of(attached=True, deleting=True, finalizers=("example.com/hold",))
    event = replace(
        said("volume attachment is being deleted", "FailedAttachVolume"), about="pod shop/web-0"
    )
    found = starting(claims=with_volume(attachments=(held,), ebs=ebs(on="")), pod_said=(event,))
    (chain,) = chains(found)
    assert chain.links[1].proof.where.startswith("pod shop/web-0, event FailedAttachVolume")


def test_the_same_on_the_pods_own_node():
    held = attachment_of(attached=True, deleting=True, finalizers=("example.com/hold",))
    found = starting(claims=with_volume(attachments=(held,), ebs=ebs(on="")))
    assert first_causes(found) == ["AttachmentStuck"]


@pytest.mark.parametrize(
    ("finalizers", "waits"),
    [(("example.com/hold",), False), ((ATTACHER_FINALIZER, "example.com/hold"), True)],
)
def test_a_new_detach_waits_only_for_our_own_finalizer(finalizers: tuple[str, ...], *, waits: bool):
    held = attachment_of(attached=True, deleting=True, finalizers=finalizers)
    young = structs.replace(
        held, metadata=structs.replace(held.metadata, deletion_timestamp=NOW.isoformat())
    )
    found = starting(claims=with_volume(attachments=(young,), ebs=ebs(on="")))
    (chain,) = chains(found)
    assert (str(chain.cause), chain.waits) == ("AttachmentStuck", waits)


def test_what_the_controller_says_of_an_attachment():
    text = "AttachVolume vol-1 on i-1: EC2 answered AttachmentLimitExceeded; no more volumes"
    there = attachment_of(error=text)
    error = Said(
        f"volumeattachment {there.name}",
        "status.attachError",
        text,
        reason=Reason.INSTANCE_FULL,
    )
    found = starting(claims=with_volume(attachments=(there,), ebs=ebs(on=""), said=(error,)))
    assert first_causes(found) == ["AttachmentLimitExceeded"]


def test_nobody_attaches_without_a_controller():
    found = starting(
        claims=with_volume(attachments=(attachment_of(),), ebs=ebs(on="")), controller=led("")
    )
    assert first_causes(found) == ["NoController"]


def test_an_attacher_without_leader_election_is_heard():
    there = attachment_of(error="EC2 answered AttachmentLimitExceeded")
    none = replace(led(""), leases=tuple(replace(e, exists=False) for e in led("").leases))
    error = Said(
        f"volumeattachment {there.name}",
        "status.attachError",
        "EC2 answered AttachmentLimitExceeded",
        reason=Reason.INSTANCE_FULL,
        at=NOW,
    )
    for said_, cause in (((error,), "AttachmentLimitExceeded"), ((), "NoController")):
        claims = with_volume(attachments=(there,), ebs=ebs(on=""), said=said_)
        assert first_causes(starting(claims=claims, controller=none)) == [cause]


def test_nobody_has_asked_for_an_attachment():
    assert first_causes(starting()) == ["AttachmentMissing"]


def test_an_attachment_that_somebody_has_undone():
    found = starting(claims=with_volume(ebs=ebs(on="")))
    assert first_causes(found) == ["AttachmentUnknownToEc2"]


@pytest.mark.parametrize(
    ("state", "cause"),
    [
        ("stopped", "InstanceInWrongState"),
        ("stopping", "InstanceInWrongState"),
        ("terminated", "InstanceNotFound"),
    ],
)
def test_an_instance_that_does_not_run(state: str, cause: str):
    node = node_view(instance=Instance(INSTANCE, ZONE, state, "m5.large"))
    assert first_causes(starting(node=node)) == [cause]


def test_a_node_without_the_driver():
    assert first_causes(starting(node=node_view(csi_node=None))) == ["DriverNotRegistered"]


def test_a_node_in_another_zone_than_the_volume():
    node = node_view(
        node=node_of(zone=OTHER_ZONE), instance=Instance(INSTANCE, OTHER_ZONE, "running", "m5")
    )
    assert first_causes(starting(node=node)) == ["ZoneMismatch"]


# -- attached, and not mounted


def mounting(text: str, reason: Reason | None = None, **changes: Any) -> View:
    event = Said(
        "pod shop/web-0", "event FailedMount", text, event="FailedMount", reason=reason, at=NOW
    )
    return view("pod", **{"pod": pod_of(phase="Pending"), "pod_said": (event,)} | changes)


def test_what_the_node_plugin_says_of_a_mount():
    found = mounting("… desc = VolumeNotBlank: it has data", Reason.NOT_BLANK)
    assert causes(found) == [["VolumeNotBlank", "PodWaitsForVolume"]]


SUM = "Unable to attach or mount volumes: unmounted volumes=[data]: "


def mount_failed(text: str, reason: Reason | None, ago_s: float, volume: str = "") -> Said:
    of = f'MountVolume.MountDevice failed for volume "{volume}" : ' if volume else ""
    at = NOW - timedelta(seconds=ago_s)
    about = "pod shop/web-0"
    return Said(about, "event FailedMount", of + text, event="FailedMount", reason=reason, at=at)


def test_kubelets_sum_of_everything_is_no_cause_and_no_all_clear():
    (chain,) = chains(mounting(f"{SUM}timed out waiting for the condition"))
    assert [str(each.cause) for each in chain.links] == ["VolumeNotMounted", "PodWaitsForVolume"]
    assert not chain.waits


@pytest.mark.parametrize(
    "end", ["timed out waiting for the condition", "context deadline exceeded"]
)
def test_kubelets_sum_does_not_hide_an_older_finer_reason(end: str):
    finer = mount_failed("FileSystemDamaged: …", Reason.FILE_SYSTEM_DAMAGED, 300, PV)
    summed = mount_failed(f"{SUM}{end}", None, 5)
    found = view("pod", pod=pod_of(phase="Pending"), pod_said=(finer, summed))
    assert first_causes(found) == ["FileSystemDamaged"]


def test_two_volumes_that_fail_for_two_reasons_are_two_chains():
    one = mount_failed("VolumeNotBlank: …", Reason.NOT_BLANK, 60, "pv-1")
    two = mount_failed("FileSystemDamaged: …", Reason.FILE_SYSTEM_DAMAGED, 5, "pv-2")
    found = view("pod", pod=pod_of(phase="Pending"), pod_said=(one, two))
    assert sorted(first_causes(found)) == ["FileSystemDamaged", "VolumeNotBlank"]


def test_of_one_volume_only_the_newest_failure_counts():
    one = mount_failed("VolumeNotBlank: …", Reason.NOT_BLANK, 60, PV)
    two = mount_failed("FileSystemDamaged: …", Reason.FILE_SYSTEM_DAMAGED, 5, PV)
    found = view("pod", pod=pod_of(phase="Pending"), pod_said=(two, one))
    assert first_causes(found) == ["FileSystemDamaged"]


def test_a_volume_that_is_attached_fails_beside_one_that_is_not():
    failed = mount_failed("VolumeNotBlank: …", Reason.NOT_BLANK, 60, PV)
    logs = volume_of(ebs=None, persistent_volume=pv_of(name="pv-2"), attachments=())
    claims = (
        claim_view("Bound"),
        replace(claim_view("Bound", volume=replace(logs, name="pv-2")), key="shop/logs"),
    )
    found = view("pod", pod=pod_of(phase="Pending"), claims=claims, pod_said=(failed,))
    assert sorted(first_causes(found)) == ["VolumeNotBlank", "VolumeNotFound"]


def test_two_volumes_that_are_gone_are_two_chains():
    other = pv_of(name="pv-2", handle="vol-0bbbbbbbbbbbbbbb2")
    gone = volume_of(ebs=None, attachments=(attachment_of(),))
    logs = replace(gone, name="pv-2", persistent_volume=other)
    claims = (
        claim_view("Bound", volume=gone),
        replace(claim_view("Bound", volume=logs), key="shop/logs"),
    )
    found = starting(claims=claims)
    assert first_causes(found) == ["VolumeNotFound", "VolumeNotFound"]


@pytest.mark.parametrize(
    "node", [node_view(node=node_of(zone=None)), node_view(csi_node=csi_node_of(count=None))]
)
def test_what_is_harmless_about_a_node_does_not_hide_the_mount(node: NodeView):
    found = mounting("… desc = VolumeNotBlank: it has data", Reason.NOT_BLANK, node=node)
    assert causes(found) == [["VolumeNotBlank", "PodWaitsForVolume"]]


def test_a_node_without_the_driver_explains_what_kubelet_says_of_it():
    found = mounting("driver name not found", node=node_view(csi_node=None))
    assert causes(found) == [["DriverNotRegistered", "PodWaitsForVolume"]]


@pytest.mark.parametrize("unread", [frozenset(), frozenset({"list events"})])
def test_a_pod_that_stays_pending_is_never_healthy(unread: frozenset[str]):
    (chain,) = chains(view("pod", pod=pod_of(phase="Pending"), unread=unread))
    assert (str(chain.cause), chain.waits) == ("PodWaitsForVolume", False)


def test_a_pod_that_has_just_got_its_node_waits():
    pod = pod_of(phase="Pending")
    pod = structs.replace(pod, status=structs.replace(pod.status, start_time=NOW))
    (chain,) = chains(view("pod", pod=pod))
    assert (str(chain.cause), chain.waits) == ("PodWaitsForVolume", True)


def test_a_pod_that_does_not_start_for_another_reason_is_told_in_kubelets_words():
    text = "failed to create pod sandbox: CNI plugin not initialized"
    event = "FailedCreatePodSandBox"
    said_ = Said("pod shop/web-0", f"event {event}", text, event=event, at=NOW)
    (chain,) = chains(view("pod", pod=pod_of(phase="Pending"), pod_said=(said_,)))
    assert (str(chain.cause), chain.waits) == ("ContainerDoesNotStart", False)
    assert chain.links[0].proof.seen == text
    over = replace(said_, event="FailedScheduling", text="0/1 nodes are available")
    assert first_causes(view("pod", pod=pod_of(phase="Pending"), pod_said=(over,))) == [
        "PodWaitsForVolume"
    ]


def test_a_pod_whose_scheduler_was_passed_by_explains_its_claim_as_the_claim_does():
    waiting = claim_view(
        storage_class=a_class(waits=True), said=(refused(Reason.PERMISSION_DENIED),)
    )
    assert first_causes(starting(claims=(waiting,))) == ["PermissionDenied"]


def deleted_claim(at: str = "2026-11-23T19:00:00Z", **changes: Any) -> ClaimView:
    found = claim_of("Bound")
    meta = structs.replace(
        found.metadata, deletion_timestamp=at, finalizers=["kubernetes.io/pvc-protection"]
    )
    return claim_view("Bound", claim=structs.replace(found, metadata=meta), **changes)


def test_no_pod_gets_a_node_with_a_claim_that_is_being_deleted():
    user = pod_of(name="old")
    for users, cause in (((user,), "ClaimInUse"), ((), "FinalizerStuck")):
        claim = deleted_claim(at=NOW.isoformat(), users=users)
        message = 'persistentvolumeclaim "data" is being deleted'
        (chain,) = chains(unscheduled(message, claims=(claim,)))
        assert (str(chain.cause), chain.waits) == (cause, False)
        assert "create it again" in chain.links[0].remedy


def test_a_running_pod_is_not_harmed_by_the_deletion_of_its_claim():
    (chain,) = chains(view("pod", claims=(deleted_claim(),)))
    assert (str(chain.cause), chain.waits) == ("ClaimInUse", True)


def test_a_node_with_a_wrong_zone_label_is_one_chain_that_begins_with_the_label():
    node = node_view(instance=Instance(INSTANCE, OTHER_ZONE, "running", "m5.large"))
    (chain,) = chains(starting(node=node))
    assert [str(each.cause) for each in chain.links[:2]] == ["ZoneLabelWrong", "ZoneMismatch"]
    assert "Then delete the pod" in chain.links[0].remedy


def test_what_kubelet_says_without_a_reason_is_told_as_it_is():
    (chain,) = chains(mounting("MountVolume.SetUp failed: no such secret"))
    assert (str(chain.cause), chain.links[0].proof.seen) == (
        "VolumeNotMounted",
        "MountVolume.SetUp failed: no such secret",
    )


def test_a_container_that_does_not_start_is_no_matter_of_volumes():
    waiting = ContainerState(waiting=Waiting(reason="ImagePullBackOff"))
    status = PodStatus(
        phase="Pending", container_statuses=[ContainerStatus(name="main", state=waiting)]
    )
    pod = structs.replace(pod_of(), status=status)
    (chain,) = chains(view("pod", pod=pod))
    assert str(chain.cause) == "ContainerDoesNotStart"


def test_two_independent_causes_are_two_chains():
    logs = replace(claim_view(said=(refused(Reason.PERMISSION_DENIED),)), key="shop/logs")
    lost = with_volume(ebs=None, attachments=(attachment_of(),))
    found = starting(claims=(*lost, logs))
    assert first_causes(found) == ["VolumeNotFound", "PermissionDenied"]


def test_a_pod_that_ends_on_a_dead_node():
    node = structs.replace(node_of(), status=node_of().status)
    ready = structs.replace(node.status.conditions[0], status="Unknown")  # type: ignore[index]
    node = structs.replace(node, status=structs.replace(node.status, conditions=[ready]))
    pod = pod_of()
    meta = structs.replace(pod.metadata, deletion_timestamp="2026-11-23T19:00:00Z")
    found = view(
        "pod", pod=structs.replace(pod, metadata=meta), node=node_view(node=node, asked=False)
    )
    assert causes(found) == [["NodeNotReady", "PodWaitsForVolume"]]


def test_a_detached_attachment_does_not_count_as_foreign():
    leaving = InstanceAttachment(OTHER_INSTANCE, "/dev/xvdba", AttachmentState.DETACHING)
    volume = replace(ebs(), attachments=(leaving,))
    found = starting(claims=with_volume(ebs=volume, attachments=(attachment_of(),)))
    assert "VolumeInUse" not in first_causes(found)


def test_a_node_that_is_registered_without_a_limit():
    node = node_view(csi_node=csi_node_of(count=None))
    assert first_causes(view("node", node=node)) == ["VolumeLimitUnknown"]
    # The pods that it has got get their volumes all the same.
    assert first_causes(starting(node=node)) == ["AttachmentMissing"]
