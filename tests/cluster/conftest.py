"""One sandbox for the whole run; each test works in a namespace of its own.

The sandbox lives on a thread with an event loop of its own, because tests have one loop each, and
because its programs die with the thread that started them.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from provisioner.sandbox.api import Api
from provisioner.sandbox.control_plane import until
from provisioner.sandbox.installation import unregister_webhook
from provisioner.sandbox.up import Sandbox
from tests.cluster import audit, real_pods
from tests.cluster.background import Background
from tests.cluster.cluster import Cluster, opened
from tests.cluster.keepers import Keep, Nursery
from tests.cluster.place import a_place
from tests.cluster.replicas import WebhookReplica, installed
from tests.cluster.static import Store
from tests.cluster.together import Stories

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("cluster")


@pytest.fixture(scope="session")
def background(pytestconfig: pytest.Config) -> Iterator[Background]:
    """The session's sandbox."""
    yield from audit.audited(pytestconfig)


@pytest.fixture
def sandbox(background: Background) -> Sandbox:
    """The session's sandbox, with all of its parts alive."""
    background.sandbox.crew.check()
    return background.sandbox


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(background: Background) -> AsyncIterator[Cluster]:
    """The same with a controller, for one module."""
    async with opened(background) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stories(cluster: Cluster, request: pytest.FixtureRequest) -> AsyncIterator[Stories]:
    """The stories of a module's ``together`` there, under way."""
    async with request.module.together.started(lambda: a_place(cluster), request) as running:
        yield running


@pytest.fixture(scope="module")
def real() -> Iterator[Background]:
    """A sandbox with two real nodes for one module; no controller yet."""
    yield from real_pods.background()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def real_cluster(real: Background) -> AsyncIterator[Cluster]:
    """The same with a controller."""
    async with real_pods.watched(real) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def real_stories(
    real_cluster: Cluster, request: pytest.FixtureRequest
) -> AsyncIterator[Stories]:
    """The stories of a module's ``together`` there, under way."""
    async with request.module.together.started(lambda: a_place(real_cluster), request) as running:
        yield running


@pytest.fixture
async def api(sandbox: Sandbox) -> AsyncIterator[Api]:
    """A client with the administrator's rights, on the test's own event loop."""
    plane = sandbox.plane
    token = plane.credentials.tokens["admin"]
    async with Api(plane.server, plane.credentials.authority, token) as client:
        yield client


@pytest.fixture
async def namespace(api: Api) -> AsyncIterator[str]:
    """A fresh namespace that accepts pods, deleted afterwards."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    await api.create("/api/v1/namespaces", {"metadata": {"name": name}})

    async def accepts_pods() -> bool:
        return bool(await api.get(f"/api/v1/namespaces/{name}/serviceaccounts/default"))

    async with asyncio.timeout(60):
        await until(accepts_pods)
    yield name
    await api.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture
async def keeps(
    sandbox: Sandbox, api: Api, namespace: str, tmp_path: Path
) -> AsyncIterator[Callable[[], Keep]]:
    """Makes places where the webhook's certificates are kept, and takes them away afterwards."""
    made: list[Keep] = []
    async with Nursery.opened() as nursery:

        def make() -> Keep:
            made.append(Keep(api, nursery, sandbox.plane.kubeconfig, namespace, tmp_path))
            return made[-1]

        yield make
        await asyncio.gather(*(keep.remove() for keep in made))


@pytest.fixture
def keep(keeps: Callable[[], Keep]) -> Keep:
    """One such place."""
    return keeps()


@pytest.fixture(scope="module")
def webhook(background: Background) -> Iterator[WebhookReplica]:
    """One replica for all tests of a file, which may kill it and start it again."""

    async def started() -> WebhookReplica:
        sandbox = await installed(background)
        return await WebhookReplica(sandbox).__aenter__()

    replica = asyncio.run(started())
    yield replica
    asyncio.run(replica.kill())
    asyncio.run(unregister_webhook(background.sandbox.plane))


@pytest.fixture
async def store(
    webhook: WebhookReplica,
    sandbox: Sandbox,
    api: Api,
    namespace: str,
) -> AsyncIterator[Store]:
    """Volumes that somebody makes by hand while the webhook runs, taken away afterwards."""
    mine = Store(sandbox, api, namespace)
    yield mine
    await mine.cleared()
