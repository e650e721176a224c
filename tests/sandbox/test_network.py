"""The network of real nodes, in the kernel: nodes that run nothing, and what is outside."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from provisioner.sandbox.control_plane import free_port, until
from provisioner.sandbox.crew import Crew
from provisioner.sandbox.network import network
from provisioner.sandbox.network.addresses import DNS, KUBERNETES, ROUTER, Seat
from provisioner.sandbox.network.network import GATEWAY, Network
from provisioner.sandbox.real_node.host import Host
from provisioner.sandbox.real_node.requirements import missing
from tests.sandbox.host_world import World, opened

pytestmark = pytest.mark.skipif(missing() != "", reason=missing())


SERVICE = "172.20.77.1"


@dataclass
class Machine:
    """What stands for the API server on the machine's loopback, and a network."""

    crew: Crew
    network: Network
    port: int


@asynccontextmanager
async def machine(folder: Path, answer: bytes = b"the API server") -> AsyncIterator[Machine]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        await writer.drain()
        writer.close()

    folder.mkdir()
    port = free_port()
    async with (
        await asyncio.start_server(serve, "127.0.0.1", port),
        Crew(folder / "logs") as crew,
    ):
        made = await network.start(crew, folder, port)
        try:
            yield Machine(crew, made, port)
        finally:
            made.close()


@asynccontextmanager
async def node(made: Network, folder: Path, address: str) -> AsyncIterator[tuple[Host, Seat]]:
    folder.mkdir()
    async with opened(folder) as world:
        seat = made.seat(address)
        await made.plug_in(seat, world.host.pid)
        yield world.host, seat


async def said(host: Host, address: str, port: int) -> str:
    """What a server says to a client on a node; "" if nobody answers."""
    script = f"exec 3<>/dev/tcp/{address}/{port} && cat <&3"
    code, output, _ = await host.run("timeout", "5", "bash", "-c", script)
    return output if code == 0 else ""


def interfaces() -> set[str]:
    return {path.name for path in Path("/sys/class/net").iterdir()}


def space_of(pid: int) -> str:
    return str(Path(f"/proc/{pid}/ns/net").readlink())


def spaces() -> set[str]:
    """All network namespaces that a process is in or has open."""
    found = set()
    for pattern in ("[0-9]*/ns/net", "[0-9]*/fd/*"):
        for path in Path("/proc").glob(pattern):
            try:
                found.add(str(path.readlink()))
            except OSError:
                continue
    return found


async def test_a_node_reaches_the_api_server_and_has_an_address_of_its_own(tmp_path: Path) -> None:
    async with (
        machine(tmp_path / "a") as a,
        node(a.network, tmp_path / "node", "10.1.2.3") as (host, _),
    ):
        assert await said(host, KUBERNETES, 443) == "the API server"
        assert await said(host, ROUTER, a.port) == "the API server"
        # Not by the machine's loopback: the node has one of its own.
        assert await said(host, "127.0.0.1", a.port) == ""
        _, output, _ = await host.run("ip", "-brief", "-4", "address")
        addresses = [each for line in output.splitlines() for each in line.split()[2:]]
        assert addresses == ["127.0.0.1/8", "169.254.169.254/32", "10.1.2.3/32"]


async def test_nodes_reach_each_other(tmp_path: Path) -> None:
    async with (
        machine(tmp_path / "a") as a,
        node(a.network, tmp_path / "one", "10.1.2.3") as (one, _),
        node(a.network, tmp_path / "two", "10.200.2.0") as (two, _),
    ):
        code, _, _ = await one.run("bash", "-c", "exec 3<>/dev/tcp/10.200.2.0/9")
        assert code != 0  # nobody listens, which that node's kernel says at once
        listening = asyncio.create_task(
            two.run("timeout", "10", "busybox", "nc", "-l", "-p", "9000", "-e", "echo", "hello")
        )

        async def answers() -> bool:
            return await said(one, "10.200.2.0", 9000) == "hello\n"

        await asyncio.wait_for(until(answers), 10)
        await listening


