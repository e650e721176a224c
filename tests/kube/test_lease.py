import asyncio
import copy
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from provisioner.kube.client import KubeClient
from provisioner.kube.lease import Leases, LeaseSettings
from provisioner.metrics import Metrics
from tests.kube.apiserver import ApiServer, Hang, Reply, status
from tests.kube.leases import (
    NAMES,
    Clock,
    Cluster,
    Eventually,
    Renewal,
    background,
    looked_twice,
)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cluster(server: ApiServer) -> Cluster:
    return Cluster(server)


MakeLeases = Callable[..., Leases]


@pytest.fixture
def renewal(server: ApiServer, cluster: Cluster, eventually: Eventually) -> Renewal:
    return Renewal(server, eventually)


@pytest.fixture
def lost() -> asyncio.Event:
    return asyncio.Event()


@pytest.fixture
def make(client: KubeClient, metrics: Metrics, clock: Clock, lost: asyncio.Event) -> MakeLeases:
    def build(
        identity: str = "me", *, complete_within_s: float = 30.0, call_s: float = 3.0
    ) -> Leases:
        return Leases(
            client,
            LeaseSettings(
                namespace="kube-system",
                names=NAMES,
                identity=identity,
                retry_s=0.02,
                complete_within_s=complete_within_s,
                call_s=call_s,
            ),
            on_lost=lost.set,
            metrics=metrics,
            clock=clock,
        )

    return build


async def test_makes_and_holds_leases_that_nobody_has(make: MakeLeases, cluster: Cluster) -> None:
    leases = make()
    before = leases.held()
    await leases.acquire()

    assert (before, leases.held()) == (False, True)
    assert cluster.holders() == ["me", "me"]
    spec = cluster.specs["one"]
    assert spec["leaseDurationSeconds"] == 15
    assert spec["leaseTransitions"] == 0
    assert spec["renewTime"] == spec["acquireTime"]
    assert len(spec["renewTime"]) == len("2026-01-01T00:00:00.000000Z")


async def test_takes_a_lease_that_was_given_back(make: MakeLeases, cluster: Cluster) -> None:
    cluster.put(
        "one", holderIdentity="", leaseDurationSeconds=1, leaseTransitions=3, strategy="kept"
    )
    await make().acquire()

    assert cluster.specs["one"]["leaseTransitions"] == 4
    assert cluster.specs["one"]["strategy"] == "kept"


async def test_its_own_lease_from_before_a_restart_is_still_its_own(
    make: MakeLeases, cluster: Cluster
) -> None:
    cluster.put(
        "one", holderIdentity="me", leaseDurationSeconds=15, leaseTransitions=3, acquireTime="then"
    )
    await make().acquire()

    assert (cluster.specs["one"]["leaseTransitions"], cluster.specs["one"]["acquireTime"]) == (
        3,
        "then",
    )


async def test_a_lease_expires_when_it_has_not_changed_for_its_duration(
    make: MakeLeases, cluster: Cluster, clock: Clock, server: ApiServer, eventually: Eventually
) -> None:
    # The times in the record are of another machine's clock: they must not matter.
    cluster.put(
        "one", holderIdentity="dead", leaseDurationSeconds=15, renewTime="2099-01-01T00:00:00Z"
    )
    async with background(make().acquire()) as acquiring:
        await looked_twice(server, eventually)
        clock.now += 14
        await looked_twice(server, eventually)
        before = cluster.holders()
        clock.now += 2
        await asyncio.wait_for(acquiring, 30)

    assert before == ["dead", "-"]
    assert cluster.holders() == ["me", "me"]


async def test_a_lease_that_is_renewed_is_left_alone(
    make: MakeLeases, cluster: Cluster, clock: Clock, server: ApiServer, eventually: Eventually
) -> None:
    async with background(make().acquire()):
        for renewal in range(4):
            cluster.put(
                "one", holderIdentity="alive", leaseDurationSeconds=15, renewTime=str(renewal)
            )
            await looked_twice(server, eventually)
            clock.now += 14

    assert cluster.holders() == ["alive", "-"]


