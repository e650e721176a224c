"""The rights that the manifests grant against those used, by the API servers' audit logs.

``make test`` runs this file last and alone, with ``--used-rights``: where the sessions before it
have written down what all other tests made the controller do.
"""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from provisioner.sandbox import snapshots
from provisioner.sandbox.api import Api
from provisioner.sandbox.demo import Story
from provisioner.sandbox.installation import MANIFESTS
from tests.cluster import audit, hands, stock
from tests.cluster.audit import CONTROLLER, WEBHOOK
from tests.cluster.background import Background
from tests.cluster.replicas import installed


async def test_the_whole_story_is_told_with_the_rights_of_the_manifests(
    background: Background, api: Api
):
    sandbox = await installed(background)
    await stock.forget(api)
    for each in await hands.items(api, hands.PVS):  # what a failed test has left is not its fault
        await hands.remove(api, f"{hands.PVS}/{each['metadata']['name']}")
    console = Console(file=io.StringIO(), width=200)
    probes = await background.call(sandbox.start_controller())
    await background.call(sandbox.elected(probes))
    await background.call(sandbox.start_webhook())
    try:
        await background.call(Story(sandbox, console).tell())
    finally:
        await background.call(sandbox.stop_controller(grace_s=30))
        await background.call(sandbox.stop_webhook())
        await background.call(sandbox.unregister_webhook())
        for name in ("fast", "gp2", "near-its-pod", "general", "of-old"):
            await hands.discard(api, f"{hands.CLASSES}/{name}")
        await hands.discard(api, "/apis/storage.k8s.io/v1/volumeattributesclasses/busy")
        await hands.discard(api, f"{snapshots.GROUP}/volumesnapshotclasses/nightly")

    await audit.written(sandbox, sandbox.controller_kubeconfig)
    for use in audit.uses_of(sandbox):
        assert audit.refused([use]) == set(), use.account
    assert {
        *(("", "persistentvolumes", "create"), ("", "persistentvolumeclaims", "patch")),
        *(("storage.k8s.io", "volumeattachments/status", "patch"), ("", "events", "create")),
        *(("coordination.k8s.io", "leases", "create"), ("", "persistentvolumes", "patch")),
        ("", "persistentvolumeclaims/status", "patch"),
        ("snapshot.storage.k8s.io", "volumesnapshotcontents/status", "patch"),
    } <= audit.used(sandbox, CONTROLLER)


@pytest.mark.parametrize(
    ("account", "rbac"),
    [
        (CONTROLLER, MANIFESTS / "rbac.yaml"),
        (CONTROLLER, MANIFESTS / "release-dead-nodes" / "rbac.yaml"),
        (WEBHOOK, MANIFESTS / "webhook" / "rbac.yaml"),
    ],
    ids=["controller", "dead nodes", "webhook"],
)
async def test_every_right_that_is_granted_is_used(
    background: Background, everybodys: list[audit.Use], account: str, rbac: Path
):
    sandbox = await installed(background)
    await audit.written(sandbox, sandbox.controller_kubeconfig)
    uses = [*everybodys, *audit.uses_of(sandbox)]

    used = {right for use in uses if use.account == account for right in use.used}
    assert audit.granted(rbac) - used == set()


@pytest.mark.parametrize("account", audit.ACCOUNTS)
def test_no_test_needs_what_is_forbidden(everybodys: list[audit.Use], account: str):
    uses = [use for use in everybodys if use.account == account]
    assert uses, "no session has told what it used"

    assert audit.refused(uses) == set()


@pytest.fixture
def everybodys(pytestconfig: pytest.Config) -> list[audit.Use]:
    """What the sessions before this one have used."""
    folder = pytestconfig.getoption("--used-rights")
    if folder is None:
        pytest.skip("only all tests together can tell: make test")
    return audit.kept(folder)
