"""The loop devices that a node's programs have made, which outlive every process.

A kubelet makes one of each block volume that it gives to a pod, and takes it away again if it
lives to see the pod's end. They are known by the file system of the file that they show: that is
the node's own /dev, whose device number no other file system has for as long as they keep it.
The standard library only: the agent and its keeper use it.

Source: Linux 6.1 include/uapi/linux/loop.h, struct loop_info64.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from provisioner.sandbox.real_node import mount_tables

_CLEAR: Final = 0x4C01
_GET_STATUS: Final = 0x4C05
_DEAD_WITHIN_S: Final = 5.0
_LOOK_EVERY_S: Final = 0.02
_STATUS: Final = struct.Struct("=Q 224x")  # lo_device, and the rest of 232 bytes


def dev_number() -> int:
    """Return the number of the node's /dev; for the agent, in its namespace."""
    return Path("/dev").stat().st_dev


def clear_loops(dev: int) -> list[str]:
    """Clear the loop devices that a dead node has left; return their names.

    None while the file system with the number of its /dev is mounted for anybody who lives: then
    it is another one, which got the number once the node's own was gone.
    """
    found = [name for name in _loops() if _is_of(Path("/dev", name), dev)]
    until_s = time.monotonic() + _DEAD_WITHIN_S
    while found and _is_mounted(dev):
        if time.monotonic() > until_s:
            return []
        time.sleep(_LOOK_EVERY_S)  # the last process of a node that was killed may be on its way
    return [name for name in found if _is_of(Path("/dev", name), dev, clear=True)]


def _is_mounted(dev: int) -> bool:
    device = f"{os.major(dev)}:{os.minor(dev)}"
    return any(list(mount_tables.places(table, device)) for table in mount_tables.all_tables())


def _loops() -> Iterator[str]:
    for loop in sorted(Path("/sys/block").glob("loop*/loop")):
        yield loop.parent.name


def _is_of(path: Path, dev: int, *, clear: bool = False) -> bool:
    """Tell whether a loop device is of a file of this file system; if so, clear it at will."""
    with suppress(OSError):  # it has been cleared meanwhile
        loop = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            status = bytearray(_STATUS.size)
            fcntl.ioctl(loop, _GET_STATUS, status)
            is_of = bool(_STATUS.unpack(status)[0] == dev)
            if is_of and clear:
                fcntl.ioctl(loop, _CLEAR)
            return is_of
        finally:
            os.close(loop)
    return False
