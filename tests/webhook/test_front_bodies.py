"""Bodies of any size, sent in any way, whole or not."""

import asyncio

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.webhook.front_world import (
    BODY,
    PODS,
    Gate,
    World,
    asked,
    later,
    raw,
    read_answer,
    review,
    until,
    world,
)
from webhook.intake import Limits

Wire = tuple[asyncio.StreamReader, asyncio.StreamWriter]

MIB = 1 << 20
KIB = 1 << 10


def large(size: int) -> bytes:
    """A review of this many bytes."""
    body = msgspec.json.encode(review(object={"data": ""}))
    return body.replace(b'"data":""', b'"data":"' + b"x" * (size - len(body)) + b'"')


async def sent(it: World, wire: Wire, body: bytes, *, but: int) -> None:
    """Send a body without its end, and wait until that has come."""
    held = it.front._bodies.held
    wire[1].write(raw(body)[:-but])
    await until(lambda: it.front._bodies.held == held + len(body) - but)


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
    async with world() as it, it.wire() as (reader, writer):
        writer.write(raw(BODY)[:-10])
        await until(lambda: it.front._bodies.held)
        later(Limits().read_s)
        answer = await read_answer(reader)
        later(Limits().read_s)  # what else is sent is read for so long, and thrown away
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


async def test_a_body_that_only_drips_ends_whatever_the_budget():
    async with world() as it, it.wire() as (reader, writer):
        writer.write(raw(b"", path=f"{PODS}?timeout=30s", content_length="100000"))
        answering = asyncio.create_task(read_answer(reader))
        for dripped in range(1, 4):
            writer.write(b" ")
            await until(lambda: it.front._bodies.held == dripped)  # noqa: B023 -- awaited here
            later(Limits().body_s / 3)

        assert (await answering).status == 408


async def test_bodies_that_are_declared_and_not_sent_take_no_room():
    async with world() as it, it.wire() as one, it.wire() as two, it.wire() as api_server:
        for _, writer in (one, two):
            writer.write(raw(b" ", content_length=str(8 * MIB)))
        await until(lambda: it.front._bodies.held == 2)

        assert (await it.post(large(7 * MIB)))[0] == 200
        assert await asked(api_server) == 200


async def test_small_bodies_have_room_of_their_own():
    gate = Gate()
    async with world(gate, limits=Limits(bodies=MIB)) as it:
        first = asyncio.create_task(it.post(large(MIB)))
        await gate.begun.wait()
        refused, _ = await it.post(large(256 * KIB + 1))
        second = asyncio.create_task(it.post(large(256 * KIB)))
        await until(lambda: it.counted("reviews_in_flight") == 2.0)
        gate.open.set()

        assert refused == 503
        assert [(await each)[0] for each in (first, second)] == [200, 200]
        assert it.front._bodies.held == 0


@pytest.mark.parametrize("room", ["small_bodies", "bodies"])
async def test_the_largest_body_that_is_not_whole_has_to_go(room):
    size = {"small_bodies": 100 * KIB, "bodies": MIB}[room]
    limits = Limits(**{room: int(size * 1.5)})
    async with world(limits=limits) as it, it.wire() as much, it.wire() as less:
        await sent(it, much, large(size), but=10)
        await sent(it, less, large(size // 2 - 10), but=20)
        whole, _ = await it.post(large(size // 2 + 100))

        assert whole == 200
        assert (await read_answer(much[0])).status == 503
        less[1].write(large(size // 2 - 10)[-20:])
        assert (await read_answer(less[0])).status == 200
        assert it.front._bodies.held == 0


async def test_the_largest_body_goes_itself_when_it_grows_beyond():
    async with world(limits=Limits(small_bodies=1000)) as it, it.wire() as less, it.wire() as much:
        await sent(it, less, BODY, but=10)
        much[1].write(raw(large(2000))[:-10])

        assert (await read_answer(much[0])).status == 503
        less[1].write(BODY[-10:])
        assert (await read_answer(less[0])).status == 200


async def test_who_leaves_within_a_body_holds_nothing():
    async with world() as it:
        for _ in range(3):
            async with it.wire() as (_, writer):
                writer.write(raw(BODY)[:-10])
                await until(lambda: it.front._bodies.held)
            await until(lambda: not it.front._bodies.held)

        assert it.counted("connections") == 0.0


async def test_who_asks_before_sending_is_told_to():
    async with world() as it, it.wire() as (reader, writer):
        writer.write(raw(b"", expect="100-continue", content_length=str(len(BODY))))
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(BODY)

        assert (await read_answer(reader)).status == 200


@pytest.mark.parametrize("chunk", [b"zz\r\n", b"-1\r\nx\r\n", b"5\r\nabcdefgh\r\n"])
async def test_a_broken_chunk_is_a_broken_request(chunk):
    async with world() as it, it.wire() as (reader, writer):
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
