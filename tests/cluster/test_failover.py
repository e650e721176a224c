"""A zone without room strands no pod, though its nodes have the highest score always.

EC2 has no room for gp2, standard and sc1 in the first zone and none for st1 in the first two; the stories are
told at the same time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.cluster.background import Background
from tests.cluster.cluster import ATTACHMENTS, PVS, Cluster, Json, handle_of, opened, token_of
from tests.cluster.place import Place, a_place
from tests.cluster.refusals import look_again, refuse
from tests.cluster.stubborn import NAME as SCHEDULER
from tests.cluster.stubborn import stubborn_scheduler
from tests.cluster.together import Stories, Together
from tests.held_still import held_still

pytestmark = pytest.mark.asyncio(loop_scope="module")
together = Together()

A, B, C = "us-east-1a", "us-east-1b", "us-east-1c"
ZONE = "topology.kubernetes.io/zone"
GP2, ST1, SC1 = {"type": "gp2"}, {"type": "st1"}, {"type": "sc1"}
# Of one story only: what EC2 has refused to another one is remembered for a while.
MAGNETIC = {"type": "standard"}
FULL = [{"zone": A} | GP2, {"zone": A} | MAGNETIC, {"zone": A} | ST1, {"zone": B} | ST1]
LARGE: Json = {"resources": {"requests": {"storage": "125Gi"}}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(background: Background) -> AsyncIterator[Cluster]:
    async with opened(background) as running:
        await running.control(capacity=[*FULL, {"zone": A, "type": "sc1"}])
        try:
            yield running
        finally:
            await running.control(capacity=[])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scheduler(background: Background, cluster: Cluster) -> AsyncIterator[None]:
    """One for which the full zone is the best."""
    async with stubborn_scheduler(background, A):
        yield


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stories(
    cluster: Cluster, scheduler: None, request: pytest.FixtureRequest
) -> AsyncIterator[Stories]:
    async with together.started(lambda: a_place(cluster), request) as running:
        yield running


async def zone_of(place: Place, pv: Json) -> str:
    volume = await place.cluster.volume(handle_of(pv))
    assert volume is not None
    return str(volume["AvailabilityZone"])


async def zones_asked(place: Place, claim: Json) -> list[str]:
    """Where EC2 was asked for a claim's volume, in order."""
    calls = await place.cluster.calls(token_of(claim), "CreateVolume")
    return [call["params"]["AvailabilityZone"] for call in calls]


async def zone_of_node(place: Place, name: str) -> str:
    return str((await place.api.get(f"/api/v1/nodes/{name}"))["metadata"]["labels"][ZONE])


@together.test
async def test_the_pod_follows_its_volume_out_of_the_zone_that_it_prefers(place: Place):
    claim = await place.claim(await place.storage_class(waits=True, parameters=MAGNETIC))
    pod = await place.pod(claim, schedulerName=SCHEDULER)

    node = await place.node_of(pod)

    pv = await place.bound()
    asked = await zones_asked(place, claim)
    assert asked[:2] == [A, A]  # it chose the zone again
    assert len(asked) == 3
    assert await zone_of_node(place, node) == await zone_of(place, pv) == asked[2] != A
    assert await place.volumes() == [handle_of(pv)]
    found = await place.events()
    assert [each for each in found if f"creating the volume in {asked[2]}" in each["message"]]

    async def attached() -> bool:
        items = (await place.api.get(ATTACHMENTS))["items"]
        names = [i["spec"]["nodeName"] for i in items if i.get("status", {}).get("attached")]
        return node in names

    await place.cluster.until("it is attached there", attached)


@together.test
async def test_both_volumes_of_a_pod_go_to_one_zone(place: Place):
    class_name = await place.storage_class(waits=True, parameters=ST1)
    claims = [await place.claim(class_name, name, **LARGE) for name in ("data", "logs")]
    names = [claim["metadata"]["name"] for claim in claims]
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]
    pod = await place.pod(claims[0], schedulerName=SCHEDULER, volumes=volumes)

    node = await place.node_of(pod)

    zones = {await zone_of(place, await place.bound(name)) for name in names}
    assert zones == {await zone_of_node(place, node)} == {C}
    assert len(await place.volumes()) == 2


