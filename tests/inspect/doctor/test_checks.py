"""What each check says, of evidence that differs in one thing from that of a sound cluster."""

import base64
import re
from dataclasses import replace
from typing import Any

import pytest

from provisioner.inspect.doctor.check_rules import Check, Verdict, exit_status
from provisioner.inspect.doctor.evidence_rules import Clock, Evidence, KeyTry
from provisioner.inspect.doctor.webhook_rules import unchecked_in
from provisioner.inspect.reading.kind_rules import WatchedSnapshot
from provisioner.inspect.reading.setup_kind_rules import (
    CsiDriverSetup,
    CustomResource,
    WebhookConfiguration,
)
from provisioner.model.claim import Claim
from provisioner.model.node import Node
from provisioner.model.volume_snapshot import VolumeSnapshotClass
from tests.inspect.doctor import evidence as e
from tests.inspect.doctor.evidence import SOUND, checked, with_cloud, with_cluster
from webhook.model.review import UNCHECKED

OF_SNAPSHOT = {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "monday"}


def pending(node: str = "") -> Claim:
    """Of a class that waits for a pod; with the node that was chosen for the pod."""
    chosen = {"volume.kubernetes.io/selected-node": node} if node else {}
    meta = {"name": "data", "namespace": "shop", "creationTimestamp": e.OLD, "annotations": chosen}
    spec = {"storageClassName": "gp3"}
    return e.read(Claim, {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}})


