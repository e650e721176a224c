"""What each check says, of evidence that differs in one thing from that of a sound cluster."""

import base64
import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs

from provisioner.inspect.doctor.check_rules import Check, Verdict, exit_status
from provisioner.inspect.doctor.evidence_rules import LEASES_ELSEWHERE, Clock, Evidence, KeyTry, Try
from provisioner.inspect.doctor.right_rules import NOT_IN_AWS_POLICY, Samples, attempts
from provisioner.inspect.doctor.webhook_rules import unchecked_in
from provisioner.inspect.reading.kind_rules import WatchedSnapshot
from provisioner.inspect.reading.setup_kind_rules import (
    CsiDriverSetup,
    CustomResource,
    SystemNode,
    WebhookConfiguration,
    Workload,
)
from provisioner.model import tags
from provisioner.model.attachment import Attachment
from provisioner.model.claim import Claim
from provisioner.model.meta import KubeObject
from provisioner.model.node import Node, NodeSpec
from provisioner.model.persistent_volume import PlacedVolume
from provisioner.model.taint import Taint
from provisioner.model.volume import AttachmentState, InstanceAttachment, VolumeState
from provisioner.model.volume_snapshot import VolumeSnapshotClass
from tests.documents import page
from tests.inspect.doctor import evidence as e
from tests.inspect.doctor.evidence import SOUND, checked, with_cloud, with_cluster
from webhook.model.review import UNCHECKED

ENCRYPTED = "arn:aws:kms:us-east-1:123456789012:key/1"
YES = Try("CreateVolume", "a new volume", "DryRunOperation", "")
NO = Try("CreateVolume", "a new volume", "UnauthorizedOperation", "You are not authorized.")
OF_SNAPSHOT = {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "monday"}


def claim(**spec: Any) -> Claim:
    document = {"metadata": {"name": "data", "namespace": "shop"}, "spec": spec}
    return e.read(Claim, document)


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


