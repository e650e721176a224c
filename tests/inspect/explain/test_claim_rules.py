"""Why a claim is Pending, Lost, or does not go away."""

from __future__ import annotations

import inspect
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec import structs

from provisioner.inspect.explain.chain_rules import Chain
from provisioner.inspect.explain.view_rules import ClaimView, ControllerView, Said
from provisioner.kube.queue import KeyedQueue
from provisioner.model.claim import DataSource
from provisioner.model.errors import Reason
from provisioner.model.meta import ObjectReference
from tests.builders import a_class, a_term
from tests.inspect.explain.views import (
    LONG_AGO,
    NOW,
    PV,
    causes,
    chains,
    claim_of,
    claim_view,
    first_causes,
    led,
    node_of,
    pod_of,
    pv_of,
    refused,
    said,
    view,
    volume_of,
)


def pending(**changes: Any) -> list[str]:
    return first_causes(view(claims=(claim_view(**changes),)))


def test_a_bound_claim_is_healthy():
    assert causes(view()) == []


def test_a_claim_of_a_missing_class():
    assert pending(storage_class=None) == ["ClassNotFound"]


def test_a_missing_class_proves_nothing_if_classes_cannot_be_read():
    found = view(claims=(claim_view(storage_class=None),), unread=frozenset({"get storageclasses"}))
    assert "ClassNotFound" not in first_causes(found)


@pytest.mark.parametrize(
    ("holder", "pod", "command"),
    [
        ("ebs-provisioner_c-0_7f", "storage/c-0", "kubectl -n storage logs c-0 --tail=50"),
        (
            "stock-1",
            "kube-system/stock-1",
            "kubectl -n kube-system logs stock-1 --tail=50 --all-containers",
        ),
        (
            "stock-1",
            "",
            "kubectl get pods -A -l 'app.kubernetes.io/component in (controller,csi-driver)'",
        ),
    ],
)
def test_the_log_is_that_of_the_pod_that_holds_the_lease(holder: str, pod: str, command: str):
    working = led(holder)
    leases = tuple(replace(each, pod=pod) for each in working.leases)
    found = view(claims=(claim_view(),), controller=replace(working, leases=leases))
    assert chains(found)[0].links[0].command == command


def test_a_claim_of_another_driver():
    assert pending(storage_class=a_class(provisioner="efs.csi.aws.com")) == ["ClassOfOtherDriver"]


@pytest.mark.parametrize("driver", ["rancher.io/local-path", "kubernetes.io/no-provisioner"])
def test_a_claim_of_another_driver_waits_for_a_pod_too(driver: str):
    waiting = claim_view(storage_class=a_class(provisioner=driver, waits=True))
    (chain,) = chains(view(claims=(waiting,)))
    assert (str(chain.cause), chain.waits) == ("WaitsForPod", True)


def test_what_the_scheduler_says_goes_before_a_claim_of_another_driver_that_waits():
    pod = pod_of(node="", message="0/3 nodes are available: 3 Insufficient cpu.")
    waiting = claim_view(storage_class=a_class(provisioner="rancher.io/local-path", waits=True))
    found = view("pod", pod=pod, node=None, nodes=(node_of(),), claims=(waiting,))
    assert first_causes(found) == ["NoNodeFits"]


def test_a_claim_that_another_driver_refuses_does_not_wait_for_a_pod():
    of_other = a_class(provisioner="rancher.io/local-path", waits=True)
    assert pending(storage_class=of_other, said=(said("no room"),)) == ["ClassOfOtherDriver"]


def test_volumes_of_a_class_without_provisioner_are_made_by_hand():
    by_hand = claim_view(storage_class=a_class(provisioner="kubernetes.io/no-provisioner"))
    (chain,) = chains(view(claims=(by_hand,)))
    assert "are made by hand" in chain.links[0].sentence
    assert chain.links[0].remedy.startswith("Create a PersistentVolume of this class")
    assert not chain.waits


def test_a_claim_that_waits_for_a_pod_is_not_wrong():
    (chain,) = chains(view(claims=(claim_view(storage_class=a_class(waits=True)),)))
    assert (str(chain.cause), chain.waits) == ("WaitsForPod", True)
    assert "No pod uses the claim yet" in chain.links[0].sentence