def default_class(name: str) -> Any:
    marked = {
        "metadata": {
            "name": name,
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": e.DRIVER,
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    return e.read(type(e.storage_class()), marked)


def webhook(bundle: str = "", policy: str = "Ignore") -> WebhookConfiguration:
    client = {"service": {"namespace": "ebs", "name": "ebs-webhook"}, "caBundle": bundle}
    hook = {"name": "pods.ebs-provisioner.io", "clientConfig": client, "failurePolicy": policy}
    document = {"metadata": {"name": "ebs-webhook"}, "webhooks": [hook]}
    return e.read(WebhookConfiguration, document)


def tainted(key: str) -> Node:
    return e.node(taints=[{"key": key, "effect": "NoSchedule"}])


def crd(plural: str, *versions: str, stored: tuple[str, ...] = ("v1",)) -> CustomResource:
    served = [{"name": each, "served": True, "storage": each == "v1"} for each in versions]
    name = f"{plural}.snapshot.storage.k8s.io"
    document = {
        "metadata": {"name": name},
        "spec": {"versions": served},
        "status": {"storedVersions": list(stored)},
    }
    return e.read(CustomResource, document)


def crds(*made: CustomResource) -> dict[str, CustomResource]:
    return {each.name: each for each in made}


PLURALS = ("volumesnapshots", "volumesnapshotcontents", "volumesnapshotclasses")
MAIN = "ebs-csi-aws-com"
JUNK = base64.b64encode(b"no certificate").decode()

BROKEN: list[tuple[str, Verdict, Evidence, str]] = [
    ("driver-object", Verdict.FAILED, with_cluster(csi_driver=None), "there is no CSIDriver"),
    ("driver-on-nodes", Verdict.FAILED, with_cluster(csi_nodes=[]), "CSINode node-1"),
    ("leases-held", Verdict.FAILED, with_cluster(leases={}), "no controller has ever run"),
    (
        "leases-held",
        Verdict.FAILED,
        with_cluster(leases=e.leases(**{MAIN: e.lease(MAIN, ago_s=300)})),
        "300 s ago",
    ),
    (
        "leases-held",
        Verdict.FAILED,
        with_cluster(leases=e.leases(**{MAIN: e.lease(MAIN, holder="")})),
        f"Lease kube-system/{MAIN} has no holder",
    ),
    (
        "leases-one-holder",
        Verdict.FAILED,
        with_cluster(leases=e.leases(**{MAIN: e.lease(MAIN, holder="ebs-csi-controller-0")})),
        f"{MAIN} by ebs-csi-controller-0",
    ),
    (
        "one-controller",
        Verdict.WARNING,
        with_cluster(
            deployments=[
                e.deployment("controller", "controller"),
                e.deployment("ebs-csi-controller", "csi-driver"),
            ]
        ),
        "Deployment ebs/ebs-csi-controller",
    ),
    (
        "controller-ready",
        Verdict.FAILED,
        with_cluster(deployments=[e.deployment("controller", "controller", ready=0)]),
        "0 of 2 ready",
    ),
    (
        "kubernetes-versions",
        Verdict.WARNING,
        with_cluster(server_version="v1.35.1"),
        "newer than the API server",
    ),
    (
        "classes",
        Verdict.FAILED,
        with_cluster(classes=[e.storage_class("bad", iops="1")]),
        "StorageClass bad",
    ),
    (
        "default-class",
        Verdict.WARNING,
        with_cluster(classes=[default_class("a"), default_class("b")]),
        "StorageClasses a, b",
    ),
    ("default-class", Verdict.WARNING, with_cluster(claims=[e.claim()]), "shop/data"),
    (
        "claims-of-no-class",
        Verdict.FAILED,
        with_cluster(claims=[e.claim(storageClassName="gone")]),
        "StorageClass gone",
    ),
    (
        "snapshot-crds",
        Verdict.FAILED,
        with_cluster(custom_resources=crds(crd(PLURALS[0], "v1beta1"))),
        "does not serve v1",
    ),
    (
        "snapshot-crds",
        Verdict.FAILED,
        with_cluster(claims=[e.claim(storageClassName="gp3", dataSource=OF_SNAPSHOT)]),
        "wait for a VolumeSnapshot: shop/data",
    ),
    (
        "snapshot-crds",
        Verdict.WARNING,
        with_cluster(
            custom_resources=crds(*(crd(each, "v1", stored=("v1beta1", "v1")) for each in PLURALS))
        ),
        "still stores v1beta1",
    ),
    (
        "snapshot-controller",
        Verdict.FAILED,
        with_cluster(
            custom_resources=crds(*(crd(each, "v1") for each in PLURALS)),
            snapshots=[
                e.read(WatchedSnapshot, {"metadata": {"name": "s", "creationTimestamp": e.OLD}})
            ],
        ),
        "VolumeSnapshot s",
    ),
    ("webhook-reachable", Verdict.FAILED, with_cluster(webhooks=[webhook()]), "ebs/ebs-webhook"),
    ("webhook-ca", Verdict.FAILED, with_cluster(webhooks=[webhook()]), "it is empty"),
    ("webhook-ca", Verdict.FAILED, with_cluster(webhooks=[webhook(JUNK)]), "cannot be read"),
    (
        "webhook-failure-policy",
        Verdict.WARNING,
        with_cluster(webhooks=[webhook(policy="Fail")]),
        "pods.ebs-provisioner.io",
    ),
    (
        "startup-taints",
        Verdict.FAILED,
        with_cluster(nodes=[tainted(f"{e.DRIVER}/agent-not-ready")]),
        "agent-not-ready since 2026-11-23T10:00Z",
    ),
    (
        "out-of-service",
        Verdict.FAILED,
        with_cluster(nodes=[tainted("node.kubernetes.io/out-of-service")]),
        "Node node-1",
    ),
    (
        "nodes-ready",
        Verdict.FAILED,
        with_cluster(nodes=[e.not_ready()]),
        "Node node-1 is not ready, and 1 volume is attached to it",
    ),
    (
        "zone-labels",
        Verdict.FAILED,
        with_cloud(instances={e.INSTANCE: e.instance(zone="us-east-1b")}),
        "EC2 has i-0123456789abcdef0 in us-east-1b",
    ),
    (
        "instances",
        Verdict.FAILED,
        with_cloud(instances={e.INSTANCE: e.instance(state="terminated")}),
        "which is terminated",
    ),
    ("node-limits", Verdict.WARNING, with_cluster(csi_nodes=[e.csi_node(count=1)]), "is full"),
    ("node-limits", Verdict.WARNING, with_cluster(csi_nodes=[e.csi_node(count=None)]), "no limit"),
    (
        "node-limits",
        Verdict.WARNING,
        replace(
            with_cloud(
                instances={e.INSTANCE: e.instance(volume_ids=tuple(f"vol-{n}" for n in range(27)))}
            ),
            cluster=replace(e.CLUSTER, csi_nodes=[e.csi_node(count=2)]),
        ),
        "1 of 2 volumes, but EC2 has 27 attached",
    ),
    (
        "hop-limit",
        Verdict.WARNING,
        with_cloud(instances={e.INSTANCE: e.instance(hop_limit=1)}),
        "HttpPutResponseHopLimit 1",
    ),
    (
        "claims-waiting",
        Verdict.FAILED,
        with_cluster(claims=[pending("a-node")]),
        "claim shop/data waits for its volume since 2026-11-23T10:00Z",
    ),
    (
        "controller-credentials",
        Verdict.WARNING,
        with_cloud(instances={e.INSTANCE: e.instance(has_profile=False)}),
        "Deployment ebs/controller has no AWS credentials",
    ),
    (
        "controller-region",
        Verdict.FAILED,
        with_cluster(controller_regions={"ebs/controller": "eu-west-1"}),
        "Deployment ebs/controller is set to eu-west-1, but Node node-1 is in us-east-1a",
    ),
    (
        "stuck-deletions",
        Verdict.FAILED,
        with_cluster(
            volumes=[e.persistent_volume(deletionTimestamp=e.OLD, finalizers=["a.example/x"])]
        ),
        "held by a.example/x",
    ),
    (
        "stuck-attachments",
        Verdict.FAILED,
        with_cluster(attachments=[e.attachment(attached=False)]),
        "waits since",
    ),
    (
        "stuck-attachments",
        Verdict.WARNING,
        with_cluster(attachments=[e.attachment("gone")]),
        "this Node does not exist",
    ),
    (
        "volumes-exist",
        Verdict.FAILED,
        with_cluster(volumes=[e.persistent_volume(), e.a_volume("pv-2", "vol-2")]),
        "names vol-2, which EC2 does not have",
    ),
    ("volumes-exist", Verdict.UNKNOWN, with_cloud(volumes={}), "shows none of volumes"),
    ("volumes-exist", Verdict.UNKNOWN, with_cloud(instances={}), "none of the nodes' instances"),
    (
        "volume-zones",
        Verdict.FAILED,
        with_cluster(volumes=[e.persistent_volume("us-east-1b")]),
        "bound to us-east-1b",
    ),
    (
        "attached-elsewhere",
        Verdict.WARNING,
        with_cloud(volumes={e.VOLUME: e.volume("i-0000000000000000f")}),
        "i-0000000000000000f",
    ),
    (
        "region",
        Verdict.FAILED,
        with_cloud(region="eu-west-1"),
        "EC2 is asked in eu-west-1, but",
    ),
    ("account", Verdict.FAILED, with_cloud(volumes={}, instances={}), "knows none of 1 instances"),
    ("clocks", Verdict.WARNING, replace(SOUND, clocks=[Clock("API server", 60.0)]), "+60 s"),
    ("clocks", Verdict.FAILED, replace(SOUND, clocks=[Clock("AWS sts", -600.0)]), "-600 s"),
    (
        "quota-L-1",
        Verdict.WARNING,
        with_cloud(quotas=[e.a_quota("L-1", "Storage", 50, 45)]),
        "45.00 of 50 TiB (90%)",
    ),
    (
        "quota-L-1",
        Verdict.FAILED,
        with_cloud(quotas=[e.a_quota("L-1", "Storage", 50, 50)]),
        "(100%)",
    ),
    ("iam-CreateVolume", Verdict.FAILED, with_cloud(tries=[e.NO]), "UnauthorizedOperation"),
    (
        "iam-CreateVolume",
        Verdict.UNKNOWN,
        with_cloud(tries=[e.NO], is_controllers=False),
        "not the controller's identity",
    ),
    ("iam", Verdict.UNKNOWN, with_cloud(refused="AccessDenied"), "AccessDenied"),
    (
        "kms-gp3",
        Verdict.FAILED,
        with_cloud(keys=[KeyTry("gp3", e.ENCRYPTED, e.YES, state="PendingDeletion")]),
        "PendingDeletion",
    ),
    (
        "kms-gp3",
        Verdict.FAILED,
        with_cloud(keys=[KeyTry("gp3", e.ENCRYPTED, e.YES, refusal="NotFoundException: no")]),
        "KMS in us-east-1 does not have",
    ),
    (
        "kms-gp3",
        Verdict.UNKNOWN,
        with_cloud(keys=[KeyTry("gp3", e.ENCRYPTED, e.YES, refusal="AccessDeniedException: no")]),
        "cannot show a missing right",
    ),
]


@pytest.mark.parametrize(
    ("check_id", "verdict", "seen", "proof"),
    BROKEN,
    ids=[f"{each[0]}-{number}" for number, each in enumerate(BROKEN)],
)
def test_what_is_broken_is_said_with_proof_and_remedy(
    check_id: str, verdict: Verdict, seen: Evidence, proof: str
):
    found = checked(seen)[check_id]

    assert found.verdict is verdict
    assert proof in found.proof
    assert found.remedy or verdict is Verdict.UNKNOWN


def test_nothing_is_wrong_with_a_sound_cluster():
    found = checked(SOUND)

    assert len(found) >= 40
    trouble = {Verdict.FAILED, Verdict.WARNING}
    assert {each.id for each in found.values() if each.verdict in trouble} == set()
    assert not [each.id for each in found.values() if each.verdict is Verdict.OK and each.remedy]


def test_each_break_is_named_by_its_own_check_alone():
    """Those beside it follow from the break: no volume is found where nothing is."""
    beside = {
        "leases-held": {"leases-one-holder"},
        "account": {"volumes-exist", "instances"},
        "instances": {"account"},
        "webhook-reachable": {"webhook-ca"},
        "webhook-ca": {"webhook-reachable"},
        "webhook-failure-policy": {"webhook-reachable", "webhook-ca"},
        "snapshot-controller": {"snapshot-crds"},
        "stuck-attachments": {"attached-elsewhere"},
        "volumes-exist": {"account"},
        "node-limits": {"attached-elsewhere"},
    }
    for check_id, verdict, seen, _ in BROKEN:
        if verdict is Verdict.UNKNOWN:
            continue
        trouble = {Verdict.FAILED, Verdict.WARNING}
        named = {each.id for each in checked(seen).values() if each.verdict in trouble}
        assert named - {check_id} <= beside.get(check_id, set()), (check_id, named)


def test_what_could_not_be_read_is_unknown_and_fails_nothing():
    kinds = ("nodes", "csinodes", "leases", "persistentvolumes", "DescribeVolumes", "deployments")
    gaps = {each: f"cannot list {each}: forbidden" for each in kinds}
    found = checked(replace(SOUND, gaps=gaps))

    unknown = {each.id for each in found.values() if each.verdict is Verdict.UNKNOWN}
    assert {"driver-on-nodes", "leases-held", "volumes-exist", "controller-ready"} <= unknown
    assert "forbidden" in found["leases-held"].proof
    assert exit_status(found.values()) == 0


def test_a_failure_alone_gives_exit_code_1():
    def status(*verdicts: Verdict) -> int:
        return exit_status(Check("a", each, "t", "p") for each in verdicts)

    assert status(Verdict.OK, Verdict.WARNING, Verdict.UNKNOWN, Verdict.SKIPPED) == 0
    assert status(Verdict.OK, Verdict.FAILED) == 1
    assert status() == 0


def test_ids_are_words_for_scripts():
    assert [each for each in checked(SOUND) if not re.fullmatch(r"[A-Za-z0-9-]+", each)] == []


def test_a_claim_that_waits_for_a_pod_is_patience():
    assert checked(with_cluster(claims=[pending()]))["claims-waiting"].verdict is Verdict.OK


def test_unchecked_reviews_are_those_of_the_webhooks_own_reasons():
    reasons = [*UNCHECKED, "ZoneMismatch"]
    lines = [
        f'ebs_webhook_reviews_total{{path="/validate/pods",outcome="allowed",reason="{each}"}} 2.0'
        for each in reasons
    ]
    text = "\n".join(["# TYPE ebs_webhook_reviews_total counter", *lines, ""])

    assert unchecked_in(text) == dict.fromkeys(map(str, UNCHECKED), 2.0)
    assert unchecked_in("") == {}


def test_a_cluster_that_cannot_be_reached_is_a_failure():
    gaps = dict.fromkeys(("version", "nodes", "csidrivers"), "cannot connect to 127.0.0.1:1")
    silent = checked(replace(SOUND, gaps=gaps, unanswered={*gaps}))
    forbidden = checked(replace(SOUND, gaps=gaps))

    assert silent["api-server"].verdict is Verdict.FAILED
    assert "127.0.0.1:1" in silent["api-server"].proof
    assert exit_status(silent.values()) == 1
    assert "give the account" not in silent["driver-object"].remedy
    assert forbidden["api-server"].verdict is Verdict.OK
    assert "give the account" in forbidden["driver-object"].remedy
    assert silent["driver-object"].is_cut_off
    assert not forbidden["driver-object"].is_cut_off
    assert not silent["aws-identity"].is_cut_off


def test_what_aws_was_not_asked_because_no_node_tells_the_region_needs_the_api_server_too():
    gaps = dict.fromkeys(("version", "nodes", "GetCallerIdentity"), "cannot get it")
    cloud = replace(SOUND.cloud, region="", refused="no region", tries=[])
    away = checked(replace(SOUND, gaps=gaps, unanswered={*gaps}, cloud=cloud))

    assert away["aws-identity"].is_cut_off
    assert away["iam"].is_cut_off


def test_a_quota_of_nothing_that_nothing_uses_is_not_full():
    seen = with_cloud(quotas=[e.a_quota("L-1", "Storage", 0, 0)])

    assert checked(seen)["quota-L-1"].verdict is Verdict.SKIPPED


@pytest.mark.parametrize(
    ("check_id", "kind"),
    [
        ("controller-credentials", "serviceaccounts"),
        ("controller-region", "configmaps"),
        ("hop-limit", "serviceaccounts"),
        ("hop-limit", "deployments"),
        ("orphans", "configmaps"),
        ("orphans", "deployments"),
    ],
)
def test_without_what_it_rests_on_a_check_is_unknown(check_id: str, kind: str):
    seen = replace(SOUND, gaps={kind: f"{kind} is forbidden"})

    assert checked(seen)[check_id].verdict is Verdict.UNKNOWN


def snapshot(class_name: str = "", error: str = "") -> WatchedSnapshot:
    document: dict[str, Any] = {
        "metadata": {"name": "s", "namespace": "shop", "creationTimestamp": e.OLD},
        "spec": {"volumeSnapshotClassName": class_name},
        "status": {"error": {"message": error}} if error else {},
    }
    return e.read(WatchedSnapshot, document)


def test_a_snapshot_that_somebody_refused_or_that_is_not_ours_misses_no_controller():
    other = e.read(VolumeSnapshotClass, {"metadata": {"name": "efs"}, "driver": "efs.example"})

    def found(made: WatchedSnapshot) -> Verdict:
        seen = with_cluster(
            custom_resources=crds(*(crd(each, "v1") for each in PLURALS)),
            snapshots=[made],
            snapshot_classes=[other],
        )
        return checked(seen)["snapshot-controller"].verdict

    assert found(snapshot()) is Verdict.FAILED
    assert found(snapshot("efs")) is Verdict.UNKNOWN
    assert found(snapshot("gone", "the class gone does not exist")) is Verdict.UNKNOWN


def test_what_can_be_patched_is_not_deleted():
    driver = {"metadata": {"name": e.DRIVER}, "spec": {"fsGroupPolicy": "None"}}
    found = checked(with_cluster(csi_driver=e.read(CsiDriverSetup, driver)))["driver-object"]

    assert found.verdict is Verdict.WARNING
    assert found.remedy.startswith("kubectl patch csidriver")


def test_unchecked_reviews_are_a_warning_and_none_is_well():
    some = with_cluster(webhooks=[webhook()], unchecked={"Overloaded": 3.0})
    none = with_cluster(webhooks=[webhook()], unchecked={})

    assert checked(some)["webhook-unchecked"].proof.endswith("3 for Overloaded")
    assert checked(some)["webhook-unchecked"].verdict is Verdict.WARNING
    assert checked(none)["webhook-unchecked"].verdict is Verdict.OK
