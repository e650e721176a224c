"""What breaks the whole cluster: no controller of ours works. One was killed, and none is started.

Its leases are left as a killed controller leaves them; ``released`` makes them those of one that
ended in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from tests.cluster import epochs, hands
from tests.cluster.broken import quiet_nodes
from tests.cluster.broken.claims import kubernetes_says
from tests.cluster.broken.deployed import deployed
from tests.cluster.broken.record import Matrix, Section
from tests.cluster.cluster import Cluster
from tests.cluster.place import Place
from tests.cluster.replicas import Replica
from tests.cluster.stock import LEASES, NAMES, Sidecar
from tests.ec2.aws_keys import AwsKeys, serving

killed = Matrix(Section.CONTROLLER)
"""One after the other: each needs the leases for itself."""
released = Matrix(Section.CONTROLLER)
"""Side by side."""

_NO_KEYS = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
_ELSEWHERE = {"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "eu-west-1"}
_LONG_AGO = "2026-01-01T00:00:00.000000Z"


async def release(cluster: Cluster) -> None:
    """Have the leases as a controller of ours leaves them when it ends in order."""
    await epochs.of_ours(cluster.api)


async def _waiting_claim(place: Place) -> None:
    """A claim that only Kubernetes itself has said something about."""
    await place.claim(await place.storage_class())
    await kubernetes_says(place, "ExternalProvisioning")


async def _renewed(place: Place, *names: str, at: str) -> None:
    for name in names:
        await place.api.patch(f"{LEASES}/{name}", {"spec": {"renewTime": at}})


@killed.broken(
    "The leases are held by a controller that was killed", "LeaseExpired", check="leases-held"
)
@asynccontextmanager
async def dead_holder(place: Place) -> AsyncIterator[str]:
    """The renewal is brought forward: time would do it in 15 s."""
    await _waiting_claim(place)
    await _renewed(place, *NAMES, at=_LONG_AGO)
    yield "pvc data"


@killed.broken(
    "The stock driver's sidecar holds one of the leases", "LeasesSplit", check="leases-one-holder"
)
@asynccontextmanager
async def stolen(place: Place) -> AsyncIterator[str]:
    """Ours has the others, which are renewed once: so they stay as they are for a moment."""
    theirs = Sidecar(place.api, NAMES[0])

    async def leads() -> bool:
        return theirs.leads

    await _waiting_claim(place)
    await hands.discard(place.api, f"{LEASES}/{NAMES[0]}")
    stealing = asyncio.create_task(theirs.run())
    try:
        await place.cluster.until("the lease is stolen", leads)
        await _renewed(place, *NAMES[1:], at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"))
        yield "pvc data"
    finally:
        stealing.cancel()
        await asyncio.gather(stealing, return_exceptions=True)
        await theirs.release()


@released.broken("No controller runs", "NoController", check="leases-held")
@asynccontextmanager
async def controller_ended(place: Place) -> AsyncIterator[str]:
    await _waiting_claim(place)
    yield "pvc data"


# -- controllers that run and cannot work; their Deployments are there, and no pod of them


@asynccontextmanager
async def _started(
    place: Place, environment: Mapping[str, str], words: str
) -> AsyncIterator[Replica]:
    """A controller that starts in this environment, and says these words of it."""
    sandbox = place.cluster.sandbox
    options = ("--cluster-id", sandbox.cluster_id)
    name = f"{place.name}-replica"
    replica = Replica(sandbox, *options, name=name, environment=dict(environment))

    async def said() -> bool:
        return words in replica.log

    replica.begin()
    try:
        await _waiting_claim(place)
        await place.cluster.until(f"the controller says {words}", said, 60)
        yield replica
    finally:
        await replica.kill()


@released.broken(
    "The controller works in the wrong region", "NoController", check="controller-region"
)
@asynccontextmanager
async def wrong_region(place: Place) -> AsyncIterator[str]:
    await deployed(place, environment=_ELSEWHERE)
    async with _started(place, _ELSEWHERE, "eu-west-1"):
        yield "pvc data"


@released.broken(
    "The controller has no AWS credentials", "NoController", check="controller-credentials"
)
@asynccontextmanager
async def no_credentials(place: Place) -> AsyncIterator[str]:
    await deployed(place)
    nothing = {**_NO_KEYS, "AWS_EC2_METADATA_DISABLED": "true"}
    async with _started(place, nothing, "no AWS credentials"):
        yield "pvc data"


@released.broken(
    "The metadata service of the controller's node has hop limit 1",
    "NoController",
    check="hop-limit",
)
@asynccontextmanager
async def hop_limit(place: Place) -> AsyncIterator[str]:
    keys = AwsKeys()
    keys.trouble.hop_limit = True
    async with quiet_nodes.a_node(place) as instance, serving(keys) as url:
        change = {"InstanceId": instance.instance_id, "HttpPutResponseHopLimit": 1}
        await asyncio.to_thread(place.cluster.ec2.modify_instance_metadata_options, **change)
        there = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": f"{url}/", "AWS_EC2_METADATA_DISABLED": ""}
        async with _started(place, {**_NO_KEYS, **there}, "no AWS credentials"):
            yield "pvc data"
