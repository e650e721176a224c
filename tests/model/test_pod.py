import msgspec
import pytest

from provisioner.model.node_affinity import matches
from provisioner.model.pod import Pod, using_claims


def a_pod(**spec):
    document = {"metadata": {"name": "web-0", "namespace": "shop"}, "spec": spec}
    return msgspec.convert(document, Pod)


def test_the_claims_of_a_pod_are_those_that_it_names_and_those_made_for_it():
    pod = a_pod(
        volumes=[
            {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-0"}},
            {"name": "more", "persistentVolumeClaim": {"claimName": "data-web-0"}},
            {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
            {"name": "config", "configMap": {"name": "config"}},
        ]
    )

    assert pod.claim_keys == ("shop/data-web-0", "shop/web-0-scratch")


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"volumes": None, "nodeSelector": None, "affinity": None, "tolerations": None},
        {"affinity": {"nodeAffinity": None}},
        {"affinity": {"podAffinity": {}}, "volumes": [{"persistentVolumeClaim": {}}]},
    ],
)
def test_a_pod_without_wishes_demands_nothing(spec):
    pod = a_pod(**spec)

    assert (pod.spec.selections, pod.claim_keys, pod.tolerations, pod.node_name) == ((), (), [], "")


def test_the_node_selector_and_the_affinity_must_both_be_met():
    required = {
        "nodeSelectorTerms": [
            {"matchExpressions": [{"key": "disk", "operator": "Exists"}]},
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-9"]}]},
        ]
    }
    pod = a_pod(
        nodeSelector={"pool": "db", "os": "linux"},
        affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}},
    )

    def may_come_to(name, **labels):
        return all(matches(group, labels, name) for group in pod.spec.selections)

    assert may_come_to("node-1", pool="db", os="linux", disk="ssd")
    assert may_come_to("node-9", pool="db", os="linux")
    assert not may_come_to("node-1", pool="db", os="linux")
    assert not may_come_to("node-1", pool="db", disk="ssd")


def test_of_a_pod_that_uses_claims_its_notes_are_not_kept_and_of_others_nothing():
    document = {
        "metadata": {
            "name": "web-0",
            "namespace": "shop",
            "uid": "1",
            "resourceVersion": "5",
            "deletionTimestamp": "2026-11-21T10:00:00Z",
            "annotations": {"last-applied": "long"},
            "labels": {"app": "web"},
            "finalizers": ["example.com/hold"],
        },
        "spec": {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]},
    }

    kept = using_claims(msgspec.convert(document, Pod))

    assert kept is not None
    assert (kept.key, kept.uid, kept.metadata.resource_version) == ("shop/web-0", "1", "5")
    assert kept.deleting
    assert kept.claim_keys == ("shop/data",)
    assert (kept.annotations, kept.labels, kept.finalizers) == ({}, {}, [])
    assert using_claims(a_pod(volumes=[{"name": "config"}])) is None
