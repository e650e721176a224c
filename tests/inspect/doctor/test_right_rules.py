"""A right that only some clusters need, and as whom rights are tried."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from provisioner.inspect.doctor import probes
from provisioner.inspect.doctor.check_rules import Verdict
from provisioner.inspect.doctor.evidence_rules import ROLE_ANNOTATION, ClusterEvidence, Try
from provisioner.inspect.doctor.right_rules import Samples, attempts
from provisioner.inspect.reading.setup_kind_rules import Workload
from provisioner.model.meta import KubeObject
from provisioner.model.storage_class import VolumeAttributesClass
from tests.inspect.doctor import evidence as e
from tests.inspect.doctor.evidence import CLUSTER, checked, with_cloud

TAGGING = Try("CreateTags", "vol-1", "UnauthorizedOperation", "You are not authorized.")


def attributes_class(**parameters: str) -> VolumeAttributesClass:
    document = {"metadata": {"name": "fast"}, "driverName": e.DRIVER, "parameters": parameters}
    return e.read(VolumeAttributesClass, document)


def reconciling() -> Workload:
    found = e.deployment("controller", "controller")
    raw = msgspec.to_builtins(found)
    raw["spec"]["template"]["spec"]["containers"][0]["args"] = ["--reconcile-extra-tags"]
    return msgspec.convert(raw, Workload)


def test_tagging_what_exists_is_tried_with_a_tag_that_policies_do_not_protect():
    samples = Samples("us-east-1a", "vol-free", 8, "vol-attached", "i-1", "snap-1", "prod")
    (found,) = (each for each in attempts(samples) if each.action == "CreateTags")

    assert found.params["Resources"] == ["vol-free"]
    (tag,) = found.params["Tags"]
    assert not tag["Key"].startswith(("ebs-provisioner.io/", "ebs.csi.aws.com/", "kubernetes.io"))


@pytest.mark.parametrize(
    ("changes", "verdict", "remedy"),
    [
        ({}, Verdict.SKIPPED, ""),
        ({"attributes_classes": [attributes_class(type="gp3")]}, Verdict.SKIPPED, ""),
        ({"attributes_classes": [attributes_class(type="no such")]}, Verdict.SKIPPED, ""),
        (
            {"attributes_classes": [attributes_class(tagSpecification_1="team=shop")]},
            Verdict.FAILED,
            "attribute-tags-policy",
        ),
        ({"deployments": [reconciling()]}, Verdict.FAILED, "extra-tags-policy"),
    ],
)
def test_the_right_to_tag_what_exists_counts_where_something_needs_it(
    changes: dict[str, Any], verdict: Verdict, remedy: str
):
    cluster = replace(CLUSTER, **changes)
    seen = replace(with_cloud(tries=[TAGGING]), cluster=cluster)
    found = checked(seen)["iam-CreateTags"]

    assert found.verdict is verdict
    assert remedy in found.remedy


def why(account: KubeObject | None, *, as_controller: bool = True) -> str:
    identity = probes.Identity(e.DRIVER, as_controller=as_controller)
    cluster = ClusterEvidence(account=account)
    return probes.why_not_as_controller(cluster, identity)


def account(**annotations: str) -> KubeObject:
    document = {"metadata": {"name": "sa", "namespace": "ebs", "annotations": annotations}}
    return e.read(KubeObject, document)


def test_it_says_where_it_looked_for_the_controllers_service_account():
    assert "kube-system/ebs-csi-controller-sa" in why(None)
    assert "ServiceAccount ebs/sa has no annotation" in why(account())
    assert why(account(**{ROLE_ANNOTATION: "arn:aws:iam::1:role/x"})) == ""
    assert why(None, as_controller=False) == ""


def test_rights_that_were_tried_as_somebody_else_are_said_to_be():
    seen = with_cloud(not_as_controller="no ServiceAccount", is_controllers=False)
    found = checked(seen)["aws-identity"]

    assert found.verdict is Verdict.UNKNOWN
    assert "no ServiceAccount" in found.proof
    assert "--role" in found.remedy
