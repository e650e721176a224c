"""What breaks the whole cluster: one after the other, with nothing else under way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from provisioner.sandbox.aws_keys import AwsKeys, serving
from tests.cluster import epochs, hands
from tests.cluster.broken.claims import kubernetes_says
from tests.cluster.broken.record import Matrix
from tests.cluster.cluster import Cluster
from tests.cluster.place import Place
from tests.cluster.replicas import Replica
from tests.cluster.stock import LEASES, NAMES, Sidecar

matrix = Matrix()
broken = matrix.broken

_NO_KEYS = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}


@asynccontextmanager
async def _without_controller(place: Place, grace_s: float) -> AsyncIterator[None]:
    await place.cluster.stop(grace_s)
    try:
        yield
    finally:
        # After a lease that says nothing of us, claims are in doubt for a minute, and rightly so.
        await epochs.of_ours(place.api)
        await place.cluster.start()


async def _waiting_claim(place: Place) -> None:
    """A claim that only Kubernetes itself has said something about."""
    await place.claim(await place.storage_class())
    await kubernetes_says(place, "ExternalProvisioning")


@broken("No controller runs", "NoController", check="leases-held")
@asynccontextmanager
async def controller_ended(place: Place) -> AsyncIterator[str]:
    async with _without_controller(place, 10.0):
        await _waiting_claim(place)
        yield "pvc data"


@broken("The leases are held by a controller that was killed", "LeaseExpired", check="leases-held")
@asynccontextmanager
async def dead_holder(place: Place) -> AsyncIterator[str]:
    async with _without_controller(place, 0.0):
        await _waiting_claim(place)
        await _expired(place.cluster)
        yield "pvc data"


async def _expired(cluster: Cluster) -> None:
    """Bring the renewal an hour forward: time would do it in 15 s."""
    for name in NAMES:
        lease = {"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}}
        await cluster.api.patch(f"{LEASES}/{name}", lease)


@broken(
    "The stock driver's sidecar holds one of the leases", "LeasesSplit", check="leases-one-holder"
)
@asynccontextmanager
async def stolen(place: Place) -> AsyncIterator[str]:
    """Ours has the others: it is killed, so that its leases stay as they are for a moment."""
    theirs = Sidecar(place.api, NAMES[0])

    async def leads() -> bool:
        return theirs.leads

    async with _without_controller(place, 0.0):
        await hands.discard(place.api, f"{LEASES}/{NAMES[0]}")
        stealing = asyncio.create_task(theirs.run())
        try:
            await place.cluster.until("the lease is stolen", leads)
            await _waiting_claim(place)
            yield "pvc data"
        finally:
            stealing.cancel()
            await asyncio.gather(stealing, return_exceptions=True)
            await theirs.release()


@asynccontextmanager
async def _with_another(place: Place, environment: Mapping[str, str]) -> AsyncIterator[Replica]:
    """In place of the controller, one that starts in another environment."""
    cluster_id = place.cluster.sandbox.cluster_id
    async with _without_controller(place, 10.0):
        options = ("--cluster-id", cluster_id)
        name = f"{place.name}-replica"
        replica = Replica(place.cluster.sandbox, *options, name=name, environment=dict(environment))
        replica.begin()
        try:
            yield replica
        finally:
            await replica.kill()


async def _says_why(place: Place, replica: Replica, words: str) -> None:
    async def said() -> bool:
        return words in replica.log

    await place.cluster.until(f"the controller says {words}", said, 60)


@broken("The controller works in the wrong region", "NoController")
@asynccontextmanager
async def wrong_region(place: Place) -> AsyncIterator[str]:
    elsewhere = {"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "eu-west-1"}
    async with _with_another(place, elsewhere) as replica:
        await _waiting_claim(place)
        await _says_why(place, replica, "eu-west-1")
        yield "pvc data"


@broken("The controller has no AWS credentials", "NoController")
@asynccontextmanager
async def no_credentials(place: Place) -> AsyncIterator[str]:
    async with _with_another(place, {**_NO_KEYS, "AWS_EC2_METADATA_DISABLED": "true"}) as replica:
        await _waiting_claim(place)
        await _says_why(place, replica, "no AWS credentials")
        yield "pvc data"


@broken("The metadata service of the controller's node has hop limit 1", "NoController")
@asynccontextmanager
async def hop_limit(place: Place) -> AsyncIterator[str]:
    keys = AwsKeys()
    keys.trouble.hop_limit = True
    async with serving(keys) as url:
        there = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": f"{url}/", "AWS_EC2_METADATA_DISABLED": ""}
        async with _with_another(place, {**_NO_KEYS, **there}) as replica:
            await _waiting_claim(place)
            await _says_why(place, replica, "no AWS credentials")
            yield "pvc data"
