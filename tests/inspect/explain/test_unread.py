"""Nothing is concluded from what could not be read."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from provisioner.inspect.explain.view_rules import (
    ClaimView,
    ControllerView,
    SnapshotView,
    View,
    VolumeView,
)
from provisioner.inspect.reading.gap_rules import GROUPS
from provisioner.model.claim import DataSource
from tests.inspect.explain.views import (
    CLAIM,
    claim_of,
    claim_view,
    ebs,
    first_causes,
    node_view,
    pod_of,
    view,
    volume_of,
)

STARTING = view("pod", pod=pod_of(phase="Pending"))
NO_VOLUME = claim_view(claim=claim_of(volume_name="pv-1"), volume=VolumeView("pv-1"))
UNATTACHED = claim_view("Bound", volume=volume_of(attachments=(), ebs=ebs(on="")))


@pytest.mark.parametrize(
    ("found", "plural", "cause"),
    [
        (view(claims=(claim_view(storage_class=None),)), "storageclasses", "ClassNotFound"),
        (view(claims=(NO_VOLUME,)), "persistentvolumes", "PersistentVolumeMissing"),
        (
            replace(STARTING, claims=(ClaimView(CLAIM),)),
            "persistentvolumeclaims",
            "ClaimMissing",
        ),
        (replace(STARTING, claims=(UNATTACHED,)), "volumeattachments", "AttachmentMissing"),
        (replace(STARTING, node=node_view(node=None)), "nodes", "NodeGone"),
        (replace(STARTING, node=node_view(csi_node=None)), "csinodes", "DriverNotRegistered"),
    ],
)
def test_what_is_missing_is_a_cause_only_if_it_could_be_read(found: View, plural: str, cause: str):
    assert first_causes(found) == [cause]
    for verb in ("get", "list"):
        unread = replace(found, unread=frozenset({f"{verb} {plural}"}))
        assert cause not in first_causes(unread)


def test_leases_that_cannot_be_read_are_no_missing_controller():
    found = view(claims=(claim_view(),), controller=ControllerView())
    assert "NoController" not in first_causes(found)


@pytest.mark.parametrize(
    ("versions", "unread", "cause"),
    [
        ((), "", "SnapshotCrdsMissing"),
        (("v1beta1",), "", "SnapshotCrdsMissing"),
        (("v1",), "", "SourceMissing"),
        ((), GROUPS, "SourceMissing"),
    ],
)
def test_snapshots_are_not_served_only_if_the_server_says_so(
    versions: tuple[str, ...], unread: str, cause: str
):
    claim = claim_of()
    source = DataSource(api_group="snapshot.storage.k8s.io", kind="VolumeSnapshot", name="monday")
    claim = structs.replace(claim, spec=structs.replace(claim.spec, data_source=source))
    about = claim_view(claim=claim, snapshot=SnapshotView("shop/monday", versions=versions))
    found = replace(view(claims=(about,)), unread=frozenset({unread}))

    assert first_causes(found) == [cause]
