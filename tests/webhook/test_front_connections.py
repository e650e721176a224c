"""Who may stay connected, who is thrown out, and how the front ends."""

import asyncio
import socket
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from math import inf

import pytest

from tests.webhook.front_world import (
    BODY,
    CLIENT_HELLO_HALF,
    PODS,
    Gate,
    World,
    asked,
    contexts,
    later,
    raw,
    read_answer,
    review,
    until,
    world,
)
from webhook.intake import Limits
from webhook.model.review import Answer, Request, allow


async def stalled(it: World, number: int = 1) -> None:
    """Return when so many connections have stopped half-way: in a head, or in reading answers."""
    await until(lambda: sum(one.is_stalled(inf) for one in it.front._connections) == number)


async def a_sweep(it: World) -> None:
    """Return when the front has thrown out who stops half-way: all that did so before now."""
    async with it.wire() as (reader, writer):
        writer.write(b"POST")
        await stalled(it)
        later(Limits().read_s)
        async with asyncio.timeout(10):
            assert await reader.read() == b""


@asynccontextmanager
async def idlers(port: int, number: int) -> AsyncIterator[None]:
    """Connections on which nothing is ever sent, not even of a handshake."""
    loop = asyncio.get_running_loop()
    with ExitStack() as stack:
        for _ in range(number):
            idle = stack.enter_context(socket.socket())
            idle.settimeout(0)
            await loop.sock_connect(idle, ("127.0.0.1", port))
        yield


@asynccontextmanager
async def silent_wires(it: World, number: int) -> AsyncIterator[list[asyncio.StreamReader]]:
    """Connections on which nothing is sent after the handshake."""
    client = contexts().client
    pairs = [
        await asyncio.open_connection("127.0.0.1", it.front.port, ssl=client) for _ in range(number)
    ]
    yield [reader for reader, _ in pairs]
    for _, writer in pairs:
        writer.transport.abort()


def in_use_by(port: int, number: int) -> int:
    """Bytes that so many connections take up here, once their handshakes are over."""
    with ExitStack() as stack:
        for _ in range(number):
            plain = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            stack.enter_context(contexts().client.wrap_socket(plain, server_hostname="127.0.0.1"))
        return tracemalloc.get_traced_memory()[0]


async def test_an_idle_connection_takes_little_memory():
    async with world() as it:
        tracemalloc.start()
        try:
            one = await asyncio.to_thread(in_use_by, it.front.port, 1)
            many = await asyncio.to_thread(in_use_by, it.front.port, 101)
        finally:
            tracemalloc.stop()

    assert (many - one) / 100 < 64 << 10  # 512 of them: 32 MiB at most


async def test_2000_idle_connections_change_nothing_for_the_api_server():
    limits = Limits(handshake_s=60.0)  # so that each of them is thrown out for another
    async with world(limits=limits) as it, it.wire() as api_server:
        assert await asked(api_server) == 200
        async with idlers(it.front.port, 2000):
            there = 2000 + 1
            await until(
                lambda: (
                    it.counted("connections_ended_total", reason="Evicted")
                    == there - limits.connections
                ),
                within_s=60,
            )

            assert await asked(api_server) == 200
            assert (await it.ask(review()))["allowed"]  # on a new connection
            assert it.counted("connections") == limits.connections


async def test_idle_connections_after_their_handshake_make_room_too():
    async with world(limits=Limits(connections=20)) as it, it.wire() as api_server:
        assert await asked(api_server) == 200
        async with silent_wires(it, 60) as readers, asyncio.timeout(10):
            ended = [await reader.read() for reader in readers[:41]]

            assert ended == [b""] * 41
            assert await asked(api_server) == 200
            assert it.counted("connections") == 20.0
            assert it.counted("connections_ended_total", reason="Evicted") == 41.0


async def test_half_bodies_do_not_lock_the_api_server_out():
    async with (
        world(limits=Limits(connections=20)) as it,
        it.wire() as api_server,
        AsyncExitStack() as stack,
    ):
        assert await asked(api_server) == 200
        for number in range(1, 41):
            _, writer = await stack.enter_async_context(it.wire())
            writer.write(raw(BODY)[:-10])
            # Those before were thrown out for it, the first of them first.
            await until(lambda: it.front._bodies.held == min(number, 19) * (len(BODY) - 10))  # noqa: B023 -- awaited here

        assert await asked(api_server) == 200
        async with it.wire() as another:
            assert await asked(another) == 200
        assert it.counted("connections_ended_total", reason="Evicted") == 22.0


async def test_the_longest_idle_goes_when_all_have_been_in_use():
    async with (
        world(limits=Limits(connections=2)) as it,
        it.wire() as first,
        it.wire() as second,
    ):
        assert [await asked(wire) for wire in (first, second, first)] == [200] * 3
        async with it.wire() as third, asyncio.timeout(5):
            assert await second[0].read() == b""
            assert [await asked(wire) for wire in (first, third)] == [200] * 2


