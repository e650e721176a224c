"""Fixtures of a node service on a socket; a plugin of pytest, so imported by nobody."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from provisioner.node.metrics.counters import NodeMetrics
from tests.node.caller import Caller, calling
from tests.node.served import Parts, served


@pytest.fixture
def parts() -> Parts:
    return Parts()


@pytest.fixture
def metrics() -> NodeMetrics:
    return NodeMetrics()


@pytest.fixture
async def call(tmp_path: Path, parts: Parts, metrics: NodeMetrics) -> AsyncIterator[Caller]:
    path = tmp_path / "csi.sock"
    async with served(path, parts, metrics), calling(path) as caller:
        yield caller
