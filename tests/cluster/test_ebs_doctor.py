"""``kubectl ebs doctor``, as somebody runs it beside a cluster and its EC2."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from xml.etree import ElementTree as ET

import boto3
import pytest

from provisioner.sandbox.up import Sandbox
from tests.cluster.cluster import Cluster
from tests.cluster.hands import CALM, CLASSES, PVS, Ec2Hand, claims_of

WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
NO_CREDENTIALS = {
    **dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"), ""),
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_CONFIG_FILE": os.devnull,
}
DENIED = {
    "do": "error",
    "code": "UnauthorizedOperation",
    "message": "You are not authorized to perform this operation.",
    "http_status": 403,
    "match": {"DryRun": "true"},
}

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def doctor(
    sandbox: Sandbox, *arguments: str, **environment: str
) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "provisioner.cli", "ebs", "doctor", *arguments),
        *("--kubeconfig", str(sandbox.plane.kubeconfig)),
        env={**os.environ, **sandbox.aws_environment, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def checks(
    sandbox: Sandbox, *arguments: str, **environment: str
) -> dict[str, dict[str, Any]]:
    _, out, err = await doctor(sandbox, "-o", "json", *arguments, **environment)
    assert err == ""
    return {each["id"]: each for each in json.loads(out)["checks"]}


async def test_nothing_is_wrong_with_a_cluster_that_works(cluster: Cluster):
    code, out, err = await doctor(cluster.sandbox, "-o", "json")

    assert (code, err) == (0, "")
    report = json.loads(out)
    trouble = {each["id"] for each in report["checks"] if each["verdict"] in {"failed", "warning"}}
    assert trouble == set()
    assert report["awsCalls"]["GetCallerIdentity"] == 1


@asynccontextmanager
async def made(cluster: Cluster, *objects: tuple[str, dict[str, Any]]) -> AsyncIterator[None]:
    """Objects at these paths, deleted at the end."""
    try:
        for path, document in objects:
            await cluster.api.create(path, document)
        yield
    finally:
        for path, document in objects:
            await cluster.api.delete(f"{path}/{document['metadata']['name']}")


def a_class(name: str) -> tuple[str, dict[str, Any]]:
    marked = {"storageclass.kubernetes.io/is-default-class": "true"}
    document = {
        "metadata": {"name": name, "annotations": marked},
        "provisioner": "ebs.csi.aws.com",
        "volumeBindingMode": "WaitForFirstConsumer",
        "parameters": {"type": "gp3", "iops": "1"},
    }
    return CLASSES, document


def a_class_with_a_key(name: str) -> tuple[str, dict[str, Any]]:
    key = "arn:aws:kms:us-east-1:123456789012:key/00000000-0000-0000-0000-000000000000"
    document = {
        "metadata": {"name": name},
        "provisioner": "ebs.csi.aws.com",
        "volumeBindingMode": "WaitForFirstConsumer",
        "parameters": {"type": "gp3", "encrypted": "true", "kmsKeyId": key},
    }
    return CLASSES, document


def a_claim(name: str, class_name: str) -> tuple[str, dict[str, Any]]:
    spec = {
        "storageClassName": class_name,
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    return claims_of("default"), {"metadata": {"name": name}, "spec": spec}


def a_volume(name: str, handle: str) -> tuple[str, dict[str, Any]]:
    spec = {
        "capacity": {"storage": "4Gi"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain",
        "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": handle},
    }
    return PVS, {"metadata": {"name": name}, "spec": spec}


def a_webhook() -> tuple[str, dict[str, Any]]:
    """Of nobody's requests, so that nothing else in this sandbox hears of it."""
    rule = {
        "apiGroups": ["nothing.example.com"],
        "apiVersions": ["v1"],
        "resources": ["nothing"],
        "operations": ["CREATE"],
    }
    hook = {
        "name": "nothing.ebs-provisioner.io",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "clientConfig": {"service": {"namespace": "default", "name": "nobody"}},
        "rules": [rule],
    }
    labels = {"app.kubernetes.io/name": "ebs-provisioner"}
    return WEBHOOKS, {"metadata": {"name": "doctor-test", "labels": labels}, "webhooks": [hook]}


async def test_what_is_broken_is_named_each_by_its_check(cluster: Cluster):
    sandbox, hand = cluster.sandbox, Ec2Hand(cluster.sandbox.ec2_endpoint)
    volume = hand.ec2.create_volume(AvailabilityZone="us-east-1a", Size=20, VolumeType="gp3")
    instance = cluster.instance().instance_id
    hand.control(quotas={"gib": {"gp3": 20}})
    hand.ec2.modify_instance_metadata_options(InstanceId=instance, HttpPutResponseHopLimit=1)
    broken = (
        a_class("doctor-a"),
        a_class("doctor-b"),
        a_class_with_a_key("doctor-key"),
        a_claim("doctor", "of-nobody"),
        a_volume("doctor-there", volume["VolumeId"]),
        a_volume("doctor-lost", "vol-0123456789abcdef0"),
        a_webhook(),
    )
    try:
        async with made(cluster, *broken):
            code, out, err = await doctor(sandbox, "-o", "json")
            _, table, _ = await doctor(sandbox)
            _, junit, _ = await doctor(sandbox, "-o", "junit")
    finally:
        hand.control(**CALM, quotas={})
        hand.ec2.modify_instance_metadata_options(InstanceId=instance, HttpPutResponseHopLimit=2)
        hand.remove({volume["VolumeId"]})

    assert (code, err) == (1, "")
    found = {each["id"]: each for each in json.loads(out)["checks"]}
    assert {each for each, check in found.items() if check["verdict"] == "failed"} == {
        *("classes", "claims-of-no-class", "volumes-exist", "quota-L-7A658B76"),
        *("webhook-reachable", "webhook-ca", "kms-doctor-key"),
    }
    assert {each for each, check in found.items() if check["verdict"] == "warning"} == {
        *("default-class", "hop-limit", "webhook-failure-policy", "volume-tags"),
    }
    assert "vol-0123456789abcdef0" in found["volumes-exist"]["proof"]
    assert "default/doctor" in found["claims-of-no-class"]["proof"]
    assert instance in found["hop-limit"]["proof"]
    assert table.splitlines()[0].startswith("failed   classes:")
    assert ET.fromstring(junit).get("failures") == "7"  # noqa: S314 -- our own


