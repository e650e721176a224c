"""The rights of ``manifests/rbac.yaml`` against those used, by the API server's audit log.

Last in its folder: what all other tests here have made the controller do counts too.
"""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from provisioner.sandbox.api import Api
from provisioner.sandbox.demo import Story
from provisioner.sandbox.installation import MANIFESTS
from provisioner.sandbox.up import Sandbox
from tests.cluster import hands, stock
from tests.cluster.background import Background
from tests.cluster.replicas import eventually, installed

HERE = Path(__file__).parent
NAMESPACE = "ebs-provisioner"
NAME = "ebs-provisioner-controller"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:{NAME}"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

Right = tuple[str, str, str]


def granted() -> set[Right]:
    """Each (group, resource, verb) that the manifests grant."""
    return {
        (group, resource, verb)
        for document in yaml.safe_load_all((MANIFESTS / "rbac.yaml").read_text())
        for rule in document.get("rules", ())
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def records(sandbox: Sandbox) -> Iterator[dict[str, Any]]:
    """What the controller's account has asked the API server, in this session."""
    for file in sandbox.plane.audit_log.parent.glob("audit*.log"):
        for line in file.read_text().splitlines():
            if ACCOUNT in line and line.endswith("}"):
                record = json.loads(line)
                if record["user"]["username"] == ACCOUNT:
                    yield record


def right_of(record: dict[str, Any]) -> Right:
    wanted = record.get("objectRef", {})
    resource = "/".join(filter(None, [wanted.get("resource"), wanted.get("subresource")]))
    return wanted.get("apiGroup", ""), resource, record["verb"]


def refused(sandbox: Sandbox) -> set[tuple[Right, str, str]]:
    """What was forbidden each time that it was asked for.

    Not what was forbidden once: an API server that has just started (test_outages.py) refuses
    whatever its cache of roles does not hold yet.
    """
    answers: dict[bool, set[tuple[Right, str, str]]] = {True: set(), False: set()}
    for record in records(sandbox):
        right, wanted = right_of(record), record.get("objectRef", {})
        by_name = right[1] == "leases"  # granted by name and namespace
        where = (wanted.get("namespace", ""), wanted.get("name", "")) if by_name else ("", "")
        answers[record["responseStatus"]["code"] == 403].add((right, *where))
    return answers[True] - answers[False]


async def written(sandbox: Sandbox) -> None:
    """Wait until the audit log holds all that was asked so far: a question of our own, seen there."""
    plane = sandbox.plane
    token = token_of(sandbox)
    marker = f"marker-{uuid.uuid4().hex}"
    async with Api(plane.server, plane.credentials.authority, token) as as_controller:
        path = f"{REVIEWS}?fieldManager={marker}"
        attributes = {"verb": "get", "resource": "nodes"}
        await as_controller.create(path, {"spec": {"resourceAttributes": attributes}})
    await eventually("the audit log is written", lambda: marker in plane.audit_log.read_text())


def token_of(sandbox: Sandbox) -> str:
    assert sandbox.controller_kubeconfig is not None
    document = json.loads(sandbox.controller_kubeconfig.read_text())
    return str(document["users"][0]["user"]["token"])


async def test_the_whole_story_is_told_with_the_rights_of_the_manifests(
    background: Background, api: Api
):
    sandbox = await installed(background)
    await stock.forget(api)
    for each in await hands.items(api, hands.PVS):  # what a failed test has left is not its fault
        await hands.remove(api, f"{hands.PVS}/{each['metadata']['name']}")
    console = Console(file=io.StringIO(), width=200)
    await background.call(sandbox.start_controller())
    try:
        await background.call(Story(sandbox, console).tell())
    finally:
        await background.call(sandbox.stop_controller(grace_s=30))
        for name in ("fast", "near-its-pod"):
            await hands.discard(api, f"{hands.CLASSES}/{name}")

    await written(sandbox)
    assert refused(sandbox) == set()
    used = {right_of(record) for record in records(sandbox)}
    assert {
        *(("", "persistentvolumes", "create"), ("", "persistentvolumeclaims", "patch")),
        *(("storage.k8s.io", "volumeattachments/status", "patch"), ("", "events", "create")),
        ("coordination.k8s.io", "leases", "create"),
    } <= used


async def test_every_right_that_is_granted_is_used(
    background: Background, request: pytest.FixtureRequest
):
    await installed(background)
    await written(background.sandbox)
    unused = granted() - {right_of(record) for record in records(background.sandbox)}

    collected = {item.path for item in request.session.items}
    if request.config.getoption("keyword") or not collected >= set(HERE.glob("test_*.py")):
        pytest.skip(f"only all tests of the real cluster can tell; not used here: {unused}")
    assert unused == set()
