"""What a machine sees of an attached volume: a device, udev's links to it, and its sysfs.

A Nitro instance sees an EBS volume as NVMe disk whose serial is the volume's id without dash, under
a number that says nothing (EC2 user guide "Amazon EBS volumes and NVMe"; link names as udev's rules
60-persistent-storage make them). A loop device has no serial, so the machine's ``/sys/dev/block``
is a folder of ours.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from provisioner.sandbox.real_node import loops
from provisioner.sandbox.real_node.loops import Loop

_MODEL: Final = "Amazon Elastic Block Store"
_MODEL_LENGTH: Final = 40
_SYS_BLOCK: Final = Path("/sys/devices/virtual/block")


@dataclass(frozen=True, slots=True)
class Machine:
    """An instance that runs here.

    Attributes:
        dev: its ``/dev``, as seen from here.
        sys_dev_block: the folder that it has as ``/sys/dev/block``.
    """

    instance_id: str
    dev: Path
    sys_dev_block: Path


@dataclass(frozen=True, slots=True)
class Plug:
    """One volume at one machine: ``name`` is the device's, such as nvme7n1."""

    machine: Machine
    volume_id: str
    name: str
    loop: Loop

    def put(self) -> None:
        """Make what the machine sees; the link that everybody waits for comes last, as by udev."""
        self._put_sysfs()
        device = self.machine.dev / self.name
        os.mknod(device, stat.S_IFBLK | 0o600, os.makedev(loops.MAJOR, self.loop.number))
        for link in self._links():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(f"../../{self.name}")

    def take(self) -> None:
        """Take all of it away; what is gone already, with the machine perhaps, is no mistake.

        Its number is in sysfs no more either, though a mount may keep the loop device: of an NVMe
        disk that is removed while it is mounted, Linux keeps no more than the mount.
        """
        for link in self._links():
            with suppress(OSError):
                link.unlink()
        with suppress(OSError):
            (self.machine.dev / self.name).unlink()
        shutil.rmtree(self._sysfs(), ignore_errors=True)

    @property
    def serial(self) -> str:
        """The volume's id as NVMe has it."""
        return self.volume_id.replace("-", "", 1)

    def _links(self) -> Iterator[Path]:
        by_id = self.machine.dev / "disk" / "by-id"
        # The second one names the namespace, as newer versions of udev do beside the first.
        for suffix in ("_1", ""):
            yield by_id / f"nvme-{_MODEL.replace(' ', '_')}_{self.serial}{suffix}"

    def _sysfs(self) -> Path:
        return self.machine.sys_dev_block / f"{loops.MAJOR}:{self.loop.number}"

    def _put_sysfs(self) -> None:
        folder = self._sysfs()
        if folder.is_symlink():
            folder.unlink()
        (folder / "device").mkdir(parents=True)
        (folder / "device" / "serial").write_text(f"{self.serial}\n")
        (folder / "device" / "model").write_text(f"{_MODEL:{_MODEL_LENGTH}}\n")
        for entry in (_SYS_BLOCK / f"loop{self.loop.number}").iterdir():
            if entry.name not in ("device", "loop"):
                link = f"../../../devices/virtual/block/loop{self.loop.number}/{entry.name}"
                (folder / entry.name).symlink_to(link)
