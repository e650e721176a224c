"""The fixtures of tests that read from an API server on loopback."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from provisioner.node.instance.kube import NodeKube
from tests.node.kube_server import KubeServer, serving


@pytest.fixture
async def kube_server(tmp_path: Path) -> AsyncIterator[KubeServer]:
    async with serving(tmp_path) as server:
        yield server


@pytest.fixture
async def kube(kube_server: KubeServer) -> AsyncIterator[NodeKube]:
    async with kube_server.client() as client:
        yield client
