"""Which leases are taken after their holders died, and which are given back to living ones."""

import asyncio

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from provisioner.kube.client import KubeClient
from provisioner.kube.lease import Leases, LeaseSettings
from provisioner.metrics import Metrics
from tests.kube.apiserver import ApiServer, status
from tests.kube.leases import BASE, Clock, Cluster, Eventually, background, looked_twice

NAMES = ("one", "two", "three", "four")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cluster(server: ApiServer) -> Cluster:
    return Cluster(server, NAMES)


@pytest.fixture
def leases(client: KubeClient, metrics: Metrics, clock: Clock) -> Leases:
    return another(client, metrics, clock, identity="me")


def another(
    client: KubeClient, metrics: Metrics, clock: Clock, *, identity: str = "heir"
) -> Leases:
    return Leases(
        client,
        LeaseSettings(
            namespace="kube-system", names=NAMES, identity=identity, retry_s=0.02, call_s=3.0
        ),
        on_lost=lambda: None,
        metrics=metrics,
        clock=clock,
    )


def hold(cluster: Cluster, holder: str, *names: str) -> None:
    """Write leases as a holder's renewal does."""
    for name in names:
        cluster.put(
            name,
            holderIdentity=holder,
            leaseDurationSeconds=15,
            renewTime=str(cluster.versions.get(name, 0)),
        )


def was_given_back(cluster: Cluster) -> bool:
    """Whether the first lease was ours and released, even if it has been taken again since."""
    spec = cluster.specs["one"]
    return not spec["holderIdentity"] or bool(spec["leaseTransitions"])


async def test_all_leases_of_a_dead_holder_expire_together(
    leases: Leases, cluster: Cluster, clock: Clock, server: ApiServer, eventually: Eventually
) -> None:
    hold(cluster, "dead", *NAMES)
    with capture_logs() as logs:
        async with background(leases.acquire()) as acquiring:
            await looked_twice(server, eventually, "four")
            before = cluster.holders()
            clock.now += 16
            await eventually(acquiring.done)

    assert before == ["dead"] * 4
    assert cluster.holders() == ["me"] * 4
    assert [line["event"] for line in logs] == ["holding all leases"]


async def test_no_later_lease_is_taken_before_the_first_has_expired(
    leases: Leases, cluster: Cluster, clock: Clock, server: ApiServer, eventually: Eventually
) -> None:
    hold(cluster, "dead", "one")
    async with background(leases.acquire()):
        await looked_twice(server, eventually, "four")
        clock.now += 14
        await looked_twice(server, eventually, "four")

    assert cluster.holders() == ["dead", "-", "-", "-"]


async def test_leases_are_given_back_while_somebody_else_renews_the_last(
    leases: Leases, cluster: Cluster, clock: Clock, server: ApiServer, eventually: Eventually
) -> None:
    hold(cluster, "stock", "four")
    with capture_logs() as logs:
        async with background(leases.acquire()):
            await eventually(lambda: cluster.holders() == ["me", "me", "me", "stock"])
            waited_s = 0
            while not was_given_back(cluster):
                assert waited_s <= 35, "kept from a living holder"  # 30, and the first renewal
                hold(cluster, "stock", "four")
                await looked_twice(server, eventually, "four")
                clock.now += 5
                waited_s += 5
                await looked_twice(server, eventually, "four")
            cluster.put("four", holderIdentity="", leaseDurationSeconds=1)
            await eventually(lambda: cluster.holders() == ["me"] * 4)

    given_back = next(line for line in logs if "releasing those that are ours" in line["event"])
    assert given_back["missing"] == ["four"]
    assert given_back["renewed_by"] == ["stock"]
    assert waited_s >= 30


async def test_what_a_dead_holder_left_is_waited_for_however_long(
    leases: Leases, cluster: Cluster, clock: Clock, server: ApiServer, eventually: Eventually
) -> None:
    cluster.put("four", holderIdentity="dead", leaseDurationSeconds=100)
    mine = ["me", "me", "me", "dead"]
    async with background(leases.acquire()) as acquiring:
        await eventually(lambda: cluster.holders() == mine)
        for _ in range(9):
            clock.now += 11
            await looked_twice(server, eventually, "four")
            assert cluster.holders() == mine
        clock.now += 2
        await eventually(acquiring.done)

    assert cluster.holders() == ["me"] * 4


async def test_a_living_holder_counts_beside_a_dead_one(
    leases: Leases, cluster: Cluster, clock: Clock, server: ApiServer, eventually: Eventually
) -> None:
    hold(cluster, "dead", "two")
    hold(cluster, "stock", "four")
    waited_s = 0
    async with background(leases.acquire()):
        await eventually(lambda: cluster.holders()[0] == "me")
        while not was_given_back(cluster):
            assert waited_s <= 35, "kept from a living holder"
            hold(cluster, "stock", "four")
            await looked_twice(server, eventually, "four")
            clock.now += 5
            waited_s += 5
            await looked_twice(server, eventually, "four")
            if waited_s == 20:
                # The dead one's was taken as soon as it had expired.
                assert cluster.holders() == ["me", "me", "me", "stock"]

    assert waited_s >= 30
    assert cluster.holders()[3] == "stock"


async def test_leases_are_given_back_when_the_rest_cannot_be_taken(
    leases: Leases, cluster: Cluster, clock: Clock, server: ApiServer, eventually: Eventually
) -> None:
    server.on("GET", f"{BASE}/three", status(403, "Forbidden"))
    async with background(leases.acquire()):
        await eventually(lambda: cluster.holders() == ["me", "me", "-", "-"])
        await looked_twice(server, eventually, "three")
        clock.now += 31
        await eventually(lambda: was_given_back(cluster))


async def test_leases_that_were_never_held_are_not_asked_for_at_the_end(
    leases: Leases, server: ApiServer
) -> None:
    for name in NAMES:
        server.on("GET", f"{BASE}/{name}", status(500, "InternalError"))

    with capture_logs() as logs:
        await leases.release()

    assert (logs, server.requests) == ([], [])


async def test_a_lease_whose_taking_was_not_answered_is_given_back(
    leases: Leases, cluster: Cluster, server: ApiServer, eventually: Eventually
) -> None:
    never = asyncio.Event()

    async def carried_out(request: web.Request) -> web.StreamResponse:
        await cluster._post(request)
        await never.wait()
        raise AssertionError

    server.on("POST", BASE, carried_out)
    async with background(leases.acquire()):
        await eventually(lambda: cluster.holders()[0] == "me")

    await leases.release()

    assert cluster.holders() == ["", "-", "-", "-"]
