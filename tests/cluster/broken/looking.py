"""The two commands, run as somebody at a terminal runs them."""

from __future__ import annotations

import asyncio
import json
import os
import sys

from provisioner.sandbox.up import Sandbox
from tests.cluster.cluster import Json

_AT_ONCE = asyncio.Semaphore(3)
"""Each takes a second of CPU; more would only be late together."""


async def ebs(sandbox: Sandbox, *arguments: str, **environment: str) -> tuple[int | None, Json]:
    """Run ``kubectl ebs`` with ``-o json``: its status, and what it prints.

    Raises:
        AssertionError: that is no JSON; what was printed is in the text.
    """
    async with _AT_ONCE:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "provisioner.cli", "ebs", *arguments, "-o", "json"),
            *("--kubeconfig", str(sandbox.plane.kubeconfig)),
            env={**os.environ, **sandbox.aws_environment, **environment},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
    try:
        found: Json = json.loads(out)
    except ValueError:
        raise AssertionError(f"{arguments}: {out.decode()}{err.decode()}") from None
    return process.returncode, found


async def explained(sandbox: Sandbox, target: str, namespace: str) -> Json:
    """What ``explain`` says of an object ("pvc data")."""
    kind, name = target.split(" ")
    _, found = await ebs(sandbox, "explain", kind, name, "-n", namespace)
    return found


async def checked(sandbox: Sandbox, *arguments: str) -> dict[str, Json]:
    """The checks of ``doctor`` by their ids."""
    _, found = await ebs(sandbox, "doctor", *arguments)
    return {each["id"]: each for each in found["checks"]}
