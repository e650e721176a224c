"""What nobody may decide by: a cache that is not full yet, and a cache's "not here"."""

from __future__ import annotations

import asyncio
import gc
import json
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any, cast

import msgspec
import pytest
from structlog.testing import capture_logs

from provisioner.controller.shared import caches as caches_module
from provisioner.controller.shared.caches import CLAIMS_BY, Caches
from provisioner.kube import resources, wire
from provisioner.kube.client import KubeClient
from provisioner.kube.informer import Informer
from provisioner.kube.resources import ATTACHMENTS, PERSISTENT_VOLUMES, Resource
from provisioner.kube.store import SLICE, Store
from provisioner.kube.wire import Listing, PageReader
from provisioner.metrics import Metrics
from provisioner.model.claim import Claim, ClaimSpec, ClaimStatus, DataSource
from provisioner.model.errors import KubeError, Reason
from provisioner.model.meta import ObjectMeta
from tests.bench import standing
from tests.builders import (
    DRIVER,
    UID,
    a_claim,
    a_class,
    a_csi_node,
    a_node,
    a_persistent_volume,
    an_attachment,
)
from tests.controller.full_zones import with_volume
from tests.controller.services import Kube
from tests.ec2.virtual_time import Clock, in_virtual_time
from tests.kube.behind import Behind
from tests.snapshot_builders import a_snapshot

SNAPSHOT_KINDS = (
    resources.VOLUME_SNAPSHOTS,
    resources.SNAPSHOT_CONTENTS,
    resources.SNAPSHOT_CLASSES,
)
KINDS = (
    resources.CLAIMS,
    resources.PERSISTENT_VOLUMES,
    resources.ATTACHMENTS,
    resources.STORAGE_CLASSES,
    resources.NODES,
    resources.CSI_NODES,
    resources.PODS,
    *SNAPSHOT_KINDS,
)


class SlowKube:
    """Lists every kind at once but one, which takes until it is let go."""

    def __init__(self, slow: Resource[Any]) -> None:
        self.slow = slow
        self.kinds: tuple[Resource[Any], ...] = KINDS
        self.let_go = asyncio.Event()
        self.selectors: dict[str, str] = {}
        self.asked = asyncio.Event()

    async def served(self) -> frozenset[tuple[str, str]]:
        return frozenset((kind.api_version, kind.plural) for kind in self.kinds)

    async def list(self, resource: Resource[Any], **given: Any) -> Listing[Any]:
        self.selectors[resource.plural] = given.get("field_selector", "")
        if resource is self.slow:
            self.asked.set()
            await self.let_go.wait()
        return Listing([], "1")

    async def watch(self, *_: Any, **__: Any) -> AsyncIterator[None]:
        await asyncio.Event().wait()
        yield None


@pytest.mark.parametrize("slow", KINDS, ids=lambda kind: kind.plural)
async def test_nothing_is_decided_before_every_kind_was_listed(slow: Resource[Any]):  # race 29
    kube = SlowKube(slow)
    caches = Caches(cast("KubeClient", kube), Metrics(), DRIVER)
    following = asyncio.create_task(caches.run())
    synced = asyncio.create_task(caches.synced())
    async with asyncio.timeout(30):
        await kube.asked.wait()
        for _ in range(20):  # all others have their list by now
            await asyncio.sleep(0)
        before = caches.is_synced, synced.done()

        kube.let_go.set()
        await synced

    assert before == (False, False)
    assert caches.is_synced
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def test_only_pending_pods_are_asked_for():
    kube = SlowKube(resources.EVENTS)
    caches = Caches(cast("KubeClient", kube), Metrics(), DRIVER)
    following = asyncio.create_task(caches.run())
    async with asyncio.timeout(30):
        await caches.synced()

    assert kube.selectors.pop("pods") == "status.phase=Pending"
    assert set(kube.selectors.values()) == {""}
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def test_what_is_not_in_a_cache_is_asked_for_before_it_counts_as_gone():  # race 29
    kube = Kube(
        objects={
            "fast": a_class(),
            "pv": a_persistent_volume("pv"),
            "node-1": a_node(),
        }
    )
    caches = Caches(cast("KubeClient", kube), Metrics(), DRIVER)

    assert await caches.storage_class("fast") == a_class()
    assert await caches.persistent_volume("pv") == a_persistent_volume("pv")
    assert await caches.node("node-1") == a_node()
    assert await caches.node("node-2") is None
    assert kube.read == [
        "storageclasses fast",
        "persistentvolumes pv",
        "nodes node-1",
        "nodes node-2",
    ]


async def test_a_node_that_lacks_the_driver_in_the_cache_is_asked_for():  # race 5, race 29
    kube = Kube(objects={"node-1": a_csi_node()})
    caches = Caches(cast("KubeClient", kube), Metrics(), DRIVER)
    caches.csi_nodes._store.apply(a_csi_node(driver=None))

    assert await caches.csi_node("node-1") == a_csi_node()


