"""The few calls of Linux that Python 3.11 has no function for."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable
from typing import Any, Final

CLONE_NEWNS: Final = 0x20000
CLONE_NEWPID: Final = 0x20000000
CLONE_NEWNET: Final = 0x40000000
MS_NOSUID: Final = 2
MS_NODEV: Final = 4
MS_NOEXEC: Final = 8
MS_BIND: Final = 0x1000
MS_REC: Final = 0x4000
MS_PRIVATE: Final = 1 << 18
MS_SLAVE: Final = 1 << 19
MS_SHARED: Final = 1 << 20
_PR_SET_PDEATHSIG: Final = 1

_MNT_DETACH: Final = 2
_AT_FDCWD: Final = -100
_AT_RECURSIVE: Final = 0x8000
_OPEN_TREE: Final = 428
_OPEN_TREE_CLONE: Final = 1
_MOVE_MOUNT: Final = 429
_MOVE_MOUNT_F_EMPTY_PATH: Final = 4
_MOUNT_SETATTR: Final = 442
_MOUNT_ATTR_RDONLY: Final = 1
_MOUNT_ATTR: Final = struct.Struct("=4Q")  # to set, to clear, propagation, user namespace
"""Source: Linux 6.1 include/uapi/linux/mount.h; the numbers are those of all architectures."""

_LIBC: Final = ctypes.CDLL(None, use_errno=True)


def unshare(flags: int) -> None:
    """Leave the namespaces of the parent; a new pid namespace is for the next child.

    Raises:
        OSError: the kernel refuses; it takes CAP_SYS_ADMIN.
    """
    _call(_LIBC.unshare, "unshare", flags)


def enter_namespace(descriptor: int, kind: int) -> None:
    """Go to a namespace; a pid namespace is for the next child.

    Raises:
        OSError: the kernel refuses; of pid namespaces it lets one enter only one's own and those
            below.
    """
    _call(_LIBC.setns, "setns", descriptor, kind)


def mount(source: str, target: str, kind: str, flags: int = 0, options: str = "") -> None:
    """Make a mount, or change how one propagates: see the manual of mount, section 2.

    Raises:
        OSError: the kernel refuses.
    """
    texts = [text.encode() for text in (source, target, kind)]
    _call(_LIBC.mount, f"mount on {target}", *texts, ctypes.c_ulong(flags), options.encode())


def clone_mounts(path: str) -> int:
    """Copy what is at a path, and all that is mounted within; a descriptor of the detached copy.

    Raises:
        OSError: the kernel refuses.
    """
    flags = _OPEN_TREE_CLONE | _AT_RECURSIVE | os.O_CLOEXEC
    return _system(_OPEN_TREE, f"open_tree of {path}", _AT_FDCWD, path.encode(), flags)


def attach_mounts(tree: int, path: str) -> None:
    """Mount at a path what ``clone_mounts`` has copied.

    Raises:
        OSError: the kernel refuses.
    """
    arguments = (tree, b"", _AT_FDCWD, path.encode(), _MOVE_MOUNT_F_EMPTY_PATH)
    _system(_MOVE_MOUNT, f"move_mount to {path}", *arguments)


def set_read_only(path: str, *, read_only: bool) -> None:
    """Change whether a mount, and all within it, can be written to.

    Raises:
        OSError: the kernel refuses.
    """
    bits = (_MOUNT_ATTR_RDONLY, 0) if read_only else (0, _MOUNT_ATTR_RDONLY)
    change = _MOUNT_ATTR.pack(*bits, 0, 0)
    arguments = (_AT_FDCWD, path.encode(), _AT_RECURSIVE, change, len(change))
    _system(_MOUNT_SETATTR, f"mount_setattr of {path}", *arguments)


def unmount_lazily(path: str) -> None:
    """Take a mount out of our sight, and all within it; it ends when nobody uses it any more.

    Raises:
        OSError: the kernel refuses; it is no mount point.
    """
    _call(_LIBC.umount2, f"umount of {path}", path.encode(), _MNT_DETACH)


def die_with_parent(signal_number: int) -> None:
    """Have the kernel send us a signal when the thread that started us ends."""
    _call(_LIBC.prctl, "prctl", _PR_SET_PDEATHSIG, ctypes.c_ulong(signal_number), 0, 0, 0)


def _system(number: int, what: str, *arguments: Any) -> int:
    words = [each if isinstance(each, bytes) else ctypes.c_long(each) for each in arguments]
    result: int = _LIBC.syscall(ctypes.c_long(number), *words)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")
    return result


def _call(function: Callable[..., int], what: str, *arguments: Any) -> None:
    if function(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