def a_volume(name: str, handle: str) -> PlacedVolume:
    source = {"driver": e.DRIVER, "volumeHandle": handle}
    return e.read(PlacedVolume, {"metadata": {"name": name}, "spec": {"csi": source}})


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
    ("default-class", Verdict.WARNING, with_cluster(claims=[claim()]), "shop/data"),
    (
        "claims-of-no-class",
        Verdict.FAILED,
        with_cluster(claims=[claim(storageClassName="gone")]),
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
        with_cluster(claims=[claim(storageClassName="gp3", dataSource=OF_SNAPSHOT)]),
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
        with_cluster(volumes=[e.persistent_volume(), a_volume("pv-2", "vol-2")]),
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
    ("iam-CreateVolume", Verdict.FAILED, with_cloud(tries=[NO]), "UnauthorizedOperation"),
    (
        "iam-CreateVolume",
        Verdict.UNKNOWN,
        with_cloud(tries=[NO], is_controllers=False),
        "not the controller's identity",
    ),
    ("iam", Verdict.UNKNOWN, with_cloud(refused="AccessDenied"), "AccessDenied"),
    (
        "kms-gp3",
        Verdict.FAILED,
        with_cloud(keys=[KeyTry("gp3", ENCRYPTED, YES, state="PendingDeletion")]),
        "PendingDeletion",
    ),
    (
        "kms-gp3",
        Verdict.FAILED,
        with_cloud(keys=[KeyTry("gp3", ENCRYPTED, YES, refusal="NotFoundException: no")]),
        "KMS in us-east-1 does not have",
    ),
    (
        "kms-gp3",
        Verdict.UNKNOWN,
        with_cloud(keys=[KeyTry("gp3", ENCRYPTED, YES, refusal="AccessDeniedException: no")]),
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


def test_ids_are_words_for_scripts():
    assert [each for each in checked(SOUND) if not re.fullmatch(r"[A-Za-z0-9-]+", each)] == []


def test_a_claim_that_waits_for_a_pod_is_patience():
    assert checked(with_cluster(claims=[pending()]))["claims-waiting"].verdict is Verdict.OK


def test_a_node_without_volumes_may_be_away():
    seen = with_cluster(nodes=[e.not_ready()], attachments=[])
    assert checked(seen)["nodes-ready"].verdict is Verdict.OK


def test_a_taint_of_a_new_node_is_patience():
    young = e.NOW.isoformat()
    taint = Taint(key=f"{e.DRIVER}/agent-not-ready", effect="NoSchedule", time_added=young)
    seen = with_cluster(nodes=[e.node(taints=[{"key": taint.key, "timeAdded": young}])])

    assert checked(seen)["startup-taints"].verdict is Verdict.OK


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


def test_unchecked_reviews_are_those_of_the_webhooks_own_reasons():
    reasons = [*UNCHECKED, "ZoneMismatch"]
    lines = [
        f'ebs_webhook_reviews_total{{path="/validate/pods",outcome="allowed",reason="{each}"}} 2.0'
        for each in reasons
    ]
    text = "\n".join(["# TYPE ebs_webhook_reviews_total counter", *lines, ""])

    assert unchecked_in(text) == dict.fromkeys(map(str, UNCHECKED), 2.0)
    assert unchecked_in("") == {}


def test_a_refusal_of_a_reader_says_nothing_about_a_key():
    refused = Try("CreateVolume", "a new volume", "UnauthorizedOperation", "no")
    enabled = KeyTry("gp3", ENCRYPTED, refused, state="Enabled")
    hidden = KeyTry("gp3", ENCRYPTED, refused, refusal="AccessDeniedException: no")

    def found(key: KeyTry, tried: Try, *, is_controllers: bool) -> Check:
        seen = with_cloud(keys=[key], tries=[tried], is_controllers=is_controllers)
        return checked(seen)["kms-gp3"]

    for is_controllers in (False, True):
        sound = found(enabled, NO, is_controllers=is_controllers)
        assert sound.verdict is Verdict.OK
        assert "see iam-CreateVolume" in sound.proof
        assert found(hidden, NO, is_controllers=is_controllers).verdict is Verdict.UNKNOWN
    assert found(enabled, YES, is_controllers=False).verdict is Verdict.UNKNOWN
    assert found(enabled, YES, is_controllers=True).verdict is Verdict.FAILED


def test_a_key_that_another_region_lacks_is_not_missing():
    key = KeyTry("gp3", "alias/ebs", YES, refusal="NotFoundException: no")
    seen = with_cloud(keys=[key], instances={}, volumes={}, region="eu-west-1")

    assert checked(seen)["kms-gp3"].verdict is Verdict.UNKNOWN


def test_no_volume_is_given_up_before_region_and_account_are_confirmed():
    elsewhere = with_cloud(volumes={}, instances={}, region="eu-west-1")

    found = checked(elsewhere)

    assert found["volumes-exist"].verdict is Verdict.UNKNOWN
    assert found["region"].verdict is Verdict.FAILED
    assert "delete" not in found["volumes-exist"].remedy


def test_a_node_without_provider_id_is_known_by_its_registration():
    seen = with_cluster(nodes=[e.node(providerID="")])

    assert checked(seen)["attached-elsewhere"].verdict is Verdict.OK


def test_nothing_is_told_to_be_detached_while_a_nodes_instance_is_not_known():
    seen = with_cluster(nodes=[e.node(providerID="")], csi_nodes=[])

    assert checked(seen)["attached-elsewhere"].verdict is Verdict.OK


@pytest.mark.parametrize("state", [AttachmentState.DETACHING, AttachmentState.DETACHED])
def test_what_is_being_detached_needs_no_hand(state: AttachmentState):
    leaving = e.volume(attachments=(InstanceAttachment(e.INSTANCE, "/dev/xvdaa", state),))
    seen = replace(
        with_cluster(attachments=[]), cloud=replace(e.CLOUD, volumes={e.VOLUME: leaving})
    )

    assert checked(seen)["attached-elsewhere"].verdict is Verdict.OK


def test_an_attachment_that_came_between_both_looks_is_wanted():
    before = with_cluster(attachments=[])
    after = with_cluster(attachments=[], later_attachments=[e.attachment()])

    assert checked(before)["attached-elsewhere"].verdict is Verdict.WARNING
    assert checked(after)["attached-elsewhere"].verdict is Verdict.OK


def test_any_persistent_volume_of_the_same_handle_wants_it():
    twin = a_volume("pv-0", e.VOLUME)
    seen = with_cluster(volumes=[twin, e.persistent_volume()])

    assert checked(seen)["attached-elsewhere"].verdict is Verdict.OK


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


def test_detaching_is_not_tried_where_it_could_detach():
    used = Samples("us-east-1a", "vol-used", 8, "vol-used", "i-1", "snap-1", "production")
    found = {each.action: each.missing for each in attempts(used)}

    assert "every volume of the driver is attached" in found["DetachVolume"]
    assert found["DeleteVolume"] == ""


def plugin(name: str = "ebs-csi-node", ready: int = 1, **pods: Any) -> Workload:
    document = {
        "metadata": {"name": name, "namespace": "kube-system"},
        "spec": {"template": {"spec": pods}},
        "status": {"desiredNumberScheduled": 2, "numberReady": ready},
    }
    return e.read(Workload, document)


def labelled(name: str, created: str = e.OLD, **labels: str) -> SystemNode:
    document = {
        "metadata": {"name": name, "labels": labels, "creationTimestamp": created},
        "spec": {"providerID": f"aws:///{e.ZONE}/i-0000000000000000a"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    return e.read(SystemNode, document)


def on_nodes(*nodes: Any, **changes: Any) -> Check:
    seen = with_cluster(nodes=[e.node(), *nodes], **changes)
    return checked(seen)["driver-on-nodes"]


WINDOWS = {"kubernetes.io/os": "windows"}
AUTO = {"eks.amazonaws.com/compute-type": "auto"}


@pytest.mark.parametrize("labels", [WINDOWS, AUTO], ids=["windows", "auto"])
def test_the_driver_is_expected_only_where_the_node_plugin_may_run(labels: dict[str, str]):
    [(key, value)] = labels.items()
    term = {"matchExpressions": [{"key": key, "operator": "NotIn", "values": [value]}]}
    required = {"nodeSelectorTerms": [term]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    other = labelled("other", **labels)

    assert on_nodes(other).verdict is Verdict.OK
    assert on_nodes(other, daemon_sets=[plugin(affinity=affinity)]).verdict is Verdict.OK
    assert on_nodes(other, daemon_sets=[plugin(nodeSelector=labels)]).verdict is Verdict.FAILED
    assert on_nodes(other, daemon_sets=[plugin()]).verdict is Verdict.FAILED


def test_new_nodes_without_the_driver_are_counted_and_fail_nothing():
    found = on_nodes(labelled("new", e.NOW.isoformat()))

    assert found.verdict is Verdict.OK
    assert "1 of 2 ready nodes; 1 without it are younger than 5 minutes" in found.proof


def test_a_pod_of_the_node_plugin_may_start_on_a_new_node():
    old, new = labelled("a"), labelled("b", e.NOW.isoformat())
    started = checked(with_cluster(nodes=[old, new], daemon_sets=[plugin()]))
    late = checked(with_cluster(nodes=[old, labelled("b")], daemon_sets=[plugin()]))

    assert started["node-plugin-ready"].verdict is Verdict.OK
    assert late["node-plugin-ready"].verdict is Verdict.FAILED


def test_a_full_node_is_no_reason_to_add_nodes_by_itself():
    found = checked(with_cluster(csi_nodes=[e.csi_node(count=1)]))["node-limits"]
    assert found.remedy.startswith("nothing, unless a pod waits for such a node: kubectl ebs exp")
    assert "if none has, add nodes" in found.remedy


def test_a_limit_already_leaves_other_volumes_out():
    instance = e.instance(volume_ids=("vol-root", e.VOLUME, "vol-a", "vol-b"))
    seen = replace(
        with_cloud(instances={e.INSTANCE: instance}),
        cluster=replace(e.CLUSTER, csi_nodes=[e.csi_node(count=2)]),
    )

    assert checked(seen)["node-limits"].verdict is Verdict.OK


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
    agent = plugin("eks-pod-identity-agent")

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


def test_a_volume_that_another_driver_names_is_no_orphan():
    marks = {**tags.of_cluster("prod"), "CSIVolumeName": "pvc-1"}
    free = e.volume(
        tags=marks,
        attachments=(),
        state=VolumeState.AVAILABLE,
        created_at=e.NOW - timedelta(days=3),
    )
    source = {"driver": "ebs.csi.eks.amazonaws.com", "volumeHandle": e.VOLUME}
    other = e.read(PlacedVolume, {"metadata": {"name": "auto"}, "spec": {"csi": source}})

    def found(*volumes: PlacedVolume) -> Check:
        seen = with_cluster(volumes=[*volumes], cluster_id="prod")
        return checked(replace(seen, cloud=replace(e.CLOUD, tagged=[free])))["orphans"]

    assert found().verdict is Verdict.WARNING
    assert found(other).verdict is Verdict.OK


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


def deleting(driver: str, *finalizers: str) -> PlacedVolume:
    about = {"name": "pv-x", "deletionTimestamp": e.OLD, "finalizers": [*finalizers]}
    source = {"driver": driver, "volumeHandle": e.VOLUME}
    return e.read(PlacedVolume, {"metadata": about, "spec": {"csi": source}})


@pytest.mark.parametrize(
    ("made", "verdict"),
    [
        (deleting(e.DRIVER, "external-attacher/ebs-csi-aws-com"), Verdict.FAILED),
        (deleting("efs.csi.aws.com", "external-attacher/efs-csi-aws-com"), Verdict.OK),
        (
            deleting(e.DRIVER, "kubernetes.io/pv-protection", "external-attacher/ebs-csi-aws-com"),
            Verdict.OK,
        ),
    ],
    ids=["stuck", "another driver's", "waits for its claim"],
)
def test_a_deletion_is_stuck_only_if_nothing_is_waited_for(made: PlacedVolume, verdict: Verdict):
    assert checked(with_cluster(volumes=[made]))["stuck-deletions"].verdict is verdict


def waiting(age: timedelta, error: str = "") -> Attachment:
    document: dict[str, Any] = {
        "metadata": {"name": "csi-1", "creationTimestamp": (e.NOW - age).isoformat()},
        "spec": {
            "attacher": e.DRIVER,
            "nodeName": "node-1",
            "source": {"persistentVolumeName": "pv-1"},
        },
        "status": {"attached": False} | ({"attachError": {"message": error}} if error else {}),
    }
    return e.read(Attachment, document)


@pytest.mark.parametrize(
    ("made", "verdict", "proof"),
    [
        (waiting(timedelta(seconds=5), "once"), Verdict.OK, "not attached yet"),
        (waiting(timedelta(minutes=2)), Verdict.OK, "csi-1"),
        (waiting(timedelta(minutes=2), "no room"), Verdict.WARNING, "no room"),
        (waiting(timedelta(minutes=11), "no room"), Verdict.FAILED, "no room"),
    ],
    ids=["once", "waits", "fails", "stuck"],
)
def test_an_attachment_that_fails_is_told_before_it_is_stuck(
    made: Attachment, verdict: Verdict, proof: str
):
    found = checked(with_cluster(attachments=[made]))["stuck-attachments"]

    assert found.verdict is verdict
    assert proof in found.proof


def test_a_claim_for_a_volume_made_by_hand_needs_no_class():
    def placed(**annotations: str) -> PlacedVolume:
        about = {"name": "by-hand", "annotations": annotations}
        source = {"driver": e.DRIVER, "volumeHandle": e.VOLUME}
        spec = {"csi": source, "storageClassName": "manual"}
        return e.read(PlacedVolume, {"metadata": about, "spec": spec})

    def found(*volumes: PlacedVolume) -> Verdict:
        seen = with_cluster(claims=[claim(storageClassName="manual")], volumes=[*volumes])
        return checked(seen)["claims-of-no-class"].verdict

    assert found() is Verdict.FAILED
    assert found(placed(**{"pv.kubernetes.io/provisioned-by": e.DRIVER})) is Verdict.FAILED
    assert found(placed()) is Verdict.OK


def test_a_persistent_volume_is_made_anew_only_once_its_volume_is_kept():
    wrong = with_cluster(volumes=[e.persistent_volume("us-east-1b")])
    remedy = checked(wrong)["volume-zones"].remedy

    assert "Retain" in remedy
    assert remedy.index("Retain") < remedy.index("again")
    assert "kubectl ebs explain pv" in remedy


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


def test_a_taint_that_keeps_the_node_plugin_away_is_named():
    other = structs.replace(
        labelled("other"), spec=NodeSpec(taints=[Taint(key="gpu", effect="NoSchedule")])
    )

    found = on_nodes(other, daemon_sets=[plugin(tolerations=[])])
    assert found.verdict is Verdict.FAILED
    assert "does not tolerate taint gpu:NoSchedule" in found.proof
    tolerant = on_nodes(other, daemon_sets=[plugin(tolerations=[{"operator": "Exists"}])])
    assert "tolerate taint" not in tolerant.proof
