"""Whom log lines are about: a key alone, a UID or a hash, tells nobody at 3 a.m."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import msgspec
import structlog
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from provisioner.controller.attaching.flow import Attacher
from provisioner.controller.deleting.flow import Deleter
from provisioner.controller.deleting.orphans import OrphanSweep
from provisioner.controller.provisioning.flow import Provisioner
from provisioner.controller.shared.caches import Caches
from provisioner.controller.shared.services import Services
from provisioner.controller.shared.settings import Settings, Sweep
from provisioner.controller.shared.unclaimed import UnclaimedTags
from provisioner.ec2.attachments import Attachments
from provisioner.ec2.calls import Ec2Calls
from provisioner.ec2.ceilings import Ceilings
from provisioner.ec2.lookups import NameLookUps, VolumeReads, ZoneNames
from provisioner.ec2.snapshots import Snapshots
from provisioner.ec2.volumes import Volumes
from provisioner.ec2.watcher import Watcher
from provisioner.kube.client import KubeClient
from provisioner.metrics import Metrics
from provisioner.model.claim import Claim
from provisioner.model.errors import KubeError, Reason
from provisioner.model.meta import ObjectReference
from provisioner.model.modification import Initialization
from provisioner.model.persistent_volume import PersistentVolume
from tests.builders import (
    DRIVER,
    UID,
    VOLUME,
    a_claim,
    a_class,
    a_csi_node,
    a_node,
    a_persistent_volume,
    an_attachment,
)
from tests.controller.services import Ec2, Events, Kube

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from provisioner.kube.queue import KeyedQueue

NAME = f"pvc-{UID}"
REFUSED = KubeError(Reason.REJECTED, "the API server refuses")


def of_claim(persistent_volume: PersistentVolume) -> PersistentVolume:
    holder = ObjectReference(namespace="shop", name="data", uid=UID)
    spec = msgspec.structs.replace(persistent_volume.spec, claim_ref=holder)
    return msgspec.structs.replace(persistent_volume, spec=spec)


class Flows:
    """All flows over one set of caches; each patch is refused."""

    def __init__(self, claim: Claim) -> None:
        self.kube, self.metrics, self.events = Kube(answers=[REFUSED] * 9), Metrics(), Events()
        kube, volumes = cast("KubeClient", self.kube), cast("Volumes", Ec2())
        self.caches = Caches(kube, self.metrics, DRIVER)
        self.caches.claims._store.apply(claim)
        self.caches.classes._store.apply(a_class(waits=True))
        self.caches.nodes._store.apply(a_node())
        self.caches.csi_nodes._store.apply(a_csi_node())
        self.caches.persistent_volumes._store.apply(
            of_claim(a_persistent_volume("pv-1", finalizers=()))
        )
        self.caches.attachments._store.apply(an_attachment("csi-1", persistent_volume="pv-1"))
        watcher = Watcher(volumes, metrics=self.metrics)
        unclaimed = UnclaimedTags(volumes, self.caches, cluster_id="")
        initializations = Watcher[Initialization](cast("Any", None), metrics=self.metrics)
        found = SimpleNamespace(
            settings=Settings(driver=DRIVER),
            client=kube,
            caches=self.caches,
            unclaimed=unclaimed,
            metrics=self.metrics,
            instances=Attachments(cast("Ec2Calls", None)),
            watchers=SimpleNamespace(initializations=initializations),
            volumes=volumes,
            ceilings=Ceilings(volumes, cluster_id="", extra_tags=()),
            lookups=NameLookUps(volumes),
            volume_reads=VolumeReads(volumes),
            snapshots=Snapshots(cast("Ec2Calls", None)),
            zone_names=ZoneNames(cast("Ec2Calls", None)),
            watcher=watcher,
            events=self.events,
        )
        services = cast("Services", found)
        self.provisioner = Provisioner(services, identity="test")
        self.deleter = Deleter(services)
        self.attacher = Attacher(services)


@asynccontextmanager
async def logged(*queues: KeyedQueue) -> AsyncIterator[list[Any]]:
    """The log as it is printed, while the queues run."""
    with capture_logs(processors=(merge_contextvars,)) as entries:
        running = asyncio.gather(*(queue.run() for queue in queues))
        try:
            async with asyncio.timeout(30):
                yield entries
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def failures(entries: list[Any], count: int = 1) -> list[Any]:
    while True:
        found = [entry for entry in entries if entry["event"] == "will try again"]
        if len(found) >= count:
            return found
        await asyncio.sleep(0)


def about(entry: Any) -> dict[str, str]:
    names = ("flow", "claim", "persistent_volume", "volume", "node")
    return {name: entry[name] for name in names if name in entry}


async def test_a_claim_that_is_tried_again_is_named():
    flows = Flows(a_claim(node="node-1"))
    async with logged(flows.provisioner.queue) as entries:
        flows.provisioner.queue.add(UID)
        (entry,) = await failures(entries)

    assert about(entry) == {"flow": "provision", "claim": "shop/data", "persistent_volume": NAME}


async def test_a_persistent_volume_and_an_attachment_are_named_and_not_mixed_up():
    flows = Flows(a_claim(node="node-1"))
    queues = (flows.deleter.queue, flows.attacher.queue)
    async with logged(*queues) as entries:
        flows.deleter.queue.add("pv-1")
        flows.attacher.queue.add("csi-1")
        found = {entry["flow"]: entry for entry in await failures(entries, 2)}

    volume = {"claim": "shop/data", "persistent_volume": "pv-1", "volume": VOLUME}
    assert about(found["delete"]) == {"flow": "delete", **volume}
    assert about(found["attach"]) == {"flow": "attach", "node": "node-1", **volume}


async def test_a_key_that_another_handler_adds_is_not_named_after_that_one():
    flows = Flows(a_claim(node="node-1"))
    async with logged(flows.provisioner.queue, flows.deleter.queue) as entries:
        structlog.contextvars.bind_contextvars(node="somebody-else")
        flows.deleter.queue.add("pv-1")
        structlog.contextvars.clear_contextvars()
        (entry,) = await failures(entries)

    assert "node" not in entry


async def test_a_settled_refusal_is_one_line_and_one_count():
    flows = Flows(a_claim(node="node-1", modes=["ReadWriteMany"]))
    queue = flows.provisioner.queue
    async with logged(queue) as entries:
        for _ in range(3):
            queue.add(UID)
            while queue.depth:  # noqa: ASYNC110 -- the queue has no event for its end
                await asyncio.sleep(0)

    (entry,) = entries
    assert entry["event"] == "refused"
    assert entry["claim"] == "shop/data"
    assert len(flows.events.told) == 1
    labels = {"flow": "provision", "reason": entry["reason"]}
    counted = flows.metrics.registry.get_sample_value("ebs_provisioner_flow_failures_total", labels)
    assert counted == 1


async def sweeps_that_end_at_once(**options: Any) -> list[str]:
    flows: Any = None
    services: Any = SimpleNamespace(
        settings=Settings(**options),
        client=flows,
        volumes=flows,
        unclaimed=flows,
        caches=flows,
        metrics=Metrics(),
    )
    sweep = OrphanSweep(services, creations=flows)
    async with logged() as entries:
        await sweep.run()
    return [entry["event"] for entry in entries]


async def test_that_nothing_is_swept_without_a_cluster_id_is_told_once():
    (told,) = await sweeps_that_end_at_once()

    assert "without --cluster-id" in told
    assert await sweeps_that_end_at_once(orphan_sweep=Sweep.OFF) == []
