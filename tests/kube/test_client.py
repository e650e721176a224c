import asyncio
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any, ClassVar, cast

import aiohttp
import msgspec
import pytest

from provisioner.kube import client as client_module
from provisioner.kube import wire
from provisioner.kube.client import KubeClient, Patch
from provisioner.kube.resources import ATTACHMENTS, CLAIMS, PERSISTENT_VOLUMES, key_of
from provisioner.model.errors import KubeError, Outcome, Reason
from tests.kube.apiserver import (
    ApiServer,
    Hang,
    Reply,
    Watch,
    document,
    echo,
    listing,
    reset,
    status,
    text,
)

PVS = "/api/v1/persistentvolumes"
PV = f"{PVS}/pv-1"


def an_object(name: str, version: str = "1", **more: object) -> dict[str, object]:
    return {"metadata": {"name": name, "resourceVersion": version}, **more}


async def test_reads_one_object(client: KubeClient, server: ApiServer) -> None:
    server.on(
        "GET",
        "/api/v1/namespaces/web/persistentvolumeclaims/data",
        document({"metadata": {"name": "data", "namespace": "web"}}),
    )

    claim = await client.get(CLAIMS, "data", "web")

    assert key_of(claim) == "web/data"
    assert server.requests[0].headers["Authorization"] == "Bearer first"


@pytest.mark.parametrize("name", ["data#x", "data?watch=true", "a b", "dätä", "data;x"])
async def test_a_name_is_one_part_of_the_path(client: KubeClient, server: ApiServer, name: str):
    with pytest.raises(KubeError):
        await client.get(CLAIMS, name, "web")

    assert [(each.path, each.query) for each in server.requests] == [
        (f"/api/v1/namespaces/web/persistentvolumeclaims/{name}", {})
    ]


@pytest.mark.parametrize("name", [".", "..", "../secrets/db", "a/status", "%2e%2e"])
async def test_nothing_is_asked_about_a_name_that_no_object_can_have(
    client: KubeClient, server: ApiServer, name: str
):
    with pytest.raises(KubeError, match="no object can have this name") as refused:
        await client.get(CLAIMS, name, "web")

    assert refused.value.reason is Reason.OBJECT_NOT_FOUND
    assert server.requests == []


async def test_lists_page_by_page(
    client: KubeClient, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "PAGE_SIZE", 2)
    server.on(
        "GET",
        PVS,
        listing(an_object("a"), an_object("b"), version="7", token="more"),
        listing(an_object("c"), version="7"),
    )

    found = await client.list(PERSISTENT_VOLUMES)

    assert [pv.name for pv in found.items] == ["a", "b", "c"]
    assert (found.resource_version, found.unreadable) == ("7", 0)
    pages = [{"limit": "2"}, {"limit": "2", "continue": "more"}]
    assert [seen.query for seen in server.requests] == pages
    assert found.is_all


def test_a_page_is_decoded_in_slices_that_leave_nothing_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wire, "_SLICE", 2)
    reader = wire.PageReader(PERSISTENT_VOLUMES)
    names = ("a", "b", "c", "d", "e")
    page = msgspec.json.encode({"items": [an_object(name) for name in names]})

    slices = list(reader.reading(page))

    assert len(slices) == len(names) // 2
    assert [pv.name for pv in reader.listing().items] == list(names)


class Page(bytes):
    """A page that tells when it is gone."""

    living: ClassVar[int] = 0

    def __init__(self, *_: object) -> None:
        Page.living += 1

    def __del__(self) -> None:
        Page.living -= 1


async def test_one_page_is_held_at_a_time(client: KubeClient) -> None:
    living: list[int] = []

    async def send(*_: Any, query: dict[str, str], **__: Any) -> bytes:
        living.append(Page.living)
        more = "" if len(living) == 3 else "more"
        meta = {"resourceVersion": "7", "continue": more}
        return Page(msgspec.json.encode({"metadata": meta, "items": [an_object("a")]}))

    cast("Any", client)._send = send
    await client.list(PERSISTENT_VOLUMES)

    assert living == [0, 0, 0]


