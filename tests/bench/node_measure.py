"""The node plugin: what it weighs, how fast it mounts, alone and under a real kubelet."""

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from provisioner.sandbox.processes import dying_with_us
from provisioner.sandbox.real_node import requirements
from tests.bench import node_pods, processes
from tests.bench.hands import BenchError
from tests.bench.node_numbers import Machine, Node
from tests.node import privileged

_ROOT = Path(__file__).parents[2]
# Its processes end with it, however it ends, and with them its mounts and loop devices.
_PRIVATELY = (
    *("unshare", "--mount", "--propagation", "private"),
    *("--pid", "--fork", "--kill-child", "--mount-proc"),
)
_TIMEOUT_S = 600.0
_SHOWN_CHARACTERS = 2000


async def measure(parent: Path) -> Node:
    """Measure what this machine allows: mounts take root and loop devices.

    Raises:
        BenchError: it should be possible here, and it failed.
        SandboxError: the same of the real node.
    """
    why_no_machine, why_no_pods = privileged.lacks(), requirements.missing()
    began_s, busy_s = time.monotonic(), processes.busy_s()
    machine = None if why_no_machine else await _machine(parent)
    # Only of this part: the pods' part keeps a whole cluster busy.
    cores_s = (time.monotonic() - began_s) * (os.cpu_count() or 1)
    busy = (processes.busy_s() - busy_s) / cores_s if machine else 0.0
    pods = () if why_no_pods else await node_pods.measure(_below(parent))
    return Node(machine, why_no_machine, pods, why_no_pods, busy)


def _below(parent: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=parent))  # short, for sockets


async def _machine(parent: Path) -> Machine:
    """Run ``node_world`` in namespaces of its own."""
    world = (*_PRIVATELY, sys.executable, "-m", "tests.bench.node_world", str(_below(parent)))
    process = await asyncio.create_subprocess_exec(
        *dying_with_us(world),
        cwd=_ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            output, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()  # until none of them has its end of the pipes any more
    if process.returncode:
        told = errors.decode(errors="replace")[-_SHOWN_CHARACTERS:]
        raise BenchError(f"the node plugin's part ended with {process.returncode}: {told}")
    return msgspec.json.decode(output, type=Machine)
