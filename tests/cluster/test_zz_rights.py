"""The rights that the manifests grant against those used, by the API server's audit log.

Last in its folder: what all other tests here have made the controller do counts too.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path

import pytest
from rich.console import Console

from provisioner.sandbox.api import Api
from provisioner.sandbox.demo import Story
from provisioner.sandbox.installation import MANIFESTS
from tests.cluster import audit, hands, stock
from tests.cluster.background import Background
from tests.cluster.replicas import installed

HERE = Path(__file__).parent
CONTROLLER = "system:serviceaccount:ebs-provisioner:ebs-provisioner-controller"
WEBHOOK = "system:serviceaccount:ebs-provisioner:ebs-webhook"


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
        for name in ("fast", "standard", "near-its-pod"):
            await hands.discard(api, f"{hands.CLASSES}/{name}")

    await audit.written(sandbox, sandbox.controller_kubeconfig)
    assert audit.refused(sandbox, CONTROLLER) == set()
    assert audit.refused(sandbox, WEBHOOK) == set()
    assert {
        *(("", "persistentvolumes", "create"), ("", "persistentvolumeclaims", "patch")),
        *(("storage.k8s.io", "volumeattachments/status", "patch"), ("", "events", "create")),
        ("coordination.k8s.io", "leases", "create"),
    } <= audit.used(sandbox, CONTROLLER)


@pytest.mark.parametrize(
    ("account", "rbac", "tests"),
    [
        (CONTROLLER, MANIFESTS / "rbac.yaml", HERE.glob("test_*.py")),
        (WEBHOOK, MANIFESTS / "webhook" / "rbac.yaml", [HERE / "test_webhook.py"]),
    ],
    ids=["controller", "webhook"],
)
async def test_every_right_that_is_granted_is_used(
    background: Background,
    request: pytest.FixtureRequest,
    account: str,
    rbac: Path,
    tests: Iterable[Path],
):
    sandbox = await installed(background)
    await audit.written(sandbox, sandbox.controller_kubeconfig)
    unused = audit.granted(rbac) - audit.used(sandbox, account)

    collected = {item.path for item in request.session.items}
    if request.config.getoption("keyword") or not collected >= set(tests):
        pytest.skip(f"only all tests of {account} can tell; not used here: {unused}")
    assert unused == set()
