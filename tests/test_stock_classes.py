"""Handing back must work: aws-ebs-csi-driver takes every class that we document."""

import ast
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from provisioner import __file__ as package_file
from provisioner.classes.storage_class_rules import (
    FILE_SYSTEM_KEY,
    SECRET_KEYS,
    TABLE,
    parse_parameters,
    read,
)
from provisioner.model.driver import EBS_DRIVER, IN_TREE_DRIVER
from provisioner.model.tags import TAG_PREFIX
from tests.builders import a_class
from tests.documents import all_documents, yaml_documents

ROOT = Path(package_file).parents[1]
# Source: aws-ebs-csi-driver v1.64 pkg/driver/controller.go CreateVolume, which lowers keys and
# refuses all others, but for those with the prefix of tags; external-provisioner 6.3 takes its own
# before.
STOCK_KEYS = frozenset(
    {
        "type",
        "iopspergb",
        "allowautoiopspergbincrease",
        "allowautoiopsincreaseonmodify",
        "iops",
        "throughput",
        "volumeinitializationrate",
        "encrypted",
        "kmskeyid",
        "fstype",
        "blockexpress",
        "blocksize",
        "inodesize",
        "bytesperinode",
        "numberofinodes",
        "ext4bigalloc",
        "ext4clustersize",
        "ext4encryptionsupport",
        "blockattachuntilinitialized",
    }
)
SIDECAR_KEYS = frozenset(
    {
        "csi.storage.k8s.io/fstype",
        "csi.storage.k8s.io/secret-name",
        "csi.storage.k8s.io/secret-namespace",
        "csi.storage.k8s.io/provisioner-secret-name",
        "csi.storage.k8s.io/provisioner-secret-namespace",
        "csi.storage.k8s.io/controller-publish-secret-name",
        "csi.storage.k8s.io/controller-publish-secret-namespace",
        "csi.storage.k8s.io/node-stage-secret-name",
        "csi.storage.k8s.io/node-stage-secret-namespace",
        "csi.storage.k8s.io/node-publish-secret-name",
        "csi.storage.k8s.io/node-publish-secret-namespace",
        "csi.storage.k8s.io/controller-expand-secret-name",
        "csi.storage.k8s.io/controller-expand-secret-namespace",
        "csi.storage.k8s.io/node-expand-secret-name",
        "csi.storage.k8s.io/node-expand-secret-namespace",
        "csi.storage.k8s.io/controller-modify-secret-name",
        "csi.storage.k8s.io/controller-modify-secret-namespace",
    }
)
# Source: Kubernetes 1.36 csi-translation-lib plugins/aws_ebs.go: what it takes out before.
TRANSLATED_KEYS = frozenset({"zone", "zones"})


def stock_refuses(parameters: Mapping[str, str], *, in_tree: bool = False) -> list[str]:
    """The keys for which the stock driver makes no volume."""
    taken = STOCK_KEYS | (TRANSLATED_KEYS if in_tree else frozenset())
    return [
        key
        for key in parameters
        if key not in SIDECAR_KEYS and key.lower() not in taken and not key.startswith(TAG_PREFIX)
    ]


A_CLASS = "kind: StorageClass"


def texts() -> Iterator[tuple[str, str]]:
    """Every text that may hold a class: blocks in documents, examples, manifests, and strings in the code."""
    for path in all_documents():
        for block in path.read_text().split("```")[1::2]:
            yield path.name, block.partition("\n")[2]
    for path in [*ROOT.glob("manifests/**/*.yaml"), *ROOT.glob("docs/**/*.yaml")]:
        if "templates" not in path.parts:  # of the chart: no YAML before Helm has filled them in
            yield path.name, path.read_text()
    for path in ROOT.glob("provisioner/**/*.py"):
        if A_CLASS not in (source := path.read_text()):
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield path.name, node.value


@functools.cache
def documented() -> list[Any]:
    """All StorageClasses in those texts, each as a parameter of a test."""
    return [
        pytest.param(each, id=f"{name}: {each['metadata']['name']}")
        for name, text in texts()
        if f"\n{A_CLASS}\n" in text
        for each in yaml_documents(text)
        if each and each.get("kind") == "StorageClass"
    ]


def test_classes_are_documented():
    assert len(documented()) >= 12


@pytest.mark.parametrize("storage_class", documented())
def test_the_stock_driver_takes_every_class_that_we_document(storage_class: dict[str, Any]):
    parameters = storage_class.get("parameters", {})
    provisioner = storage_class["provisioner"]

    assert provisioner in (EBS_DRIVER, IN_TREE_DRIVER)
    assert stock_refuses(parameters, in_tree=provisioner == IN_TREE_DRIVER) == []
    found = read(a_class(provisioner=provisioner, parameters=parameters))
    assert found.is_in_tree is (provisioner == IN_TREE_DRIVER)


def test_the_stock_driver_takes_every_name_in_our_table():
    names = [name for row in TABLE for name in (row.name, row.also) if name]
    names = [name for name in names if "…" not in name] + sorted(SECRET_KEYS)

    assert stock_refuses(dict.fromkeys(names, "")) == []


@pytest.mark.parametrize("key", sorted(STOCK_KEYS | SIDECAR_KEYS))
def test_every_name_of_the_stock_driver_is_in_our_table(key: str):
    names = {name.lower() for row in TABLE for name in (row.name, row.also)}

    assert key in names | SECRET_KEYS


def test_a_class_may_name_every_secret_that_external_provisioner_knows():
    secrets = SIDECAR_KEYS - {FILE_SYSTEM_KEY}

    assert parse_parameters(dict.fromkeys(secrets, "s")) == parse_parameters({})


def test_a_switch_among_the_parameters_would_be_seen():
    assert stock_refuses({"type": "gp3", "ebs-provisioner.io/x": "y"}) == ["ebs-provisioner.io/x"]
    assert stock_refuses({"zone": "us-east-1a"}) == ["zone"]


@pytest.mark.parametrize("value", ["true", "false"])
def test_what_the_stock_driver_reads_as_a_boolean_is_read_the_same(value: str):
    assert parse_parameters({"encrypted": value}).encrypted is (value == "true")