async def test_renews_what_it_holds(
    make: MakeLeases, cluster: Cluster, lost: asyncio.Event, eventually: Eventually
) -> None:
    leases = make()
    await leases.acquire()
    acquired = copy.deepcopy(cluster.specs["two"])
    async with background(leases.hold()):
        await eventually(lambda: cluster.writes >= 8)

    assert cluster.specs["two"]["renewTime"] > acquired["renewTime"]
    assert cluster.specs["two"]["acquireTime"] == acquired["acquireTime"]
    assert not lost.is_set()


async def test_two_replicas_hand_over(
    make: MakeLeases, cluster: Cluster, eventually: Eventually
) -> None:
    first, second = make("first"), make("second")
    await first.acquire()
    async with background(second.acquire()) as waiting:
        async with background(first.hold()):
            await eventually(lambda: cluster.writes >= 6)
            during = cluster.holders()
        await first.release()
        await asyncio.wait_for(waiting, 30)

    assert during == ["first", "first"]
    assert cluster.holders() == ["second", "second"]
    assert (first.held(), second.held()) == (False, True)


async def test_a_stolen_lease_is_noticed_at_the_next_renewal(
    make: MakeLeases, cluster: Cluster, lost: asyncio.Event, metrics: Metrics
) -> None:
    leases = make()
    await leases.acquire()
    metrics.leader.set(1)  # as the controller does once it works
    cluster.put("two", holderIdentity="thief", leaseDurationSeconds=15)
    async with background(leases.hold()):
        await asyncio.wait_for(lost.wait(), 30)

    assert not leases.held()
    assert cluster.holders() == ["me", "thief"]
    assert metrics.registry.get_sample_value("ebs_provisioner_leader") == 0


@pytest.mark.parametrize("name", ["label", "answer lost"])
async def test_a_conflict_over_its_own_lease_is_no_loss(
    make: MakeLeases, cluster: Cluster, lost: asyncio.Event, eventually: Eventually, name: str
) -> None:
    leases = make()
    await leases.acquire()
    renewed = {"renewTime": "written, but the answer was lost"} if name == "answer lost" else {}
    cluster.put("one", **(cluster.specs["one"] | renewed))
    async with background(leases.hold()):
        await eventually(lambda: cluster.writes >= 6)

    assert not lost.is_set()


async def test_a_deleted_lease_is_made_again(
    make: MakeLeases, cluster: Cluster, lost: asyncio.Event, eventually: Eventually
) -> None:
    leases = make()
    await leases.acquire()
    del cluster.specs["one"]
    async with background(leases.hold()):
        await eventually(lambda: cluster.holders() == ["me", "me"])

    assert not lost.is_set()


@pytest.mark.parametrize(
    "reply",
    [Hang(), status(403, "Forbidden"), status(500, "InternalError")],
    ids=["hung", "refused", "broken"],
)
async def test_renewals_that_fail_until_the_deadline_lose_the_leases(
    make: MakeLeases, renewal: Renewal, clock: Clock, lost: asyncio.Event, reply: Reply
) -> None:
    leases = make(call_s=0.05)
    await leases.acquire()
    renewal.answer(reply)
    with capture_logs() as logs:
        async with background(leases.hold()):
            await renewal.tried(3)
            early = lost.is_set()
            clock.now += 10
            await asyncio.wait_for(lost.wait(), 30)

    assert not early
    assert not leases.held()
    assert logs[-1]["event"] == "lost a lease"


async def test_failing_renewals_recover_before_the_deadline(
    make: MakeLeases, renewal: Renewal, cluster: Cluster, lost: asyncio.Event
) -> None:
    broken = status(500, "InternalError")
    leases = make()
    await leases.acquire()
    renewal.answer(broken, broken, cluster._patch)
    async with background(leases.hold()):
        await renewal.tried(4)

    assert not lost.is_set()
    assert leases.held()


async def test_after_a_suspend_nothing_is_held(
    make: MakeLeases, cluster: Cluster, clock: Clock, lost: asyncio.Event
) -> None:
    leases = make()
    await leases.acquire()
    clock.now += 60

    assert not leases.held()
    async with background(leases.hold()):
        await asyncio.wait_for(lost.wait(), 30)


async def test_a_release_leaves_the_leases_of_others_alone(
    make: MakeLeases, cluster: Cluster
) -> None:
    leases = make()
    await leases.acquire()
    cluster.put("one", holderIdentity="other", leaseDurationSeconds=15)
    await leases.release()

    assert cluster.holders() == ["other", ""]
    assert cluster.specs["two"]["leaseDurationSeconds"] == 1