async def test_when_all_are_in_use_the_next_one_waits():
    gate = Gate()
    async with world(gate, limits=Limits(connections=1)) as it, it.wire() as first:
        first[1].write(raw(BODY))
        await gate.begun.wait()
        second = asyncio.create_task(it.ask(review(uid="second")))
        await asyncio.sleep(0)
        gate.open.set()

        assert (await read_answer(first[0])).status == 200
        assert (await second)["uid"] == "second"
        assert await first[0].read() == b""


@pytest.mark.parametrize("beginning", [b"", CLIENT_HELLO_HALF])
async def test_half_a_handshake_is_cut_off(beginning):
    async with world() as it, it.wire(tls=False) as (reader, writer):
        writer.write(beginning)
        await until(lambda: it.counted("connections") == 1.0)
        later(Limits().handshake_s)
        async with asyncio.timeout(10):
            assert await reader.read() == b""
        await until(lambda: it.counted("connections_ended_total", reason="HandshakeFailed"))

        assert it.counted("connections") == 0.0
        assert (await it.ask(review()))["allowed"]


async def test_who_speaks_no_tls_is_cut_off():
    async with world() as it, it.wire(tls=False) as (reader, writer):
        writer.write(raw(BODY))
        async with asyncio.timeout(5):
            assert b"HTTP" not in await reader.read()

        assert it.counted("connections_ended_total", reason="HandshakeFailed") == 1.0


async def test_who_leaves_within_a_handshake_is_forgotten():
    async with world() as it:
        async with it.wire(tls=False) as (_, writer):
            writer.write(CLIENT_HELLO_HALF)
            await until(lambda: it.counted("connections") == 1.0)
        await until(lambda: it.counted("connections") == 0.0)


async def test_half_a_head_is_cut_off():
    async with world() as it, it.wire() as (reader, writer):
        assert await asked((reader, writer)) == 200
        writer.write(raw(BODY)[:20])
        await stalled(it)
        later(Limits().read_s)

        async with asyncio.timeout(10):
            assert await reader.read() == b""
        assert it.counted("connections_ended_total", reason="Stalled") == 1.0


async def test_who_reads_no_answers_is_cut_off():
    async def long_winded(_: Request, __: float) -> Answer:
        return allow("Fine", long="x" * (1 << 20))

    async with world(long_winded) as it, it.wire() as (_, writer):
        writer.write(raw(BODY) * 20)
        await stalled(it)
        later(Limits().read_s)

        await until(lambda: it.counted("connections_ended_total", reason="Stalled"))
        await until(lambda: it.counted("connections") == 0.0)


async def test_who_has_read_slowly_may_stay():
    answered = 0

    async def long_winded(_: Request, __: float) -> Answer:
        nonlocal answered
        answered += 1
        return allow("Fine", long="x" * (1 << 20))

    async with world(long_winded) as it, it.wire() as (reader, writer):
        asked_for = 0
        while not any(one.writing_paused for one in it.front._connections):
            writer.write(raw(BODY))
            asked_for += 1
            await until(lambda: answered == asked_for)  # noqa: B023 -- it is awaited here
        for _ in range(asked_for):
            assert (await read_answer(reader)).status == 200
        await a_sweep(it)

        assert await asked((reader, writer)) == 200


async def test_who_is_idle_may_stay():
    async with world() as it, it.wire() as used, it.wire() as unused:
        assert await asked(used) == 200
        await a_sweep(it)

        assert [await asked(wire) for wire in (used, unused)] == [200, 200]


async def test_who_waits_for_an_answer_may_stay():
    gate = Gate()
    async with world(gate) as it, it.wire() as (reader, writer):
        writer.write(raw(BODY, path=f"{PODS}?timeout=30s"))
        await gate.begun.wait()
        await a_sweep(it)
        gate.open.set()

        assert (await read_answer(reader)).status == 200


async def test_an_idle_connection_is_closed_in_time():
    async with world(limits=Limits(idle_s=0.1)) as it, it.wire() as wire, asyncio.timeout(5):
        assert await asked(wire) == 200
        assert await wire[0].read() == b""


async def test_an_idle_connection_outlives_the_api_servers_patience():
    async with world() as it, it.wire():
        await until(lambda: it.counted("connections") == 1.0)
        (connection,) = it.front._connections

        assert connection.keepalive_timeout > 90.0


async def test_an_old_connection_is_closed_with_its_answer():
    async with world(limits=Limits(age_s=0.0)) as it, it.wire() as (reader, writer):
        writer.write(raw(BODY))
        answer = await read_answer(reader)

        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert await reader.read() == b""
