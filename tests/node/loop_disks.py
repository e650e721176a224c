"""Loop devices that look like EBS volumes: with NVMe names, links and serials, in folders of a test.

Only root can have them. Each test has its own, and they go with it.
"""

import hashlib
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from provisioner.node.formatting.format import Consents as RealConsents
from provisioner.node.formatting.rules import Consent
from provisioner.node.runtime.sysfs import SystemDirs
from tests.node.machine import why_not

MIB = 1024 * 1024
SIZE_BYTES = 512 * MIB
_BLOCK_BYTES = 4096
VOLUME = "vol-0123456789abcdef0"
WHY_NOT = why_not()
NEEDS_LOOP_DEVICES = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)


def run(*argv: str | Path) -> str:
    """Run a program that has to succeed; its output."""
    ended = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 0, f"{argv}: {ended.stderr}"
    return ended.stdout


@dataclass(frozen=True)
class Disk:
    """A loop device.

    Attributes:
        content: the sparse file behind it.
        loop: the machine's own name of it, ``/dev/loop7``.
        node: its name in the test's ``dev``.
    """

    content: Path
    loop: Path
    node: Path

    @property
    def number(self) -> str:
        at = self.loop.stat().st_rdev
        return f"{os.major(at)}:{os.minor(at)}"

    def write(self, offset: int, data: bytes) -> None:
        """Write through the device, as a program would."""
        with self.loop.open("r+b") as device:
            device.seek(offset)
            device.write(data)
            device.flush()
            os.fsync(device.fileno())

    def read(self, offset: int, length: int) -> bytes:
        run("blockdev", "--flushbufs", self.loop)
        with self.loop.open("rb") as device:
            device.seek(offset)
            return device.read(length)

    def checksum(self) -> str:
        """Of all its bytes."""
        run("blockdev", "--flushbufs", self.loop)
        return checksum_of(self.content)

    def resize(self, size_bytes: int) -> None:
        os.truncate(self.content, size_bytes)
        run("losetup", "-c", self.loop)

    def set_read_only(self) -> None:
        run("blockdev", "--setro", self.loop)

    def empty(self) -> None:
        """Make it as new."""
        run("blockdev", "--flushbufs", self.loop)
        size = self.content.stat().st_size
        os.truncate(self.content, 0)
        os.truncate(self.content, size)
        run("blockdev", "--flushbufs", self.loop)


@dataclass
class Machine:
    """Folders in place of ``/dev`` and ``/sys``, and the disks in them."""

    folder: Path
    disks: list[Disk] = field(default_factory=list)

    @property
    def dirs(self) -> SystemDirs:
        return SystemDirs(dev=self.folder / "dev", sys=self.folder / "sys", proc=Path("/proc"))

    @property
    def links(self) -> Path:
        return self.dirs.dev / "disk" / "by-id"

    def a_disk(self, name: str, *, size_bytes: int = SIZE_BYTES) -> Disk:
        """A disk with a name and nothing more."""
        content = self.folder / f"{name}.img"
        with content.open("xb") as file:
            file.truncate(size_bytes)
        loop = Path(_set_up(content))
        disk = Disk(content, loop, self.dirs.dev / name)
        self.disks.append(disk)
        os.mknod(disk.node, 0o600 | 0o060000, loop.stat().st_rdev)
        return disk

    def an_nvme_disk(self, volume_id: str = VOLUME, *, name: str = "nvme1n1") -> Disk:
        """A disk as EBS has them on Nitro: serial and link."""
        disk = self.a_disk(name)
        self.give_serial(disk, volume_id.replace("-", ""))
        self.link(volume_id, name)
        return disk

    def give_serial(self, disk: Disk, serial: str) -> None:
        at = self.dirs.sys / "dev" / "block" / disk.number / "device"
        at.mkdir(parents=True, exist_ok=True)
        (at / "serial").write_text(f"{serial}\n")

    def link(self, volume_id: str, name: str) -> Path:
        """As udev does: made under another name, then moved."""
        self.links.mkdir(parents=True, exist_ok=True)
        link = self.links / f"nvme-Amazon_Elastic_Block_Store_{volume_id.replace('-', '')}"
        made = link.with_name(".made")
        made.symlink_to(f"../../{name}")
        made.rename(link)
        return link


class Consents(RealConsents):
    """What the persistent volume of each volume says; and how often it was asked."""

    def __init__(self) -> None:
        self.value: str | None = None
        self.asked = 0

    async def of(self, _: str) -> Consent:
        self.asked += 1
        return Consent("pv-1", self.value)


def _set_up(content: Path) -> str:
    for _ in range(10):  # somebody else's losetup may take the one that was free
        ended = subprocess.run(
            ["losetup", "-f", "--show", content],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        if ended.returncode == 0:
            return ended.stdout.strip()
    pytest.fail(f"no loop device: {ended.stderr}")


def checksum_of(path: Path) -> str:
    """Of all bytes of a file; its holes are not read."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        os.fsync(file.fileno())
        end = 0
        while True:
            try:
                begin = os.lseek(file.fileno(), end, os.SEEK_DATA)
            except OSError:  # ENXIO: no more data
                return digest.hexdigest()
            end = os.lseek(file.fileno(), begin, os.SEEK_HOLE)
            file.seek(begin)
            for at in range(begin, end, _BLOCK_BYTES):
                block = file.read(min(_BLOCK_BYTES, end - at))
                if any(block):  # what is a hole and what are zeros may change by itself
                    digest.update(f"{at} ".encode() + block)