async def test_a_kind_that_comes_later_is_followed_and_holds_nobody_up(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(caches_module, "_MISSING_AGAIN_S", 0.0)
    kube = SlowKube(resources.SNAPSHOT_CONTENTS)
    kube.kinds = tuple(kind for kind in KINDS if kind not in SNAPSHOT_KINDS)
    caches = Caches(cast("KubeClient", kube), Metrics(), DRIVER)
    following = asyncio.create_task(caches.run())
    async with asyncio.timeout(30):
        await caches.synced()
        before = caches.snapshots.synced.is_set(), kube.asked.is_set()

        kube.kinds = KINDS
        await kube.asked.wait()
        while_listing = caches.is_synced

        kube.let_go.set()
        await caches.contents.synced.wait()
        await caches.snapshots.synced.wait()
        await caches.snapshot_classes.synced.wait()

    assert before == (False, False)
    assert while_listing
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


class AwayKube(SlowKube):
    """Is away for so long, whenever it is asked what it serves."""

    def __init__(self, *failures: str) -> None:
        super().__init__(resources.EVENTS)
        self.kinds = KINDS[:1]
        self.failures = list(failures)

    async def served(self) -> frozenset[tuple[str, str]]:
        if self.failures and (failure := self.failures.pop(0)):
            raise KubeError(Reason.UNREACHABLE, failure)
        return await super().served()


def test_an_api_server_that_is_away_at_the_start_is_told_of_once():
    away, back = ["it is away"] * 300, ""

    async def story(_: Clock) -> tuple[int, list[str]]:
        kube = AwayKube(*away, back, *away, "it is broken")
        caches = Caches(cast("KubeClient", kube), Metrics(), DRIVER)
        with capture_logs() as logs:
            following = asyncio.create_task(caches.run())
            await asyncio.sleep(36_000)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        return len(kube.failures), [line["error"] for line in logs if "cannot ask" in line["event"]]

    assert in_virtual_time(story) == (0, ["it is away", "it is away", "it is broken"])


async def test_a_snapshot_is_asked_for_in_its_own_namespace():
    kube = Kube(objects={"daily": a_snapshot("daily")})
    caches = Caches(cast("KubeClient", kube), Metrics(), DRIVER)

    assert await caches.snapshot("shop", "daily") == a_snapshot("daily")
    assert await caches.snapshot("shop", "weekly") is None
    assert await caches.content("snapcontent-1") is None
    assert await caches.snapshot_class("weekly") is None
    assert kube.read == [
        "volumesnapshots shop/daily",
        "volumesnapshots shop/weekly",
        "volumesnapshotcontents snapcontent-1",
        "volumesnapshotclasses weekly",
    ]


async def test_others_on_the_loop_go_on_while_a_large_cluster_is_told_to_those_who_begin_to_work():
    caches = Caches(cast("KubeClient", Kube()), Metrics(), DRIVER)
    for n in range(4 * SLICE):
        caches.claims._store.apply(a_claim(f"claim-{n}", uid=f"uid-{n}"))
    told: list[str] = []
    told_between_renewals: list[int] = []

    async def renew() -> None:
        while True:
            before = len(told)
            await asyncio.sleep(0)
            told_between_renewals.append(len(told) - before)

    renewing = asyncio.create_task(renew())

    def note(_: object, new: Claim | None) -> None:
        told.append(new.uid if new is not None else "")

    await caches.introduce(lambda: caches.claims.subscribe(note))

    renewing.cancel()
    assert told == [f"uid-{n}" for n in range(4 * SLICE)]
    assert max(told_between_renewals) == SLICE


def of_sizes(count: int, sizes: int, strange: str) -> tuple[bytes, bytes]:
    """The lists of bound claims and of their persistent volumes."""
    claims = [standing.claim(n, 10) for n in range(count)]
    volumes = [standing.persistent_volume(n) for n in range(count)]
    for n, (claim, volume) in enumerate(zip(claims, volumes, strict=True)):
        size = {"storage": f"{n % sizes + 1}Gi"}
        claim["spec"]["resources"]["requests"] = claim["status"]["capacity"] = size
        volume["spec"]["capacity"] = size
        if strange:
            for each in (claim, volume):
                each["metadata"]["annotations"][strange] = f"{n} of a tool that applies manifests"
                each["metadata"]["labels"] |= {f"{strange}-{key}": f"release-{n}" for key in "ab"}
    at = {"resourceVersion": "9"}
    first, second = ({"metadata": at, "items": each} for each in (claims, volumes))
    return json.dumps(first).encode(), json.dumps(second).encode()


def bytes_kept(lists: tuple[bytes, bytes]) -> int:
    """What the caches of the controller take for these."""
    # The interpreter's table of shared texts may just double, once in ever so many of them.
    return min(bytes_kept_once(lists) for _ in range(3))


def bytes_kept_once(lists: tuple[bytes, bytes]) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        caches = Caches(cast("KubeClient", None), Metrics(), DRIVER)
        both: tuple[Informer[Any], Informer[Any]] = caches.claims, caches.persistent_volumes
        for into, page in zip(both, lists, strict=True):
            reader = PageReader(into.resource, into._kept, into._trim)
            reader.read(page)
            into._store.replace(reader.listing())
        del reader
        gc.collect()
        assert len(caches.claims.values()) == len(caches.persistent_volumes.values()) > 0
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("sizes", "strange"),
    [(300, ""), (1, "kubectl.kubernetes.io/last-applied-configuration"), (300, "example.com/app")],
)
def test_many_sizes_and_what_strangers_write_take_hardly_more_memory(sizes: int, strange: str):
    alike = bytes_kept(of_sizes(2000, 1, ""))
    before = wire._text.cache_info().misses

    assert bytes_kept(of_sizes(2000, sizes, strange)) < 1.15 * alike
    assert wire._text.cache_info().misses - before < 1000, "what strangers write is in the table"


