"""Helm, run as the administrator of a sandbox."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from provisioner.sandbox import processes
from provisioner.sandbox.binaries import ensure_binaries
from provisioner.sandbox.kubectl import kubectl
from provisioner.sandbox.programs import CHART
from provisioner.sandbox.up import Sandbox
from tests.chart.helm import CHART_FOLDER, NAMESPACE

Json = dict[str, Any]
RELEASE = "ebs-provisioner"
TIMEOUT_S = 120


@dataclass(frozen=True, slots=True)
class Releases:
    """Releases of the chart in one sandbox; ``home`` is Helm's, and nothing of the user's."""

    sandbox: Sandbox
    home: Path

    async def helm(self, *arguments: str, text: str = "") -> tuple[int, str, str]:
        """Run Helm; its exit code, output and errors."""
        plane = self.sandbox.plane
        program = str(ensure_binaries(programs=CHART) / "helm")
        process = await asyncio.create_subprocess_exec(
            *processes.dying_with_us([program, *arguments, f"--kubeconfig={plane.kubeconfig}"]),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={"PATH": os.environ["PATH"], "HOME": str(self.home)},
        )
        async with asyncio.timeout(TIMEOUT_S):
            output, errors = await process.communicate(text.encode())
        return process.returncode or 0, output.decode(), errors.decode()

    async def run(
        self,
        command: str,
        values: Json | None = None,
        *more: str,
        release: str = RELEASE,
        namespace: str = NAMESPACE,
        chart: Path = CHART_FOLDER,
    ) -> str:
        """Install or upgrade the chart with these values; what Helm printed."""
        code, output, errors = await self._of_chart(
            command, values, *more, release=release, namespace=namespace, chart=chart
        )
        assert code == 0, errors
        return output

    async def refused(
        self, command: str, values: Json | None = None, *more: str, **where: Any
    ) -> str:
        """Have Helm refuse the chart; why."""
        code, output, errors = await self._of_chart(command, values, *more, **where)
        assert code != 0, output
        return errors

    async def _of_chart(
        self,
        command: str,
        values: Json | None,
        *more: str,
        release: str = RELEASE,
        namespace: str = NAMESPACE,
        chart: Path = CHART_FOLDER,
    ) -> tuple[int, str, str]:
        return await self.helm(
            *(command, release, str(chart), "--namespace", namespace, "--values", "-", *more),
            text=yaml.safe_dump(values or {}),
        )

    async def kubectl(self, *arguments: str, text: str = "") -> str:
        """Run kubectl."""
        return await kubectl(self.sandbox.plane, *arguments, text=text)

    async def get(self, *arguments: str) -> Json:
        """One object, or a list of them."""
        found: Json = yaml.safe_load(await self.kubectl("get", *arguments, "--output=yaml"))
        return found

    async def version(self) -> str:
        """The API server's, like ``v1.36.3``."""
        found = yaml.safe_load(await self.kubectl("version", "--output=yaml"))
        return str(found["serverVersion"]["gitVersion"])