@together.test
async def test_a_claim_that_was_late_is_made_beside_the_one_that_moved_meanwhile(place: Place):
    """The scheduler has chosen the full zone for both, and only one of them was refused there."""
    classes = [
        await place.storage_class("data", waits=True, parameters=GP2),
        await place.storage_class("logs", waits=True),
    ]
    names = ("data", "logs")
    data, logs = [await place.claim(c, n) for c, n in zip(classes, names, strict=True)]
    await refuse(place, logs, code="UnauthorizedOperation", http_status=403, message="Not yours.")
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]
    pod = await place.pod(data, schedulerName=SCHEDULER, volumes=volumes)
    moved_to = await zone_of(place, await place.bound("data"))
    assert moved_to != A
    assert await zones_asked(place, logs) == [A]

    await look_again(place, "logs")

    assert await zone_of(place, await place.bound("logs")) == moved_to
    assert await zone_of_node(place, await place.node_of(pod)) == moved_to


@together.test
async def test_a_pod_that_can_run_nowhere_else_waits_and_is_told_why(place: Place):
    class_name = await place.storage_class("waits", waits=True, parameters=SC1)
    claim = await place.claim(class_name, **LARGE)
    await place.pod(claim, schedulerName=SCHEDULER, nodeSelector={ZONE: A})

    await place.told(
        "cannot run anywhere else", f"nodeSelector or required affinity of pod {place.name}/data"
    )

    await place.cluster.control(capacity=FULL)
    await look_again(place, "waits")
    assert await zone_of(place, await place.bound()) == A


@together.test
async def test_a_claim_that_binds_at_once_goes_to_the_zone_that_has_room(place: Place):
    claim = await place.claim(await place.storage_class(parameters=ST1), **LARGE)

    assert await zone_of(place, await place.bound()) == C

    asked = await zones_asked(place, claim)
    assert len(asked) == len(set(asked))
    assert await place.volumes() == [handle_of(await place.bound())]


@together.test
async def test_a_claim_that_binds_at_once_is_made_beside_the_other_volumes_of_its_pod(place: Place):
    now, later = await place.storage_class(), await place.storage_class("waits", waits=True)
    # Not the zone that its name would get: so both are tried.
    zones = []
    for zone in (B, C):
        name = zone[-1]
        logs = await place.claim(later, f"logs-{name}")
        await place.choose_node(logs, place.cluster.instance(zone).private_dns_name)
        await place.bound(f"logs-{name}")
        used = [f"logs-{name}", f"data-{name}"]
        volumes = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in used]
        pod = await place.pod(logs, gated=True, volumes=volumes)
        await place.claim(now, f"data-{name}")
        zones.append(await zone_of(place, await place.bound(f"data-{name}")))
        await place.lift_gate(pod)
        assert await zone_of_node(place, await place.node_of(pod)) == zone

    assert zones == [B, C]


async def test_a_pod_that_names_its_node_gets_its_volume_there(cluster: Cluster, stories: Stories):
    """By itself: kubelets stand still meanwhile, which here show pods running without volumes."""
    async with a_place(cluster) as place:
        claim = await place.claim(await place.storage_class(waits=True))
        kubelets = cluster.sandbox.crew.parts["kwok"].process.pid
        with held_still(kubelets):
            node = cluster.instance(B, 1).private_dns_name
            await place.pod(claim, nodeName=node)
            pv = await place.bound()

        assert await zone_of(place, pv) == B
        found = await place.api.get(f"{place.claims}/data")
        assert found["spec"]["volumeName"] == pv["metadata"]["name"]
        assert (await place.api.get(f"{PVS}/{pv['metadata']['name']}"))["status"][
            "phase"
        ] == "Bound"
