"""The strict EC2 as a process of the sandbox."""

from __future__ import annotations

import re
import sys

from provisioner.sandbox import control_plane, own
from provisioner.sandbox.crew import Crew
from provisioner.sandbox.errors import SandboxError


async def start(crew: Crew, port: int, latency: str, throttle: str) -> None:
    """Start it; see ``Sandbox.start`` for what the arguments may be.

    Raises:
        SandboxError: it cannot be started.
    """
    options = ("--port", str(port), "--latency", latency, "--throttle", throttle)
    await crew.start(
        "strict-ec2",
        [sys.executable, "-m", "provisioner.sandbox.strict_ec2", *options],
        own.environment(),
    )


async def ready(crew: Crew, timeout_s: float) -> str:
    """Wait until it answers, and return its URL.

    Raises:
        SandboxError: it ended, or took too long.
    """
    log = crew.parts["strict-ec2"].log
    said: list[str] = []

    async def listening() -> bool:
        found = re.search(r"^ready (http://\S+)$", log.read_text(), re.MULTILINE)
        said.extend(found.groups() if found else ())
        return bool(said)

    await crew.unless_failed(
        control_plane.until(listening), timeout_s, "the start of the strict EC2"
    )
    if not said:
        raise SandboxError("the strict EC2 ended")
    return said[0]
