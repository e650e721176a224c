"""Machines of plain folders, and an EC2 whose volumes appear in them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from provisioner.sandbox import control_plane
from provisioner.sandbox.real_node.disks import Disks
from provisioner.sandbox.real_node.plugs import Machine
from provisioner.sandbox.strict_ec2.client import StrictEc2
from tests.sandbox.lab import Lab

T = TypeVar("T")
GIB = 2**30
MIB = 2**20
needs_loops = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0 or not Path("/dev/loop-control").exists(),
    reason="loop devices need Linux, its loop module, and root",
)


class Room:
    """An EC2 with disks in it, and machines that have folders instead of namespaces."""

    def __init__(self, lab: Lab, disks: Disks, folder: Path) -> None:
        self.lab = lab
        self.disks = disks
        self.folder = folder
        self._letters = itertools.count(ord("a"))

    async def machine(self) -> Machine:
        return await self.plugged_in(await self.call(self.lab.instance))

    async def plugged_in(self, instance_id: str) -> Machine:
        machine = Machine(
            instance_id, self.folder / instance_id / "dev", self.folder / instance_id / "block"
        )
        for each in (machine.dev, machine.sys_dev_block):
            each.mkdir(parents=True, exist_ok=True)
        await self.disks.plug_in(machine)
        return machine

    async def call(self, function: Callable[..., T], *arguments: object, **names: object) -> T:
        """Call EC2 beside the loop that carries out what it says."""
        return await asyncio.to_thread(function, *arguments, **names)

    async def attached(self, volume: str, machine: Machine) -> Path:
        await self.call(self.lab.attach, volume, machine.instance_id, device=self._free_name())
        return await self.device(volume, machine)

    async def device(self, volume: str, machine: Machine) -> Path:
        link = link_of(machine, volume)
        await until(link.exists)
        return link.resolve()

    async def detached(self, volume: str, machine: Machine) -> None:
        await self.call(self.lab.detach, volume, InstanceId=machine.instance_id)
        await until(lambda: not self.disks.device_of(volume, machine.instance_id))
        await self.settled()

    async def settled(self) -> None:
        """Wait until all that EC2 has told is carried out."""
        await self.call(self.lab.snapshot, await self.call(self.lab.volume))

    def _free_name(self) -> str:
        return f"/dev/xvdb{chr(next(self._letters))}"


@contextlib.asynccontextmanager
async def opened(ec2: StrictEc2, client: object, folder: Path) -> AsyncIterator[Room]:
    ec2.control(snapshot_limits={"interval_s": 0})
    files = folder / "disks"
    async with Disks(ec2.endpoint, files, seed=1) as disks:
        yield Room(Lab(client, ec2.control), disks, folder)
        disks.check()
    await until(lambda: not loop_files(files))


def link_of(machine: Machine, volume: str) -> Path:
    name = f"nvme-Amazon_Elastic_Block_Store_{volume.replace('-', '')}"
    return machine.dev / "disk" / "by-id" / name


async def until(is_so: Callable[[], object]) -> None:
    async def asked() -> bool:
        return bool(is_so())

    async with asyncio.timeout(15):
        await control_plane.until(asked)


def write(device: Path, content: bytes, offset: int = 0) -> None:
    with device.open("r+b", buffering=0) as opened:
        opened.seek(offset)
        opened.write(content)
        os.fsync(opened.fileno())


def read(device: Path, length: int, offset: int = 0) -> bytes:
    with device.open("rb") as opened:
        opened.seek(offset)
        return opened.read(length)


def size_of(device: Path) -> int:
    with device.open("rb") as opened:
        return opened.seek(0, os.SEEK_END)


def loop_files(folder: Path) -> list[str]:
    """The loop devices whose files are in a folder."""
    found = []
    for each in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):  # it went just now
            found.append(each.read_text())
    return [each for each in found if each.startswith(str(folder))]
