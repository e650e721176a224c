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
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

_CLEAR: Final = 0x4C01
_GET_STATUS: Final = 0x4C05
_STATUS: Final = struct.Struct("=Q 224x")  # lo_device, and the rest of 232 bytes


def note_dev(folder: Path) -> None:
    """Keep the number of the node's /dev; for the agent, in its namespace."""
    _note(folder).write_text(str(Path("/dev").stat().st_dev))


def clear_loops(folder: Path) -> list[str]:
    """Clear the loop devices that a dead node has left; return their names."""
    try:
        dev = int(_note(folder).read_text())
    except (FileNotFoundError, ValueError):
        return []  # it never came to have any
    return [name for name in _loops() if _clear_if(Path("/dev", name), dev)]


def _note(folder: Path) -> Path:
    return folder / "dev-number"


def _loops() -> Iterator[str]:
    for loop in sorted(Path("/sys/block").glob("loop*/loop")):
        yield loop.parent.name


def _clear_if(path: Path, dev: int) -> bool:
    with suppress(OSError):  # it has been cleared meanwhile
        loop = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            status = bytearray(_STATUS.size)
            fcntl.ioctl(loop, _GET_STATUS, status)
            if _STATUS.unpack(status)[0] == dev:
                fcntl.ioctl(loop, _CLEAR)
                return True
        finally:
            os.close(loop)
    return False
