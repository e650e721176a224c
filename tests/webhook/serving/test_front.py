"""What the front answers over real TLS connections: to reviews, and to what is none."""

import asyncio
from contextlib import suppress

import aiohttp
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from provisioner.model.errors import StorageError
from tests.webhook.front_world import (
    BODY,
    PODS,
    VOLUMES,
    World,
    contexts,
    fine,
    raw,
    read_answer,
    review,
    until,
    world,
)
from webhook.metrics import WebhookMetrics
from webhook.model.review import Answer, Request, allow
from webhook.serving.dispatch import Dispatcher
from webhook.serving.server import Front, Limits

QUICK = Limits(body_s=0.05, idle_s=0.05)


async def test_answers_a_review_with_its_uid():
    async with world() as it:
        status, body = await it.post(review(uid="0b5c"))

        assert status == 200
        assert msgspec.json.decode(body) == {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "response": {"uid": "0b5c", "allowed": True},
        }
        assert it.counted("reviews_total", path=PODS, outcome="allowed", reason="Fine") == 1.0
        assert it.counted("review_seconds_count", path=PODS) == 1.0


async def test_answers_one_review_after_another_on_one_connection():
    async with world() as it, it.wire() as (reader, writer):
        for _ in range(3):
            writer.write(raw(BODY))
            assert (await read_answer(reader)).status == 200

        assert it.counted("connections") == 1.0


@pytest.mark.parametrize(("query", "budget_s"), [("timeout=2s", 2), ("timeout=x", 10), ("", 10)])
async def test_a_handler_has_the_time_that_the_api_server_gives(query, budget_s):
    left_s = []

    async def remember(_: Request, deadline: float) -> Answer:
        left_s.append(deadline - asyncio.get_running_loop().time())
        return allow("Fine")

    async with world(remember) as it:
        status, _ = await it.post(BODY, url=f"https://127.0.0.1:{it.front.port}{PODS}?{query}")

    assert status == 200
    assert budget_s * 0.5 < left_s[0] < budget_s


async def test_a_handler_without_end_is_answered_for_in_time():
    async def hangs(_: Request, __: float) -> Answer:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    async with world(hangs) as it, asyncio.timeout(8):
        status, body = await it.post(BODY, url=it.url(timeout="100ms"))

        assert status == 200
        assert msgspec.json.decode(body)["response"]["allowed"]


async def test_who_leaves_before_the_answer_cancels_the_work():
    begun, over = asyncio.Event(), asyncio.Event()

    async def waits(_: Request, __: float) -> Answer:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            over.set()
        raise AssertionError("unreachable")

    async with world(handlers={PODS: waits, VOLUMES: fine}) as it, asyncio.timeout(30):
        async with it.wire() as (_, writer):
            writer.write(raw(BODY))
            await begun.wait()
            assert it.counted("reviews_in_flight") == 1.0
        await over.wait()
        await until(lambda: it.counted("reviews_in_flight") == 0.0)

        assert (await it.ask(review("persistentvolumes"), VOLUMES))["allowed"]


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"path": "/"}, 404),
        ({"path": "/validate/jobs"}, 404),
        ({"path": f"{PODS}/"}, 404),
        ({"path": "/%76alidate/pods"}, 404),
        ({"path": "//[x"}, 404),
        ({"path": f"https://it{PODS}"}, 200),
        ({"content_type": "text/plain"}, 415),
        ({"content_type": "application/json; charset=utf-8"}, 200),
        ({"content_type": "Application/JSON"}, 200),
        ({"content_type": ""}, 415),
        ({"content_encoding": "gzip"}, 415),
        ({"content_encoding": "identity"}, 200),
        ({"content_encoding": "identity, br"}, 415),
        ({"content_encoding": "identity\r\nContent-Encoding: gzip"}, 415),
        ({"connection": "upgrade", "upgrade": "websocket"}, 400),
        ({"content_length": "-1"}, 400),
        ({"content_length": "9, 9"}, 400),
        ({"transfer_encoding": "chunked"}, 400),
        ({"x_long": "x" * 10_000}, 400),
        ({"path": "a b c"}, 400),
    ],
)
async def test_what_is_no_call_of_a_webhook_is_refused(options, status):
    async with world() as it, it.wire() as (reader, writer):
        writer.write(raw(BODY, **options))
        answer = await read_answer(reader)

        assert answer.status == status
        assert answer.body.strip()


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"])
async def test_only_post_is_allowed(method):
    async with world() as it, it.wire() as (reader, writer):
        writer.write(raw(BODY).replace(b"POST", method.encode(), 1))
        head = await reader.readuntil(b"\r\n\r\n")

    assert head.startswith(b"HTTP/1.1 405 ")
    assert b"\r\nAllow: POST\r\n" in head


