"""What tests of real nodes share: whether there can be one, pods, and a look into them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from provisioner.sandbox import kubectl as kubectl_tool
from provisioner.sandbox.control_plane import until
from provisioner.sandbox.kubectl import kubectl
from provisioner.sandbox.real_node.image import POD_IMAGE
from provisioner.sandbox.real_node.requirements import missing
from provisioner.sandbox.up import Sandbox

NEEDS_A_REAL_NODE = pytest.mark.skipif(missing() != "", reason=missing())


def pod(name: str, node: str, *command: str) -> dict[str, Any]:
    """A pod that runs a command of busybox on one node, and ends without delay."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "hostNetwork": True,
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": {"kubernetes.io/hostname": node},
            "containers": [{"name": "it", "image": POD_IMAGE, "command": list(command)}],
        },
    }


async def run(sandbox: Sandbox, document: dict[str, Any]) -> None:
    """Create a pod and wait until it is ready."""
    await kubectl(sandbox.plane, "apply", "-f", "-", text=json.dumps(document))
    name = f"pod/{document['metadata']['name']}"
    await kubectl(sandbox.plane, "wait", "--for=condition=Ready", "--timeout=50s", name)


async def until_within(sandbox: Sandbox, name: str, *command: str) -> None:
    """Run a command in a pod until it succeeds."""

    async def succeeds() -> bool:
        code, _, _ = await kubectl_tool.run(sandbox.plane, "exec", name, "--", *command)
        return code == 0

    async with asyncio.timeout(30):
        await until(succeeds)


async def within(sandbox: Sandbox, name: str, *command: str) -> str:
    """What a command prints in a pod."""
    return (await kubectl(sandbox.plane, "exec", name, "--", *command)).strip()
