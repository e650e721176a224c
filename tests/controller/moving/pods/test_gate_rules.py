"""Which pods wait for a move, and whether the webhook holds new ones back."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from provisioner.controller.moving.pods import gate_rules as rules
from provisioner.model.pod import Pod
from provisioner.model.volume_move import VolumeMove
from tests.controller.moving.test_plan_rules import a_move
from webhook.model.review import SUBJECTS

GATE = "ebs-provisioner.io/volume-move"
NOTE = "ebs-provisioner.io/held-for-move"
HOOKS = Path(__file__).parents[4] / "manifests" / "webhook-volume-moves" / "pods.yaml"


def a_pod(*gates: str, claim: str = "data", held_for: str = "shop/to-b") -> Pod:
    body = {
        "metadata": {
            "name": "web-0",
            "namespace": "shop",
            "uid": "pod-uid",
            "annotations": {NOTE: held_for} if held_for else {},
        },
        "spec": {
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}],
            "schedulingGates": [{"name": each} for each in gates],
        },
    }
    return msgspec.convert(body, Pod)


def in_phase(phase: str, **spec: Any) -> VolumeMove:
    status = msgspec.convert({"phase": phase}, type(a_move().told))
    return msgspec.structs.replace(a_move(**spec), status=status)


def test_only_our_gate_is_one_of_a_move():
    assert rules.is_gated(a_pod("example.com/other", GATE))
    assert not rules.is_gated(a_pod("example.com/other"))
    assert not rules.is_gated(a_pod())


def test_a_pod_is_held_by_a_move_of_its_claim_until_that_is_exchanged():
    phases = ("", "Planned", "Held", "Copying", "Swapping", "Cleaning", "Aborting", "Done")

    assert [phase for phase in phases if rules.is_held(a_pod(GATE), [in_phase(phase)])] == [
        "Held",
        "Copying",
        "Swapping",
    ]
    assert not rules.is_held(a_pod(GATE, claim="logs"), [in_phase("Held")])
    assert not rules.is_held(a_pod(GATE), [in_phase("Held", dryRun=True)])


@pytest.mark.parametrize(
    ("note", "named"),
    [("shop/to-b", ("shop", "to-b")), ("lab/to-b", ("", "")), ("", ("", ""))],
)
def test_a_pod_names_a_move_of_its_own_namespace(note: str, named: tuple[str, str]):
    assert rules.named_move(a_pod(GATE, held_for=note)) == named


def test_exactly_this_pod_loses_exactly_our_gate():
    assert rules.ungated(a_pod(GATE)) == {
        "metadata": {"uid": "pod-uid", "annotations": {NOTE: None}},
        "spec": {"schedulingGates": [{"name": GATE, "$patch": "delete"}]},
    }


def a_hook(**changes: Any) -> dict[str, Any]:
    """The webhook of the manifests, as it is once it has its bundle."""
    hook: dict[str, Any]
    (hook,) = yaml.safe_load(HOOKS.read_text())["webhooks"]
    hook["clientConfig"]["caBundle"] = "QQ=="
    return hook | changes


def test_the_webhook_of_the_manifests_holds_pods_back_but_in_its_own_namespaces():
    others = [{"clientConfig": {"service": {"path": "/mutate"}}, "rules": a_hook()["rules"]}, {}]

    assert rules.holds_pods_of([*others, a_hook()], "shop")
    assert not rules.holds_pods_of([*others, a_hook()], "kube-system")
    assert not rules.holds_pods_of(others, "shop")
    assert not rules.holds_pods_of([], "shop")
    assert rules.PATH in SUBJECTS


SERVICE = {"name": "ebs-webhook", "namespace": "ebs-provisioner", "path": rules.PATH}


@pytest.mark.parametrize(
    ("changes", "holds"),
    [
        ({"clientConfig": {"service": SERVICE}}, False),
        ({"clientConfig": {"url": f"https://10.0.0.1:8443{rules.PATH}"}}, True),
        ({"rules": [{"apiGroups": [""], "resources": ["pods"], "operations": ["DELETE"]}]}, False),
        ({"rules": [{"apiGroups": ["*"], "resources": ["*"], "operations": ["*"]}]}, True),
        ({"namespaceSelector": None}, True),
        ({"namespaceSelector": {"matchLabels": {rules._NAME: "lab"}}}, False),
        (
            {
                "namespaceSelector": {
                    "matchExpressions": [{"key": rules._NAME, "operator": "In", "values": ["lab"]}]
                }
            },
            False,
        ),
    ],
    ids=["no bundle yet", "by url", "deletions", "everything", "all", "a label", "another one"],
)
def test_whether_a_webhook_is_asked_is_read_from_its_configuration(
    changes: dict[str, Any],
    holds: bool,  # noqa: FBT001 -- parameter of a test
):
    assert rules.holds_pods_of([a_hook(**changes)], "shop") is holds