async def test_a_mistake_in_the_front_itself_is_an_answer_with_a_body(monkeypatch):
    async with world() as it:

        async def breaks(*_: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(it.front._dispatcher, "answer", breaks)
        status, body = await it.post(BODY)

    assert status == 500
    assert body == b"the webhook failed; its log says why\n"


async def test_of_a_path_that_breaks_the_front_the_log_shows_the_beginning(monkeypatch):
    def breaks(_: str) -> bool:
        raise ZeroDivisionError

    async with world() as it:
        monkeypatch.setattr(it.front._dispatcher, "knows", breaks)
        with capture_logs() as logs:
            status, _ = await it.post(BODY, url=it.url(f"/{'x' * 5000}"))

    assert status == 500
    assert [line["path"] for line in logs] == [f"/{'x' * 127}"]


@pytest.mark.parametrize("address", ["", "8080", "here:", ":70000"])
async def test_a_malformed_address_is_named(address):
    metrics = WebhookMetrics()
    dispatcher = Dispatcher({}, strict=False, metrics=metrics)
    front = Front(dispatcher, contexts().server, listen=address, metrics=metrics)

    with pytest.raises(StorageError, match=f'"{address}" is no address'):
        await front.__aenter__()


async def test_listens_on_all_interfaces_for_an_address_without_host():
    async with world(listen=":0") as it:
        assert (await it.ask(review()))["allowed"]


@pytest.mark.parametrize("host", ["127.0.0.1", ""])
async def test_an_address_in_use_is_one_clear_line(host):
    async with world(listen=f"{host}:0") as it:
        metrics = WebhookMetrics()
        dispatcher = Dispatcher({}, strict=False, metrics=metrics)
        address = f"{host}:{it.front.port}"
        second = Front(dispatcher, contexts().server, listen=address, metrics=metrics)

        with pytest.raises(StorageError, match=f"cannot serve the webhook on {address}: "):
            await second.__aenter__()


async def answers_again(it: World) -> bool:
    """Ask until it answers: on a machine that stalls, ``QUICK`` may cut a good review off too."""
    async with asyncio.timeout(10):
        while True:
            with suppress(aiohttp.ClientError):
                status, _ = await it.post(BODY)
                if status != 408:
                    return status == 200


CUTS = st.integers(1, len(raw(BODY)) - 1).map(lambda end: raw(BODY)[:end])


@given(noise=st.binary(min_size=1, max_size=100) | CUTS)
@settings(max_examples=40)
def test_any_bytes_on_a_connection_are_answered_or_cut_off(noise):
    async def scenario() -> None:
        async with world(limits=QUICK) as it, it.wire() as (reader, writer):
            writer.write(noise)
            while not reader.at_eof():
                try:
                    answer = await read_answer(reader)
                except asyncio.IncompleteReadError as end:
                    assert end.partial == b""  # noqa: PT017 -- no half answer
                    break
                except ConnectionError:
                    break
                assert answer.status in {400, 404, 405, 408, 415}
            assert await answers_again(it)

    asyncio.run(scenario())
