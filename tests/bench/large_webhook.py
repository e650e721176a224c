"""What a replica of the webhook keeps of a large cluster: memory, and CPU until all is cached.

::

    python -m tests.bench.large_webhook 100000 10000 60000   # volumes with claims, nodes, attachments

The API server answers at once, as in ``large.py``.
"""

import asyncio
import logging
import time
from typing import TYPE_CHECKING, cast

import click
import structlog

from provisioner.model.driver import EBS_DRIVER
from tests.bench.large import Cluster, run
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


if __name__ == "__main__":
    run(measure)
