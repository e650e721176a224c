"""Bodies of any size, sent in any way, whole or not."""

import asyncio

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.webhook.front_world import BODY, PODS, raw, read_answer, review, until, world
from webhook.intake import Limits

MIB = 1 << 20
QUICK = Limits(read_s=0.05)


def large(size: int) -> bytes:
    """A review of this many bytes."""
    body = msgspec.json.encode(review(object={"data": ""}))
    return body.replace(b'"data":""', b'"data":"' + b"x" * (size - len(body)) + b'"')


async def test_a_body_of_7_mib_is_read():
    async with world() as it:
        assert (await it.post(large(7 * MIB)))[0] == 200


async def test_a_body_of_9_mib_is_refused_before_it_is_sent():
    async with world() as it, it.wire() as (reader, writer):
        writer.write(raw(b"", content_length=str(9 * MIB)))
        answer = await read_answer(reader)

    assert answer.status == 413
    assert answer.body == b"the body has more than 8388608 bytes\n"


async def test_who_sends_9_mib_at_once_is_told_too():
    async with world() as it:
        assert (await it.post(large(9 * MIB)))[0] == 413
        assert it.counted("refused_requests_total", status="413") == 1.0


async def test_a_body_in_chunks_is_read():
    async with world() as it:
        assert (await it.post(BODY, chunked=True))[0] == 200


async def test_chunks_of_9_mib_are_refused_while_they_come():
    async with world() as it:
        assert (await it.post(large(9 * MIB), chunked=True))[0] == 413


async def test_a_body_that_stops_half_way_ends():
    async with world(limits=QUICK) as it, it.wire() as (reader, writer):
        writer.write(raw(BODY)[:-10])
        answer = await read_answer(reader)
        rest = await reader.read()

    assert (answer.status, rest) == (408, b"")
    assert answer.headers["connection"] == "close"


async def test_a_body_that_only_drips_ends_with_the_budget():
    async with world() as it, it.wire() as (reader, writer):
        writer.write(raw(b"", path=f"{PODS}?timeout=100ms", content_length="100000"))
        answering = asyncio.create_task(read_answer(reader))
        while not answering.done():
            writer.write(b" ")
            await asyncio.wait([answering], timeout=0.01)

    assert (await answering).status == 408


async def test_all_bodies_together_have_a_limit():
    limits = Limits(bodies=len(BODY) + 10)
    async with world(limits=limits) as it, it.wire() as (reader, writer):
        writer.write(raw(BODY)[:-10])
        await until(lambda: it.front._bodies._held)
        refused, _ = await it.post(BODY)
        writer.write(BODY[-10:])
        first = await read_answer(reader)
        later, _ = await it.post(BODY)

        assert (refused, first.status, later) == (503, 200, 200)


async def test_who_leaves_within_a_body_holds_nothing():
    async with world() as it:
        for _ in range(3):
            async with it.wire() as (_, writer):
                writer.write(raw(BODY)[:-10])
                await until(lambda: it.front._bodies._held)
            await until(lambda: not it.front._bodies._held)

        assert it.counted("connections") == 0.0


async def test_who_asks_before_sending_is_told_to():
    async with world() as it, it.wire() as (reader, writer):
        writer.write(raw(b"", expect="100-continue", content_length=str(len(BODY))))
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(BODY)

        assert (await read_answer(reader)).status == 200


@pytest.mark.parametrize("chunk", [b"zz\r\n", b"-1\r\nx\r\n", b"5\r\nabcdefgh\r\n"])
async def test_a_broken_chunk_is_a_broken_request(chunk):
    async with world(limits=QUICK) as it, it.wire() as (reader, writer):
        head = raw(b"", transfer_encoding="chunked").replace(b"content-length: 0\r\n", b"")
        writer.write(head + chunk)

        assert (await read_answer(reader)).status == 400


@given(body=st.binary(max_size=200) | st.builds(lambda text: text.encode(), st.text()))
@settings(max_examples=40)
def test_any_body_gets_a_complete_answer(body):
    async def scenario() -> None:
        async with world() as it, it.wire() as (reader, writer):
            writer.write(raw(body))
            answer = await read_answer(reader)
            assert answer.status in {200, 400}
            writer.write(raw(BODY))
            assert (await read_answer(reader)).status == 200

    asyncio.run(scenario())
