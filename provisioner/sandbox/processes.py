"""Child processes that never outlive us.

The kernel sends SIGKILL to a child when the *thread* that started it ends (prctl PR_SET_PDEATHSIG),
so start children on a thread that lives as long as they shall: the main thread, or an event loop's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

_WRAPPER = (
    "import ctypes,os,sys;"
    # 1 is PR_SET_PDEATHSIG, 9 SIGKILL. The parent may have died before this line ran, hence the
    # look at who our parent is now.
    "ctypes.CDLL(None).prctl(1,9,0,0,0);"
    "os.getppid()==int(sys.argv[1]) or os._exit(1);"
    "os.execvp(sys.argv[2],sys.argv[2:])"
)


def dying_with_us(argv: Sequence[str]) -> list[str]:
    """Return a command that becomes ``argv`` and is killed when we die, even by SIGKILL.

    A tiny program that replaces itself (25 ms), because the other way, a ``preexec_fn``, runs
    Python between fork and exec, which is unsafe with threads. Linux only; elsewhere ``argv``.
    """
    if sys.platform != "linux":
        return list(argv)
    return [sys.executable, "-I", "-S", "-c", _WRAPPER, str(os.getpid()), *argv]
