"""What ``kubectl ebs`` reads, and the rights that manifests/cli and manifests/iam give for it."""

import ast
import json
import re
from typing import Any

import yaml

from provisioner.inspect.reading import kinds, setup_kinds
from provisioner.kube import lease, resources
from provisioner.kube.resources import Resource
from tests.documents import ROOT

INSPECT = ROOT / "provisioner" / "inspect"
RESOURCES: dict[str, Resource[Any]] = {
    name: each
    for module in (resources, lease, kinds, setup_kinds)
    for name, each in vars(module).items()
    if isinstance(each, Resource)
}
ON_PURPOSE_NOT_GIVEN = {("", "secrets")}  # manifests/cli/rbac.yaml says why
_ACTION = re.compile(r'"(Describe[A-Z]\w+|List\w+Quotas|Get(?:CallerIdentity|Products|Ebs\w+))"')
_SERVICE_OF = {
    "DescribeKey": "kms",
    "GetProducts": "pricing",
    "ListAWSDefaultServiceQuotas": "servicequotas",
    "ListServiceQuotas": "servicequotas",
}
NEEDS_NO_RIGHT = {"GetCallerIdentity"}  # STS API reference, GetCallerIdentity (read 2026-11-23)


def rules(folder: str = "manifests/cli") -> list[dict[str, Any]]:
    role = yaml.safe_load((ROOT / folder / "rbac.yaml").read_text())
    found: list[dict[str, Any]] = role["rules"]
    return found


def read_kinds() -> set[tuple[str, str]]:
    """Group and plural of each kind that a command names, wherever it does so."""
    names = {
        node.id
        for path in INSPECT.rglob("*.py")
        if not path.name.endswith("kinds.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Name) and node.id in RESOURCES
    }
    return {(RESOURCES[name].group, RESOURCES[name].plural) for name in names}


def test_each_kind_that_a_command_reads_may_be_read_and_no_other():
    granted = {(g, r) for rule in rules() for g in rule["apiGroups"] for r in rule["resources"]}

    assert len(granted) > 15
    assert granted == read_kinds() - ON_PURPOSE_NOT_GIVEN


def test_nothing_may_be_changed():
    assert {verb for rule in rules() for verb in rule["verbs"]} <= {"get", "list"}


def test_no_namespace_may_be_read_but_the_one_that_tells_clusters_apart():
    of_namespaces = [rule for rule in rules() if "namespaces" in rule["resources"]]

    assert [(rule["resourceNames"], rule["verbs"]) for rule in of_namespaces] == [
        (["kube-system"], ["get"])
    ]


def test_the_kubelets_are_a_right_of_their_own():
    """Who has it may run commands in pods; tests/cluster/test_real_node_stories.py uses both."""
    kubelets = {"apiGroups": [""], "resources": ["nodes/proxy"], "verbs": ["get"]}

    assert rules("manifests/cli/df") == [kubelets]
    assert not any("/" in each for rule in rules() for each in rule["resources"])


def test_the_policy_has_the_questions_of_the_code_and_changes_nothing():
    asked = {
        action
        for path in INSPECT.rglob("*.py")
        for action in _ACTION.findall(path.read_text())
        if action not in NEEDS_NO_RIGHT
    }
    policy = json.loads((ROOT / "manifests/iam/cli-policy.json").read_text())
    [statement] = policy["Statement"]
    given = set(statement["Action"])

    assert {f"{_SERVICE_OF.get(action, 'ec2')}:{action}" for action in asked} <= given
    assert not [each for each in given if not re.match(r"\w+:(Describe|List|Get)", each)]
