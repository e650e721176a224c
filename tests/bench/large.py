"""A large cluster in one process: how long the event loop is blocked, and how much memory it takes.

::

    python -m tests.bench.large 100000 10000 60000   # volumes with claims, nodes, attachments

At last a thousand of the volumes are released and deleted, while 50 AttachVolume are sent.

The controller is the product's; the API server and EC2 answer at once, in the same process and on
its clock, but the pages of lists are made by others (``large_pages.py``). A pass of the event loop is measured by its CPU time, so that a busy machine does
not count: everything that waits, a lease's renewal too, waits for the end of one pass.
"""

import asyncio
import gc
import json
import logging
import resource
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import click
import msgspec
import structlog

from provisioner.classes.storage_class_rules import ReadClass, read
from provisioner.controller.app import Controller
from provisioner.controller.deleting import orphans
from provisioner.controller.placement.consumer_rules import Consumers, places
from provisioner.controller.placement.waiting_pods import WaitingPods
from provisioner.controller.shared.settings import Settings
from provisioner.ec2.calls import Ec2Calls, share_heaps
from provisioner.ec2.limiter import Limiter
from provisioner.ec2.rate_option import parse_rates
from provisioner.kube import wire
from provisioner.kube.client import KubeClient
from provisioner.kube.resources import (
    ATTACHMENTS,
    CLAIMS,
    CSI_NODES,
    NODES,
    PERSISTENT_VOLUMES,
    PODS,
    STORAGE_CLASSES,
    Resource,
    whole,
)
from provisioner.kube.wire import Listing, WatchLine
from provisioner.metrics import Metrics
from provisioner.model.driver import EBS_DRIVER
from provisioner.model.node_affinity import region_of
from provisioner.model.volume import Volume
from provisioner.slices import between_slices
from tests.bench import large_pages, standing
from tests.bench.large_pages import PAGE
from tests.bench.processes import memory_mib
from tests.bench.standing import Standing

DELETIONS, ATTACHES = 1000, 50
_TAKES_S = 0.1  # a change in EC2
_MADE = "2026-11-20T00:00:00Z"
_FOLLOWED = (CLAIMS, PERSISTENT_VOLUMES, ATTACHMENTS, NODES, CSI_NODES, STORAGE_CLASSES)


class MeasuredLoop(asyncio.SelectorEventLoop):
    """Notes the CPU seconds of its longest pass."""

    longest_s = 0.0

    def _run_once(self) -> None:
        began_s = time.thread_time()
        super()._run_once()  # type: ignore[misc]
        self.longest_s = max(self.longest_s, time.thread_time() - began_s)


