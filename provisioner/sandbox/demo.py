"""The told story of ``sandbox demo``: each step is only ticked off when the API has shown it.

The commands are a user's own kubectl; what they led to is read from the API server and from EC2.
A chapter is a module of ``chapters`` with a ``TITLE`` and ``tell(stage)``, and a line below.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Protocol

from rich.console import Console

from provisioner.sandbox.chapters import (
    by_hand,
    change,
    claim,
    clone,
    cycles,
    end,
    explained,
    full_zone,
    grow,
    in_tree,
    installed,
    mounted_growth,
    moving_file,
    never_formatted,
    other_zone,
    refusals,
    restore,
    snapshot,
    stateful_set,
)
from provisioner.sandbox.errors import SandboxError
from provisioner.sandbox.installed.archive import ImageArchive
from provisioner.sandbox.kubectl import kubectl
from provisioner.sandbox.real_node.remains import remains
from provisioner.sandbox.stage import Stage
from provisioner.sandbox.up import Sandbox


class Chapter(Protocol):
    """What a module of ``chapters`` has."""

    TITLE: str

    def tell(self, stage: Stage) -> Awaitable[None]:
        """Do it and look; raises ``SandboxError`` at the first step that is not seen."""


REAL_NODES, REAL_ZONES = 3, 2
"""Two in the first zone, so that a volume can move, and one in another, so that a claim can."""

# In this order: a chapter may go on with what one before it has left.
CHAPTERS: tuple[Chapter, ...] = (
    claim,
    in_tree,
    stateful_set,
    full_zone,
    explained,
    by_hand,
    refusals,
    grow,
    change,
    snapshot,
    clone,
    restore,
)

# Told where there are real nodes, after the others; until then these are cordoned, as pods of other
# images would never run there.
ON_REAL_NODES: tuple[Chapter, ...] = (
    moving_file,
    mounted_growth,
    never_formatted,
    cycles,
    other_zone,
)

# Told after these where there is an image: from then on the product runs as pods.
WITH_AN_IMAGE: tuple[Chapter, ...] = (installed,)


class Story:
    """Tells the story; raises ``SandboxError`` at the first step that is not seen.

    Args:
        sandbox: real nodes, if it has any, are cordoned.
        console: to tell it to.
        why_no_real_nodes: in a clause.
        image: what is installed on real nodes, or why there is none, in a clause.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        console: Console,
        why_no_real_nodes: str = "this sandbox has none",
        image: ImageArchive | str = "there is no image",
    ) -> None:
        self._stage = Stage(sandbox, console)
        self._why_no_real_nodes = why_no_real_nodes
        self._stage.image = image if isinstance(image, ImageArchive) else None
        self._why_no_image = "" if isinstance(image, ImageArchive) else image

    async def tell(self) -> float:
        """All chapters, in order; how many seconds it took."""
        started = time.monotonic()
        has_nodes = bool(self._stage.sandbox.real_nodes)
        real = ON_REAL_NODES if has_nodes else ()
        if has_nodes and self._stage.image:
            real += WITH_AN_IMAGE
        with contextlib.closing(self._stage):
            for number, chapter in enumerate((*CHAPTERS, *real, end), start=1):
                if chapter is end and not has_nodes:
                    self._leave_out((*ON_REAL_NODES, *WITH_AN_IMAGE), self._why_no_real_nodes)
                elif chapter is end and self._why_no_image:
                    self._leave_out(WITH_AN_IMAGE, self._why_no_image)
                self._stage.teller.chapter(f"{number}. {chapter.TITLE}")
                await chapter.tell(self._stage)
        return time.monotonic() - started

    def _leave_out(self, chapters: Sequence[Chapter], why: str) -> None:
        titles = "".join(f"\n- {chapter.TITLE}" for chapter in chapters)
        self._stage.teller.console.print(
            f"\n[bold yellow]Not shown here[/], as {why}:{titles}", soft_wrap=True
        )


async def tell(
    console: Console,
    why_no_real_nodes: str = "",
    image: ImageArchive | str = "there is no image",
    *,
    binaries: Path | None = None,
) -> None:
    """Start a sandbox, tell the story in it, and end it.

    Args:
        console: to tell it to.
        why_no_real_nodes: why none can run here, in a clause; "" if they can.
        image: what is installed on real nodes, or why there is none, in a clause.
        binaries: the programs' folder, with Helm if there is an image; by default found or built.

    Raises:
        SandboxError: a step was not seen, or something of a real node is left on this machine.
    """
    async with Sandbox.start(
        nodes=6,
        zones=3,
        latency="real",
        throttle="documented",
        webhook=True,
        binaries=binaries,
        real_nodes=0 if why_no_real_nodes else REAL_NODES,
        real_zones=REAL_ZONES,
    ) as sandbox:
        real = sandbox.real_nodes
        if real:
            await kubectl(sandbox.plane, "cordon", *(node.name for node in real))
        took = await Story(sandbox, console, why_no_real_nodes, image).tell()
        groups = [node.host.cgroup for node in real]
    if real:
        if left := remains(sandbox.plane.folder, groups):
            raise SandboxError(f"real nodes left behind on this machine: {', '.join(left)}")
        console.print("[green]✓[/] the nodes left no loop device, mount or cgroup behind")
    console.print(
        f"\n[bold green]The demo is complete[/]: every step was verified, in {took:.0f} s."
    )