async def test_the_first_objects_only_are_no_whole_list(
    client: KubeClient, server: ApiServer
) -> None:
    server.on(
        "GET",
        PVS,
        listing(an_object("a"), version="7", token="more"),
        listing(an_object("a"), version="8"),
    )

    first = await client.list(PERSISTENT_VOLUMES, most=1)
    only = await client.list(PERSISTENT_VOLUMES, most=1)

    assert (first.is_all, only.is_all) == (False, True)
    assert [seen.query for seen in server.requests] == [{"limit": "1"}] * 2


async def test_an_odd_object_is_named_and_does_not_fail_the_list(
    client: KubeClient, server: ApiServer
) -> None:
    server.on("GET", PVS, listing(an_object("odd", spec=[1]), an_object("even")))

    found = await client.list(PERSISTENT_VOLUMES)

    assert [pv.name for pv in found.items] == ["even"]
    assert found.unreadable_keys == ("odd",)


async def test_items_that_are_null_are_an_empty_list(client: KubeClient, server: ApiServer) -> None:
    server.on("GET", PVS, document({"metadata": {"resourceVersion": "3"}, "items": None}))

    assert (await client.list(PERSISTENT_VOLUMES)).items == []


async def test_creates_an_object(client: KubeClient, server: ApiServer) -> None:
    server.on("POST", PVS, echo())
    body = {"metadata": {"name": "pv-1"}, "spec": {"persistentVolumeReclaimPolicy": "Retain ü"}}

    created = await client.create(PERSISTENT_VOLUMES, body)

    assert created.reclaim_policy == "Retain ü"
    assert server.requests[0].body == body


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (Patch.MERGE, {"status": {"attached": True}}),
        (Patch.STRATEGIC, {"status": {"attached": True}}),
    ],
)
async def test_each_kind_of_patch_has_its_content_type(
    client: KubeClient, server: ApiServer, kind: Patch, body: dict[str, object]
) -> None:
    path = "/apis/storage.k8s.io/v1/volumeattachments/csi-1/status"
    server.on("PATCH", path, document({"status": {"attached": True}}))

    changed = await client.patch(ATTACHMENTS, "csi-1", body, kind=kind, subresource="status")

    assert changed.attached
    assert server.requests[0].headers["Content-Type"] == kind.value
    assert server.requests[0].body == body


async def test_an_applied_patch_names_who_owns_its_fields(
    client: KubeClient, server: ApiServer
) -> None:
    server.on("PATCH", PV, document(an_object("pv-1")))
    body = {"metadata": {"name": "pv-1", "labels": {"a": "ü"}}}

    await client.patch(PERSISTENT_VOLUMES, "pv-1", body, kind=Patch.APPLY, manager="me")

    (request,) = server.requests
    assert request.headers["Content-Type"] == "application/apply-patch+yaml"
    assert request.query == {"fieldManager": "me", "force": "true"}
    assert request.body == body


async def test_one_object_by_name_is_listed_and_watched(
    client: KubeClient, server: ApiServer
) -> None:
    server.on("GET", PVS, listing(an_object("pv-1"), token="more"), listing())
    server.on("WATCH", PVS, Watch(("ADDED", an_object("pv-1"))).end())
    selector = "metadata.name=pv-1"

    await client.list(PERSISTENT_VOLUMES, field_selector=selector)
    watch = client.watch(
        PERSISTENT_VOLUMES, resource_version="1", timeout_s=9, field_selector=selector
    )
    async with aclosing(watch) as lines:
        assert [line.type async for line in lines] == ["ADDED"]

    assert [seen.query.get("fieldSelector") for seen in server.requests] == [selector] * 3


async def test_a_delete_names_the_object_it_means(client: KubeClient, server: ApiServer) -> None:
    server.on(
        "DELETE",
        PV,
        document({"metadata": {"name": "pv-1", "deletionTimestamp": "2026-01-01T00:00:00Z"}}),
    )

    kept = await client.delete(PERSISTENT_VOLUMES, "pv-1", uid="u-1")

    assert kept is not None
    assert kept.deleting
    assert server.requests[0].body == {"preconditions": {"uid": "u-1"}}