class Cluster:
    """The API server and EC2 of a cluster in which nothing happens but deletions.

    Attributes:
        meta: what a boto3 client says of itself.
    """

    meta = SimpleNamespace(region_name=region_of(standing.ZONES[0]))

    def __init__(self, volumes: int, nodes: int, attachments: int) -> None:
        self.standing = Standing(volumes, nodes, attachments)
        self.volumes = volumes
        self.asked: list[str] = []
        self.version = 10
        self.released: dict[str, Any] = {}
        self._changes: list[tuple[int, WatchLine]] = []  # of persistent volumes
        self._news = asyncio.Event()
        self.sent: list[str] = []
        self.all_gone = asyncio.Event()  # what was released

    async def served(self) -> frozenset[tuple[str, str]]:
        return frozenset((each.api_version, each.plural) for each in _FOLLOWED)

    async def list(
        self,
        resource: Resource[Any],
        *,
        most: int = 0,
        keep: Callable[[Any], Any] = whole,
        trim: Callable[[Any], Any] = whole,
        **_: Any,
    ) -> Listing[Any]:
        self.asked.append(f"{'page' if most else 'list'} {resource.plural}")
        if most:
            return Listing([], str(self.version), is_all=False)
        reader = wire.PageReader(resource, keep, trim)
        async for page in large_pages.read(resource.plural, self.standing):
            await between_slices(reader.reading(page))
        return reader.listing()

    async def watch(
        self, resource: Resource[Any], *, resource_version: str, timeout_s: int, **_: Any
    ) -> AsyncIterator[WatchLine]:
        at = 0
        ends_s = asyncio.get_running_loop().time() + timeout_s
        while True:
            while resource is PERSISTENT_VOLUMES and at < len(self._changes):
                version, line = self._changes[at]
                at += 1
                if version > int(resource_version):
                    yield line
            try:
                async with asyncio.timeout_at(ends_s - 2):  # as the API server does
                    await self._news.wait()
            except TimeoutError:
                break
        yield _line("BOOKMARK", {"metadata": {"name": "", "resourceVersion": str(self.version)}})
        await asyncio.sleep(2)

    def release(self, count: int) -> None:
        """The claims of the last volumes are gone."""
        for n in range(self.volumes - count, self.volumes):
            body = standing.persistent_volume(n) | {"status": {"phase": "Released"}}
            self.released[standing.volume_name(n)] = body
            self._change("MODIFIED", body)

    def _change(self, what: str, body: dict[str, Any]) -> None:
        self.version += 1
        body["metadata"]["resourceVersion"] = str(self.version)
        self._changes.append((self.version, _line(what, body)))
        self._news.set()
        self._news = asyncio.Event()

    async def get(self, resource: Resource[Any], name: str, namespace: str = "") -> Any:
        return self._decoded(name)

    async def delete(self, _: Resource[Any], name: str, **__: Any) -> Any:
        self.released[name]["metadata"]["deletionTimestamp"] = _MADE
        self._change("MODIFIED", self.released[name])
        return self._decoded(name)

    async def patch(self, _: Resource[Any], name: str, body: Any, **__: Any) -> Any:
        metadata = self.released[name]["metadata"]
        gone = body["metadata"].get("$deleteFromPrimitiveList/finalizers", ())
        metadata["finalizers"] = [each for each in metadata["finalizers"] if each not in gone]
        is_gone = "deletionTimestamp" in metadata  # the API server's own protection goes as well
        self._change("DELETED" if is_gone else "MODIFIED", self.released[name])
        found = self._decoded(name)
        if is_gone:
            del self.released[name]
            if not self.released:
                self.all_gone.set()
        return found

    def _decoded(self, name: str) -> Any:
        return wire.decode_object(PERSISTENT_VOLUMES, json.dumps(self.released[name]).encode())

    def delete_volume(self, **_: Any) -> dict[str, Any]:
        return self._answer("DeleteVolume")

    def attach_volume(self, **_: Any) -> dict[str, Any]:
        return self._answer("AttachVolume")

    def _answer(self, action: str) -> dict[str, Any]:
        time.sleep(_TAKES_S)
        self.sent.append(action)
        return {"ResponseMetadata": {"RequestId": "1"}}


def _line(what: str, body: dict[str, Any]) -> WatchLine:
    return WatchLine(what, msgspec.Raw(json.dumps(body).encode()))


