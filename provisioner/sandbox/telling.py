"""How the demo is told: chapters, the commands of a user, and what was seen to come of them."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table

from provisioner.sandbox import kubectl
from provisioner.sandbox.api import ApiError
from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.up import Sandbox

STEP_TIMEOUT_S = 120.0
FOLLOW_TIMEOUT_S = 120.0
_POLL_S = 0.1

Json = dict[str, Any]
T = TypeVar("T")


class Teller:
    """Prints to a console what happens in a sandbox."""

    def __init__(self, sandbox: Sandbox, console: Console) -> None:
        self._sandbox = sandbox
        self.console = console

    def chapter(self, title: str) -> None:
        """Begin a chapter."""
        self.console.print(f"\n[bold cyan]{title}[/]")

    def manifest(self, text: str) -> None:
        """Show what the user has written."""
        self.console.print(Panel(Syntax(text.strip(), "yaml", background_color="default")))

    def aside(self, text: str) -> None:
        """Say what the sandbox cannot show."""
        self.console.print(f"[dim]{text}[/]")

    def seen(self, what: str) -> None:
        """Tick off what was looked at already."""
        self.console.print(f"[green]✓[/] {what}")

    def show(self, rows: list[Json]) -> None:
        """Show pods, and what else is told of each."""
        table = Table()
        for column in rows[0]:
            table.add_column(column, overflow="fold")
        for row in sorted(rows, key=lambda row: str(row["pod"])):
            table.add_row(*(value.removesuffix(".ec2.internal") for value in row.values()))
        self.console.print(table)

    async def kubectl(self, *arguments: str, text: str = "", fails: bool = False) -> str:
        """Run the user's own tool and show what it says; that, too, is returned.

        Args:
            arguments: of kubectl.
            text: its standard input.
            fails: whether it is to end with another exit code than 0.

        Raises:
            SandboxError: it failed, or not.
        """
        status, said = await self._run(*arguments, text=text)
        if fails and not status:
            raise SandboxError(f"kubectl {' '.join(arguments)} did not fail: {said}")
        if status and not fails:
            self._sandbox.crew.check()
            raise SandboxError(f"kubectl {' '.join(arguments)} failed: {said}")
        return said

    async def follow(self, *arguments: str) -> str:
        """Run the user's own tool, and show each line when it comes; all that it said.

        Raises:
            SandboxError: it failed.
        """
        self._show_command(arguments)
        said: list[str] = []

        def say(line: str) -> None:
            said.append(line)
            self._print(line)

        status = await kubectl.followed(
            self._sandbox.plane,
            *arguments,
            say=say,
            timeout_s=FOLLOW_TIMEOUT_S,
            environment=self._environment(),
        )
        if status:
            self._sandbox.crew.check()
            raise SandboxError(f"kubectl {' '.join(arguments)} failed: {said[-1:]}")
        return "\n".join(said)

    async def refused(self, what: str, *words: str, text: str) -> None:
        """Have the user create something that is refused, in these words among others.

        Raises:
            SandboxError: it was not refused, or without these words.
        """
        status, said = await self._run("create", "-f", "-", text=text)
        if not status:
            raise SandboxError(f"not refused: {what}")
        missing = [word for word in words if word not in said]
        if missing:
            raise SandboxError(
                f"{what} was refused, but the message does not mention {missing[0]}: {said}"
            )
        self.console.print(f"[green]✓[/] {what} is refused")

    async def _run(self, *arguments: str, text: str) -> tuple[int, str]:
        self._show_command(arguments)
        status, output, errors = await kubectl.run(
            self._sandbox.plane, *arguments, text=text, environment=self._environment()
        )
        said = f"{output}{errors}".rstrip()
        if said:
            self._print(said)
        return status, said

    def _show_command(self, arguments: Sequence[str]) -> None:
        self._print(f"$ kubectl {shlex.join(arguments)}", style="dim")

    def _print(self, text: str, style: str = "") -> None:
        """Print it as it is."""
        self.console.print(text, style=style, highlight=False, markup=False, soft_wrap=True)

    def _environment(self) -> dict[str, str]:
        """Kubectl finds its plugin beside this Python, and the plugin finds the sandbox's EC2."""
        ours = str(Path(sys.executable).parent)
        path = os.pathsep.join([ours, os.environ.get("PATH", os.defpath)])
        return {**os.environ, **self._sandbox.aws_environment, "PATH": path}

    async def until(self, what: str, look: Callable[[], Awaitable[T | None]]) -> T:
        """Look until it is so; told with the time that it took.

        Raises:
            SandboxError: a part died, or it was not seen in time.
        """
        started = time.monotonic()
        with self.console.status(what):
            while not (seen := await self._look(look)):
                self._sandbox.crew.check()
                if time.monotonic() - started > STEP_TIMEOUT_S:
                    raise SandboxError(f"not seen in {STEP_TIMEOUT_S:g} s: {what}")
                await asyncio.sleep(_POLL_S)
        self.console.print(f"[green]✓[/] {what} [dim]({time.monotonic() - started:.1f} s)[/]")
        return seen

    async def _look(self, look: Callable[[], Awaitable[T | None]]) -> T | None:
        try:
            return await look()
        except (aiohttp.ClientError, ApiError, BotoCoreError, ClientError, TimeoutError):
            return None  # who did not answer may be dead: the crew knows in a moment
