"""Keep 64 threads from holding on to the memory of every long answer that they once parsed.

glibc gives each thread a heap of its own and returns little of it. Measured with 60 describes of
500 volumes: 47.7 MiB at the start, 82.5 MiB after, 62.0 MiB with two heaps (of 2,000 volumes kept
by the test itself).
"""

import ctypes

_M_ARENA_MAX = -8  # malloc.h
_ARENAS = 2


def share_heaps() -> bool:
    """Let all threads of this process share two heaps, where the C library is glibc.

    To be called before threads are started. MALLOC_ARENA_MAX in the environment does the same.

    Returns:
        whether the C library took it.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # not glibc: musl has no such heaps
        return False
    mallopt.argtypes = [ctypes.c_int, ctypes.c_int]
    mallopt.restype = ctypes.c_int
    return bool(mallopt(_M_ARENA_MAX, _ARENAS))
