"""Who may stay connected, who is thrown out, and whom a crowd costs something: itself."""

import asyncio
import selectors
import socket
import ssl
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, ExitStack, suppress
from typing import Any

import msgspec
import pytest

from tests.webhook.front_world import (
    BODY,
    CLIENT_HELLO_HALF,
    PODS,
    VOLUMES,
    Got,
    World,
    asked,
    contexts,
    fine,
    later,
    raw,
    read_answer,
    review,
    until,
    world,
)
from webhook.model.review import Answer, Request, allow
from webhook.serving.server import Limits, Rounds

STRANGER = "127.0.0.2"


async def connected(it: World, number: int, *, tls: bool, stack: AsyncExitStack) -> None:
    """So many connections of a stranger on which nothing is sent."""
    for _ in range(number):
        with suppress(ConnectionError):
            await stack.enter_async_context(it.wire(tls=tls, peer=STRANGER))


@pytest.mark.parametrize("tls", [False, True])
async def test_idle_connections_of_a_stranger_cost_the_api_server_none(*, tls: bool):
    limits = Limits(connections=20)
    async with world(limits=limits) as it, it.wire() as api_server, AsyncExitStack() as stack:
        assert await asked(api_server) == 200
        await connected(it, 60, tls=tls, stack=stack)
        await until(lambda: it.counted("connections_ended_total", reason="Refused") == 41.0)

        assert await asked(api_server) == 200
        async with it.wire() as another:
            assert await asked(another) == 200
            assert await asked(api_server) == 200
            assert it.counted("connections") == 20.0
        assert it.counted("connections_ended_total", reason="Evicted") == 1.0


async def test_a_stranger_who_has_sent_whole_requests_evicts_no_api_servers_connection():
    async with world(limits=Limits(connections=40)) as it, AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(it.wire()) for _ in range(10)]
        assert [await asked(wire) for wire in wires] == [200] * 10
        for _ in range(100):
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                reader, writer = await stack.enter_async_context(it.wire(peer=STRANGER))
                writer.write(raw(b"x"))
                assert (await read_answer(reader)).status == 400

        assert [await asked(wire) for wire in wires] == [200] * 10


async def crowd(it: World, number: int, request: bytes, until_set: asyncio.Event) -> None:
    """A stranger's connections, each asking again as soon as it is answered."""

    async def one() -> None:
        async with it.wire(peer=STRANGER) as (reader, writer):
            while not until_set.is_set():
                writer.write(request)
                answer: Got = await read_answer(reader)
                assert answer.status in {200, 404}

    await asyncio.gather(*(one() for _ in range(number)), return_exceptions=True)


def of_volumes(it: World, reason: str) -> float:
    return sum(
        it.counted("reviews_total", path=VOLUMES, outcome=outcome, reason=reason)
        for outcome in ("allowed", "denied")
    )


@pytest.mark.parametrize("strict", [False, True])
async def test_a_crowd_that_waits_for_ec2_takes_no_place_of_the_api_servers_reviews(
    *, strict: bool
):
    async def waits(_: Request, __: float) -> Answer:
        await asyncio.sleep(60)
        return allow("Fine")

    body = msgspec.json.encode(review("persistentvolumes", uid="flood"))
    stop = asyncio.Event()
    async with (
        world(handlers={PODS: fine, VOLUMES: waits}, strict=strict) as it,
        AsyncExitStack() as stack,
    ):
        flood = asyncio.create_task(crowd(it, 100, raw(body, path=f"{VOLUMES}?timeout=30s"), stop))
        stack.callback(flood.cancel)
        await until(lambda: it.counted("reviews_in_flight") == 64.0, within_s=30)

        await until(lambda: of_volumes(it, "Overloaded"))
        for _ in range(20):
            response = await it.ask(review())
            assert response == {"uid": "u-1", "allowed": True}


def fairly(story: Callable[[Rounds], Coroutine[Any, Any, None]]) -> None:
    """Run a story as the process runs."""
    rounds = Rounds()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(rounds)) as runner:
        runner.run(story(rounds))


def test_of_a_crowds_requests_one_is_begun_between_two_of_the_api_servers():
    """However many ask at once: what the API server waits for grows with peers, not with requests."""
    begun: list[tuple[str, int]] = []
    between: list[int] = []

    async def story(rounds: Rounds) -> None:
        async def remember(request: Request, _: float) -> Answer:
            begun.append((request.uid, rounds.number))
            time.sleep(0.002)  # noqa: ASYNC251 -- as a rule that computes
            return allow("Fine")

        flood = raw(msgspec.json.encode(review(uid="flood")))
        stop = asyncio.Event()
        async with world(remember, rounds=rounds) as it, it.wire() as api_server:
            crowding = asyncio.create_task(crowd(it, 50, flood, stop))
            await until(lambda: len(begun) > 100, within_s=30)
            for _ in range(20):
                seen = len(begun)
                assert await asked(api_server) == 200
                between.append(len(begun) - seen)
            stop.set()
            await crowding

    fairly(story)

    assert sorted(between)[10] <= 10
    of_the_crowd = Counter(number for uid, number in begun if uid == "flood")
    assert max(of_the_crowd.values()) == 1


