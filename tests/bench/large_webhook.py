"""What a replica of the webhook keeps of a large cluster: memory, and CPU until all is cached.

::

    python -m tests.bench.large_webhook 100000 10000 60000   # volumes with claims, nodes, attachments

The API server answers at once, as in ``large.py``.
"""

import asyncio
import logging
import sys
import time
from typing import TYPE_CHECKING, cast

import click
import structlog

from provisioner.ec2.calls import share_heaps
from provisioner.model.driver import EBS_DRIVER
from tests.bench.large import Cluster, MeasuredLoop
from tests.bench.processes import memory_mib
from webhook.metrics import WebhookMetrics
from webhook.reviews.caches import Caches

if TYPE_CHECKING:
    from provisioner.kube.client import KubeClient


async def measure(cluster: Cluster) -> None:
    """Fill the caches; tell CPU and memory before and after."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    caches = Caches(cast("KubeClient", cluster), WebhookMetrics(), EBS_DRIVER)
    _tell("imported", 0.0)
    began_s = time.process_time()
    following = asyncio.create_task(caches.run())
    await caches.synced()
    _tell("all cached", time.process_time() - began_s)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


def _tell(name: str, cpu_s: float) -> None:
    resident_mib, peak_mib = memory_mib()
    click.echo(f"{name:12} {cpu_s:5.1f} CPU-s, {resident_mib:.0f} MiB, at most {peak_mib:.0f}")


def main() -> None:
    """Run it."""
    share_heaps()  # as the product does when it connects
    numbers = [int(text) for text in sys.argv[1:]] or [100_000, 10_000, 60_000]
    with asyncio.Runner(loop_factory=MeasuredLoop) as runner:
        runner.run(measure(Cluster(*numbers)))


if __name__ == "__main__":
    main()
