"""What tests of real nodes share: whether there can be one, and a look into its pods."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from provisioner.sandbox import kubectl as kubectl_tool
from provisioner.sandbox.control_plane import until
from provisioner.sandbox.kubectl import kubectl
from provisioner.sandbox.real_node import cloud
from provisioner.sandbox.real_node.node import PLUGIN, RealNode
from provisioner.sandbox.real_node.requirements import missing
from provisioner.sandbox.up import Sandbox
from tests.cluster.background import Background

BACK_S = 90.0

NEEDS_A_REAL_NODE = pytest.mark.skipif(missing() != "", reason=missing())


async def run(sandbox: Sandbox, document: dict[str, Any]) -> None:
    """Create a pod and wait until it is ready."""
    typed = {"apiVersion": "v1", "kind": "Pod"} | document
    await kubectl(sandbox.plane, "apply", "-f", "-", text=json.dumps(typed))
    name = f"pod/{document['metadata']['name']}"
    await kubectl(sandbox.plane, "wait", "--for=condition=Ready", "--timeout=50s", name)


async def until_within(
    sandbox: Sandbox, name: str, *command: str, namespace: str = "default"
) -> None:
    """Run a command in a pod until it succeeds."""

    async def succeeds() -> bool:
        where = ("exec", name, "--namespace", namespace, "--")
        code, _, _ = await kubectl_tool.run(sandbox.plane, *where, *command)
        return code == 0

    async with asyncio.timeout(30):
        await until(succeeds)


async def within(sandbox: Sandbox, name: str, *command: str, namespace: str = "default") -> str:
    """What a command prints in a pod."""
    where = ("exec", name, "--namespace", namespace, "--")
    return (await kubectl(sandbox.plane, *where, *command)).strip()


async def is_registered(real: Background, node: RealNode) -> bool:
    api = real.sandbox.plane.api
    return await real.call(cloud.has_driver(api, node.name, node.instance.instance_id))


def times_told(node: RealNode, part: str, words: str) -> int:
    return node.log(part).read_text().count(words)


@asynccontextmanager
async def more_told(node: RealNode, part: str, words: str) -> AsyncIterator[None]:
    """Wait, after the block, until a part's log has more of these words than before it."""
    before = times_told(node, part, words)
    yield

    async def told() -> bool:
        return await asyncio.to_thread(times_told, node, part, words) > before

    await asyncio.wait_for(until(told), BACK_S)


@asynccontextmanager
async def registered_anew(real: Background, node: RealNode) -> AsyncIterator[None]:
    """Wait, after the block, until the kubelet has told that it registered the plugin once more."""
    async with more_told(node, PLUGIN, "registered with the kubelet"):
        yield
    await asyncio.wait_for(real.call(node.ready()), BACK_S)
    assert await is_registered(real, node)
