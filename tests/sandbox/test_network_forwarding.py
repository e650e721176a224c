"""Connections that are carried, in one network namespace; see test_network.py for several."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from provisioner.sandbox.network import forwarding, gateway
from provisioner.sandbox.network.forwarding import Space, target_of

LOCAL = "127.0.0.1"


@asynccontextmanager
async def echo() -> AsyncIterator[int]:
    """A server that answers once its client has said all; its port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"you said " + await reader.read())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, LOCAL, 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@asynccontextmanager
async def forwarder(port: int) -> AsyncIterator[int]:
    listener = Space().listening((LOCAL, 0))
    async with forwarding.forwarded(listener, Space(), (LOCAL, port)):
        yield listener.getsockname()[1]


@asynccontextmanager
async def proxy(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    monkeypatch.chdir(folder)
    async with await asyncio.start_unix_server(forwarding.serve_connect, "proxy"):
        yield "proxy"


def unused_port() -> int:
    with socket.socket() as taken:
        taken.bind((LOCAL, 0))
        port: int = taken.getsockname()[1]
        return port


async def said_by(path: str, request: bytes) -> tuple[bytes, bytes]:
    """The status line of a proxy's answer, and all after its header."""
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(request)
    writer.write_eof()
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    head, _, rest = answer.partition(b"\r\n\r\n")
    return head.split(b"\r\n")[0], rest


async def test_what_is_said_after_one_side_has_ended_still_arrives() -> None:
    content = bytes(range(256)) * 4096
    async with echo() as port, forwarder(port) as entrance:
        reader, writer = await asyncio.open_connection(LOCAL, entrance)
        writer.write(content)
        writer.write_eof()

        async with asyncio.timeout(10):
            assert await reader.read() == b"you said " + content
        writer.close()


async def test_where_nobody_listens_a_connection_is_closed_at_once() -> None:
    async with forwarder(unused_port()) as entrance:
        reader, writer = await asyncio.open_connection(LOCAL, entrance)

        async with asyncio.timeout(10):
            assert await reader.read() == b""
        writer.close()


async def test_a_broken_connection_breaks_the_other_half() -> None:
    ended = asyncio.Event()

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        ended.set()
        writer.close()

    server = await asyncio.start_server(wait, LOCAL, 0)
    async with server, forwarder(server.sockets[0].getsockname()[1]) as entrance:
        _, writer = await asyncio.open_connection(LOCAL, entrance)
        writer.write(b"hello")
        await writer.drain()
        writer.transport.abort()

        await asyncio.wait_for(ended.wait(), 10)


async def test_a_proxy_connects_to_what_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with echo() as port, proxy(tmp_path, monkeypatch) as path:
        head = f"CONNECT {LOCAL}:{port} HTTP/1.1\r\nHost: {LOCAL}\r\n\r\n".encode()

        assert await said_by(path, head + b"hello") == (
            b"HTTP/1.1 200 Connection established",
            b"you said hello",
        )


async def test_a_proxy_says_that_nobody_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with proxy(tmp_path, monkeypatch) as path:
        head = f"CONNECT {LOCAL}:{unused_port()} HTTP/1.1\r\n\r\n".encode()

        status, _ = await said_by(path, head)
        assert status.startswith(b"HTTP/1.1 502 cannot connect")


@pytest.mark.parametrize(
    "request_",
    [b"GET / HTTP/1.1\r\n\r\n", b"CONNECT nowhere HTTP/1.1\r\n\r\n", b"hello", b"\r\n\r\n"],
)
async def test_a_proxy_refuses_all_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request_: bytes
) -> None:
    async with proxy(tmp_path, monkeypatch) as path:
        status, _ = await said_by(path, request_)

        assert status.startswith(b"HTTP/1.1 400 ")


def test_the_target_of_a_request_is_an_address_and_a_port() -> None:
    assert target_of(b"CONNECT 10.1.2.3:10250 HTTP/1.1\r\nHost: x\r\n\r\n") == ("10.1.2.3", 10250)


def test_a_way_out_of_the_network_names_both_ports() -> None:
    assert gateway.parsed("172.20.0.1:443=20001") == (("172.20.0.1", 443), 20001)
