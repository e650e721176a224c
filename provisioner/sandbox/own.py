"""Programs of ours in a sandbox: what they are run with, and how far they are."""

from __future__ import annotations

import os
import sys

import aiohttp


async def leads(probes: str) -> bool:
    """Whether a controller holds all leases and works."""
    timeout = aiohttp.ClientTimeout(total=2)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.get(f"http://{probes}/metrics") as reply,
    ):
        return "\nebs_provisioner_leader 1.0\n" in await reply.text()


async def is_ready(probes: str) -> bool:
    """Whether a program's probe says that it is ready."""
    timeout = aiohttp.ClientTimeout(total=2)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.get(f"http://{probes}/readyz") as reply,
    ):
        return reply.ok


def environment() -> dict[str, str]:
    """What our own programs are run with: our Python path, and nothing that names another AWS."""
    # Not PYTHONPATH alone: the package may be imported from a checkout that is only on sys.path.
    # Our own AWS settings must not reach the controller: it shall speak to the strict EC2 only.
    ours = {key: value for key, value in os.environ.items() if not key.startswith("AWS_")}
    return ours | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
