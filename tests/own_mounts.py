"""A mount namespace for each process that runs tests: what one mounts, no other one's nodes copy.

A namespace begins as a copy of its maker's, whose file systems then live on in it: what a test has
unmounted would stay in use for as long as a real node runs that was started meanwhile.
"""

import os
from contextlib import suppress

from provisioner.sandbox.real_node import syscalls


def enter() -> None:
    """Give the calling thread, and what it starts from now on, mounts of its own, where that works.

    What the machine mounts and unmounts is seen, the other way round nothing is.
    """
    if os.geteuid() != 0:
        return
    with suppress(OSError, AttributeError):  # no CAP_SYS_ADMIN; no Linux
        syscalls.unshare(syscalls.CLONE_NEWNS)
        syscalls.mount("none", "/", "", syscalls.MS_REC | syscalls.MS_SLAVE)
