"""Since when only ours have led: kept from leader to leader, and void after anybody else."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from provisioner.kube.client import KubeClient
from provisioner.kube.held_lease import LED_SINCE
from provisioner.kube.lease import Leases
from provisioner.metrics import Metrics
from tests.kube.apiserver import ApiServer, status
from tests.kube.leases import BASE, NAMES, Clock, Cluster, Eventually, background, looked_twice

LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
Make = Callable[[str], Leases]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cluster(server: ApiServer) -> Cluster:
    return Cluster(server)


@pytest.fixture
def make(client: KubeClient, metrics: Metrics, clock: Clock) -> Make:
    def build(identity: str) -> Leases:
        return Leases(
            client,
            namespace="kube-system",
            names=NAMES,
            identity=identity,
            on_lost=lambda: None,
            metrics=metrics,
            clock=clock,
            retry_s=0.02,
        )

    return build


def led_by_ours(cluster: Cluster, *, holder: str = "") -> None:
    """The leases as a leader of ours leaves them after a long reign, released or not."""
    for name in NAMES:
        cluster.put(
            name, holderIdentity=holder, renewTime="lately", leaseTransitions=3, acquireTime="once"
        )
        cluster.annotations[name] = {LED_SINCE: f"2026-01-01T00:00:00Z {holder} lately"}


def is_new(leases: Leases) -> bool:
    return datetime.now(UTC) - leases.reign.began_at < timedelta(seconds=10)


async def test_the_first_leader_ever_has_no_proof(make: Make, cluster: Cluster) -> None:
    leases = make("me")
    await leases.acquire()

    assert is_new(leases)
    assert cluster.holders() == ["me", "me"]


async def test_a_reign_goes_on_over_renewals_a_release_and_the_next_leader(
    make: Make, cluster: Cluster, eventually: Eventually
) -> None:
    led_by_ours(cluster)
    first, second = make("first"), make("second")
    await first.acquire()
    writes = cluster.writes
    async with background(first.hold()):
        await eventually(lambda: cluster.writes >= writes + 4)
    await first.release()
    await second.acquire()

    assert first.reign.began_at == second.reign.began_at == LONG_AGO


async def test_a_reign_goes_on_after_a_leader_of_ours_that_died(
    make: Make, cluster: Cluster, clock: Clock, server: ApiServer, eventually: Eventually
) -> None:
    led_by_ours(cluster, holder="dead")
    leases = make("me")
    async with background(leases.acquire()) as acquiring:
        await looked_twice(server, eventually)
        clock.now += 16
        await asyncio.wait_for(acquiring, 3)

    assert leases.reign.began_at == LONG_AGO


async def test_a_reign_goes_on_when_the_answer_to_the_taking_is_lost(
    make: Make, cluster: Cluster, server: ApiServer
) -> None:
    led_by_ours(cluster)
    carried_out = cluster._patch

    async def lost(request: web.Request) -> web.StreamResponse:
        await carried_out(request)
        return await status(500, "InternalError")(request)

    server.on("PATCH", f"{BASE}/one", lost, carried_out)
    leases = make("me")
    await leases.acquire()

    assert leases.reign.began_at == LONG_AGO


@pytest.mark.parametrize(
    "record",
    [
        {"holderIdentity": "", "renewTime": "after ours", "leaseTransitions": 4},
        {"holderIdentity": "", "renewTime": "after ours", "leaseTransitions": 3},
        {"holderIdentity": "", "renewTime": None},
    ],
    ids=["released", "released without a transition", "emptied"],
)
@pytest.mark.parametrize("name", NAMES)
async def test_another_leader_of_any_lease_ends_the_reign_whatever_it_left(
    make: Make, cluster: Cluster, name: str, record: dict[str, object]
) -> None:
    led_by_ours(cluster)
    cluster.put(name, **record)
    first, second = make("first"), make("second")

    await first.acquire()
    began_at = first.reign.began_at
    assert is_new(first)
    await first.release()
    await second.acquire()
    assert second.reign.began_at == began_at  # and the proof is of the new one


async def test_a_holder_that_died_ends_the_reign_even_if_it_did_not_renew(
    make: Make, cluster: Cluster, clock: Clock, server: ApiServer, eventually: Eventually
) -> None:
    led_by_ours(cluster)
    cluster.specs["two"] |= {"holderIdentity": "a-thief", "leaseDurationSeconds": 15}
    leases = make("me")
    async with background(leases.acquire()) as acquiring:
        await looked_twice(server, eventually, "two")
        clock.now += 16
        await asyncio.wait_for(acquiring, 3)

    assert is_new(leases)


@pytest.mark.parametrize("name", NAMES)
async def test_a_deleted_lease_ends_the_reign(make: Make, cluster: Cluster, name: str) -> None:
    led_by_ours(cluster)
    del cluster.specs[name], cluster.annotations[name]
    leases = make("me")

    await leases.acquire()

    assert is_new(leases)


@pytest.mark.parametrize("text", ["", "rubbish", "2026-01-01", "2026-13-01T00:00:00Z  lately"])
async def test_what_cannot_be_read_proves_nothing(make: Make, cluster: Cluster, text: str) -> None:
    led_by_ours(cluster)
    cluster.annotations["one"] = {LED_SINCE: text}
    leases = make("me")

    await leases.acquire()

    assert is_new(leases)


async def test_without_an_election_the_reign_is_written_and_nothing_is_held(
    make: Make, cluster: Cluster
) -> None:
    first = make("first")
    await first.attest()
    began_at, writes = first.reign.began_at, cluster.writes
    assert is_new(first)
    assert cluster.holders() == ["", ""]
    for name in NAMES:  # as if that had been long ago
        text = cluster.annotations[name][LED_SINCE]
        since = began_at.strftime("%Y-%m-%dT%H:%M:%SZ")
        cluster.annotations[name][LED_SINCE] = text.replace(since, "2026-01-01T00:00:00Z")

    second = make("second")
    await second.attest()

    assert second.reign.began_at == LONG_AGO
    assert cluster.writes == writes  # it is proven already


async def test_without_an_election_another_leader_ends_the_reign_as_well(
    make: Make, cluster: Cluster
) -> None:
    led_by_ours(cluster)
    cluster.put("two", holderIdentity="stock", renewTime="after ours", leaseDurationSeconds=15)
    first, second = make("first"), make("second")

    await first.attest()
    await second.attest()

    assert is_new(first)
    assert second.reign.began_at == first.reign.began_at
    assert cluster.holders() == ["", "stock"]  # it is not taken from anybody


async def test_without_an_election_leases_that_cannot_be_read_prove_nothing(
    make: Make, cluster: Cluster, server: ApiServer
) -> None:
    led_by_ours(cluster)
    server.on("GET", f"{BASE}/two", status(403, "Forbidden"))
    leases = make("me")

    with capture_logs() as logs:
        await leases.attest()

    assert is_new(leases)
    assert [line["lease"] for line in logs] == ["two"]
