"""The preStop hook as its pod runs it: a process with the account of the manifests."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from provisioner.model.driver import EBS_DRIVER
from provisioner.sandbox.api import Api, ApiError
from provisioner.sandbox.installation import install_node
from provisioner.sandbox.up import Sandbox
from tests.cluster.background import Background
from tests.cluster.cluster import NODES

NODE = "drained"
# A process has to start, and may have to share its core.
SOON_S = 60.0


class Hook:
    """A hook that runs; ``said`` is what it has printed."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.said = ""

    async def says(self, words: str) -> None:
        assert self._process.stdout is not None
        async with asyncio.timeout(SOON_S):
            while words not in self.said:
                line = await self._process.stdout.readline()
                assert line, self.said
                self.said += line.decode()

    async def ends(self) -> int:
        assert self._process.stdout is not None
        async with asyncio.timeout(SOON_S):
            self.said += (await self._process.stdout.read()).decode()
            return await self._process.wait()


class Machine:
    """A node with the plugin's account."""

    def __init__(self, sandbox: Sandbox, token_file: Path) -> None:
        self._sandbox = sandbox
        self._token_file = token_file

    @contextlib.asynccontextmanager
    async def hook(self, within: str = "60s") -> AsyncIterator[Hook]:
        plane = self._sandbox.plane
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "provisioner.cli", "node", f"--node-name={NODE}"),
            *(f"--kube-server={plane.server}", f"--token-file={self._token_file}"),
            *(f"--ca-file={plane.credentials.authority}", "drain", f"--timeout={within}"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        try:
            yield Hook(process)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


@pytest_asyncio.fixture
async def machine(
    background: Background, sandbox: Sandbox, api: Api, tmp_path: Path
) -> AsyncIterator[Machine]:
    account = await background.call(install_node(sandbox.plane))
    issued = sandbox.plane.service_account_token(account.namespace, account.name)
    token_file = tmp_path / "token"
    token_file.write_text(await background.call(issued))
    await api.create(NODES, {"metadata": {"name": NODE}, "spec": {}})
    try:
        yield Machine(sandbox, token_file)
    finally:
        with contextlib.suppress(ApiError):
            await api.delete(f"{NODES}/{NODE}")


async def uses(api: Api, *volumes: str) -> None:
    """What the kubelet writes of the volumes that it uses."""
    names = [f"kubernetes.io/csi/{each}" for each in volumes]
    await api.patch(f"{NODES}/{NODE}/status", {"status": {"volumesInUse": names}})


async def cordon(api: Api) -> None:
    await api.patch(f"{NODES}/{NODE}", {"spec": {"unschedulable": True}})


async def test_a_node_that_stays_is_left_at_once(machine: Machine, api: Api):
    await uses(api, f"{EBS_DRIVER}^vol-1")

    async with machine.hook() as hook:
        assert await hook.ends() == 0
        assert "the node stays" in hook.said


async def test_a_node_that_goes_is_kept_until_our_last_volume_is_off(machine: Machine, api: Api):
    other = "efs.csi.aws.com^fs-4"
    await uses(api, f"{EBS_DRIVER}^vol-1", f"{EBS_DRIVER}^vol-2", other)
    await cordon(api)

    async with machine.hook() as hook:
        await hook.says("it is cordoned")
        await hook.says("vol-1")
        await uses(api, f"{EBS_DRIVER}^vol-2", other)
        await hook.says("['vol-2']")
        await uses(api, other)
        assert await hook.ends() == 0

    assert "no volume is left" in hook.said
    assert "fs-4" not in hook.said


async def test_a_node_that_is_gone_and_has_nothing_mounted_is_left(machine: Machine, api: Api):
    await api.delete(f"{NODES}/{NODE}")

    async with machine.hook() as hook:
        assert await hook.ends() == 0
        assert "its Node is gone" in hook.said


async def test_after_its_time_it_fails_with_one_line_about_what_is_left(machine: Machine, api: Api):
    await uses(api, f"{EBS_DRIVER}^vol-1")
    await cordon(api)

    began_s = time.monotonic()
    async with machine.hook("3s") as hook:
        assert await hook.ends() == 1

    assert time.monotonic() - began_s >= 3.0
    last = hook.said.splitlines()[-1]
    assert last.endswith(f"timed out after 3 s on node {NODE}: still in use: vol-1")
