"""The user's own tool, run as the administrator of a sandbox, for a bounded time."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from provisioner.sandbox import processes
from provisioner.sandbox.control_plane import ControlPlane
from provisioner.sandbox.errors import SandboxError

TIMEOUT_S = 120.0  # a kubectl plugin was seen to need more than 60 s at load 25 on 2 cores


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
    pipes = (asyncio.subprocess.PIPE, asyncio.subprocess.PIPE)
    async with _running(plane, arguments, TIMEOUT_S, environment, pipes) as process:
        output, errors = await process.communicate(text.encode())
    return process.returncode or 0, output.decode(), errors.decode()


async def followed(
    plane: ControlPlane,
    *arguments: str,
    say: Callable[[str], None],
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
) -> int:
    """Run kubectl, and have each line of output and errors said when it comes; its exit code.

    It does not outlive us, nor a cancellation.

    Raises:
        SandboxError: it took longer than ``timeout_s``.
    """
    pipes = (asyncio.subprocess.DEVNULL, asyncio.subprocess.STDOUT)
    async with _running(plane, arguments, timeout_s, environment, pipes) as process:
        assert process.stdout is not None
        async for line in process.stdout:
            say(line.decode().rstrip())
        return await process.wait()


@contextlib.asynccontextmanager
async def _running(
    plane: ControlPlane,
    arguments: Sequence[str],
    timeout_s: float,
    environment: Mapping[str, str] | None,
    pipes: tuple[int, int],
) -> AsyncIterator[asyncio.subprocess.Process]:
    """``pipes``: its standard input and errors."""
    stdin, stderr = pipes
    process = await asyncio.create_subprocess_exec(
        *processes.dying_with_us([str(plane.binaries / "kubectl"), *arguments]),
        env={**(environment or os.environ), "KUBECONFIG": str(plane.kubeconfig)},
        stdin=stdin,
        stdout=asyncio.subprocess.PIPE,
        stderr=stderr,
    )
    try:
        async with asyncio.timeout(timeout_s):
            yield process
    except TimeoutError as late:
        command = " ".join(("kubectl", *arguments))
        raise SandboxError(f"{command} did not end within {timeout_s:g} s") from late
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def kubectl(plane: ControlPlane, *arguments: str, text: str = "") -> str:
    """Run kubectl as ``run`` does; what it printed.

    Raises:
        SandboxError: it failed or took too long.
    """
    code, output, errors = await run(plane, *arguments, text=text)
    if code:
        raise SandboxError(f"kubectl {arguments[0]} failed: {errors.strip()}")
    return output
