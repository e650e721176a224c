import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from click.testing import CliRunner, Result

from provisioner.moves import asking, command, follow, plan, requests
from provisioner.moves.sets import row
from tests.moves.fake_cluster import FakeCluster, serving

Run = Callable[..., Coroutine[Any, Any, Result]]


@pytest_asyncio.fixture
async def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeCluster]:
    for module in (follow, plan, row):
        monkeypatch.setattr(module, "_LOOK_AGAIN_S", 0.001)
    monkeypatch.setattr(requests, "_PAUSES_S", (0.001, 0.001))
    async with serving(tmp_path) as found:
        yield found


@pytest.fixture
def run(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command; ``says`` is what somebody types who can be asked."""

    async def of(*words: str, says: str | None = None) -> Result:
        monkeypatch.setattr(asking, "_can_ask", lambda: says is not None)
        arguments = [*words, "--kubeconfig", cluster.target.kubeconfig or ""]
        return await asyncio.to_thread(CliRunner().invoke, command.move, arguments, input=says)

    return of
