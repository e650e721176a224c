"""What an account has asked the API server for, by its audit log."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from provisioner.sandbox.api import Api
from provisioner.sandbox.up import Sandbox
from tests.cluster.background import Background
from tests.cluster.replicas import eventually

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

CONTROLLER = "system:serviceaccount:ebs-provisioner:ebs-provisioner-controller"
WEBHOOK = "system:serviceaccount:ebs-provisioner:ebs-webhook"
NODE = "system:serviceaccount:ebs-provisioner-node:ebs-provisioner-node"
ACCOUNTS = (CONTROLLER, WEBHOOK, NODE)
# The user agent of tests that try what an account of ours may not do.
THIEF = "ebs-provisioner-thief"

Right = tuple[str, str, str]
# A right, the namespace and the name.
Answered = tuple[Right, str, str]


def audited(config: pytest.Config) -> Iterator[Background]:
    """A sandbox with six nodes in three zones, EC2 without latency, no controller yet.

    At its end it writes down for ``test_rights`` what was used of the manifests' rights.
    """
    start = Sandbox.start(nodes=6, zones=3, latency="none", throttle="none", controller=False)
    with Background(start) as running:
        yield running
        folder = config.getoption("--used-rights")
        sandbox = running.sandbox
        if folder is not None and sandbox.controller_kubeconfig is not None:
            asyncio.run(written(sandbox, sandbox.controller_kubeconfig))
            keep(uses_of(sandbox), folder)


def granted(rbac: Path) -> set[Right]:
    """Each (group, resource, verb) that a file of roles grants."""
    return {
        (group, resource, verb)
        for document in yaml.safe_load_all(rbac.read_text())
        for rule in document.get("rules", ())
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def records(sandbox: Sandbox, account: str) -> Iterator[dict[str, Any]]:
    """What an account has asked the API server, in this session; not what a thief has."""
    for record in records_of(sandbox, account):
        if record["user"]["username"] == account and record.get("userAgent") != THIEF:
            yield record


def records_of(sandbox: Sandbox, prefix: str) -> Iterator[dict[str, Any]]:
    """What the accounts whose names begin like that have asked the API server, in this session."""
    for file in sandbox.plane.audit_log.parent.glob("audit*.log"):
        # The API server may be in the middle of writing the last line.
        for line in file.read_bytes().splitlines(keepends=True):
            if prefix.encode() in line and line.endswith(b"}\n"):
                record = json.loads(line)
                if record["user"]["username"].startswith(prefix):
                    yield record


def right_of(record: dict[str, Any]) -> Right:
    """What it takes to be allowed that."""
    wanted = record.get("objectRef", {})
    resource = "/".join(filter(None, [wanted.get("resource"), wanted.get("subresource")]))
    return wanted.get("apiGroup", ""), resource, record["verb"]


def used(sandbox: Sandbox, account: str) -> set[Right]:
    """All rights that an account has made use of."""
    return {right_of(record) for record in records(sandbox, account)}


def answers(sandbox: Sandbox, account: str) -> dict[bool, set[Answered]]:
    """What was forbidden (True), and what was not (False)."""
    found: dict[bool, set[Answered]] = {True: set(), False: set()}
    for record in records(sandbox, account):
        right, wanted = right_of(record), record.get("objectRef", {})
        by_name = right[1] in {"leases", "secrets"}  # granted by name and namespace
        where = (wanted.get("namespace", ""), wanted.get("name", "")) if by_name else ("", "")
        found[record["responseStatus"]["code"] == 403].add((right, *where))
    return found


@dataclass(frozen=True, slots=True)
class Use:
    """What an account has made of its rights in one session."""

    account: str
    used: set[Right]
    forbidden: set[Answered]
    allowed: set[Answered]


def use_of(sandbox: Sandbox, account: str) -> Use:
    """What an account has asked of a sandbox's API server."""
    found = answers(sandbox, account)
    return Use(account, used(sandbox, account), found[True], found[False])


def uses_of(sandbox: Sandbox) -> list[Use]:
    """The same of every account of ours."""
    return [use_of(sandbox, account) for account in ACCOUNTS]


def refused(uses: Iterable[Use]) -> set[Answered]:
    """What was forbidden each time that it was asked for.

    Not what was forbidden once: an API server that has just started (test_outages.py) refuses
    whatever its cache of roles does not hold yet.
    """
    uses = list(uses)
    return {what for use in uses for what in use.forbidden} - {
        what for use in uses for what in use.allowed
    }


def keep(uses: list[Use], folder: Path) -> None:
    """Tell it to a session that comes later."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{uuid.uuid4().hex}.msgpack").write_bytes(msgspec.msgpack.encode(uses))


def kept(folder: Path) -> list[Use]:
    """What earlier sessions have told."""
    found = [
        msgspec.msgpack.decode(each.read_bytes(), type=list[Use])
        for each in folder.glob("*.msgpack")
    ]
    return [use for uses in found for use in uses]


async def written(sandbox: Sandbox, kubeconfig: Path | None) -> None:
    """Wait until the audit log holds all that was asked so far: a question of our own, seen there.

    Args:
        sandbox: whose log.
        kubeconfig: of an account that the log is kept for.
    """
    plane = sandbox.plane
    assert kubeconfig is not None
    token = _token_in(kubeconfig)
    marker = f"marker-{uuid.uuid4().hex}"
    async with Api(plane.server, plane.credentials.authority, token) as client:
        path = f"{REVIEWS}?fieldManager={marker}"
        attributes = {"verb": "get", "resource": "nodes"}
        await client.create(path, {"spec": {"resourceAttributes": attributes}})
    await eventually("the audit log is written", lambda: marker in plane.audit_log.read_text())


def _token_in(kubeconfig: Path) -> str:
    return str(json.loads(kubeconfig.read_text())["users"][0]["user"]["token"])
