"""Beside a stock controller that asks for no lease, ours would work at the same time."""

from typing import Any

import pytest

from tests.chart.api_server import refused
from tests.chart.helm import built, rendered

Json = dict[str, Any]
pytestmark = built

ON, OFF = ["--leader-election=true"], ["--leader-election=false"]
BESIDE: Json = {"besideStock": {"controller": True}, "node": {"enableLinux": False}}


def stock(**arguments: list[str] | None) -> Json:
    """The stock controller, with the arguments of its containers."""
    containers = [
        {"name": name.replace("_", "-")} | ({} if args is None else {"args": args})
        for name, args in arguments.items()
    ]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "ebs-csi-controller", "namespace": "kube-system"},
        "spec": {"replicas": 2, "template": {"spec": {"containers": containers}}},
    }


@pytest.mark.parametrize(
    ("sidecar", "value"),
    [
        ("provisioner", " (sidecars.provisioner.leaderElection.enabled=true in its chart)"),
        ("attacher", " (sidecars.attacher.leaderElection.enabled=true in its chart)"),
        ("resizer", ""),
        ("snapshotter", ""),
    ],
)
def test_a_running_sidecar_without_leader_election_is_named(sidecar: str, value: str):
    [sentence] = refused(BESIDE, stock(**{"other": OFF, f"csi_{sidecar}": OFF}))

    assert sentence == (
        f"csi-{sidecar} of aws-ebs-csi-driver's controller (Deployment "
        "kube-system/ebs-csi-controller) runs without --leader-election=true, so both controllers "
        f"would work at the same time: give it that argument first{value}"
    )


@pytest.mark.parametrize(
    "args",
    [
        None,
        [],
        ["--csi-address=x", "--leader-election-namespace=kube-system"],
        [*ON, *OFF],
        ["-leader-election=false"],
        ["--leader-election=0"],
    ],
    ids=str,
)
def test_a_sidecar_asks_for_no_lease_unless_its_last_word_is_that_it_does(args: list[str] | None):
    assert len(refused(BESIDE, stock(csi_provisioner=args))) == 1


@pytest.mark.parametrize(
    "args", [ON, ["--leader-election"], ["-leader-election=true"], [*OFF, *ON]], ids=str
)
def test_a_sidecar_that_waits_for_its_lease_is_accepted(args: list[str]):
    assert refused(BESIDE, stock(csi_provisioner=args)) == []


def test_sidecars_that_wait_for_their_leases_are_accepted():
    # The last one has a lease of its own, which ours does not take.
    found = stock(csi_provisioner=ON, csi_attacher=ON, volumemodifier=OFF)

    assert refused(BESIDE, found) == []


def test_once_the_stock_controller_is_gone_its_values_are_accepted():
    assert rendered({"sidecars": {"provisioner": {"leaderElection": {"enabled": False}}}})
