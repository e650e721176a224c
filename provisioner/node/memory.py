"""Less memory for a process that mostly waits: glibc's malloc is told not to keep what is free.

By itself it has an arena for each thread, of which there are many here (whatever may hang has one
of its own), and keeps ever larger blocks once they were freed. With 25 volumes this is 4 of 65 MiB.

Source: mallopt(3).
"""

import ctypes

_ARENA_MAX, _MMAP_THRESHOLD, _TRIM_THRESHOLD = -8, -3, -1
_BYTES = 128 * 1024


def keep_small() -> None:
    """Set malloc's options, before any thread is begun; nothing where libc has no such options."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # musl
        return
    mallopt(_ARENA_MAX, 1)
    mallopt(_MMAP_THRESHOLD, _BYTES)
    mallopt(_TRIM_THRESHOLD, _BYTES)
