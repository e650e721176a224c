"""Find the controller's leases."""

import asyncio
from datetime import UTC, datetime, timedelta

from provisioner.inspect.reading.cluster import Cluster
from provisioner.inspect.reading.setup_kind_rules import SeenLease
from provisioner.inspect.reading.setup_kinds import SEEN_LEASES
from provisioner.model.leadership import lease_names

USUAL_NAMESPACE = "kube-system"
"""Of the leases of the stock driver, of this project, and of snapshot-controller."""
_RECENTLY = timedelta(minutes=1)  # whoever lives renews every few seconds
_NEVER = datetime.min.replace(tzinfo=UTC)


async def lease_namespace(cluster: Cluster, driver: str, given: str, now: datetime) -> str:
    """The namespace of the leases of the controller that works, or worked last.

    Args:
        cluster: is asked for more than the usual namespace only if nobody renews them there: a
            driver that was removed may have left its leases.
        driver: whose controller it is.
        given: by the user; "" to look for it.
        now: by the API server's clock.
    """
    if given:
        return given
    names = lease_names(driver)
    asked = await asyncio.gather(
        *(cluster.one(SEEN_LEASES, name, USUAL_NAMESPACE) for name in names)
    )
    usual = [each for each in asked if each is not None]
    is_renewed = any(now - _renewed_at(each) <= _RECENTLY for each in usual)
    if is_renewed or cluster.misses(SEEN_LEASES):
        return USUAL_NAMESPACE
    everywhere = await asyncio.gather(
        *(cluster.every(SEEN_LEASES, field_selector=f"metadata.name={name}") for name in names)
    )
    found = [*usual, *(each for some in everywhere for each in some)]
    newest = max(found, key=_renewed_at, default=None)
    return newest.metadata.namespace if newest is not None else USUAL_NAMESPACE


def _renewed_at(lease: SeenLease) -> datetime:
    return lease.spec.renew_time or _NEVER
