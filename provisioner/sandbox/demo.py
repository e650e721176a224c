"""The told story of ``sandbox demo``: each step is only ticked off when the API has shown it.

The commands are a user's own kubectl; what they led to is read from the API server and from EC2.
A chapter is a module of ``chapters`` with a ``TITLE`` and ``tell(stage)``, and a line below.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable
from typing import Protocol

from rich.console import Console

from provisioner.sandbox.chapters import (
    by_hand,
    change,
    claim,
    clone,
    end,
    full_zone,
    grow,
    in_tree,
    refusals,
    restore,
    snapshot,
    stateful_set,
)
from provisioner.sandbox.stage import Stage
from provisioner.sandbox.up import Sandbox


class Chapter(Protocol):
    """What a module of ``chapters`` has."""

    TITLE: str

    def tell(self, stage: Stage) -> Awaitable[None]:
        """Do it and look; raises ``SandboxError`` at the first step that is not seen."""


# In this order: a chapter may go on with what one before it has left.
CHAPTERS: tuple[Chapter, ...] = (
    claim,
    in_tree,
    stateful_set,
    full_zone,
    by_hand,
    refusals,
    grow,
    change,
    snapshot,
    clone,
    restore,
    end,
)


class Story:
    """Tells the story; raises ``SandboxError`` at the first step that is not seen."""

    def __init__(self, sandbox: Sandbox, console: Console) -> None:
        self._stage = Stage(sandbox, console)

    async def tell(self) -> None:
        """All chapters, in order."""
        started = time.monotonic()
        with contextlib.closing(self._stage):
            for number, chapter in enumerate(CHAPTERS, start=1):
                self._stage.teller.chapter(f"{number}. {chapter.TITLE}")
                await chapter.tell(self._stage)
        took = time.monotonic() - started
        self._stage.teller.console.print(
            f"\n[bold green]The story is told[/]: every step seen, {took:.0f} s."
        )


async def tell(console: Console) -> None:
    """Start a sandbox, tell the story in it, and end it.

    Raises:
        SandboxError: a step was not seen.
    """
    async with Sandbox.start(
        nodes=6, zones=3, latency="real", throttle="documented", webhook=True
    ) as sandbox:
        await Story(sandbox, console).tell()
