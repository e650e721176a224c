"""Alerts fire, and the dashboard has data: a real Prometheus scrapes one sandbox with many faults.

Time runs sixty times as fast for the rules (``prometheus.FASTER``), and no ``for`` is longer than
ten seconds; the expressions and their thresholds are those of the manifests.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path

import pytest
import pytest_asyncio

from provisioner.sandbox.installation import unregister_webhook
from tests.cluster import dashboard, dashboard_picture, hands, prometheus, real_pods
from tests.cluster.alert_faults import (
    AFTERWARDS,
    AT_ONCE,
    ATTACHED,
    DELETED,
    FAULTS,
    LAST,
    MOVED,
    OLD_CERTIFICATE,
    REFUSED_KEY,
    SLOW,
    Fault,
    World,
    move_in,
)
from tests.cluster.background import Background
from tests.cluster.cluster import Json, opened
from tests.cluster.move_stories import moves_installed
from tests.cluster.place import Place
from tests.cluster.replicas import Replica, WebhookReplica, installed

pytestmark = pytest.mark.asyncio(loop_scope="module")

LOAD = ATTACHED + DELETED
CALM_S = 12.0
"""Longer than any ``for`` here."""
FIRES_S = 100.0
SWEEPS = ("--orphan-sweep-interval", "1s", "--orphan-min-age", "1s")


@dataclass
class Watched:
    """What Prometheus saw.

    Attributes:
        calm: alerts that fired before any fault could be seen.
        fired: how many seconds after its fault an alert fired, or why it did not.
        shown: samples by query of the dashboard, and by name of a recording rule.
    """

    world: World
    calm: list[Json] = field(default_factory=list)
    fired: dict[str, float | BaseException] = field(default_factory=dict)
    shown: dict[str, list[Json]] = field(default_factory=dict)

    def make_all(self, faults: Mapping[str, Fault], group: asyncio.TaskGroup) -> None:
        """Make faults side by side."""
        for name, fault in faults.items():
            group.create_task(self.make(name, fault), name=name)

    async def make(self, name: str, fault: Fault) -> None:
        """Make a fault and wait for its alert."""
        begun_s = time.monotonic()
        try:
            labels = await fault(self.world)
            await self.world.prometheus.fires(name, labels or {}, FIRES_S)
        except Exception as error:  # raised by the test of this alert
            self.fired[name] = error
        else:
            self.fired[name] = time.monotonic() - begun_s


@contextlib.asynccontextmanager
async def a_world(real: Background, folder: Path) -> AsyncIterator[World]:
    """A cluster with all of our programs, pods with volumes, and a Prometheus."""
    watched = opened(real, *SWEEPS, "--volume-moves")
    async with watched as cluster, moves_installed(cluster.api):
        sandbox = await installed(real)
        place = Place(cluster, "monitored")
        await cluster.api.create("/api/v1/namespaces", {"metadata": {"name": place.name}})
        await cluster.until("a namespace that accepts pods", place.accepts_pods)
        nameless = Replica(sandbox, name="nameless", environment={"AWS_ACCESS_KEY_ID": REFUSED_KEY})
        served = ("--tls-manage", "false", "--tls-secret", OLD_CERTIFICATE)
        options = ("--kubeconfig", str(sandbox.plane.kubeconfig), *served)
        old = WebhookReplica(sandbox, *options, registers=False, name="old-webhook")
        with dashboard.nitro() as nitro:
            async with prometheus.running(folder / "prometheus") as watching:
                watching.scrape("ebs-provisioner-node", nitro)
                watching.scrape("ebs-provisioner-controller", cluster.probes)
                for node in real_pods.fleet_of(sandbox).nodes:
                    watching.scrape("ebs-provisioner-node", node.probes)
                try:
                    async with WebhookReplica(sandbox) as webhook:
                        watching.scrape("ebs-webhook", webhook.address)
                        world = World(place, watching, nameless, old, webhook)
                        await work(world)
                        yield world
                finally:
                    await nameless.kill()
                    await old.kill()
                    await unregister_webhook(sandbox.plane)
                    await hands.remove(cluster.api, move_in(place))


async def work(world: World) -> None:
    """What users do on a good day: volumes come, are used, and one goes."""
    place = world.place
    for name in (world.grows, world.torn):
        await real_pods.a_claim(place, name, "xfs")
        await real_pods.start(place, name, "sleep 1000", {"/data": name})
    name = await place.storage_class()
    await place.claim(name, MOVED)
    for number in range(LOAD + 1):
        await place.claim(name, f"load-{number}")
    for number in range(LOAD + 1):
        await place.bound(f"load-{number}")
    await place.bound(MOVED)
    await place.api.delete(f"{place.claims}/load-{LOAD}")
    for each in (world.grows, world.torn):
        await real_pods.is_running(place, each)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def watched(
    real: Background, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Watched]:
    async with a_world(real, tmp_path_factory.mktemp("monitoring")) as world:
        seen = Watched(world)
        async with asyncio.TaskGroup() as slow:
            seen.make_all(SLOW, slow)
            await asyncio.sleep(CALM_S)
            fired = f'count_over_time(ALERTS{{alertstate="firing"}}[{CALM_S:.0f}s])'
            seen.calm = await world.prometheus.query(fired)
            for those in (AT_ONCE, AFTERWARDS):
                async with asyncio.TaskGroup() as faults:
                    seen.make_all(those, faults)
        for query in [*map(itemgetter(1), dashboard.QUERIES), *prometheus.recorded()]:
            seen.shown[query] = await world.prometheus.query(dashboard.filled_in(query, "2m"))
        if path := os.environ.get(dashboard_picture.VARIABLE):
            dashboard_picture.draw(await dashboard_picture.answers(world.prometheus), Path(path))
        async with asyncio.TaskGroup() as faults:
            seen.make_all(LAST, faults)
        yield seen


async def test_no_alert_fires_while_nothing_is_wrong(watched: Watched):
    assert watched.calm == []


@pytest.mark.parametrize("name", FAULTS)
async def test_an_alert_fires_in_a_cluster_with_its_fault(name: str, watched: Watched):
    fired = watched.fired[name]

    if isinstance(fired, BaseException):
        raise fired
    print(f"{name} fired after {fired:.1f} s")  # noqa: T201 -- for docs/alerts.md, with -rP


async def test_each_alert_has_its_fault():
    assert FAULTS.keys() == set(prometheus.alerts())


@pytest.mark.parametrize(("title", "query"), dashboard.QUERIES)
async def test_a_query_of_the_dashboard_has_data(title: str, query: str, watched: Watched):
    values = [float(each["value"][1]) for each in watched.shown[query]]

    assert any(not math.isnan(value) for value in values), title


@pytest.mark.parametrize("name", prometheus.recorded())
async def test_a_name_of_the_stock_driver_has_data(name: str, watched: Watched):
    assert watched.shown[name]