def nodes_kept(strange: int) -> int:
    """Bytes for nodes and their registrations, with so many annotations and drivers of others."""
    nodes, csi_nodes = (
        [standing.node(n) for n in range(500)],
        [standing.csi_node(n) for n in range(500)],
    )
    for n, (node, csi_node) in enumerate(zip(nodes, csi_nodes, strict=True)):
        for each in range(strange):
            node["metadata"]["annotations"][f"example.com/{each}"] = f"{n} and {each}"
            node["status"]["conditions"].append({"type": f"Strange{each}", "status": f"{n}"})
            csi_node["spec"]["drivers"].append({"name": f"{each}.csi", "nodeID": f"{n}/{each}"})
    at = {"resourceVersion": "9"}
    pages = [json.dumps({"metadata": at, "items": each}).encode() for each in (nodes, csi_nodes)]
    gc.collect()
    tracemalloc.start()
    try:
        caches = Caches(cast("KubeClient", None), Metrics(), DRIVER)
        both: tuple[Informer[Any], Informer[Any]] = caches.nodes, caches.csi_nodes
        for into, page in zip(both, pages, strict=True):
            reader = PageReader(into.resource, into._kept, into._trim)
            reader.read(page)
            into._store.replace(reader.listing())
        del reader
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def test_what_strangers_write_to_nodes_takes_no_memory():
    plain = min(nodes_kept(0) for _ in range(2))

    assert min(nodes_kept(5) for _ in range(2)) < 1.02 * plain


def test_a_restored_etcd_that_one_kind_notices_has_all_kinds_listed():
    async def story(_: Clock) -> None:
        api = Behind(serves=(PERSISTENT_VOLUMES, ATTACHMENTS))
        for n in range(600):
            api.put(PERSISTENT_VOLUMES, a_persistent_volume(f"pv-{n}"))
        in_backup, version = dict(api.objects), api.version
        caches = Caches(cast("KubeClient", api), Metrics(), DRIVER)
        api.put(PERSISTENT_VOLUMES, a_persistent_volume("pv-0"))
        api.put(ATTACHMENTS, an_attachment("csi-later"))
        following = asyncio.create_task(caches.run())
        await caches.synced()
        api.objects, api.version = in_backup, version + 1_000_000_000
        api.asked.clear()
        with capture_logs() as logs:
            caches.persistent_volumes.list_soon()  # as its watch is told that it is too far behind
            await asyncio.sleep(1000)

        assert caches.attachments.get("csi-later") is None
        assert api.asked.count("list") == 2
        assert [line["kind"] for line in logs if "restored" in line["event"]] == [
            "PersistentVolume"
        ]
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    in_virtual_time(story)


def test_a_claim_is_found_by_its_class_until_it_has_its_volume() -> None:
    store: Store[Claim] = Store(CLAIMS_BY)
    store.observe(a_claim(annotations={}))

    assert [each.name for each in store.keyed("class", "fast")] == ["data"]

    store.observe(with_volume(a_claim(), "pv-1"))

    assert store.keyed("class", "fast") == []
    assert [each.name for each in store.keyed("uid", UID)] == ["data"]
    assert store.keyed("source", "") == store.keyed("attributes_class", "") == []


@pytest.mark.parametrize(
    ("index", "value"),
    [
        ("class", "ebs"),
        ("attributes_class", "gold"),
        ("source", "PersistentVolumeClaim shop/old"),
    ],
)
def test_a_bound_claim_is_in_no_index_of_what_it_is_made_of(index: str, value: str) -> None:
    spec = ClaimSpec(
        storage_class_name="ebs",
        volume_attributes_class_name="gold",
        data_source=DataSource(kind="PersistentVolumeClaim", name="old"),
    )
    claim = Claim(metadata=ObjectMeta(name="data", namespace="shop"), spec=spec)
    bound = msgspec.structs.replace(
        claim,
        spec=msgspec.structs.replace(spec, volume_name="pvc-1"),
        status=ClaimStatus(phase="Bound"),
    )

    assert (list(CLAIMS_BY[index](claim)), list(CLAIMS_BY[index](bound))) == ([value], [])