async def way_to(made: Network, address: str) -> str:
    """The interface by which the router sends what is for an address; "" for none."""
    process = await asyncio.create_subprocess_exec(
        *made.command("ip", "route", "get", address),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    words = (await process.communicate())[0].decode().split()
    return words[words.index("dev") + 1] if "dev" in words else ""


async def test_the_router_leaves_services_to_the_first_node_that_is_on(tmp_path: Path) -> None:
    async with machine(tmp_path / "a") as a:
        assert await way_to(a.network, SERVICE) == ""
        async with (
            node(a.network, tmp_path / "one", "10.1.2.3") as (_, one),
            node(a.network, tmp_path / "two", "10.200.2.0"),
        ):
            assert await way_to(a.network, SERVICE) == "node1"
            await a.network.pull_plug(one)
            assert await way_to(a.network, SERVICE) == "node2"
            # These two it serves itself.
            assert await way_to(a.network, KUBERNETES) == "lo"
            assert await way_to(a.network, DNS) == "lo"


async def test_what_listens_on_a_node_is_reached_from_the_machine(tmp_path: Path) -> None:
    async with (
        machine(tmp_path / "a") as a,
        node(a.network, tmp_path / "node", "10.1.2.3") as (host, seat),
    ):
        port = free_port()
        (tmp_path / "node" / "page").write_text("hello")
        serve = ("busybox", "httpd", "-f", "-p", f"10.1.2.3:{port}", "-h", str(tmp_path / "node"))
        serving = asyncio.create_task(host.run("timeout", "20", *serve))

        async def answers() -> bool:
            url = f"http://127.0.0.1:{port}/page"
            async with aiohttp.ClientSession() as session, session.get(url) as reply:
                return await reply.text() == "hello"

        async with a.network.reached(port, seat):
            await asyncio.wait_for(until(answers), 10)
        serving.cancel()


async def test_two_networks_on_one_machine_do_not_meet(tmp_path: Path) -> None:
    """With the same addresses, and nodes with the same ones."""
    async with AsyncExitStack() as stack:
        hosts = []
        for name in ("a", "b"):
            one = await stack.enter_async_context(machine(tmp_path / name, name.encode()))
            entered = node(one.network, tmp_path / f"node-{name}", "10.1.2.3")
            hosts.append((await stack.enter_async_context(entered))[0])

        answers = [await said(host, KUBERNETES, 443) for host in hosts]
        assert answers == ["a", "b"]


async def test_a_node_that_was_switched_off_and_on_is_back_in_its_seat(tmp_path: Path) -> None:
    world = World(tmp_path / "node")
    (tmp_path / "node").mkdir()
    async with machine(tmp_path / "a") as a:
        seat = a.network.seat("10.1.2.3")
        for _ in range(3):
            await world.host.on()
            await a.network.plug_in(seat, world.host.pid)
            assert await said(world.host, KUBERNETES, 443) == "the API server"
            await world.host.off()
        assert world.lost == []


async def test_the_api_server_may_be_away_for_a_while(tmp_path: Path) -> None:
    async with Crew(tmp_path / "logs") as crew:
        port = free_port()
        made = await network.start(crew, tmp_path, port)
        async with node(made, tmp_path / "node", "10.1.2.3") as (host, _):
            assert await said(host, KUBERNETES, 443) == ""
            crew.check()

            async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                writer.write(b"back")
                writer.close()

            async with await asyncio.start_server(serve, "127.0.0.1", port):
                assert await said(host, KUBERNETES, 443) == "back"
        made.close()


async def test_the_machine_has_no_interface_more_and_no_namespace_afterwards(
    tmp_path: Path,
) -> None:
    before = interfaces()
    async with (
        machine(tmp_path / "a") as a,
        node(a.network, tmp_path / "node", "10.1.2.3") as (host, _),
    ):
        ours = {space_of(host.pid), space_of(a.crew.parts[GATEWAY].process.pid)}
        assert len(ours) == 2
        assert interfaces() == before

    assert not ours & spaces()
    assert interfaces() == before


async def test_a_gateway_that_is_killed_takes_the_network_with_it(tmp_path: Path) -> None:
    async with machine(tmp_path / "a") as a:
        part = a.crew.parts[GATEWAY]
        ours = space_of(part.process.pid)
        os.kill(part.process.pid, signal.SIGKILL)

        told = await asyncio.wait_for(a.crew.failed(), 10)
        assert str(told).startswith("gateway ended by signal 9")
    assert ours not in spaces()
