"""The demo's story needs no more rights than the manifests grant, by the API server's audit log."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rich.console import Console

from provisioner.sandbox.demo import Story
from tests.cluster import audit
from tests.cluster.audit import CONTROLLER
from tests.cluster.background import Background
from tests.cluster.replicas import installed


@pytest.fixture
def background(pytestconfig: pytest.Config) -> Iterator[Background]:
    """A sandbox of its own, in which nobody else has used a right."""
    yield from audit.audited(pytestconfig)


async def test_the_whole_story_is_told_with_the_rights_of_the_manifests(background: Background):
    sandbox = await installed(background)
    console = Console(width=200)  # pytest shows what was told if a step is not seen
    probes = await background.call(sandbox.start_controller())
    await background.call(sandbox.elected(probes))
    await background.call(sandbox.start_webhook())
    await background.call(Story(sandbox, console).tell())

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
