"""Since when only ours have led: kept from leader to leader, and void after anybody else."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from provisioner.kube.client import KubeClient
from provisioner.kube.lease import Leases, LeaseSettings
from provisioner.metrics import Metrics
from provisioner.model.leadership import Epoch
from provisioner.model.names import LED_SINCE
from tests.kube.apiserver import ApiServer, status
from tests.kube.leases import BASE, NAMES, Clock, Cluster, Eventually, background, looked_twice

LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
LATER = Epoch(datetime(2026, 2, 1, tzinfo=UTC))
Make = Callable[..., Leases]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cluster(server: ApiServer) -> Cluster:
    return Cluster(server)


@pytest.fixture
def make(client: KubeClient, metrics: Metrics, clock: Clock) -> Make:
    def build(identity: str, *, retry_s: float = 0.02) -> Leases:
        return Leases(
            client,
            LeaseSettings(namespace="kube-system", names=NAMES, identity=identity, retry_s=retry_s),
            on_lost=lambda: None,
            metrics=metrics,
            clock=clock,
        )

    return build


def led_by_ours(cluster: Cluster, *, holder: str = "") -> None:
    """The leases as a leader of ours leaves them after a long epoch, released or not."""
    for name in NAMES:
        cluster.put(
            name, holderIdentity=holder, renewTime="lately", leaseTransitions=3, acquireTime="once"
        )
        cluster.annotations[name] = {LED_SINCE: f"2026-01-01T00:00:00Z {holder} lately"}


async def test_the_first_leader_ever_has_no_proof_and_leaves_none_if_it_dies_at_once(
    make: Make, cluster: Cluster
) -> None:
    first, second = make("first"), make("second")
    await first.acquire()
    await first.release()
    await second.acquire()

    assert first.epoch is None
    assert second.epoch is None


async def test_what_a_leader_proves_is_written_at_once_and_inherited(
    make: Make, cluster: Cluster, eventually: Eventually
) -> None:
    first, second = make("first", retry_s=60.0), make("second")
    await first.acquire()
    async with background(first.hold()):
        await first.prove(LATER, elected=True)
        await eventually(lambda: first.epoch == LATER)
    assert cluster.holders() == ["first", "first"]
    await first.release()
    await second.acquire()

    assert second.epoch == LATER


async def test_what_is_proven_outlives_a_renewal_that_failed(
    make: Make, cluster: Cluster, server: ApiServer, eventually: Eventually
) -> None:
    leases = make("me")
    await leases.acquire()
    broken = status(500, "InternalError")
    server.on("PATCH", f"{BASE}/one", broken, broken, cluster._patch)
    async with background(leases.hold()):
        await leases.prove(LATER, elected=True)
        await eventually(lambda: leases.epoch == LATER)


async def test_a_lease_that_was_deleted_meanwhile_is_held_again_and_proves_nothing(
    make: Make, cluster: Cluster, eventually: Eventually
) -> None:
    led_by_ours(cluster)
    leases = make("me")
    await leases.acquire()
    del cluster.specs["one"], cluster.annotations["one"]
    async with background(leases.hold()):
        await eventually(lambda: cluster.holders() == ["me", "me"])
        writes = cluster.writes
        await eventually(lambda: cluster.writes >= writes + 4)

    assert leases.epoch is None


async def test_a_epoch_goes_on_over_renewals_a_release_and_the_next_leader(
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

    assert first.epoch == second.epoch == Epoch(LONG_AGO)


async def test_a_epoch_goes_on_after_a_leader_of_ours_that_died(
    make: Make, cluster: Cluster, clock: Clock, server: ApiServer, eventually: Eventually
) -> None:
    led_by_ours(cluster, holder="dead")
    leases = make("me")
    async with background(leases.acquire()) as acquiring:
        await looked_twice(server, eventually)
        clock.now += 16
        await asyncio.wait_for(acquiring, 30)

    assert leases.epoch == Epoch(LONG_AGO)


async def test_a_epoch_goes_on_when_the_answer_to_the_taking_is_lost(
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

    assert leases.epoch == Epoch(LONG_AGO)


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
async def test_another_leader_of_any_lease_ends_the_epoch_whatever_it_left(
    make: Make, cluster: Cluster, name: str, record: dict[str, object]
) -> None:
    led_by_ours(cluster)
    cluster.put(name, **record)
    first, second = make("first"), make("second")

    await first.acquire()
    assert first.epoch is None
    await first.release()
    await second.acquire()
    assert second.epoch is None  # it did not come back by itself


async def test_a_holder_that_died_ends_the_epoch_even_if_it_did_not_renew(
    make: Make, cluster: Cluster, clock: Clock, server: ApiServer, eventually: Eventually
) -> None:
    led_by_ours(cluster)
    cluster.specs["two"] |= {"holderIdentity": "a-thief", "leaseDurationSeconds": 15}
    leases = make("me")
    async with background(leases.acquire()) as acquiring:
        await looked_twice(server, eventually, "two")
        clock.now += 16
        await asyncio.wait_for(acquiring, 30)

    assert leases.epoch is None


@pytest.mark.parametrize("name", NAMES)
async def test_a_deleted_lease_ends_the_epoch(make: Make, cluster: Cluster, name: str) -> None:
    led_by_ours(cluster)
    del cluster.specs[name], cluster.annotations[name]
    leases = make("me")

    await leases.acquire()

    assert leases.epoch is None


@pytest.mark.parametrize("text", ["", "rubbish", "2026-01-01", "2026-13-01T00:00:00Z  lately"])
async def test_what_cannot_be_read_proves_nothing(make: Make, cluster: Cluster, text: str) -> None:
    led_by_ours(cluster)
    cluster.annotations["one"] = {LED_SINCE: text}
    leases = make("me")

    await leases.acquire()

    assert leases.epoch is None


async def test_without_an_election_the_epoch_is_written_and_nothing_is_held(
    make: Make, cluster: Cluster
) -> None:
    first, second = make("first"), make("second")
    await first.read()
    assert first.epoch is None
    assert cluster.writes == 0
    await first.prove(LATER, elected=False)

    await second.read()

    assert second.epoch == LATER
    assert cluster.holders() == ["", ""]


async def test_without_an_election_another_leader_ends_the_epoch_as_well(
    make: Make, cluster: Cluster
) -> None:
    led_by_ours(cluster)
    cluster.put("two", holderIdentity="stock", renewTime="after ours", leaseDurationSeconds=15)
    first, second, third = make("first"), make("second"), make("third")

    await first.read()
    assert first.epoch is None
    await first.prove(LATER, elected=False)
    await second.read()
    assert second.epoch == LATER
    assert cluster.holders() == ["", "stock"]  # it is not taken from anybody

    cluster.specs["two"]["renewTime"] = "so it lives"
    await third.read()
    assert third.epoch is None


async def test_without_an_election_leases_that_cannot_be_read_prove_nothing(
    make: Make, cluster: Cluster, server: ApiServer
) -> None:
    led_by_ours(cluster)
    server.on("GET", f"{BASE}/two", status(403, "Forbidden"))
    leases = make("me")

    with capture_logs() as logs:
        await leases.read()

    assert leases.epoch is None
    assert [line["lease"] for line in logs] == ["two"]


async def test_leases_that_we_have_created_were_nobodys(make: Make, cluster: Cluster):
    leases = make("first")
    before = leases.are_new
    async with asyncio.timeout(30):
        await leases.acquire()

    assert (before, leases.are_new) == (False, True)


@pytest.mark.parametrize("name", NAMES)
async def test_one_lease_that_was_there_shows_that_somebody_led(
    make: Make, cluster: Cluster, name: str
):
    cluster.put(name, holderIdentity="", leaseDurationSeconds=1, renewTime="lately")
    leases = make("second")
    async with asyncio.timeout(30):
        await leases.acquire()

    assert not leases.are_new


async def test_leases_that_are_deleted_under_a_standby_are_not_new_to_it(
    make: Make, cluster: Cluster
):
    standby = make("standby")
    async with asyncio.timeout(30):
        await make("leader").acquire()
        await standby.read()
        cluster.specs.clear()
        await standby.acquire()

    assert not standby.are_new


async def test_without_an_election_leases_that_are_not_there_were_nobodys(
    make: Make, cluster: Cluster
):
    leases = make("alone")
    await leases.read()
    before = leases.are_new
    led_by_ours(cluster)
    await leases.read()

    assert (before, leases.are_new) == (True, False)
