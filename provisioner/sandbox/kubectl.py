"""The user's own tool, run as the administrator of a sandbox, for a bounded time."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping

from provisioner.sandbox import processes
from provisioner.sandbox.control_plane import ControlPlane
from provisioner.sandbox.errors import SandboxError

TIMEOUT_S = 60.0


async def run(
    plane: ControlPlane,
    *arguments: str,
    text: str = "",
    environment: Mapping[str, str] | None = None,
) -> tuple[int, str, str]:
    """Run kubectl with ``text`` on its standard input; its exit code, output and errors.

    It does not outlive us, nor a cancellation.

    Raises:
        SandboxError: it took too long. (``kubectl delete`` was once seen to wait for 35 minutes
            for a pod that was long gone, so such a wait is better done by looking.)
    """
    program = str(plane.binaries / "kubectl")
    process = await asyncio.create_subprocess_exec(
        *processes.dying_with_us([program, *arguments]),
        env={**(environment or os.environ), "KUBECONFIG": str(plane.kubeconfig)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(TIMEOUT_S):
            output, errors = await process.communicate(text.encode())
    except TimeoutError as late:
        command = " ".join(("kubectl", *arguments))
        raise SandboxError(f"{command} did not end within {TIMEOUT_S:g} s") from late
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode or 0, output.decode(), errors.decode()


async def kubectl(plane: ControlPlane, *arguments: str, text: str = "") -> str:
    """Run kubectl as ``run`` does; what it printed.

    Raises:
        SandboxError: it failed or took too long.
    """
    code, output, errors = await run(plane, *arguments, text=text)
    if code:
        raise SandboxError(f"kubectl {arguments[0]} failed: {errors.strip()}")
    return output
