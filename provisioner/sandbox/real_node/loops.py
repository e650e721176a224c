"""Loop devices, by the kernel's own calls: a file that is a disk.

Each one clears itself (autoclear) once nobody has it open any more. Whoever made it holds it open,
so it goes with its maker, even by SIGKILL, and with the last mount of it. Linux, as root.

Source: Linux 6.1 include/uapi/linux/loop.h.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from provisioner.sandbox.real_node import mount_tables

MAJOR: Final = 7
_CONTROL: Final = Path("/dev/loop-control")
_CTL_GET_FREE: Final = 0x4C82
_CONFIGURE: Final = 0x4C0A
_SET_CAPACITY: Final = 0x4C07
_SET_READ_ONLY: Final = 0x125D  # BLKROSET of linux/fs.h
_AUTOCLEAR: Final = 4
# struct loop_config: fd, block_size, struct loop_info64 (of which only flags and the name, which is
# what losetup shows, are not zero), 8 reserved words
_CONFIG: Final = struct.Struct("=II 5Q 4I 64s 64s 32s 2Q 8Q")
_SECTOR_BYTES: Final = 512  # of EBS volumes too
_TRIES: Final = 50
_LOOK_EVERY_S: Final = 0.01


@dataclass(slots=True)
class Loop:
    """A loop device of ours; ``number`` is both N of /dev/loopN and its minor number."""

    number: int
    file: Path
    _descriptor: int

    def grow(self) -> None:
        """Take up the size that the file has now."""
        fcntl.ioctl(self._descriptor, _SET_CAPACITY, 0)

    def release(self, patience_s: float) -> bool:
        """Let go of it; false if after ``patience_s`` somebody else still has it open.

        The kernel clears it then as soon as that one lets go of it too.
        """
        os.close(self._descriptor)
        return self.is_released(patience_s)

    def is_released(self, patience_s: float) -> bool:
        """Wait until nobody has it open; false if after ``patience_s`` somebody still has."""
        until_s = time.monotonic() + patience_s
        while self.is_bound():
            if time.monotonic() > until_s:
                return False
            time.sleep(_LOOK_EVERY_S)
        return True

    def is_bound(self) -> bool:
        """Tell whether the device still is this file's."""
        with suppress(OSError):
            shown = Path(f"/sys/block/loop{self.number}/loop/backing_file").read_text()
            return shown.rstrip("\n").removesuffix(" (deleted)") == str(self.file)
        return False

    def mounts(self) -> list[str]:
        """Tell where it is mounted, in words, in any mount namespace that has a process."""
        tables = mount_tables.all_tables()
        found = [place for table in tables for place in mount_tables.places(table, self._device)]
        return [f"mounted at {place}" for place in dict.fromkeys(found)]

    def holders(self) -> list[str]:
        """Tell who has it mounted or open, in words; for a complaint, as it reads all of /proc."""
        found = dict.fromkeys(self.mounts())
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it has ended
                found |= dict.fromkeys(_opened(process, self.number))
        return list(found)

    @property
    def _device(self) -> str:
        return f"{MAJOR}:{self.number}"


def make(file: Path) -> Loop:
    """Make a loop device of a file.

    Raises: OSError when the kernel has no loop devices, or has no more.
    """
    control = os.open(_CONTROL, os.O_RDWR | os.O_CLOEXEC)
    backing = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    try:
        for _ in range(_TRIES):
            number = fcntl.ioctl(control, _CTL_GET_FREE)
            descriptor = _open(number)
            try:
                fcntl.ioctl(descriptor, _CONFIGURE, _config(backing, file))
                # A loop device keeps it for its next user that the last one had it read-only.
                fcntl.ioctl(descriptor, _SET_READ_ONLY, struct.pack("i", 0))
            except OSError as error:
                os.close(descriptor)
                # Somebody else was quicker; EBUSY as well while one that cleared itself is going.
                if error.errno != errno.EBUSY:
                    raise
                time.sleep(_LOOK_EVERY_S)
            else:
                return Loop(number, file, descriptor)
    finally:
        os.close(backing)
        os.close(control)
    raise OSError(errno.EBUSY, "others take every loop device that is free", str(_CONTROL))


def _config(backing: int, file: Path) -> bytes:
    name = os.fsencode(file)[-63:]
    information = (*(0,) * 5, *(0, 0, 0, _AUTOCLEAR), name, b"", b"", 0, 0)
    return _CONFIG.pack(backing, _SECTOR_BYTES, *information, *(0,) * 8)


def _open(number: int) -> int:
    path = Path(f"/dev/loop{number}")
    if not path.exists():  # a /dev that is no devtmpfs
        with suppress(FileExistsError):
            os.mknod(path, stat.S_IFBLK | 0o600, os.makedev(MAJOR, number))
    return os.open(path, os.O_RDWR | os.O_CLOEXEC)


def _opened(process: Path, number: int) -> Iterator[str]:
    name = (process / "comm").read_text().strip()
    for descriptor in (process / "fd").iterdir():
        with suppress(OSError):
            seen = descriptor.stat()
            if stat.S_ISBLK(seen.st_mode) and seen.st_rdev == os.makedev(MAJOR, number):
                yield f"open in {name} ({process.name})"
