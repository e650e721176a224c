"""What controllers hold and may do: leases, credentials, regions, keys."""

from dataclasses import replace
from typing import Any

from provisioner.inspect.doctor.check_rules import Check, Verdict
from provisioner.inspect.doctor.evidence_rules import LEASES_ELSEWHERE, Clock, KeyTry, Try
from provisioner.inspect.doctor.right_rules import NOT_IN_AWS_POLICY, Samples, attempts
from provisioner.inspect.reading.setup_kind_rules import (
    Workload,
)
from provisioner.model.meta import KubeObject
from tests.documents import page
from tests.inspect.doctor import evidence as e
from tests.inspect.doctor.evidence import SOUND, checked, with_cloud, with_cluster


def test_nothing_is_tried_that_could_destroy_what_is_in_use():
    samples = Samples("us-east-1a", "vol-free", 8, "vol-attached", "i-1", "snap-1", "production")
    found = {each.action: each for each in attempts(samples)}

    assert found["DeleteVolume"].params == {"VolumeId": "vol-attached"}
    assert found["DetachVolume"].params == {"VolumeId": "vol-free"}
    assert not any(each.missing for each in found.values())


def test_without_samples_it_says_what_was_not_tried():
    found = {each.action: each.missing for each in attempts(Samples())}

    assert found["CreateVolume"] == "no zone of a Node is known"
    assert "no volume with the driver's tag" in found["ModifyVolume"]
    assert "no snapshot" in found["DeleteSnapshot"]
    assert found["DescribeVolumes"] == ""
    assert found.keys() >= NOT_IN_AWS_POLICY


def test_a_clock_that_is_ahead_makes_no_lease_old():
    late = {name: e.lease(name, ago_s=63) for name in e.leases()}
    behind = replace(with_cluster(leases=late), clocks=[Clock("API server", -60.0)])

    assert checked(behind)["leases-held"].verdict is Verdict.OK
    assert checked(with_cluster(leases=late))["leases-held"].verdict is Verdict.FAILED


def test_the_namespace_of_the_leases_is_named():
    there = {name: e.lease(name, namespace="storage") for name in e.leases()}
    proof = checked(with_cluster(leases=there))["leases-held"].proof

    assert proof == f"held by {e.HOLDER} in storage"


def test_old_leases_where_others_cannot_be_listed_may_be_the_wrong_ones():
    old = with_cluster(leases={name: e.lease(name, ago_s=300) for name in e.leases()})
    unsure = checked(replace(old, gaps={LEASES_ELSEWHERE: "leases is forbidden"}))["leases-held"]

    assert unsure.verdict is Verdict.FAILED
    assert "--lease-namespace" in unsure.remedy
    assert "--lease-namespace" not in checked(old)["leases-held"].remedy


def test_a_refusal_of_a_reader_says_nothing_about_a_key():
    refused = Try("CreateVolume", "a new volume", "UnauthorizedOperation", "no")
    enabled = KeyTry("gp3", e.ENCRYPTED, refused, state="Enabled")
    hidden = KeyTry("gp3", e.ENCRYPTED, refused, refusal="AccessDeniedException: no")

    def found(key: KeyTry, tried: Try, *, is_controllers: bool) -> Check:
        seen = with_cloud(keys=[key], tries=[tried], is_controllers=is_controllers)
        return checked(seen)["kms-gp3"]

    for is_controllers in (False, True):
        sound = found(enabled, e.NO, is_controllers=is_controllers)
        assert sound.verdict is Verdict.OK
        assert "see iam-CreateVolume" in sound.proof
        assert found(hidden, e.NO, is_controllers=is_controllers).verdict is Verdict.UNKNOWN
    assert found(enabled, e.YES, is_controllers=False).verdict is Verdict.UNKNOWN
    assert found(enabled, e.YES, is_controllers=True).verdict is Verdict.FAILED


