"""The floor of the node's bench: the bare programs that mount a volume, in the node plugin's order.

Probe, read the same places for zeros, mkfs, probe again, mount, bind; of a volume with a file
system: probe, e2fsck, mount, bind. No check of the device, no mark, no look at what became of it.
"""

import mmap
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from provisioner.node.formatting.blank_rules import stretches
from provisioner.node.formatting.file_system_rules import check_command, mkfs_command
from provisioner.node.formatting.rules import BLKID
from provisioner.node.mounting.rules import mount_options
from provisioner.node.requests import AccessMode, Capability
from provisioner.node.runtime.programs import PATH

_CHUNK_BYTES = 1024 * 1024
_NOTHING_FOUND = 2  # blkid(8)


class Floor:
    """Mounts one volume after another.

    Attributes:
        steps_s: seconds by step, of the last volume.
    """

    def __init__(self, file_system: str) -> None:
        self._file_system = file_system
        writer = AccessMode.SINGLE_NODE_WRITER
        asked = Capability(
            is_block=False, file_system=file_system, mount_flags=(), access_mode=writer
        )
        self._options = mount_options(file_system, asked)
        self.steps_s: dict[str, float] = {}

    def mount(self, device: Path, volume_id: str, folder: Path, *, is_new: bool) -> float:
        """Mount a volume and bind it to a second place, both in ``folder``; the seconds."""
        self.steps_s = {}
        began_s = time.monotonic()
        self._step("blkid", lambda: _run(*BLKID, device, allowed=_NOTHING_FOUND))
        if is_new:
            self._step("reads", lambda: _read(device, volume_id))
            self._step("mkfs", lambda: _run(*mkfs_command(self._file_system, {}, device)))
            self._step("blkid", lambda: _run(*BLKID, device))
        elif command := check_command(self._file_system, device):
            self._step("e2fsck", lambda: _run(*command))
        self._step("mount and bind", lambda: self._mount(device, folder))
        return time.monotonic() - began_s

    def _mount(self, device: Path, folder: Path) -> None:
        staging, target = folder / "staging", folder / "target"
        for each in (staging, target):
            each.mkdir(parents=True, exist_ok=True)
        options = ",".join(self._options)
        _run("mount", "-w", "-t", self._file_system, "-o", options, device, staging)
        _run("mount", "--bind", staging, target)

    def unmount(self, folder: Path) -> None:
        """Undo ``mount``."""
        _run("umount", folder / "target")
        _run("umount", folder / "staging")

    def _step(self, name: str, work: Callable[[], None]) -> None:
        began_s = time.monotonic()
        work()
        self.steps_s[name] = self.steps_s.get(name, 0.0) + time.monotonic() - began_s


def _run(*argv: str | Path, allowed: int = 0) -> None:
    executable = shutil.which(argv[0], path=PATH)
    ran = subprocess.run(argv, executable=executable, capture_output=True, check=False)
    if ran.returncode not in (0, allowed):
        words = " ".join(str(word) for word in argv)
        raise RuntimeError(f"{words}: {ran.returncode} {ran.stderr.decode()}")


def _read(device: Path, volume_id: str) -> None:
    disk = os.open(device, os.O_RDONLY | os.O_EXCL | os.O_DIRECT)
    try:
        size_bytes = os.lseek(disk, 0, os.SEEK_END)
        with mmap.mmap(-1, _CHUNK_BYTES) as chunk, memoryview(chunk) as whole:
            for place in stretches(size_bytes, volume_id):
                for offset in range(place.offset_bytes, place.end_bytes, _CHUNK_BYTES):
                    length = min(_CHUNK_BYTES, place.end_bytes - offset)
                    os.preadv(disk, [whole[:length]], offset)
    finally:
        os.close(disk)