def test_a_claim_whose_pod_is_not_scheduled_says_why():
    pod = pod_of(node="", message="0/3 nodes are available: 3 Insufficient cpu.")
    waiting = claim_view(storage_class=a_class(waits=True), users=(pod,))
    (chain,) = chains(view(claims=(waiting,)))
    assert [str(each.cause) for each in chain.links] == ["NoNodeFits", "WaitsForPod"]
    assert "Insufficient cpu" in chain.links[0].proof.seen


def test_a_class_whose_zones_have_no_node():
    allowed = [a_term(zone=["us-east-1f"])]
    pod = pod_of(node="", message="0/3 nodes are available")
    waiting = claim_view(storage_class=a_class(waits=True, allowed=allowed), users=(pod,))
    (chain,) = chains(view(claims=(waiting,), nodes=(node_of(),)))
    assert chain.cause is Reason.NO_ZONE


def test_a_class_that_can_never_work():
    broken = a_class(parameters={"type": "gp7"})
    assert pending(storage_class=broken) == ["InvalidClass"]


def test_the_stock_driver_may_take_a_class_that_we_refuse():
    broken = a_class(parameters={"type": "gp7"})
    found = view(claims=(claim_view(storage_class=broken),), controller=led("1-2-ebs.csi.aws.com"))
    assert first_causes(found) == ["Provisioning"]


@pytest.mark.parametrize(
    "reason",
    [
        Reason.QUOTA_EXCEEDED,
        Reason.PERMISSION_DENIED,
        Reason.KEY_UNUSABLE,
        Reason.ZONE_OUT_OF_CAPACITY,
        Reason.CREDENTIALS_INVALID,
    ],
)
def test_what_ec2_refuses_is_told_with_the_advice_of_the_events(reason: Reason):
    (chain,) = chains(view(claims=(claim_view(said=(refused(reason),)),)))
    assert chain.cause is reason
    assert chain.links[0].remedy
    assert chain.links[0].next
    assert chain.links[0].proof.seen.startswith(reason)


def test_the_pause_before_the_next_try_is_told_as_it_grows():
    (chain,) = chains(view(claims=(claim_view(said=(refused(Reason.PERMISSION_DENIED),)),)))
    assert chain.links[0].next == (
        "you; afterwards the controller continues by itself, as a rule within 5 minutes: the "
        "longer it has failed, the less often it tries"
    )
    assert inspect.signature(KeyedQueue).parameters["cap_s"].default == 5 * 60


def test_a_failure_counts_although_the_next_try_goes_on():
    going = said("being created", "Provisioning", warning=False, at=NOW)
    told = (refused(Reason.QUOTA_EXCEEDED), going)
    assert pending(said=told) == ["QuotaExceeded"]


def test_a_class_that_exists_now_is_not_missing_any_more():
    old = said('storageclass "fast" not found', reason=Reason.CLASS_NOT_FOUND)
    assert pending(said=(old,)) == ["Provisioning"]


def test_a_volume_that_ec2_took_back_is_about_its_key():
    (chain,) = chains(view(claims=(claim_view(said=(refused(Reason.VOLUME_NOT_FOUND),)),)))
    assert "KMS key" in chain.links[0].sentence


def test_a_failure_of_long_ago_does_not_count():
    old = said("QuotaExceeded: …", reason=Reason.QUOTA_EXCEEDED, at=LONG_AGO)
    going = said("being created", "Provisioning", warning=False, at=NOW)
    (chain,) = chains(view(claims=(claim_view(said=(old, going)),)))
    assert (str(chain.cause), chain.waits) == ("Provisioning", True)
    assert "log" in chain.links[0].remedy
    assert "logs" in chain.links[0].command


def test_without_a_controller_nothing_is_created():
    assert first_causes(view(claims=(claim_view(),), controller=led("", 0))) == ["NoController"]


def test_a_dead_holder_of_the_lease():
    found = view(claims=(claim_view(),), controller=led(ago_s=300))
    assert first_causes(found) == ["LeaseExpired"]


