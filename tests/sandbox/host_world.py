"""A node's namespaces with no kubelet in them, and what tests ask of them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from provisioner.sandbox.control_plane import until
from provisioner.sandbox.real_node import cgroups
from provisioner.sandbox.real_node.host import Host

ENVIRONMENT = {"PATH": os.defpath}


class World:
    def __init__(self, folder: Path) -> None:
        self.lost: list[str] = []
        self.folder = folder
        visible = (Path(sys.prefix), Path(sys.base_prefix), folder)
        self.host = Host(folder / "node", visible, self.lost.append)

    def log(self, name: str) -> Path:
        path = self.folder / f"{name}.log"
        self.host.log_of(name, path)
        return path

    async def start(self, name: str, *argv: str) -> None:
        await self.host.start(name, argv, ENVIRONMENT)


@contextlib.asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[World]:
    world = World(folder)
    await world.host.on()
    yield world
    await world.host.off()


def groups_of(name: str) -> list[Path]:
    return [*cgroups.ROOT.glob(f"*/{name}"), *cgroups.ROOT.glob(name)]


def shown_by(loop: str) -> str:
    """The file that a loop device is of, "" if it is none's."""
    with contextlib.suppress(OSError):  # it may go while it is read
        return Path("/sys/block", loop, "loop/backing_file").read_text().strip()
    return ""


async def printed(log: Path, text: str) -> None:
    async def there() -> bool:
        return log.exists() and text in log.read_text()

    async with asyncio.timeout(10):
        await until(there)


async def output(world: World, script: str) -> str:
    code, out, errors = await world.host.run("sh", "-c", script)
    assert code == 0, errors
    return out.strip()
