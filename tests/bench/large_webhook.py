"""What a replica of the webhook keeps of a large cluster: memory, and CPU until all is cached.

::

    python -m tests.bench.large_webhook 100000 10000 60000   # volumes with claims, nodes, attachments

It holds the lease of the repairs, and looks once through all persistent volumes. The API server and
EC2 answer at once, as in ``large.py``.
"""

import asyncio
import logging
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

import click
import structlog

from provisioner.model.driver import EBS_DRIVER
from provisioner.model.volume import Volume
from tests.bench import standing
from tests.bench.large import Cluster, run
from tests.bench.processes import memory_mib
from webhook.metrics import WebhookMetrics
from webhook.repairs.flow import Repairs
from webhook.reviews.caches import Caches
from webhook.reviews.zone_lookup import ZoneLookup

if TYPE_CHECKING:
    from provisioner.ec2.volumes import Volumes
    from provisioner.kube.client import KubeClient
    from provisioner.kube.events import EventRecorder
    from provisioner.kube.lease import Leases


class Ec2:
    """Shows what stands. ``all_shown``: each of them once."""

    def __init__(self, there: standing.Standing) -> None:
        self._there = there
        self._left = there.volumes
        self.all_shown = asyncio.Event()

    async def look_for(self, volume_ids: Iterable[str]) -> dict[str, Volume]:
        numbers = {each: standing.number_of(each) for each in volume_ids}
        self._left -= len(numbers)
        if self._left <= 0:
            self.all_shown.set()
        return {
            each: self._there.volume(n, "bench") for each, n in numbers.items() if n is not None
        }


class Lease:
    """Nobody else wants it."""

    async def acquire(self) -> None:
        """At once."""

    async def hold(self) -> None:
        """For ever."""
        await asyncio.Event().wait()


async def measure(cluster: Cluster) -> None:
    """Fill the caches, look for repairs; tell CPU and memory before and after each."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    kube, metrics = cast("KubeClient", cluster), WebhookMetrics()
    caches, ec2 = Caches(kube, metrics, EBS_DRIVER), Ec2(cluster.standing)
    lookup = ZoneLookup(cast("Volumes", ec2), metrics)
    repairs = Repairs(
        client=kube,
        volumes=caches.volumes,
        nodes=caches.node_views,
        lookup=lookup,
        leases=cast("Leases", Lease()),
        events=cast("EventRecorder", None),
        metrics=metrics,
        driver=EBS_DRIVER,
    )
    _tell("imported", 0.0)
    began_s = time.process_time()
    working: list[asyncio.Task[Any]] = [asyncio.create_task(caches.run())]
    await caches.synced()
    _tell("all cached", time.process_time() - began_s)
    began_s = time.process_time()
    working.append(asyncio.create_task(repairs.run()))
    await ec2.all_shown.wait()
    await asyncio.sleep(0.1)  # the last ones are judged
    _tell("all looked at", time.process_time() - began_s)
    for each in working:
        each.cancel()
    await asyncio.gather(*working, return_exceptions=True)
    await lookup.close()


def _tell(name: str, cpu_s: float) -> None:
    resident_mib, peak_mib = memory_mib()
    click.echo(f"{name:14} {cpu_s:5.1f} CPU-s, {resident_mib:.0f} MiB, at most {peak_mib:.0f}")


if __name__ == "__main__":
    run(measure)
