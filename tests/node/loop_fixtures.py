"""Fixtures of tests on loop devices; a plugin, so no module imports it."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from provisioner.node.runtime.programs import Programs
from tests.node.formatters import Workshop
from tests.node.loop_disks import Consents, Machine, run


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Machine]:
    """A machine without any disk."""
    found = Machine(tmp_path)
    found.dirs.dev.mkdir()
    (found.dirs.sys / "dev" / "block").mkdir(parents=True)
    yield found
    for disk in found.disks:
        run("blockdev", "--setrw", disk.loop)  # a loop device keeps this for its next user
        run("losetup", "-d", disk.loop)


@pytest.fixture
async def workshop(host: Machine) -> AsyncIterator[Workshop]:
    """An attached volume that was never written, and what formats it."""
    programs = Programs()
    yield Workshop(host, host.an_nvme_disk(), Consents(), programs)
    await asyncio.wait_for(programs.idle(), 60)
