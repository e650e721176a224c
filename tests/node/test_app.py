"""The node plugin as a process: its sockets, its end, and what it leaves for the next one."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import grpc.aio
import pytest
from structlog.testing import capture_logs

from provisioner.model.errors import NodeError
from provisioner.node import app
from provisioner.node.metrics.counters import NodeMetrics
from provisioner.node.settings import NodeSettings
from tests.node.caller import calling
from tests.node.kube_server import KubeServer, serving
from tests.node.sanity_world import INSTANCE, has_this_node

STAGES = "plugins/kubernetes.io/csi/ebs.csi.aws.com"
STAGE = {
    "volume_id": "vol-0123456789abcdef0",
    "volume_capability": {"mount": {"fs_type": "ext4"}, "access_mode": {"mode": 1}},
}
START_S = 20.0
MOST_MIB = 65


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short: a socket's path may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="node-") as name:
        yield Path(name)


@pytest.fixture
async def kube(folder: Path) -> AsyncIterator[KubeServer]:
    async with serving(folder) as server:
        has_this_node(server)
        yield server


class Plugin:
    """One process, and where it listens."""

    def __init__(self, folder: Path, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.csi = folder / "kubelet/plugins/ebs.csi.aws.com/csi.sock"
        self.registry = folder / "kubelet/plugins_registry/ebs.csi.aws.com-reg.sock"
        self.lines: list[str] = []

    async def said(self, pattern: str) -> str:
        """The first line to come that matches."""
        assert self.process.stderr is not None
        async with asyncio.timeout(START_S):
            while line := (await self.process.stderr.readline()).decode():
                self.lines.append(line)
                if re.search(pattern, line):
                    return line
        raise AssertionError(f"it ended without {pattern!r}: {''.join(self.lines)}")

    async def end(self, signum: int) -> int:
        self.process.send_signal(signum)
        async with asyncio.timeout(START_S):
            return await self.process.wait()


@asynccontextmanager
async def started(folder: Path, kube: KubeServer) -> AsyncIterator[Plugin]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "provisioner.cli", "node", "--node-name=node-1"),
        f"--kubelet-dir={folder / 'kubelet'}",
        f"--kube-server={kube.server.url}",
        f"--token-file={kube.token_file}",
        "--metrics-address=127.0.0.1:0",
        stderr=subprocess.PIPE,
        env={**os.environ, "AWS_EC2_METADATA_DISABLED": "true"},
    )
    try:
        yield Plugin(folder, process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def register(plugin: Plugin) -> None:
    async with calling(plugin.registry) as kubelet:
        info = await kubelet("GetInfo")
        assert info.endpoint == str(plugin.csi)
        await kubelet("NotifyRegistrationStatus", plugin_registered=True)


async def status_of(port: str, path: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}{path}") as reply,
    ):
        return reply.status, await reply.text()


async def test_a_plugin_from_its_start_to_its_end(folder: Path, kube: KubeServer):
    async with started(folder, kube) as plugin:
        port = (await plugin.said("serving probes")).rsplit("port=", 1)[1].strip()
        await plugin.said("listening")
        assert await status_of(port, "/readyz") == (
            503,
            "the kubelet has not registered ebs.csi.aws.com yet\n",
        )
        await register(plugin)
        async with calling(plugin.csi) as kubelet:
            info = await kubelet("NodeGetInfo")

        assert (info.node_id, info.max_volumes_per_node) == (INSTANCE, 26)
        assert info.accessible_topology.segments["topology.ebs.csi.aws.com/zone"] == "eu-west-1a"
        assert await status_of(port, "/readyz") == (200, "ok\n")
        _, shown = await status_of(port, "/metrics")
        assert "ebs_provisioner_node_registered 1.0" in shown
        assert 'ebs_provisioner_node_rpcs_total{code="OK",method="NodeGetInfo"} 1.0' in shown
        assert 'ebs_provisioner_node_rpc_seconds_count{method="NodeGetInfo"} 1.0' in shown

        assert await plugin.end(signal.SIGTERM) == 0
        # Without its file in the registry, kubelet would take the driver out of CSINode.
        assert plugin.registry.is_socket()
        assert not plugin.csi.exists()


async def test_it_needs_little_memory(folder: Path, kube: KubeServer):
    async with started(folder, kube) as plugin:
        await plugin.said("listening")
        await register(plugin)
        async with calling(plugin.csi) as kubelet:
            await kubelet("NodeGetInfo")
        text = Path(f"/proc/{plugin.process.pid}/status").read_text()

    resident = re.search(r"VmRSS:\s+(\d+) kB", text)
    assert resident is not None
    assert int(resident[1]) / 1024 < MOST_MIB


async def test_the_next_one_takes_the_sockets_of_one_that_was_killed(
    folder: Path, kube: KubeServer
):
    async with started(folder, kube) as first:
        await first.said("listening")
        await register(first)
        await first.end(signal.SIGKILL)
        assert first.csi.is_socket()

        async with started(folder, kube) as second:
            await second.said("listening")
            await register(second)
            async with calling(second.csi) as kubelet:
                assert (await kubelet("Probe")).ready.value
            left = {path.name for path in (folder / "kubelet").rglob("*") if path.is_socket()}
            assert left == {"csi.sock", "ebs.csi.aws.com-reg.sock"}


async def test_a_second_plugin_beside_it_ends_in_one_line(folder: Path, kube: KubeServer):
    async with started(folder, kube) as first:
        await first.said("listening")
        async with started(folder, kube) as second:
            _, errors = await second.process.communicate()

            assert second.process.returncode == 1
            last = errors.decode().splitlines()[-1]
            assert last.startswith("ebs-provisioner: another process answers on /")
        async with calling(first.csi) as kubelet:
            await kubelet("Probe")


@pytest.mark.parametrize("which", ["csi", "registry"])
async def test_it_ends_once_a_socket_is_lost_and_is_started_anew(
    folder: Path, kube: KubeServer, which: str
):
    async with started(folder, kube) as first:
        await first.said("listening")
        await register(first)
        getattr(first, which).unlink()

        _, errors = await asyncio.wait_for(first.process.communicate(), START_S)

        assert first.process.returncode == 1
        assert "to be restarted" in errors.decode().splitlines()[-1]
        async with started(folder, kube) as second:
            await second.said("listening")
            await register(second)


async def test_nothing_heavy_is_loaded():
    heavy = {"boto3", "botocore", "kubernetes", "yaml", "cryptography", "requests"}
    script = "import sys, provisioner.cli, provisioner.node.app; print(*sys.modules)"
    run = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=subprocess.PIPE)
    out, _ = await run.communicate()

    loaded = {name.partition(".")[0] for name in out.decode().split()}
    assert "grpc" in loaded
    assert loaded & heavy == set()


@asynccontextmanager
async def in_this_process(
    folder: Path, kube: KubeServer, drain_s: float, metrics: NodeMetrics | None = None
) -> AsyncIterator[tuple[app.Node, asyncio.Event, "asyncio.Task[None]"]]:
    settings = NodeSettings(
        node_name="node-1",
        server=kube.server,
        asks_metadata=False,
        kubelet_dir=folder / "kubelet",
        drain_s=drain_s,
    )
    async with kube.client() as client:
        node = app.Node(settings, client, None, metrics or NodeMetrics())
        for socket in (node._csi, node._registry):
            socket._poll_s = 0.02  # to see soon that it was removed
        stop = asyncio.Event()
        running = asyncio.create_task(node.run(stop))
        try:
            async with asyncio.timeout(START_S):
                while not settings.registration_socket.is_socket():  # it is opened last
                    assert not running.done(), running
                    await asyncio.sleep(0.01)
            yield node, stop, running
        finally:
            stop.set()
            await asyncio.wait({running}, timeout=START_S)
            await node.volumes.close()


@pytest.fixture
def gate(folder: Path) -> Path:
    """``cat`` of it lasts until somebody opens it to write."""
    os.mkfifo(folder / "gate")
    return folder / "gate"


async def test_at_its_end_a_program_gets_the_time_that_it_needs(folder: Path, kube: KubeServer):
    metrics = NodeMetrics()
    async with in_this_process(folder, kube, START_S, metrics) as (node, stop, running):
        program = asyncio.create_task(node._tools.programs.run("sleep", "0.5", why="to last"))
        await asyncio.sleep(0)  # it has begun
        assert len(node._tools.programs.running()) == 1
        shown = metrics.registry.get_sample_value("ebs_provisioner_node_programs_running")
        assert shown == 1
        stop.set()
        await asyncio.wait_for(running, START_S)

        assert node._tools.programs.running() == ()
        assert (await program).exit_code == 0


async def test_a_program_that_needs_longer_is_named_and_goes_on(
    folder: Path, kube: KubeServer, gate: Path
):
    async with in_this_process(folder, kube, 0.1) as (node, stop, running):
        program = asyncio.create_task(node._tools.programs.run("cat", gate, why="to last"))
        await asyncio.sleep(0)  # it has begun
        stop.set()
        with capture_logs() as lines:
            await asyncio.wait_for(running, START_S)

        (line,) = [line for line in lines if line["event"] == "a program is still running"]
        assert (line["program"], line["why"]) == ("cat", "to last")
        assert not program.done()
        await asyncio.to_thread(gate.write_text, "")
        assert (await program).exit_code == 0


async def test_a_program_that_runs_when_a_socket_is_lost_gets_all_the_time_it_needs(
    folder: Path, kube: KubeServer
):
    """The end of the container would be its end, too."""
    async with in_this_process(folder, kube, 0.0) as (node, _, running):
        program = asyncio.create_task(node._tools.programs.run("sleep", "1", why="to last"))
        (folder / "kubelet/plugins/ebs.csi.aws.com/csi.sock").unlink()
        with pytest.raises(NodeError, match="to be restarted"):
            await asyncio.wait_for(running, START_S)

        assert program.done()


async def test_what_an_operation_runs_next_gets_all_the_time_too_when_a_socket_is_lost(
    folder: Path, kube: KubeServer
):
    """As e2fsck does after blkid."""
    async with in_this_process(folder, kube, 0.0) as (node, _, running):
        programs = node._tools.programs

        async def work() -> None:
            await programs.run("sleep", "0.7", why="to last")
            await programs.run("sleep", "0.3", why="to last")

        stage = node._tools.operations.run("vol-1", "a request", work, what="Staging volume vol-1")
        operation = asyncio.create_task(stage)
        (folder / "kubelet/plugins/ebs.csi.aws.com/csi.sock").unlink()
        with pytest.raises(NodeError, match="to be restarted"):
            await asyncio.wait_for(running, START_S)

        assert operation.done()


async def test_a_program_that_runs_when_a_socket_is_lost_outlasts_no_signal(
    folder: Path, kube: KubeServer, gate: Path
):
    async with in_this_process(folder, kube, 0.1) as (node, stop, running):
        program = asyncio.create_task(node._tools.programs.run("cat", gate, why="to last"))
        with capture_logs() as logs:
            (folder / "kubelet/plugins/ebs.csi.aws.com/csi.sock").unlink()
            async with asyncio.timeout(START_S):
                while not any("a socket was lost" in line["event"] for line in logs):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        assert not running.done()
        assert "a socket file was removed" in node.not_ready()
        stop.set()
        await asyncio.wait_for(running, START_S)

        assert not program.done()
        await asyncio.to_thread(gate.write_text, "")
        await program


async def test_a_call_that_waits_does_not_take_the_programs_time(
    folder: Path, kube: KubeServer, monkeypatch: pytest.MonkeyPatch
):
    """Its next program would be begun late, and be ended with the pod, which does damage."""
    monkeypatch.setattr(app, "_CALLS_S", 0.1)
    fields = {**STAGE, "staging_target_path": f"{folder}/kubelet/{STAGES}/1/globalmount"}
    async with (
        in_this_process(folder, kube, 3600.0) as (node, stop, running),
        calling(folder / "kubelet/plugins/ebs.csi.aws.com/csi.sock") as kubelet,
    ):
        call = asyncio.create_task(kubelet("NodeStageVolume", timeout_s=3600, **fields))
        async with asyncio.timeout(START_S):
            while not len(node._tools.operations):
                assert not call.done(), call  # refused: it would never begin
                await asyncio.sleep(0.01)
        program = asyncio.create_task(node._tools.programs.run("sleep", "0.5", why="to last"))
        stop.set()
        await asyncio.wait_for(running, START_S)

        assert (await program).exit_code == 0
        assert len(node._tools.operations) == 0
        with pytest.raises(grpc.aio.AioRpcError):
            await asyncio.wait_for(call, START_S)
