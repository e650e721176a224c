"""How the front ends: told, busy, interrupted."""

import asyncio

import pytest

from tests.webhook.front_world import (
    BODY,
    CLIENT_HELLO_HALF,
    Gate,
    asked,
    raw,
    read_answer,
    until,
    world,
)
from webhook.serving.server import Limits


async def test_while_it_ends_it_is_not_ready_and_asks_clients_to_go():
    stop = asyncio.Event()
    async with world(limits=Limits(notice_s=60.0), stop=stop) as it, it.wire() as known:
        assert await asked(known) == 200
        before = it.front.problem()
        stop.set()
        await until(it.front.problem)
        known[1].write(raw(BODY))
        answers = [await read_answer(known[0])]
        async with it.wire() as (reader, writer):
            writer.write(raw(BODY))
            answers.append(await read_answer(reader))

        assert (before, it.front.problem()) == ("", "the webhook is shutting down")
        assert [(a.status, a.headers["connection"]) for a in answers] == [(200, "close")] * 2


async def test_when_it_ends_it_accepts_nobody_and_answers_what_is_under_way():
    gate, stop = Gate(), asyncio.Event()
    async with (
        world(gate, limits=Limits(notice_s=0.0), stop=stop) as it,
        it.wire() as busy,
        it.wire() as sending,
        it.wire() as idle,
    ):
        port = it.front.port
        sending[1].write(raw(BODY)[:-10])
        busy[1].write(raw(BODY))
        await gate.begun.wait()
        await until(lambda: it.front._small_bodies.held == 2 * len(BODY))
        stop.set()
        await until(lambda: it.front._listener is None)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        sending[1].write(BODY[-10:])
        gate.open.set()
        answers = [await read_answer(reader) for reader, _ in (busy, sending)]
        assert it.serving is not None
        async with asyncio.timeout(30):
            await it.serving
            assert await idle[0].read() == b""

        assert [(a.status, a.headers["connection"]) for a in answers] == [(200, "close")] * 2
        assert it.front.problem() == "the webhook does not listen"
        assert it.counted("connections") == 0.0


async def test_it_ends_even_when_an_answer_never_comes():
    gate, stop = Gate(), asyncio.Event()
    limits = Limits(notice_s=0.0, drain_s=0.05)
    async with world(gate, limits=limits, stop=stop) as it, it.wire() as (reader, writer):
        writer.write(raw(BODY))
        await gate.begun.wait()
        stop.set()
        assert it.serving is not None
        async with asyncio.timeout(8):
            await it.serving
            assert await reader.read() == b""

        assert it.counted("connections") == 0.0


async def test_it_ends_within_a_handshake():
    async with asyncio.timeout(30):
        async with world() as it, it.wire(tls=False) as (reader, writer):
            writer.write(CLIENT_HELLO_HALF)
            await until(lambda: it.counted("connections") == 1.0)
            await it.front.__aexit__()
            ended = await asyncio.gather(reader.read(), return_exceptions=True)

        assert not ended[0] or isinstance(ended[0], ConnectionError)
        assert it.counted("connections") == 0.0
