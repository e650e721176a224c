"""A formatter on a machine of loop devices, with the real programs."""

from dataclasses import dataclass

import pytest

from provisioner.model.errors import NodeError
from provisioner.node.devices.lookup import Device, Devices
from provisioner.node.formatting.format import FileSystemRequest, Formatter, Found
from provisioner.node.formatting.rules import MARK_BYTES, is_mark_of, mark_offsets
from provisioner.node.runtime.blocking import BlockingCalls
from provisioner.node.runtime.programs import Programs
from tests.node.loop_disks import SIZE_BYTES, VOLUME, Consents, Disk, Machine


@dataclass
class Workshop:
    """One volume's disk, and all that formats it."""

    machine: Machine
    disk: Disk
    consents: Consents
    programs: Programs
    volume_id: str = VOLUME

    async def device(self) -> Device:
        return await Devices(self.machine.dirs, BlockingCalls()).find(
            self.volume_id, "", "", wait_s=0
        )

    async def ensure(
        self,
        file_system: str = "ext4",
        *,
        origin: str = "blank",
        read_only: bool = False,
        **options: str,
    ) -> Found:
        """As a process that has just begun would: nothing is remembered."""
        formatter = Formatter(
            self.programs,
            Devices(self.machine.dirs, BlockingCalls()),
            self.consents,
            BlockingCalls(),
        )
        wanted = FileSystemRequest(file_system, options, read_only)
        return await formatter.ensure(await self.device(), wanted, origin)

    async def refusal(
        self, file_system: str = "ext4", *, origin: str = "blank", read_only: bool = False
    ) -> NodeError:
        """What is said; and nothing may have been written, not a byte."""
        before = self.disk.checksum()
        with pytest.raises(NodeError) as refused:
            await self.ensure(file_system, origin=origin, read_only=read_only)
        assert self.disk.checksum() == before
        return refused.value

    @property
    def is_marked(self) -> bool:
        return any(self.marks)

    @property
    def marks(self) -> list[bool]:
        """Whether each place of the disk's first size has a mark."""
        return [
            is_mark_of(self.disk.read(offset, MARK_BYTES), self.volume_id)
            for offset in mark_offsets(SIZE_BYTES)
        ]