def test_leases_that_cannot_be_read_prove_nothing():
    found = view(claims=(claim_view(),), controller=ControllerView())
    assert first_causes(found) == ["Provisioning"]


def test_two_controllers_that_share_the_leases():
    ours, theirs = led().leases, led("1700-ebs.csi.aws.com").leases
    both = ControllerView((theirs[0], *ours[1:]))
    assert first_causes(view(claims=(claim_view(),), controller=both)) == ["LeasesSplit"]


def test_a_controller_without_leader_election_is_heard():
    none = ControllerView(tuple(replace(each, exists=False) for each in led("", 0).leases))
    recent = refused(Reason.PERMISSION_DENIED)
    for said_, found in (((recent,), ["PermissionDenied"]), ((), ["NoController"])):
        about = claim_view(said=said_)
        assert first_causes(view(claims=(about,), controller=none)) == found


def test_a_refusal_is_told_though_the_node_was_taken_back():
    waits = a_class(waits=True)
    claim = claim_of()
    full = refused(Reason.ZONE_OUT_OF_CAPACITY)
    old = replace(full, at=LONG_AGO)
    for said_, found in ((full, "ZoneOutOfCapacity"), (old, "WaitsForPod")):
        about = claim_view(claim=claim, storage_class=waits, said=(said_,))
        (chain,) = chains(view(claims=(about,)))
        assert str(chain.cause) == found


def test_a_node_without_the_driver_is_named_by_the_stock_provisioner():
    text = (
        'failed to provision volume with StorageClass "gp3": error generating accessibility '
        "requirements: no topology key found on CSINode node-1"
    )
    (chain,) = chains(view(claims=(claim_view(said=(said(text),)),)))
    assert str(chain.cause) == "DriverNotRegistered"
    assert chain.links[0].command == "kubectl ebs explain node node-1"


def test_a_failure_that_nobody_knows_is_no_progress():
    (chain,) = chains(view(claims=(claim_view(said=(said("the moon is full"),)),)))
    assert (str(chain.cause), chain.waits) == ("VolumeNotCreated", False)


def test_a_refusal_and_no_controller_are_two_causes():
    found = view(
        claims=(claim_view(said=(refused(Reason.PERMISSION_DENIED),)),), controller=led(ago_s=300)
    )
    assert first_causes(found) == ["LeaseExpired", "PermissionDenied"]


def test_a_claim_with_a_selector():
    assert pending(claim=claim_of(selector={"matchLabels": {"a": "b"}})) == ["InvalidClaim"]


def test_a_claim_that_names_a_missing_persistent_volume():
    assert pending(claim=claim_of(volume_name="pv-1")) == ["PersistentVolumeMissing"]


def test_a_populator_that_nobody_has():
    source = DataSource(kind="Demo", name="x", api_group="demo.io")
    assert pending(claim=claim_of(source=source)) == ["PopulatorMissing"]


def test_a_clone_of_a_claim_that_is_not_there():
    source = DataSource(kind="PersistentVolumeClaim", name="old")
    assert pending(claim=claim_of(source=source)) == ["SourceMissing"]


def test_a_lost_claim():
    assert causes(view(claims=(claim_view("Lost"),))) == [["PersistentVolumeMissing", "ClaimLost"]]


def test_the_volume_of_a_lost_claim_is_looked_for_by_its_tag():
    """`kubectl ebs orphans` spares it, as long as the claim is there."""
    (chain,) = chains(view(claims=(claim_view("Lost"),)))
    assert chain.links[0].command == (
        f"aws ec2 describe-volumes --filters Name=tag:CSIVolumeName,Values={PV}"
    )


def test_of_a_claim_that_goes_and_is_in_use_the_data_are_kept_first():
    held = claim_of("Bound", deleting=True)
    meta = structs.replace(held.metadata, finalizers=["kubernetes.io/pvc-protection"])
    held = structs.replace(held, metadata=meta)
    for policy, is_kept in (("Delete", False), ("Retain", True)):
        volume = volume_of(persistent_volume=pv_of(policy=policy))
        found = claim_view("Bound", claim=held, users=(pod_of(),), volume=volume)
        (chain,) = chains(view(claims=(found,)))
        (link,) = chain.links
        assert str(chain.cause) == "ClaimInUse"
        assert "shop/web-0" in link.sentence
        assert ("data are deleted with it" in link.next, is_kept) in {(True, False), (False, True)}
        keep = f"kubectl patch pv {PV} -p '" + '{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}'
        assert link.command == ("" if is_kept else f"{keep}'")


