"""Look at a volume that is mounted read-only: which file system it has, and whether it can be read.

A program without a device in its container learns the UUID from the file system itself.
"""

import asyncio
import fcntl
import os
import struct
import uuid
from collections.abc import Callable
from pathlib import Path

from provisioner.model.copy_report import CheckReport, encoded
from provisioner.node.runtime import mount_table_rules

_MOUNTS = Path("/proc/self/mountinfo")
_UUID_BYTES = 16
# Of all file systems, from Linux 6.9 on: struct fsuuid2 of linux/fs.h, a length and the UUID.
_FS_IOC_GETFSUUID, _LENGTH_BYTES = 0x80111500, 1
# Of ext4, from Linux 6.0 on: struct fsuuid of linux/ext4.h, after two numbers.
_EXT4_IOC_GETFSUUID, _EXT4_HEAD = 0x8008662C, struct.pack("=II", _UUID_BYTES, 0)
# Of xfs: struct xfs_fsop_geom_v1 of xfs_fs.h, which has it after eight numbers of 4 bytes and four
# of 8 (Linux 6.18).
_XFS_IOC_FSGEOMETRY_V1, _XFS_BYTES, _XFS_AT = 0x80705864, 112, 64


async def run(path: str, report: Path) -> CheckReport:
    """Look at it, and write the report.

    Args:
        path: the root of a file system.
        report: where the report goes.
    """
    told = await asyncio.to_thread(_seen, path)
    await asyncio.to_thread(report.write_text, encoded(told))
    return told


def _seen(path: str) -> CheckReport:
    mount = mount_table_rules.at_in(path, _MOUNTS.read_bytes())
    if mount is None:
        return CheckReport(refused=f"no file system is mounted at {path}")
    try:
        list(Path(path).iterdir())
        return CheckReport(file_system=mount.file_system, uuid=uuid_of(path))
    except OSError as error:
        return CheckReport(refused=f"its root directory cannot be listed: {error.strerror}")


def uuid_of(path: str) -> str:
    """The UUID of the file system of a directory; "" if its kernel tells none.

    Raises:
        OSError: the directory cannot be opened.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for ask in (_of_any, _of_ext4, _of_xfs):
            found = _told(ask, descriptor)
            if any(found):
                return str(uuid.UUID(bytes=found))
    finally:
        os.close(descriptor)
    return ""


def _told(ask: Callable[[int], bytes], descriptor: int) -> bytes:
    try:
        return ask(descriptor)
    except OSError:  # this kernel, or this file system, does not know the question
        return b""


def _of_any(descriptor: int) -> bytes:
    answer = _answer(descriptor, _FS_IOC_GETFSUUID, bytes(_LENGTH_BYTES + _UUID_BYTES))
    return answer[_LENGTH_BYTES:] if answer[0] == _UUID_BYTES else b""


def _of_ext4(descriptor: int) -> bytes:
    asked = _EXT4_HEAD + bytes(_UUID_BYTES)
    return _answer(descriptor, _EXT4_IOC_GETFSUUID, asked)[len(_EXT4_HEAD) :]


def _of_xfs(descriptor: int) -> bytes:
    answer = _answer(descriptor, _XFS_IOC_FSGEOMETRY_V1, bytes(_XFS_BYTES))
    return answer[_XFS_AT : _XFS_AT + _UUID_BYTES]


def _answer(descriptor: int, question: int, asked: bytes) -> bytes:
    buffer = bytearray(asked)
    fcntl.ioctl(descriptor, question, buffer)
    return bytes(buffer)