def test_of_a_crowds_handshakes_one_is_begun_in_a_round_of_the_loop():
    """They cost most of all that a stranger can send, and come before anybody says who he is."""
    begun: list[int] = []

    async def story(rounds: Rounds) -> None:
        context = contexts().server
        context.sni_callback = lambda *_: begun.append(rounds.number)
        try:
            async with world(rounds=rounds) as it, AsyncExitStack() as stack:
                wires = [
                    await stack.enter_async_context(it.wire(tls=False, peer=STRANGER))
                    for _ in range(30)
                ]
                await until(lambda: it.counted("connections") == 30.0)
                for _, writer in wires:
                    writer.write(client_hello())
                await until(lambda: len(begun) == 30)
        finally:
            context.sni_callback = None

    fairly(story)

    assert len(set(begun)) == 30


def client_hello() -> bytes:
    """The first that a client sends."""
    outgoing = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        contexts().client.wrap_bio(
            ssl.MemoryBIO(), outgoing, server_hostname="127.0.0.1"
        ).do_handshake()
    return outgoing.read()


def test_in_a_round_each_address_is_heard_once_and_none_of_its_connections_starves():
    with ExitStack() as stack:
        rounds = stack.enter_context(Rounds())
        ours: dict[int, str] = {}
        for peer in (*[STRANGER] * 5, "10.0.0.1", ""):
            one, two = map(stack.enter_context, socket.socketpair())
            two.send(b"x")
            rounds.register(one, selectors.EVENT_READ)
            ours[one.fileno()] = peer
            if peer:
                rounds.add(one.fileno(), peer)
        heard = [[key.fd for key, _ in rounds.select(0)] for _ in range(5)]

    assert [sorted(ours[fd] for fd in fds) for fds in heard] == [["", "10.0.0.1", STRANGER]] * 5
    strangers = [fd for fds in heard for fd in fds if ours[fd] == STRANGER]
    assert len(set(strangers)) == 5


def test_an_addresss_new_connections_do_not_go_before_its_old_ones():
    with ExitStack() as stack:
        rounds = stack.enter_context(Rounds())

        def connect() -> int:
            one, two = map(stack.enter_context, socket.socketpair())
            two.send(b"x")
            rounds.register(one, selectors.EVENT_READ)
            rounds.add(one.fileno(), STRANGER)
            return one.fileno()

        old = connect()
        rounds.select(0)
        heard = []
        for _ in range(3):
            connect()
            heard += [key.fd for key, _ in rounds.select(0)]

    assert old in heard


def test_a_file_of_a_number_that_was_another_addresss_is_not_forgotten_with_it():
    rounds = Rounds()
    one, two = socket.socketpair()
    with rounds, one, two:
        leave = rounds.add(one.fileno(), STRANGER)
        rounds.add(one.fileno(), "10.0.0.1")
        leave()

        assert rounds.owner(one.fileno()) == "10.0.0.1"


async def test_an_idle_connection_takes_little_memory_besides_its_tls_buffer():
    async with world() as it, AsyncExitStack() as stack:
        await stack.enter_async_context(it.wire(peer=STRANGER))
        tracemalloc.start()
        try:
            for _ in range(50):
                await stack.enter_async_context(it.wire(peer=STRANGER))
            used, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    # asyncio takes 256 KiB a connection, here on both sides of each.
    assert used / 50 < 2 * (256 + 64) << 10


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


@pytest.mark.parametrize("sent", [b"", raw(BODY)[:20]])
async def test_who_sends_no_whole_head_is_cut_off_in_time(sent: bytes):
    async with world(limits=Limits(idle_s=0.1)) as it, it.wire() as (reader, writer):
        assert await asked((reader, writer)) == 200
        writer.write(sent)

        async with asyncio.timeout(10):
            assert await reader.read() == b""
        await until(lambda: it.counted("connections") == 0.0)


async def test_an_idle_connection_outlives_the_api_servers_patience():
    async with world() as it, it.wire():
        await until(lambda: it.front._server.connections)
        (connection,) = it.front._server.connections

        assert connection.keepalive_timeout > 90.0


async def test_an_old_connection_is_closed_with_its_answer():
    async with world(limits=Limits(age_s=0.0)) as it, it.wire() as (reader, writer):
        writer.write(raw(BODY))
        answer = await read_answer(reader)

        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert await reader.read() == b""