def test_a_claim_that_was_never_created_because_of_a_quota():
    text = (
        "create Claim data-web-0 for Pod web-0 in StatefulSet web failed error: "
        'persistentvolumeclaims "data" is forbidden: exceeded quota: small, requested: …'
    )
    event = Said("StatefulSet shop/web", "event FailedCreate", text, event="FailedCreate", at=NOW)
    found = view(claims=(ClaimView("shop/data"),), refusals=(event,))
    (chain,) = chains(found)
    assert str(chain.cause) == "ResourceQuotaExceeded"
    assert chain.links[0].command == "kubectl -n shop describe resourcequota small"


def test_a_claim_that_does_not_exist():
    assert first_causes(view(claims=(ClaimView("shop/data"),))) == ["ObjectMissing"]


def test_a_young_claim_of_which_nothing_is_said_only_waits():
    young = claim_of()
    meta = structs.replace(young.metadata, creation_timestamp=NOW - timedelta(seconds=5))
    young = structs.replace(young, metadata=meta)
    (chain,) = chains(view(claims=(claim_view(claim=young),)))
    assert chain.waits


# -- found by reviewers


def deleted(at: datetime, **changes: Any) -> ClaimView:
    found = claim_of("Bound")
    meta = structs.replace(
        found.metadata,
        deletion_timestamp=at.isoformat(),
        finalizers=["kubernetes.io/pvc-protection"],
    )
    return claim_view("Bound", claim=structs.replace(found, metadata=meta), **changes)


def test_a_claim_that_does_not_go_away_is_never_healthy():
    for at, waits in ((LONG_AGO, False), (NOW, True)):
        (chain,) = chains(view(claims=(deleted(at),)))
        assert (str(chain.cause), chain.waits) == ("FinalizerStuck", waits)
    (unread,) = chains(view(claims=(deleted(NOW),), unread=frozenset({"list pods"})))
    assert "pods could not be read" in unread.links[0].sentence


def test_a_pod_without_a_node_does_not_keep_its_claim():
    (chain,) = chains(view(claims=(deleted(LONG_AGO, users=(pod_of(node=""),)),)))
    assert str(chain.cause) == "FinalizerStuck"


def asks_for(holder: ObjectReference | None, **changes: Any) -> Chain:
    """A claim that names a PersistentVolume with a claimRef."""
    found = claim_of(volume_name=PV)
    meta = structs.replace(found.metadata, **changes)
    volume = pv_of(phase="Released")
    volume = structs.replace(volume, spec=structs.replace(volume.spec, claim_ref=holder))
    claim = structs.replace(found, metadata=meta)
    about = claim_view(claim=claim, volume=volume_of(persistent_volume=volume))
    (chain,) = chains(view(claims=(about,)))
    return chain


def test_a_volume_of_a_claim_of_another_name_is_taken_over_without_its_whole_claim_ref():
    for uid in ("uid-of-old", ""):
        chain = asks_for(ObjectReference(namespace="shop", name="old", uid=uid))
        assert str(chain.cause) == "PersistentVolumeTaken"
        assert ": set its reclaim policy to Retain at once, remove spec.claimRef" in (
            chain.links[0].remedy
        )
        assert chain.links[0].command == "kubectl -n shop get pvc old"


def test_a_volume_of_an_earlier_claim_of_the_same_name_keeps_the_name():
    chain = asks_for(ObjectReference(namespace="shop", name="data", uid="uid-of-old"))
    assert "remove uid and resourceVersion from spec.claimRef" in chain.links[0].remedy


def test_a_claim_that_has_just_asked_for_its_volume_waits():
    assert asks_for(None, creation_timestamp=NOW).waits
    assert not asks_for(None).waits
