"""What is told of a pod that runs, or whose volumes are there."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec import structs

from provisioner.inspect.explain import target_rules
from provisioner.inspect.explain.view_rules import Said, View
from provisioner.inspect.reading.kind_rules import (
    ContainerState,
    ContainerStatus,
    Running,
)
from provisioner.model.copy_pod import Terminated, Waiting
from provisioner.model.errors import Reason
from provisioner.model.volume import AttachmentState, InstanceAttachment
from tests.builders import INSTANCE
from tests.inspect.explain.views import (
    LONG_AGO,
    NODE,
    NOW,
    PV,
    attachment_of,
    causes,
    chains,
    claim_view,
    ebs,
    first_causes,
    of_another_driver,
    pod_of,
    view,
    volume_of,
)


def container(*, ready: bool = False, name: str = "db", **state: Any) -> ContainerStatus:
    return ContainerStatus(name=name, ready=ready, state=ContainerState(**state))


def event(text: str, reason: str, ago: timedelta = timedelta(minutes=1)) -> Said:
    return Said("pod shop/web-0", f"event {reason}", text, event=reason, at=NOW - ago)


def with_volume(**changes: Any) -> View:
    return view("pod", claims=(claim_view("Bound", volume=volume_of(**changes)),))


# -- a volume of another driver


@pytest.mark.parametrize("driver", ["efs.csi.aws.com", ""])
def test_a_volume_of_another_driver_is_not_attached_by_this_one(driver: str):
    pulls = container(waiting=Waiting(reason="ImagePullBackOff"))
    pod = pod_of(phase="Pending", containers=[pulls])
    claims = (claim_view("Bound", volume=of_another_driver(driver)),)
    assert first_causes(view("pod", pod=pod, claims=claims)) == ["ContainerDoesNotStart"]


def test_what_kubelet_says_of_the_volume_of_another_driver_is_told():
    said = event('MountVolume.SetUp failed for volume "efs-pv" : timed out', "FailedMount")
    claims = (claim_view("Bound", volume=of_another_driver()),)
    found = view("pod", pod=pod_of(phase="Pending"), claims=claims, pod_said=(said,))
    assert causes(found) == [["VolumeNotMounted", "PodWaitsForVolume"]]


NOT_ATTACHED = 'AttachVolume.Attach failed for volume "efs-pv" : not ready'


def test_a_volume_of_another_driver_that_is_not_attached_is_told():
    said = event(NOT_ATTACHED, "FailedAttachVolume")
    claims = (claim_view("Bound", volume=of_another_driver()),)
    (chain,) = chains(view("pod", pod=pod_of(phase="Pending"), claims=claims, pod_said=(said,)))
    assert [str(each.cause) for each in chain.links] == ["VolumeNotAttached", "PodWaitsForVolume"]
    assert chain.links[0].proof.seen == NOT_ATTACHED
    assert not chain.waits


def test_a_volume_that_the_pod_names_itself_is_told_by_the_reason_of_its_event():
    text = 'AttachVolume.Attach failed for volume "in-tree" : VolumeInUse: it is on i-2'
    said = replace(event(text, "FailedAttachVolume"), reason=Reason.VOLUME_IN_USE)
    found = view("pod", pod=pod_of(phase="Pending"), claims=(), pod_said=(said,))
    assert causes(found) == [["VolumeInUse", "PodWaitsForVolume"]]


def test_an_attachment_that_has_failed_before_it_succeeded_is_over():
    failed = event(NOT_ATTACHED, "FailedAttachVolume", timedelta(minutes=3))
    text = 'AttachVolume.Attach succeeded for volume "efs-pv"'
    attached = replace(event(text, "SuccessfulAttachVolume"), warning=False)
    of_other = claim_view("Bound", volume=of_another_driver())
    pod = pod_of(phase="Pending")
    for claims, events in [
        ((of_other,), (failed, attached)),
        ((claim_view("Bound"),), (replace(failed, text=NOT_ATTACHED.replace("efs-pv", PV)),)),
        ((of_other,), (replace(failed, at=NOW - timedelta(minutes=11)),)),
    ]:
        found = view("pod", pod=pod, claims=claims, pod_said=events)
        assert causes(found) == [["PodWaitsForVolume"]]


@pytest.mark.parametrize(
    ("failed_ago", "attached_ago", "volume", "is_told"),
    [
        (1, 40, "efs-pv", True),
        (1, 1, "efs-pv", False),
        (2, 1, "another", True),
        (None, 1, "efs-pv", True),
        (1, None, "efs-pv", False),
    ],
)
def test_an_attachment_that_fails_after_it_succeeded_is_told(
    failed_ago: int | None, attached_ago: int | None, volume: str, *, is_told: bool
):
    def at(ago: int | None) -> datetime | None:
        return None if ago is None else NOW - timedelta(minutes=ago)

    failed = replace(event(NOT_ATTACHED, "FailedAttachVolume"), at=at(failed_ago))
    text = f'AttachVolume.Attach succeeded for volume "{volume}"'
    done = event(text, "SuccessfulAttachVolume")
    done = replace(done, warning=False, at=at(attached_ago))
    claims = (claim_view("Bound", volume=of_another_driver()),)
    pod = pod_of(phase="Pending")
    found = view("pod", pod=pod, claims=claims, pod_said=(failed, done))

    assert (first_causes(found) == ["VolumeNotAttached"]) is is_told


@pytest.mark.parametrize(("node", "is_told"), [(NODE, False), ("node-2", True)])
def test_a_volume_of_another_driver_that_is_attached_by_now_is_not_told(
    node: str, *, is_told: bool
):
    """Its event of success may be gone: the VolumeAttachment tells."""
    there = attachment_of(node, attached=True)
    volume = replace(of_another_driver(), attachments=(there,))
    said = event(NOT_ATTACHED, "FailedAttachVolume")
    claims = (claim_view("Bound", volume=volume),)
    found = view("pod", pod=pod_of(phase="Pending"), claims=claims, pod_said=(said,))

    assert (first_causes(found) == ["VolumeNotAttached"]) is is_told


def test_a_volume_of_another_driver_harms_nobody_that_runs():
    claims = (
        claim_view("Bound"),
        replace(claim_view("Bound", volume=of_another_driver()), key="shop/shared"),
    )
    assert causes(view("pod", claims=claims)) == []


# -- running, and its volume is gone


def test_a_running_pod_whose_volume_was_detached_by_hand():
    assert first_causes(with_volume(ebs=ebs(on=""))) == ["AttachmentUnknownToEc2"]


@pytest.mark.parametrize("state", [AttachmentState.DETACHING, AttachmentState.BUSY])
@pytest.mark.parametrize("phase", ["Running", "Pending"])
def test_a_volume_that_somebody_detaches_by_hand(state: AttachmentState, phase: str):
    leaving = replace(ebs(), attachments=(InstanceAttachment(INSTANCE, "/dev/xvdba", state),))
    found = replace(with_volume(ebs=leaving), pod=pod_of(phase=phase))
    (chain,) = chains(found)
    assert str(chain.cause) == "AttachmentUnknownToEc2"
    assert chain.links[0].proof.seen == f"attached: true; {state} on {INSTANCE}"


def test_a_detachment_that_kubernetes_asks_for_is_none_by_hand():
    leaving = InstanceAttachment(INSTANCE, "/dev/xvdba", AttachmentState.DETACHING)
    volume = replace(ebs(), attachments=(leaving,))
    asked = attachment_of(attached=True, deleting=True)
    assert causes(with_volume(ebs=volume, attachments=(asked,))) == []


# -- running, and a container is not ready


def test_a_container_that_crashes_is_never_called_healthy():
    crashes = container(waiting=Waiting(reason="CrashLoopBackOff", message="back-off 5m0s"))
    (chain,) = chains(view("pod", pod=pod_of(containers=[crashes])))
    assert (str(chain.cause), chain.waits) == ("ContainerDoesNotStart", False)
    assert "CrashLoopBackOff" in chain.links[0].sentence
    assert chain.links[0].command == "kubectl -n shop logs web-0 -c db --previous"


def test_a_full_file_system_is_named_by_the_warning_of_a_container_that_crashes():
    crashes = container(waiting=Waiting(reason="CrashLoopBackOff"))
    said = event("Back-off restarting: No space left on device", "BackOff")
    (chain,) = chains(view("pod", pod=pod_of(containers=[crashes]), pod_said=(said,)))
    assert chain.links[0].proof.seen == said.text
    assert chain.links[0].command == "kubectl ebs df"


def test_a_container_that_is_not_ready_is_never_called_healthy():
    runs = container(running=Running(started_at=LONG_AGO))
    (chain,) = chains(view("pod", pod=pod_of(containers=[runs])))
    assert (str(chain.cause), chain.waits) == ("ContainerDoesNotStart", False)


def test_a_container_that_has_just_started_is_awaited():
    runs = container(running=Running(started_at=NOW - timedelta(seconds=20)))
    (chain,) = chains(view("pod", pod=pod_of(containers=[runs])))
    assert chain.waits


def test_a_container_that_has_done_its_work_is_healthy():
    done = container(terminated=Terminated(exit_code=0, reason="Completed"))
    both = [done, container(ready=True, name="main", running=Running(started_at=LONG_AGO))]
    assert causes(view("pod", pod=pod_of(containers=both))) == []


def test_a_container_that_has_failed_for_good_is_not():
    failed = container(terminated=Terminated(exit_code=1, reason="Error"))
    assert first_causes(view("pod", pod=pod_of(containers=[failed]))) == ["ContainerDoesNotStart"]


def test_a_recent_warning_about_a_healthy_pod_is_shown_with_it():
    said = event("volume is abnormal", "VolumeConditionAbnormal")
    found = target_rules.explain(view("pod", pod_said=(said,)))
    assert not found.chains
    assert dict(found.facts)["last warning"].endswith("VolumeConditionAbnormal: volume is abnormal")
    old = replace(said, at=LONG_AGO)
    assert "last warning" not in dict(target_rules.explain(view("pod", pod_said=(old,))).facts)


def test_a_lost_volume_explains_the_container_that_crashes():
    crashes = container(waiting=Waiting(reason="CrashLoopBackOff"))
    found = replace(with_volume(ebs=ebs(on="")), pod=pod_of(containers=[crashes]))
    assert first_causes(found) == ["AttachmentUnknownToEc2"]


# -- not running, and all is well


def test_an_init_container_that_works_is_awaited():
    pod = pod_of(phase="Pending", containers=[container(waiting=Waiting(reason="PodInitializing"))])
    works = container(name="restore", running=Running(started_at=LONG_AGO))
    status = structs.replace(pod.status, init_container_statuses=[works])
    (chain,) = chains(view("pod", pod=structs.replace(pod, status=status)))
    assert (str(chain.cause), chain.waits) == ("PodWaitsForVolume", True)
    assert "restore" in chain.links[0].sentence


def test_a_change_of_ownership_that_takes_long_is_awaited():
    """Kubelet 1.36 pkg/volume/volume_linux.go: a Warning, while it walks through the files."""
    said = event(
        "Setting volume ownership for pod/volumes/mount is taking longer than expected, consider "
        "using OnRootMismatch",
        "VolumePermissionChangeInProgress",
    )
    summed = event("Unable to attach or mount volumes: timed out waiting", "FailedMount")
    pod = pod_of(phase="Pending")
    (chain,) = chains(view("pod", pod=pod, pod_said=(said, summed)))
    assert (str(chain.cause), chain.waits) == ("OwnershipChanges", True)
    assert "fsGroupChangePolicy: OnRootMismatch" in chain.links[0].remedy