async def measure(cluster: Cluster) -> None:
    """Fill the caches, take over, settle, sweep; tell each one's longest pass and memory."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    kube, metrics = cast("KubeClient", cluster), Metrics()
    limiter = Limiter(parse_rates("*=x1000"), metrics=metrics)
    calls = Ec2Calls(cast("Any", cluster), limiter=limiter, metrics=metrics)
    controller = Controller(Settings(cluster_id="bench"), kube, kube, calls, metrics)
    _tell("imported", 0.0)
    following = asyncio.create_task(controller.caches.run())
    cast("Any", controller.leases).acquire = _nobody_else
    cast("Any", controller.leases).held = lambda: True
    await _step("caches filled", controller._elected())
    resting_mib = _tell("caches at rest", 0.0)
    cluster.asked.clear()
    await _step("caught up", controller._catch_up())
    assert not any(each.startswith("list") for each in cluster.asked), cluster.asked
    await _step("taken over", _taken_over(controller))
    await _step("subscribed", controller.caches.introduce(controller._subscribe))
    queues = [flow.queue for flow in controller.flows]
    working = [asyncio.create_task(queue.run()) for queue in queues]
    await _step("settled", _settled(queues))
    volumes = cast("Any", controller.orphans._volumes)
    volumes.find, volumes.find_pages = _nothing, lambda **_: _paged(cluster.standing)
    orphans._PAGE_PAUSE_S = 0.01
    await _step("swept", controller.orphans.sweep())
    await _step("a class's nodes", _nodes_of_a_class(controller))
    cluster.asked.clear()
    alone_s = await _attached(calls)
    cluster.release(DELETIONS)
    await _step(f"{DELETIONS} deleted", _deleted(cluster, calls, alone_s))
    gc.collect()
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    click.echo(f"peak {peak_mib:.0f} MiB, {peak_mib - resting_mib:.0f} above the caches at rest")
    for task in (*working, following):
        task.cancel()
    await asyncio.gather(*working, following, return_exceptions=True)


async def _taken_over(controller: Controller) -> None:
    controller.leading.set()
    claims = list(controller.caches.claims.values())
    controller.unclaimed.leadership.take_over(None, claims)
    controller.provisioner.takeover.take_over(claims, None)
    controller.attacher.detacher.take_over()
    controller.snapshotter.take_over(None)


async def _nobody_else(_: object) -> None:
    return


async def _settled(queues: list[Any]) -> None:
    for _ in range(1200):
        if not any(queue._ready or queue._running for queue in queues):
            return
        await asyncio.sleep(0.1)


async def _nodes_of_a_class(controller: Controller) -> None:
    """What a claim asks whose pod may run on one node only, after a node has changed."""
    caches = controller.caches
    storage_class = next(iter(caches.classes.values()))
    read_class = read(storage_class)
    assert isinstance(read_class, ReadClass)
    waiting = WaitingPods(cast("KubeClient", None), caches, EBS_DRIVER)
    eligible_nodes = waiting.eligible_nodes(read_class)
    await asyncio.sleep(0)
    some = next(iter(caches.nodes.values()))
    waiting._node_changed(some, None)
    again = waiting.eligible_nodes(read_class)
    assert len(eligible_nodes) == len(again) == len(caches.nodes.values())
    await asyncio.sleep(0)
    selector = {"kubernetes.io/hostname": "nowhere"}
    pod = {"metadata": {"name": "p", "namespace": "n"}, "spec": {"nodeSelector": selector}}
    narrow = wire.decode_object(PODS, json.dumps(pod).encode())
    places(Consumers((narrow,), eligible_nodes))


async def _deleted(cluster: Cluster, calls: Ec2Calls, alone_s: float) -> None:
    """Until the last volume and its object are gone; attaches are sent in between."""
    began_s = time.monotonic()
    await asyncio.sleep(0.5)
    beside_s = await _attached(calls)
    async with asyncio.timeout(600):
        await cluster.all_gone.wait()
    took_s = time.monotonic() - began_s
    lists = sum(each.startswith("list") for each in cluster.asked)
    click.echo(
        f"{cluster.sent.count('DeleteVolume')} volumes and their objects deleted after "
        f"{took_s:.1f} s, {len(cluster.asked)} questions, {lists} lists; {ATTACHES} AttachVolume "
        f"took {alone_s:.2f} s alone, {beside_s:.2f} s in between"
    )


async def _attached(calls: Ec2Calls) -> float:
    """How long the last of some AttachVolume takes."""
    began_s = time.monotonic()
    await asyncio.gather(*(calls.call("AttachVolume", {}) for _ in range(ATTACHES)))
    return time.monotonic() - began_s


async def _nothing(**_: Any) -> list[Volume]:
    return []


async def _paged(there: Standing) -> AsyncIterator[list[Volume]]:
    for at in range(0, there.volumes, PAGE):
        yield [there.volume(n, "bench") for n in range(at, min(at + PAGE, there.volumes))]


async def _step(name: str, work: Any) -> None:
    loop = cast("MeasuredLoop", asyncio.get_running_loop())
    await asyncio.sleep(0)
    loop.longest_s, began_s = 0.0, time.process_time()
    await work
    await asyncio.sleep(0)
    _tell(name, time.process_time() - began_s)


def _tell(name: str, cpu_s: float) -> float:
    resident_mib = memory_mib()[0]
    loop = cast("MeasuredLoop", asyncio.get_running_loop())
    click.echo(
        f"{name:18} {cpu_s:6.1f} CPU-s, longest pass {loop.longest_s * 1000:5.0f} ms, "
        f"{resident_mib:5.0f} MiB"
    )
    return resident_mib


def run(measured: Callable[[Cluster], Coroutine[Any, Any, None]]) -> None:
    """Measure something of the cluster that the command line describes."""
    share_heaps()  # as the product does when it connects
    numbers = [int(text) for text in sys.argv[1:]] or [100_000, 10_000, 60_000]
    with asyncio.Runner(loop_factory=MeasuredLoop) as runner:
        runner.run(measured(Cluster(*numbers)))


if __name__ == "__main__":
    run(measure)
