"""Beside a stock controller that asks for no lease, ours would work at the same time."""

from typing import Any

import pytest

from tests.chart.api_server import refused
from tests.chart.helm import built, rendered

Json = dict[str, Any]
pytestmark = built

BESIDE: Json = {"besideStock": {"controller": True}, "node": {"enableLinux": False}}


def stock(**elections: bool) -> Json:
    """The stock controller, with what its containers say of leader election."""
    containers = [
        {"name": name.replace("_", "-"), "args": [f"--leader-election={str(elects).lower()}"]}
        for name, elects in elections.items()
    ]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "ebs-csi-controller", "namespace": "kube-system"},
        "spec": {"replicas": 2, "template": {"spec": {"containers": containers}}},
    }


@pytest.mark.parametrize("sidecar", ["provisioner", "attacher"])
def test_a_running_sidecar_without_leader_election_is_named(sidecar: str):
    [sentence] = refused(BESIDE, stock(**{"csi_resizer": True, f"csi_{sidecar}": False}))

    assert sentence == (
        f"csi-{sidecar} of aws-ebs-csi-driver's controller (Deployment "
        "kube-system/ebs-csi-controller) has --leader-election=false, so both controllers would "
        f"work at the same time: set sidecars.{sidecar}.leaderElection.enabled=true in its chart "
        "first"
    )


def test_sidecars_that_wait_for_their_leases_are_accepted():
    # The last one has a lease of its own, which ours does not take.
    found = stock(csi_provisioner=True, csi_attacher=True, volumemodifier=False)

    assert refused(BESIDE, found) == []


def test_once_the_stock_controller_is_gone_its_values_are_accepted():
    assert rendered({"sidecars": {"provisioner": {"leaderElection": {"enabled": False}}}})
