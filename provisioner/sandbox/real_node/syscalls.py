"""The few calls of Linux that Python 3.11 has no function for."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any, Final

CLONE_NEWNS: Final = 0x20000
CLONE_NEWPID: Final = 0x20000000
MS_NOSUID: Final = 2
MS_NODEV: Final = 4
MS_NOEXEC: Final = 8
MS_BIND: Final = 0x1000
MS_REC: Final = 0x4000
MS_PRIVATE: Final = 1 << 18
MS_SHARED: Final = 1 << 20
_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


def unshare(flags: int) -> None:
    """Leave the namespaces of the parent; a new pid namespace is for the next child.

    Raises:
        OSError: the kernel refuses; it takes CAP_SYS_ADMIN.
    """
    _call(_LIBC.unshare, "unshare", flags)


def mount(source: str, target: str, kind: str, flags: int = 0, options: str = "") -> None:
    """Make a mount, or change how one propagates: see the manual of mount, section 2.

    Raises:
        OSError: the kernel refuses.
    """
    texts = [text.encode() for text in (source, target, kind)]
    _call(_LIBC.mount, f"mount on {target}", *texts, ctypes.c_ulong(flags), options.encode())


def die_with_parent(signal_number: int) -> None:
    """Have the kernel send us a signal when the thread that started us ends."""
    _call(_LIBC.prctl, "prctl", _PR_SET_PDEATHSIG, ctypes.c_ulong(signal_number), 0, 0, 0)


def _call(function: Callable[..., int], what: str, *arguments: Any) -> None:
    if function(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