async def test_rights_are_those_of_the_role_that_is_tried(cluster: Cluster):
    sandbox, hand = cluster.sandbox, Ec2Hand(cluster.sandbox.ec2_endpoint)
    iam = boto3.client(
        "iam",
        endpoint_url=sandbox.ec2_endpoint,
        region_name="us-east-1",
        aws_access_key_id="AKIAIOSFODNN7EXAMPLE",
        aws_secret_access_key="secret",
    )
    role = iam.create_role(RoleName="doctor", AssumeRolePolicyDocument="{}")["Role"]["Arn"]
    hand.control(faults=[{"action": "CreateVolume", "n": 9} | DENIED])
    try:
        of_role = await checks(sandbox, "--role", role)
        of_caller = await checks(sandbox)
        of_nobody = await checks(sandbox, "--role", "arn:aws:iam::123456789012:role/nobody")
    finally:
        hand.control(**CALM)
        iam.delete_role(RoleName="doctor")
        iam.close()

    assert of_role["iam-CreateVolume"]["verdict"] == "failed"
    assert "assumed-role/doctor" in of_role["iam-CreateVolume"]["proof"]
    assert of_role["iam-DescribeVolumes"]["verdict"] == "ok"
    assert of_caller["iam-CreateVolume"]["verdict"] == "unknown"
    assert of_nobody["iam"]["verdict"] == "failed"
    assert "AccessDenied" in of_nobody["iam"]["proof"]


async def test_the_controllers_own_role_is_tried_by_its_token(cluster: Cluster):
    sandbox, hand = cluster.sandbox, Ec2Hand(cluster.sandbox.ec2_endpoint)
    iam = boto3.client(
        "iam",
        endpoint_url=sandbox.ec2_endpoint,
        region_name="us-east-1",
        aws_access_key_id="AKIAIOSFODNN7EXAMPLE",
        aws_secret_access_key="secret",
    )
    role = iam.create_role(RoleName="by-token", AssumeRolePolicyDocument="{}")["Role"]["Arn"]
    tags = {
        "ebs.csi.aws.com/cluster": "true",
        "ebs.csi.aws.com/cluster-name": "doctor",
        "kubernetes.io/cluster/doctor": "owned",
    }
    pairs = [{"Key": key, "Value": value} for key, value in tags.items()]
    volume = hand.ec2.create_volume(
        AvailabilityZone="us-east-1a",
        Size=20,
        TagSpecifications=[{"ResourceType": "volume", "Tags": pairs}],
    )["VolumeId"]
    try:
        async with made(cluster, *a_controller("doctor-controller", role, "doctor")):
            found = await checks(sandbox, "--as-controller")
    finally:
        iam.delete_role(RoleName="by-token")
        iam.close()
        hand.remove({volume})

    for each in ("CreateVolume", "ModifyVolume", "CopyVolumes", "AttachVolume", "DetachVolume"):
        check = found[f"iam-{each}"]
        assert check["verdict"] == "ok", check
        assert "assumed-role/by-token" in check["proof"]
    assert "assumed-role/by-token" in found["aws-identity"]["proof"]
    assert found["hop-limit"]["verdict"] == "skipped"
    assert found["orphans"]["verdict"] == "ok"  # younger than an hour


def a_controller(name: str, role: str, cluster_id: str) -> list[tuple[str, dict[str, Any]]]:
    """As its manifests have it, without a pod."""
    labels = {
        "app.kubernetes.io/name": "ebs-provisioner",
        "app.kubernetes.io/component": "controller",
    }
    container = {
        "name": "controller",
        "image": "ebs-provisioner:0.2.0",
        "envFrom": [{"configMapRef": {"name": name}}],
    }
    pods = {"serviceAccountName": name, "containers": [container]}
    spec = {
        "replicas": 0,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pods},
    }
    marked = {"name": name, "annotations": {"eks.amazonaws.com/role-arn": role}}
    options = {"EBS_PROVISIONER_CONTROLLER_CLUSTER_ID": cluster_id}
    return [
        ("/api/v1/namespaces/default/serviceaccounts", {"metadata": marked}),
        ("/api/v1/namespaces/default/configmaps", {"metadata": {"name": name}, "data": options}),
        (
            "/apis/apps/v1/namespaces/default/deployments",
            {"metadata": {"name": name, "labels": labels}, "spec": spec},
        ),
    ]


async def test_without_credentials_kubernetes_half_is_checked(cluster: Cluster):
    found = await checks(cluster.sandbox, **NO_CREDENTIALS)

    assert found["leases-held"]["verdict"] == "ok"
    assert found["driver-on-nodes"]["verdict"] == "ok"
    for each in ("aws-identity", "account", "instances", "iam", "quotas"):
        assert found[each]["verdict"] == "unknown", found[each]
    assert not [each for each in found.values() if each["verdict"] in {"failed", "warning"}]
