"""Which detachments of mounted volumes the kill of a kubelet explains, and how many."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from provisioner.sandbox.real_node.cycle_report import Report
from provisioner.sandbox.real_node.disks import Torn
from provisioner.sandbox.real_node.kills import Kill, explain
from provisioner.sandbox.real_node.node import KUBELET

STAGED = "mounted at /var/lib/kubelet/plugins/kubernetes.io/csi/ebs.csi.aws.com/0a/globalmount"
TORN = Torn("vol-1", "i-1", "nvme1n1", (STAGED,), at_s=20.0)
KILL = Kill("i-1", 12.0, 13.0)
"""The pod still ran at 10, and its volume was detached at 20."""

OTHERS = ["kubernetes.io/csi/ebs.csi.aws.com^vol-12"]


def test_a_kubelet_that_is_killed_between_a_pods_end_and_the_detachment_explains_it() -> None:
    assert explain(TORN, 10.0, [KILL], OTHERS)


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param([], id="nobody was killed"),
        pytest.param([replace(KILL, instance_id="i-2")], id="the kubelet of another node"),
        pytest.param([Kill("i-1", 8.0, 9.0)], id="while the pod still ran"),
        pytest.param([Kill("i-1", 20.5, 21.0)], id="after the detachment"),
    ],
)
def test_without_such_a_kill_whoever_detached_it_is_to_blame(kills: list[Kill]) -> None:
    assert not explain(TORN, 10.0, kills, OTHERS)


def test_a_kubelet_that_says_that_it_uses_the_volume_has_not_forgotten_it() -> None:
    in_use = ["kubernetes.io/csi/ebs.csi.aws.com^vol-1"]

    assert not explain(TORN, 10.0, [KILL], in_use)


@pytest.mark.parametrize(
    "holders",
    [
        (),
        ("open in dd (17)",),
        (STAGED, "mounted at /var/lib/kubelet/pods/1/volumes/kubernetes.io~csi/pvc-1/mount"),
        (STAGED, "open in mkfs.ext4 (17)"),
    ],
)
def test_what_a_pod_or_a_program_has_is_no_forgotten_stage(holders: tuple[str, ...]) -> None:
    assert not explain(replace(TORN, holders=holders), 10.0, [KILL], OTHERS)


def test_more_than_killed_kubelets_explain_is_not_well_and_told() -> None:
    report = Report(1, 10, 2, kills=Counter({KUBELET: 11}), forgotten=["vol-1", "vol-2"])
    assert report.is_well
    assert "between the two unmounts: 2," in str(report)

    report.forgotten.append("vol-3")

    assert not report.is_well