def test_a_key_that_another_region_lacks_is_not_missing():
    key = KeyTry("gp3", "alias/ebs", e.YES, refusal="NotFoundException: no")
    seen = with_cloud(keys=[key], instances={}, volumes={}, region="eu-west-1")

    assert checked(seen)["kms-gp3"].verdict is Verdict.UNKNOWN


def test_detaching_is_not_tried_where_it_could_detach():
    used = Samples("us-east-1a", "vol-used", 8, "vol-used", "i-1", "snap-1", "production")
    found = {each.action: each.missing for each in attempts(used)}

    assert "every volume of the driver is attached" in found["DetachVolume"]
    assert found["DeleteVolume"] == ""


def stock(**pods: Any) -> Workload:
    document = {
        "metadata": {"name": "ebs-csi-controller", "namespace": "kube-system"},
        "spec": {"template": {"spec": {"serviceAccountName": "ebs-csi-controller-sa"} | pods}},
        "status": {"readyReplicas": 1},
    }
    return e.read(Workload, document)


def hops(**changes: Any) -> Check:
    seen = with_cluster(**changes)
    near = replace(e.CLOUD, instances={e.INSTANCE: e.instance(hop_limit=1)})
    return checked(replace(seen, cloud=near))["hop-limit"]


def test_the_hop_limit_is_set_first_where_new_instances_have_it_from():
    seen = with_cloud(instances={e.INSTANCE: e.instance(hop_limit=1)})

    for text in (checked(seen)["hop-limit"].remedy, page("install")):
        first, command, _ = text.partition("modify-instance-metadata-options")
        assert command
        assert "launch template" in first
        assert "MetadataOptions.HttpPutResponseHopLimit" in first


def test_controllers_with_credentials_of_their_own_need_no_metadata_service():
    account = {"name": "ebs-csi-controller-sa", "namespace": "kube-system"}
    role = {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::123456789012:role/ebs"}}
    accounts = [e.read(KubeObject, {"metadata": account | role})]
    keys = [{"name": "plugin", "env": [{"name": "AWS_ACCESS_KEY_ID"}]}]
    secret = [{"name": "plugin", "envFrom": [{"secretRef": {"name": "aws"}}]}]
    agent = e.plugin("eks-pod-identity-agent")

    assert hops(deployments=[stock()]).verdict is Verdict.WARNING
    assert hops(deployments=[stock()], accounts=accounts).verdict is Verdict.SKIPPED
    assert hops(deployments=[stock(containers=keys)]).verdict is Verdict.SKIPPED
    assert hops(deployments=[stock(containers=secret)]).verdict is Verdict.SKIPPED
    assert hops(deployments=[stock()], daemon_sets=[agent]).verdict is Verdict.SKIPPED


def test_credentials_of_a_controller_come_from_its_environment_its_account_or_its_instance():
    bare = replace(e.CLOUD, instances={e.INSTANCE: e.instance(has_profile=False)})
    keys = [{"name": "plugin", "env": [{"name": "AWS_ACCESS_KEY_ID"}]}]

    def found(**changes: Any) -> Verdict:
        seen = replace(with_cluster(**changes), cloud=bare)
        return checked(seen)["controller-credentials"].verdict

    assert found(deployments=[stock()]) is Verdict.WARNING
    assert found(deployments=[stock(hostNetwork=True)]) is Verdict.WARNING
    assert found(deployments=[stock(containers=keys)]) is Verdict.SKIPPED
    assert found(deployments=[]) is Verdict.SKIPPED
    assert checked(SOUND)["controller-credentials"].verdict is Verdict.OK


def test_a_controller_may_name_the_region_of_the_nodes_or_none():
    named = with_cluster(controller_regions={"ebs/controller": "us-east-1"})

    assert checked(named)["controller-region"].verdict is Verdict.OK
    assert checked(SOUND)["controller-region"].verdict is Verdict.SKIPPED
