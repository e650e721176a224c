import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from provisioner.kube import events
from provisioner.kube.client import KubeClient
from provisioner.kube.events import EventRecorder, Regarding
from provisioner.metrics import Metrics
from provisioner.model.backoff import Backoff
from tests.kube.apiserver import ApiServer, Hang, echo, status

Eventually = Callable[[Callable[[], object]], Awaitable[None]]
EVENTS = "/api/v1/namespaces/web/events"
CLAIM = Regarding("PersistentVolumeClaim", "v1", "data", "web", "uid-1", "5")


@pytest.fixture
async def recorder(
    client: KubeClient, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[EventRecorder]:
    monkeypatch.setattr(events, "_RETRY", Backoff(0.001, 30.0))
    recorder = EventRecorder(
        client, "ebs.csi.aws.com_host_1", metrics, clock=lambda: 1_700_000_000.0
    )
    task = asyncio.create_task(recorder.run())
    yield recorder
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def dropped(metrics: Metrics) -> float | None:
    return metrics.registry.get_sample_value("ebs_provisioner_events_dropped_total")


def fail(recorder: EventRecorder, message: str = "no", about: Regarding = CLAIM) -> None:
    recorder.record(about, warning=True, reason="ProvisioningFailed", message=message)


async def test_writes_an_event_as_kubectl_describe_shows_it(
    recorder: EventRecorder, server: ApiServer
) -> None:
    server.on("POST", EVENTS, echo())
    fail(recorder, "no capacity in us-east-1a")
    flushed = await recorder.flush(3)

    body = server.requests[0].body
    assert flushed
    assert body.pop("metadata")["name"].startswith("data.")
    assert body == {
        "apiVersion": "v1",
        "kind": "Event",
        "involvedObject": {
            "kind": "PersistentVolumeClaim",
            "apiVersion": "v1",
            "namespace": "web",
            "name": "data",
            "uid": "uid-1",
            "resourceVersion": "5",
        },
        "reason": "ProvisioningFailed",
        "message": "no capacity in us-east-1a",
        "type": "Warning",
        "count": 1,
        "firstTimestamp": "2023-11-14T22:13:20Z",
        "lastTimestamp": "2023-11-14T22:13:20Z",
        "source": {"component": "ebs.csi.aws.com_host_1"},
        "reportingComponent": "ebs.csi.aws.com_host_1",
    }


async def test_an_event_names_the_stock_sidecar_that_would_have_written_it(
    recorder: EventRecorder, server: ApiServer
) -> None:
    server.on("POST", EVENTS, echo())
    for component in ("", "external-resizer ebs.csi.aws.com"):
        recorder.record(CLAIM, warning=False, reason="Resizing", message="x", component=component)
    await recorder.flush(3)

    assert {request.body["source"]["component"] for request in server.requests} == {
        "ebs.csi.aws.com_host_1",
        "external-resizer ebs.csi.aws.com",
    }


async def test_events_of_cluster_wide_objects_live_in_default(
    recorder: EventRecorder, server: ApiServer
) -> None:
    server.on("POST", "/api/v1/namespaces/default/events", echo())
    fail(recorder, about=Regarding("PersistentVolume", "v1", "x" * 253))
    await recorder.flush(3)

    body = server.requests[0].body
    assert "namespace" not in body["involvedObject"]
    assert len(body["metadata"]["name"]) <= 253


async def test_a_repeated_event_raises_the_count_of_the_first(
    recorder: EventRecorder, server: ApiServer
) -> None:
    server.on("POST", EVENTS, echo())
    fail(recorder)
    await recorder.flush(3)
    path = f"{EVENTS}/{server.requests[0].body['metadata']['name']}"
    server.on("PATCH", path, echo())
    fail(recorder)
    await recorder.flush(3)

    assert [(r.method, r.body["count"]) for r in server.requests] == [("POST", 1), ("PATCH", 2)]


async def test_an_event_that_expired_is_written_anew_with_its_count(
    recorder: EventRecorder, server: ApiServer
) -> None:
    server.on("POST", EVENTS, echo())
    fail(recorder)
    await recorder.flush(3)
    name = server.requests[0].body["metadata"]["name"]
    server.on("PATCH", f"{EVENTS}/{name}", status(404, "NotFound", name=name))
    fail(recorder)
    await recorder.flush(3)

    assert [(r.method, r.body["count"]) for r in server.requests][-1] == ("POST", 2)


async def test_what_is_repeated_while_it_is_written_follows_in_one_update(
    recorder: EventRecorder, server: ApiServer, eventually: Eventually
) -> None:
    hang = Hang(status(503, "ServiceUnavailable"))
    server.on("POST", EVENTS, hang, echo())
    fail(recorder)
    await hang.reached.wait()
    for _ in range(9):
        fail(recorder)
    hang.let_go.set()
    await recorder.flush(3)

    assert [(r.method, r.body["count"]) for r in server.requests] == [("POST", 1), ("POST", 10)]


async def test_an_event_that_is_refused_is_dropped_at_once(
    recorder: EventRecorder, server: ApiServer, metrics: Metrics
) -> None:
    server.on("POST", EVENTS, status(403, "Forbidden", "the namespace is being terminated"))
    fail(recorder)
    await recorder.flush(3)

    assert (len(server.requests), dropped(metrics)) == (1, 1)


async def test_an_event_whose_reply_was_lost_is_written_again_under_its_name(
    recorder: EventRecorder, server: ApiServer, metrics: Metrics
) -> None:
    server.on("POST", EVENTS, status(500, "InternalError"), echo())
    fail(recorder)
    await recorder.flush(3)

    first, second = (request.body["metadata"]["name"] for request in server.requests)
    assert first == second
    assert dropped(metrics) == 0


async def test_an_event_that_was_written_though_its_reply_was_lost_gets_the_count_of_later_ones(
    recorder: EventRecorder, server: ApiServer, metrics: Metrics
) -> None:
    hang = Hang(status(500, "InternalError"))
    server.on("POST", EVENTS, hang, status(409, "AlreadyExists"))
    fail(recorder)
    await hang.reached.wait()
    path = f"{EVENTS}/{server.requests[0].body['metadata']['name']}"
    server.on("PATCH", path, echo())
    fail(recorder)
    hang.let_go.set()
    await recorder.flush(3)

    asked = [(request.method, request.body["count"]) for request in server.requests]
    assert asked == [("POST", 1), ("POST", 2), ("PATCH", 2)]
    assert dropped(metrics) == 0


async def test_events_never_wait_for_the_server(
    recorder: EventRecorder, server: ApiServer, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "QUEUE_MAX", 10)
    hang = Hang()
    server.on("POST", EVENTS, hang)
    fail(recorder)
    await hang.reached.wait()
    for n in range(20):
        fail(recorder, about=Regarding("PersistentVolumeClaim", "v1", f"data-{n}", "web"))

    assert not await recorder.flush(0.01)
    assert dropped(metrics) == 10
    assert len(server.requests) <= events.WRITERS
