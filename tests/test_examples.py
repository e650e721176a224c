"""The examples in docs, judged by our own rules; tests/cluster applies them to an API server."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from provisioner.classes import volume_attributes_class_rules as attributes
from provisioner.controller.snapshotting import class_rules
from provisioner.inspect.classes import check_rules as class_check_rules
from provisioner.model.claim import Claim
from provisioner.model.driver import EBS_DRIVER
from provisioner.model.storage_class import StorageClass
from tests.documents import DOCS
from webhook.model import pod as pods
from webhook.model.cluster_view import ClusterView
from webhook.reviews import claim_rules as claims
from webhook.reviews import persistent_volume_rules, pod_rules, storage_class_rules
from webhook.reviews.persistent_volume_rules import Found

Json = dict[str, Any]
FILES = sorted(path for path in DOCS.glob("examples/*.yaml"))


def documents(path: Path) -> list[Json]:
    return [each for each in yaml.safe_load_all(path.read_text()) if each]


def of_kind(kind: str) -> list[Any]:
    return [
        pytest.param(each, id=f"{path.name}: {each['metadata']['name']}")
        for path in FILES
        for each in documents(path)
        if each["kind"] == kind
    ]


def test_there_are_examples_of_each_kind():
    kinds = {each["kind"] for path in FILES for each in documents(path)}

    assert kinds >= {
        *("StorageClass", "PersistentVolumeClaim", "PersistentVolume", "Pod"),
        *("VolumeAttributesClass", "VolumeSnapshotClass", "VolumeSnapshot"),
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_an_example_begins_with_what_it_is_for(path: Path):
    assert path.read_text().startswith("# ")


@pytest.mark.parametrize("document", of_kind("StorageClass"))
def test_a_class_works_and_is_in_no_doubt(document: Json):
    read = msgspec.convert(document, StorageClass)

    check = class_check_rules.check(read, default_file_system="ext4")

    assert check.findings.works
    assert not check.findings.doubts
    answer = storage_class_rules.judge(document, None, driver=EBS_DRIVER)
    assert answer.allowed
    assert not answer.warnings


@pytest.mark.parametrize("document", of_kind("PersistentVolumeClaim"))
def test_a_claim_can_be_read_and_is_not_warned_about(document: Json):
    assert msgspec.convert(document, Claim).name == document["metadata"]["name"]
    answer = claims.judge(document, ClusterView(), namespace="default")
    assert answer.allowed
    assert not answer.warnings


@pytest.mark.parametrize("document", of_kind("Pod"))
def test_a_pod_is_let_through(document: Json):
    answer = pod_rules.judge(pods.read(document), ClusterView(), namespace="default").answer

    assert answer.allowed


@pytest.mark.parametrize("document", of_kind("PersistentVolume"))
def test_a_persistent_volume_is_let_through(document: Json):
    assert persistent_volume_rules.validate(document, Found("us-east-1a"), strict=True).allowed


@pytest.mark.parametrize("document", of_kind("VolumeSnapshotClass"))
def test_a_class_of_snapshots_can_be_read(document: Json):
    assert document["driver"] == EBS_DRIVER
    assert class_rules.parse(document.get("parameters", {})).lock is None


@pytest.mark.parametrize("document", of_kind("VolumeAttributesClass"))
def test_a_class_of_attributes_can_be_read(document: Json):
    assert document["driverName"] == EBS_DRIVER
    assert attributes.parse(document["parameters"]) != attributes.parse({})
