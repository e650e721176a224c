"""A process that formats the disk of a test: ``python -m tests.node.format_once FOLDER ext4``."""

import asyncio
import sys
from pathlib import Path

from provisioner.node.devices.lookup import Devices
from provisioner.node.formatting.format import FileSystemRequest, Formatter
from provisioner.node.runtime.blocking import BlockingCalls
from provisioner.node.runtime.programs import Programs
from tests.node.loop_disks import VOLUME, Consents, Machine


async def format_once(folder: Path, file_system: str) -> None:
    devices = Devices(Machine(folder).dirs, BlockingCalls())
    device = await devices.find(VOLUME, "", "", wait_s=0)
    wanted = FileSystemRequest(file_system, {}, read_only=False)
    sys.stdout.write("it begins\n")
    sys.stdout.flush()
    await Formatter(Programs(), devices, Consents(), BlockingCalls()).ensure(
        device, wanted, "blank"
    )
    sys.stdout.write("it ends\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(format_once(Path(sys.argv[1]), sys.argv[2]))