async def test_a_delete_that_is_complete_gives_nothing(
    client: KubeClient, server: ApiServer
) -> None:
    server.on("DELETE", PV, document({"kind": "Status", "status": "Success"}))

    assert await client.delete(PERSISTENT_VOLUMES, "pv-1") is None


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (status(404, "NotFound", name="pv-1"), (Reason.OBJECT_NOT_FOUND, Outcome.NOTHING, None)),
        # Neither of these says that the object is gone.
        (status(404, "NotFound"), (Reason.REJECTED, Outcome.NOTHING, None)),
        (text("404 page not found", 404), (Reason.REJECTED, Outcome.NOTHING, None)),
        (status(409, "Conflict"), (Reason.CONFLICT, Outcome.NOTHING, None)),
        (status(409, "AlreadyExists"), (Reason.OBJECT_EXISTS, Outcome.NOTHING, None)),
        (status(403, "Forbidden"), (Reason.FORBIDDEN, Outcome.NOTHING, None)),
        (status(410, "Expired"), (Reason.EXPIRED, Outcome.NOTHING, None)),
        (status(422, "Invalid"), (Reason.REJECTED, Outcome.NOTHING, None)),
        (
            status(429, "TooManyRequests", headers={"Retry-After": "7"}),
            (Reason.THROTTLED, Outcome.NOTHING, 7.0),
        ),
        (status(500, "InternalError"), (Reason.REPLY_LOST, Outcome.UNKNOWN, None)),
        (text("<html>bad gateway", 502), (Reason.UNREACHABLE, Outcome.UNKNOWN, None)),
        (status(504, "Timeout"), (Reason.TIMED_OUT, Outcome.UNKNOWN, None)),
        (reset(), (Reason.REPLY_LOST, Outcome.UNKNOWN, None)),
        (text("<html>welcome", 200), (Reason.UNREADABLE, Outcome.UNKNOWN, None)),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
async def test_translates_what_a_write_is_answered(
    client: KubeClient,
    server: ApiServer,
    reply: Reply,
    expected: tuple[Reason, Outcome, float | None],
) -> None:
    server.on("POST", PVS, reply)

    with pytest.raises(KubeError) as caught:
        await client.create(PERSISTENT_VOLUMES, {"metadata": {"name": "pv-1"}})

    found = (caught.value.reason, caught.value.outcome, caught.value.retry_after_s)
    assert found == expected
    assert "pv-1" in caught.value.message or caught.value.reason is Reason.UNREADABLE


async def test_a_failed_read_has_changed_nothing(client: KubeClient, server: ApiServer) -> None:
    server.on("GET", PV, status(504, "Timeout"))

    with pytest.raises(KubeError) as caught:
        await client.get(PERSISTENT_VOLUMES, "pv-1")

    assert caught.value.outcome is Outcome.NOTHING


async def test_a_refusal_names_the_missing_right(client: KubeClient, server: ApiServer) -> None:
    server.on("PATCH", f"{PV}/status", status(403, "Forbidden", "you may not"))

    with pytest.raises(
        KubeError, match=r'you may not .needs the verb "patch" on persistentvolumes/status'
    ):
        await client.patch(PERSISTENT_VOLUMES, "pv-1", {}, kind=Patch.MERGE, subresource="status")


async def test_a_server_that_is_not_there_did_nothing(
    point_at: Callable[[str], None], kubeconfig: Path, unused_tcp_port: int
) -> None:
    point_at(f"http://127.0.0.1:{unused_tcp_port}")
    async with await KubeClient.connect(kubeconfig=str(kubeconfig)) as client:
        with pytest.raises(KubeError) as caught:
            await client.create(PERSISTENT_VOLUMES, {"metadata": {"name": "pv-1"}})

    assert (caught.value.reason, caught.value.outcome) == (Reason.UNREACHABLE, Outcome.NOTHING)


async def test_a_hung_write_may_have_happened(
    client: KubeClient, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "REQUEST_TIMEOUT", aiohttp.ClientTimeout(total=0.05))
    server.on("POST", PVS, Hang())

    with pytest.raises(KubeError) as caught:
        await client.create(PERSISTENT_VOLUMES, {"metadata": {"name": "pv-1"}})

    assert (caught.value.reason, caught.value.outcome) == (Reason.TIMED_OUT, Outcome.UNKNOWN)


