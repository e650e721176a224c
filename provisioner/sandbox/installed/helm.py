"""Helm, run as the administrator of a sandbox, for a bounded time."""

from __future__ import annotations

import asyncio
import os

from provisioner.sandbox import processes, workdir
from provisioner.sandbox.control_plane import ControlPlane
from provisioner.sandbox.errors import SandboxError

TIMEOUT_S = 240.0


async def run(plane: ControlPlane, *arguments: str, text: str = "") -> tuple[int, str, str]:
    """Run Helm with ``text`` on its standard input; its exit code, output and errors.

    It has nothing of the user's: no kubeconfig, no repositories, no plugins. It does not outlive
    us, nor a cancellation.

    Raises:
        SandboxError: it took too long.
    """
    program = str(plane.binaries / "helm")
    home = plane.folder / workdir.STATE / "helm"
    home.mkdir(exist_ok=True)
    process = await asyncio.create_subprocess_exec(
        *processes.dying_with_us([program, *arguments, f"--kubeconfig={plane.kubeconfig}"]),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"PATH": os.defpath, "HOME": str(home)},
    )
    try:
        async with asyncio.timeout(TIMEOUT_S):
            output, errors = await process.communicate(text.encode())
    except TimeoutError as late:
        raise SandboxError(f"helm {arguments[0]} did not end within {TIMEOUT_S:g} s") from late
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode or 0, output.decode(), without_links(errors.decode())


def without_links(errors: str) -> str:
    """Return what Helm printed as errors, without a line for each symbolic link of our chart."""
    lines = errors.splitlines(keepends=True)
    return "".join(line for line in lines if 'msg="found symbolic link' not in line)
