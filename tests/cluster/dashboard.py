"""The dashboard's queries, and a node plugin on a Nitro instance for those of EBS's statistics.

Disks of the sandbox are loop devices, which have no log page of statistics. So a page of that layout
is made here, and our own code reads it and serves it to Prometheus.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from provisioner.node.metrics.collector import Measured, series_of
from provisioner.node.metrics.nvme_statistics_rules import parse
from provisioner.sandbox import control_plane
from tests.node.statistics_pages import histogram, page

Json = dict[str, Any]
FILE = Path(__file__).parents[2] / "manifests/monitoring/dashboard.json"
DASHBOARD: Json = json.loads(FILE.read_text())
PANELS: list[Json] = [each for each in DASHBOARD["panels"] if each["type"] != "row"]
QUERIES: list[tuple[str, str]] = [
    (panel["title"], target["expr"]) for panel in PANELS for target in panel["targets"]
]
GIB = 2**30


def filled_in(query: str, window: str) -> str:
    """A query as Grafana sends it for all namespaces and claims."""
    for variable, value in (
        ("$__rate_interval", window),
        ("$namespace", ".*"),
        ("$claim", ".*"),
    ):
        query = query.replace(variable, value)
    return query


class Nitro(Collector):
    """A volume that has 100 reads and 300 writes a second, and reaches its limit at times."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()

    def collect(self) -> Iterable[Metric]:
        past_s = time.monotonic() - self._began_s
        done = (100, 300, 100 * 4096, 300 * 65536, 40_000, 390_000, 20_000, 50_000, 0, 0)
        counters = (*(int(past_s * each) for each in done), 2)
        reads, writes = int(past_s * 100), int(past_s * 300)
        statistics = parse(
            page(
                counters=counters,
                reads=histogram((0, 256, reads // 2), (256, 512, reads // 2)),
                writes=histogram((0, 1000, writes // 3), (1000, 2000, 2 * writes // 3)),
            )
        )
        return series_of([Measured(("vol-1", "pv-1", "shop", "data"), 8 * GIB, statistics)])


@contextlib.contextmanager
def nitro() -> Iterator[str]:
    """Serve that; the address."""
    registry = CollectorRegistry()
    registry.register(Nitro())
    port = control_plane.free_port()
    server, thread = start_http_server(port, "127.0.0.1", registry)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
