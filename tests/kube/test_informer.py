import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from provisioner.kube import informer as informer_module
from provisioner.kube.client import KubeClient
from provisioner.kube.informer import Informer
from provisioner.kube.resources import PERSISTENT_VOLUMES, Projection
from provisioner.metrics import Metrics
from provisioner.model.backoff import Backoff
from provisioner.model.meta import ObjectMeta
from provisioner.model.persistent_volume import PersistentVolume
from tests.kube.apiserver import ApiServer, Watch, listing, reset, status, text

PVS = "/api/v1/persistentvolumes"
Eventually = Callable[[Callable[[], object]], Awaitable[None]]


def a_pv(name: str, version: int, **more: object) -> dict[str, object]:
    return {"metadata": {"name": name, "resourceVersion": str(version)}, **more}


@asynccontextmanager
async def running(informer: Informer[PersistentVolume]) -> AsyncIterator[None]:
    task = asyncio.create_task(informer.run())
    async with asyncio.timeout(30):
        await informer.synced.wait()
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def informer(
    client: KubeClient, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> Informer[PersistentVolume]:
    monkeypatch.setattr(informer_module, "_BACKOFF", Backoff(0.002, 10.0))
    return Informer(
        client,
        PERSISTENT_VOLUMES,
        metrics,
        indexers={"policy": lambda pv: [pv.reclaim_policy]},
    )


def names(informer: Informer[PersistentVolume]) -> list[str]:
    return sorted(pv.name for pv in informer.values())


async def test_follows_a_list_with_a_watch(
    informer: Informer[PersistentVolume], server: ApiServer, eventually: Eventually
) -> None:
    server.on("GET", PVS, listing(a_pv("a", 3), version="5"))
    watch = Watch(
        ("ADDED", a_pv("b", 6, spec={"persistentVolumeReclaimPolicy": "Retain"})),
        ("DELETED", a_pv("a", 7)),
    )
    server.on("WATCH", PVS, watch)

    async with running(informer):
        await eventually(lambda: names(informer) == ["b"])

        assert [pv.name for pv in informer.keyed("policy", "Retain")] == ["b"]
    assert server.seen("WATCH")[0].query["resourceVersion"] == "5"


async def test_a_watch_that_the_server_closes_is_resumed_without_a_list(
    informer: Informer[PersistentVolume],
    server: ApiServer,
    metrics: Metrics,
    eventually: Eventually,
) -> None:
    server.on("GET", PVS, listing(version="5"))
    watches = [Watch(("ADDED", a_pv(f"pv-{n}", n))).end() for n in range(6, 16)]
    server.on("WATCH", PVS, *watches, Watch())

    async with running(informer):
        await eventually(lambda: len(names(informer)) == 10)
        await eventually(lambda: len(server.seen("WATCH")) == 11)

    assert [seen.query["resourceVersion"] for seen in server.seen("WATCH")] == [
        str(n) for n in range(5, 16)
    ]
    assert len(server.seen("GET")) == 1


async def test_a_bookmark_moves_the_point_to_resume_from(
    informer: Informer[PersistentVolume], server: ApiServer, eventually: Eventually
) -> None:
    server.on("GET", PVS, listing(version="5"))
    server.on(
        "WATCH", PVS, Watch(("BOOKMARK", {"metadata": {"resourceVersion": "80"}})).end(), Watch()
    )

    async with running(informer):
        await eventually(lambda: len(server.seen("WATCH")) == 2)

    assert server.seen("WATCH")[1].query["resourceVersion"] == "80"


@pytest.mark.parametrize(
    "gone",
    [status(410, "Expired"), Watch(("ERROR", {"kind": "Status", "code": 410}))],
    ids=["at once", "in the stream"],
)
async def test_a_watch_too_far_behind_lists_again_and_tells_the_difference(
    informer: Informer[PersistentVolume], server: ApiServer, gone: Watch, eventually: Eventually
) -> None:
    server.on(
        "GET",
        PVS,
        listing(a_pv("a", 3), a_pv("b", 4), version="5"),
        listing(a_pv("b", 9), version="10"),
    )
    server.on("WATCH", PVS, gone, Watch())
    told: list[tuple[bool, bool]] = []

    async with running(informer):
        informer.subscribe(lambda old, new: told.append((old is not None, new is not None)))
        told.clear()
        await eventually(lambda: len(server.seen("WATCH")) == 2)

    assert names(informer) == ["b"]
    assert told == [(True, False), (True, True)]
    assert server.seen("WATCH")[1].query["resourceVersion"] == "10"


async def test_what_a_new_list_shows_unchanged_is_not_held_twice_while_it_is_read(
    informer: Informer[PersistentVolume],
    server: ApiServer,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 100,000 volumes it would be a hundred MiB, whenever the API server restarts."""
    changed = a_pv("c", 9, spec={"persistentVolumeReclaimPolicy": "Retain"})
    server.on(
        "GET",
        PVS,
        listing(a_pv("a", 3), a_pv("b", 4), a_pv("c", 5), version="5"),
        listing(a_pv("a", 3), a_pv("b", 4), changed, version="10"),
    )
    server.on("WATCH", PVS, status(410, "Expired"), Watch())
    lists: list[list[PersistentVolume]] = []
    read = KubeClient.list

    async def noted(self: KubeClient, *args: Any, **more: Any) -> Any:
        found = await read(self, *args, **more)
        lists.append(found.items)
        return found

    monkeypatch.setattr(KubeClient, "list", noted)
    async with running(informer):
        await eventually(lambda: len(lists) == 2)
        await eventually(lambda: informer.get("c") == lists[1][2])

    (a, b, c), (new_a, new_b, new_c) = lists
    assert (new_a is a, new_b is b, new_c is c) == (True, True, False)


async def test_one_of_the_same_version_that_differs_is_taken(
    informer: Informer[PersistentVolume], server: ApiServer, eventually: Eventually
) -> None:
    """As etcd may show after it was restored from a backup."""
    other = a_pv("a", 3, spec={"persistentVolumeReclaimPolicy": "Retain"})
    server.on("GET", PVS, listing(a_pv("a", 3), version="5"), listing(other, version="10"))
    server.on("WATCH", PVS, status(410, "Expired"), Watch())

    async with running(informer):
        await eventually(lambda: informer.keyed("policy", "Retain"))


async def test_errors_are_outlived_without_a_new_list(
    informer: Informer[PersistentVolume], server: ApiServer, eventually: Eventually
) -> None:
    server.on(
        "GET", PVS, reset(), text("<html>", 503), status(403, "Forbidden"), listing(version="5")
    )
    errors = [
        reset(),
        status(500, "InternalError"),
        status(429, "TooManyRequests"),
        text("{", 200),
        text("[]\n", 200),
    ]
    server.on("WATCH", PVS, *errors, Watch(("ADDED", a_pv("a", 6))))

    async with running(informer):
        await eventually(lambda: names(informer) == ["a"])

    lists = [each for each in server.seen("GET") if each.query["limit"] != "1"]
    assert len(lists) == 4


async def test_a_server_that_closes_empty_watches_is_not_asked_in_a_tight_loop(
    informer: Informer[PersistentVolume], server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(informer_module, "_BACKOFF", Backoff(0.02, 10.0))
    server.on("GET", PVS, listing(version="5"))
    server.on("WATCH", PVS, text("", 200))

    async with running(informer):
        await asyncio.sleep(0.1)

    assert 1 <= len(server.seen("WATCH")) <= 5


async def test_an_odd_object_in_the_watch_is_counted_and_passed_over(
    informer: Informer[PersistentVolume],
    server: ApiServer,
    metrics: Metrics,
    eventually: Eventually,
) -> None:
    server.on("GET", PVS, listing(a_pv("a", 3), version="5"))
    watch = Watch(("MODIFIED", a_pv("a", 6, spec=[])), ("ADDED", a_pv("odd", 7, spec=[])))
    server.on(
        "WATCH",
        PVS,
        watch.end(),
        Watch(("DELETED", a_pv("a", 8, spec=[])), ("ADDED", a_pv("b", 9))),
    )

    async with running(informer):
        await eventually(lambda: len(server.seen("WATCH")) == 2)
        await eventually(lambda: names(informer) == ["b"])

    assert server.seen("WATCH")[1].query["resourceVersion"] == "7"
    assert (
        metrics.registry.get_sample_value(
            "ebs_provisioner_unreadable_objects_total", {"kind": "PersistentVolume"}
        )
        == 3
    )


async def test_an_own_write_is_there_at_once(
    informer: Informer[PersistentVolume], client: KubeClient, server: ApiServer
) -> None:
    server.on("GET", PVS, listing(version="5"))
    server.on("WATCH", PVS, Watch())
    server.on("GET", f"{PVS}/a", listing())

    async with running(informer):
        informer.observe(PersistentVolume(metadata=_meta("a", "6")))

        assert names(informer) == ["a"]


def _meta(name: str, version: str) -> ObjectMeta:
    return ObjectMeta(name=name, resource_version=version)


def without_spec(pv: PersistentVolume) -> PersistentVolume | None:
    """A projection: of what is to be retained, only that it is there; nothing of all others."""
    if pv.reclaim_policy != "Retain":
        return None
    return PersistentVolume(metadata=_meta(pv.name, pv.metadata.resource_version))


def retained(name: str, version: int, policy: str = "Retain") -> dict[str, object]:
    return a_pv(name, version, spec={"persistentVolumeReclaimPolicy": policy})


async def test_a_projection_keeps_less_of_an_object_or_nothing(
    client: KubeClient, metrics: Metrics, server: ApiServer, eventually: Eventually
) -> None:
    informer = Informer(client, Projection(PERSISTENT_VOLUMES, without_spec), metrics)
    server.on("GET", PVS, listing(retained("a", 3), retained("b", 4, "Delete"), version="5"))
    watch = Watch()
    server.on("WATCH", PVS, watch)

    async with running(informer):
        assert names(informer) == ["a"]
        watch.send("ADDED", retained("c", 6))
        watch.send("ADDED", retained("d", 7, "Delete"))
        await eventually(lambda: names(informer) == ["a", "c"])
        assert {pv.reclaim_policy for pv in informer.values()} == {""}

        watch.send("MODIFIED", retained("a", 8, "Delete"))
        watch.send("DELETED", retained("c", 9))
        await eventually(lambda: names(informer) == [])


async def test_a_new_list_drops_what_a_projection_keeps_no_longer(
    client: KubeClient, metrics: Metrics, server: ApiServer, eventually: Eventually
) -> None:
    informer = Informer(client, Projection(PERSISTENT_VOLUMES, without_spec), metrics)
    server.on(
        "GET",
        PVS,
        listing(retained("a", 3), retained("b", 4), version="5"),
        listing(retained("a", 8, "Delete"), retained("b", 4), version="9"),
    )
    server.on("WATCH", PVS, status(410, "Expired"), Watch())

    async with running(informer):
        await eventually(lambda: names(informer) == ["b"])


async def test_follows_one_object_by_its_name(
    client: KubeClient, metrics: Metrics, server: ApiServer, eventually: Eventually
) -> None:
    selector = "metadata.name=a"
    informer = Informer(client, PERSISTENT_VOLUMES, metrics, field_selector=selector)
    server.on("GET", PVS, listing(a_pv("a", 3), version="5"))
    server.on("WATCH", PVS, Watch(("MODIFIED", a_pv("a", 6))))

    async with running(informer):
        await eventually(
            lambda: [pv.metadata.resource_version for pv in informer.values()] == ["6"]
        )

    queries = [seen.query for seen in server.requests]
    assert [query["fieldSelector"] for query in queries] == [selector, selector]