async def test_no_more_requests_than_allowed_are_under_way(
    kubeconfig: Path, server: ApiServer
) -> None:
    hang = Hang(document({}))
    server.on("GET", PV, hang)
    async with (
        await KubeClient.connect(kubeconfig=str(kubeconfig), concurrency=2) as client,
        asyncio.TaskGroup() as group,
    ):
        for _ in range(5):
            group.create_task(client.get(PERSISTENT_VOLUMES, "pv-1"))
        await hang.reached.wait()
        # A watch is no request that could keep others waiting.
        watch = Watch().end()
        server.on("WATCH", PVS, watch)
        async with aclosing(
            client.watch(PERSISTENT_VOLUMES, resource_version="1", timeout_s=9)
        ) as lines:
            assert [line async for line in lines] == []
        under_way = len(server.seen("GET"))
        hang.let_go.set()

    assert (under_way, len(server.seen("GET"))) == (2, 5)


async def test_what_has_time_keeps_few_requests_under_way_and_others_do_not_wait_for_it(
    client: KubeClient, server: ApiServer
):
    hang = Hang(document({}))
    server.on("PATCH", PV, hang)
    server.on("GET", PV, document({}))
    narrow = client.narrowed(2)
    async with asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(narrow.patch(PERSISTENT_VOLUMES, "pv-1", {}, kind=Patch.MERGE))
        await hang.reached.wait()
        await client.get(PERSISTENT_VOLUMES, "pv-1")
        under_way = len(server.seen("PATCH"))
        hang.let_go.set()

    assert (under_way, len(server.seen("PATCH"))) == (2, 5)


async def test_what_creates_or_deletes_does_not_wait_for_what_has_time(
    client: KubeClient, server: ApiServer
):
    hang, path = Hang(document({})), "/api/v1/persistentvolumes"
    server.on("PATCH", PV, hang)
    server.on("POST", path, document({"metadata": {"name": "pv-1"}}))
    server.on("DELETE", PV, document({}))
    narrow = client.narrowed(1)
    async with asyncio.TaskGroup() as group:
        group.create_task(narrow.patch(PERSISTENT_VOLUMES, "pv-1", {}, kind=Patch.MERGE))
        await hang.reached.wait()
        await narrow.create(PERSISTENT_VOLUMES, {"metadata": {"name": "pv-1"}})
        await narrow.delete(PERSISTENT_VOLUMES, "pv-1", uid="u")
        tried = group.create_task(
            narrow.create(PERSISTENT_VOLUMES, {"metadata": {"name": "pv-1"}}, dry_run=True)
        )
        await asyncio.sleep(0.05)
        created = len(server.seen("POST"))
        hang.let_go.set()
        await tried

    assert (created, len(server.seen("POST"))) == (1, 2)


async def test_what_has_time_reads_once_what_it_is_asked_often(
    client: KubeClient, server: ApiServer
):
    hang = Hang(document({"metadata": {"name": "pv-1"}}))
    server.on("GET", PV, hang)
    narrow = client.narrowed(2)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(narrow.get(PERSISTENT_VOLUMES, "pv-1"))
        await hang.reached.wait()
        later = [
            group.create_task(narrow.get(PERSISTENT_VOLUMES, "pv-1"), name=str(number))
            for number in range(5)
        ]
        await asyncio.sleep(0)
        hang.let_go.set()

    assert {(await each).name for each in (first, *later)} == {"pv-1"}
    assert len(server.seen("GET")) == 2


async def test_tells_what_the_server_has(client: KubeClient, server: ApiServer) -> None:
    def groups(name: str, plural: str) -> Reply:
        versions = [{"version": "v1", "resources": [{"resource": plural}]}]
        items = [{"metadata": {"name": name} if name else {}, "versions": versions}]
        return document({"kind": "APIGroupDiscoveryList", "items": items})

    server.on("GET", "/api", groups("", "persistentvolumes"))
    server.on("GET", "/apis", groups("storage.k8s.io", "csinodes"))

    served = await client.served()

    assert served == {("v1", "persistentvolumes"), ("storage.k8s.io/v1", "csinodes")}


async def test_an_answer_that_is_no_discovery_switches_nothing_off(
    client: KubeClient, server: ApiServer
) -> None:
    server.on("GET", "/api", document({"kind": "APIVersions"}))

    with pytest.raises(KubeError, match="aggregated discovery"):
        await client.served()
