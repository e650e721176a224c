"""Find the controller's leases."""

import asyncio
from datetime import UTC, datetime

from provisioner.inspect.reading.cluster import Cluster
from provisioner.inspect.reading.setup_kinds import SEEN_LEASES
from provisioner.model.leadership import lease_names

_USUAL = "kube-system"
_NEVER = datetime.min.replace(tzinfo=UTC)


async def lease_namespace(cluster: Cluster, driver: str, given: str = "") -> str:
    """The namespace of the controller's leases.

    Args:
        cluster: is asked for more than the usual namespace only if none of them is there.
        driver: whose controller it is.
        given: by the user; "" to look for it.
    """
    if given:
        return given
    names = lease_names(driver)
    usual = await asyncio.gather(*(cluster.one(SEEN_LEASES, name, _USUAL) for name in names))
    if any(usual) or cluster.misses(SEEN_LEASES):
        return _USUAL
    elsewhere = await asyncio.gather(
        *(cluster.every(SEEN_LEASES, field_selector=f"metadata.name={name}") for name in names)
    )
    found = [each for some in elsewhere for each in some]
    newest = max(found, key=lambda each: each.spec.renew_time or _NEVER, default=None)
    return newest.metadata.namespace if newest is not None else _USUAL
